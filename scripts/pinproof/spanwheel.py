"""The wheel of the span plugin: the same bytes on every machine, made without a build backend.

The plugin is one pure module beside this library (scripts/pinproof_spans), so its wheel is that
module, four texts and an archive: sorted, with fixed times, and stored, since zlibs differ in what
they deflate to. Its digest is known without writing it, and can stand in the key of an environment.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import zipfile
from pathlib import Path

from pinproof.records import replacing

SOURCE = Path(__file__).parents[1] / "pinproof_spans"
NAME = "pinproof-spans"
VERSION = "1"
FILE = f"pinproof_spans-{VERSION}-py3-none-any.whl"

_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
_INFO = f"pinproof_spans-{VERSION}.dist-info"
_TEXTS = {
    "METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n"
    "Summary: Times named callables inside every process of a vLLM engine\nRequires-Python: >=3.9\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: pinproof\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
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
    members = {f"pinproof_spans/{path.name}": path.read_bytes() for path in sorted(SOURCE.glob("*.py"))}
    members |= {f"{_INFO}/{name}": text.encode() for name, text in _TEXTS.items()}
    record = io.StringIO(newline="")
    rows = csv.writer(record, lineterminator="\n")
    rows.writerows((name, _digest(data), len(data)) for name, data in sorted(members.items()))
    rows.writerow((f"{_INFO}/RECORD", "", ""))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, data in [*sorted(members.items()), (f"{_INFO}/RECORD", record.getvalue().encode())]:
            entry = zipfile.ZipInfo(name, _FIXED_TIME)
            entry.create_system = 3
            entry.external_attr = (0o644 | stat.S_IFREG) << 16
            archive.writestr(entry, data)
    return packed.getvalue()


def _digest(data: bytes) -> str:
    return f"sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()}"
