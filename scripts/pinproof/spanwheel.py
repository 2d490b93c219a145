"""The wheel of the span plugin, which is one pure module beside this library (scripts/pinproof_spans).

Its digest is known without writing it, and can stand in the key of an environment.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pinproof import purewheel
from pinproof.records import replacing

SOURCE = Path(__file__).parents[1] / "pinproof_spans"
NAME = "pinproof-spans"
VERSION = "1"
FILE = purewheel.file_name(NAME, VERSION)

_METADATA = "Summary: Times named callables inside every process of a vLLM engine\nRequires-Python: >=3.9\n"
_TEXTS = {
    "entry_points.txt": "[vllm.general_plugins]\npinproof_spans = pinproof_spans:load\n",
    "top_level.txt": "pinproof_spans\n",
}


def sha256() -> str:
    """sha256 (64 hex digits) of the wheel's bytes."""
    return hashlib.sha256(_content()).hexdigest()


def write(folder: Path) -> Path:
    """Write the wheel into a folder, whole or not at all, and return its path."""
    target = folder / FILE
    with replacing(target) as temporary:
        temporary.write_bytes(_content())
    return target


def _content() -> bytes:
    files = {f"pinproof_spans/{path.name}": path.read_bytes() for path in sorted(SOURCE.glob("*.py"))}
    return purewheel.packed(NAME, VERSION, files, _METADATA, _TEXTS)
