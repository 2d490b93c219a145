"""Wheels of pure Python of our own making: the same bytes on every machine, made without a build backend.

Sorted, with fixed times, and stored, since zlibs differ in what they deflate to.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import zipfile
from collections.abc import Mapping

from packaging.utils import canonicalize_name

_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: pinproof\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def file_name(name: str, version: str) -> str:
    """The file name of a wheel of pure Python (PEP 427)."""
    return f"{_stem(name, version)}-py3-none-any.whl"


def packed(name: str, version: str, files: Mapping[str, bytes], metadata: str, texts: Mapping[str, str]) -> bytes:
    """The wheel's bytes. `metadata` are the lines of METADATA after Name and Version; `texts` stand beside it."""
    info = f"{_stem(name, version)}.dist-info"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    whole = {**texts, "METADATA": head + metadata, "WHEEL": _WHEEL}
    members = {**files, **{f"{info}/{place}": text.encode() for place, text in whole.items()}}
    record = io.StringIO(newline="")
    rows = csv.writer(record, lineterminator="\n")
    rows.writerows((place, _digest(data), len(data)) for place, data in sorted(members.items()))
    rows.writerow((f"{info}/RECORD", "", ""))
    archived = io.BytesIO()
    with zipfile.ZipFile(archived, "w", zipfile.ZIP_STORED) as archive:
        for place, data in [*sorted(members.items()), (f"{info}/RECORD", record.getvalue().encode())]:
            entry = zipfile.ZipInfo(place, _FIXED_TIME)
            entry.create_system = 3
            entry.external_attr = (0o644 | stat.S_IFREG) << 16
            archive.writestr(entry, data)
    return archived.getvalue()


def _stem(name: str, version: str) -> str:
    return f"{canonicalize_name(name).replace('-', '_')}-{version}"


def _digest(data: bytes) -> str:
    return f"sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()}"
