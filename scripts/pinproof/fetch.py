"""Taking a released wheel from a package index, by version and digest."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from pinproof import commands, layout, records, wheel
from pinproof.engines import IndexEngine
from pinproof.reasons import Reason, Refusal


def fetch(engine: IndexEngine, folder: Path, *, log: Path) -> Path:
    """Download the wheel of an engine in mode `index` into `folder` and return its path.

    pip does the download, so that the user's own index settings hold; where a wheelhouse is named,
    it alone is looked into. Refusals:
    WHEEL_UNAVAILABLE when no index serves it, WHEEL_DIGEST when the index serves other bytes, and
    what `wheel.verify` finds.
    """
    for old in folder.glob("*.whl"):
        if records.file_sha256(old) == engine.sha256:
            return old
    partial = folder / ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    name = f"{engine.distribution}=={engine.version}"
    house = layout.wheelhouse()
    source = ["--no-index", "--find-links", house] if house else []
    download = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", *source]
    finished = commands.run([*download, "--dest", partial, name], log=log)
    found = list(partial.glob("*.whl"))
    if finished.status != 0 or len(found) != 1:
        raise Refusal(Reason.WHEEL_UNAVAILABLE, f"pip {finished.ended} for {name}:\n{finished.tail}", file=log)
    wheel.verify(found[0], sha256=engine.sha256)
    final = folder / found[0].name
    found[0].replace(final)
    shutil.rmtree(partial)
    return final
