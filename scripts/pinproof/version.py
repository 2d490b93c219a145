"""Reading an installed engine's versions: a child in the engine's own interpreter, from `/`.

The pipeline never imports the engine. The child (children/read_version.py) runs isolated, so that
neither a working directory nor a PYTHONPATH can shadow what is installed.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from pinproof import commands
from pinproof.reasons import Reason, Refusal

PROGRAM = Path(__file__).parent / "children" / "read_version.py"
# What the loader and the locale need; nothing that could change what is imported.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME")


def read(python: Path, *, log: Path) -> dict[str, Any]:
    """The body of a version record, read by the interpreter `python`.

    Refusal IDENTITY_UNKNOWN when the reader wrote nothing at all; a single field that could not be
    read is null in the record, with its error beside it.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "version.json"
        finished = commands.run(
            [python.absolute(), "-I", "-P", PROGRAM, output], log=log, env=_environment(), cwd=Path("/")
        )
        try:
            body = json.loads(output.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            message = f"the version reader {finished.ended} and wrote nothing:\n{finished.tail}"
            raise Refusal(Reason.IDENTITY_UNKNOWN, message, file=log) from None
    body["import_failures"] = sorted({*body.get("import_failures", ()), *import_failures(finished.output)})
    return body


def import_failures(output: str) -> list[str]:
    """The lines of the reader's output which say that a compiled extension could not be imported."""
    return [line.strip() for line in output.splitlines() if re.search(r"Failed to import from vllm\._", line)]


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
