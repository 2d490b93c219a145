"""Digests of large files, each read once and remembered while the file is the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pinproof import records
from pinproof.reasons import Reason, Refusal

_SETTLED_NS = 2_000_000_000  # a file younger than this may change again under the same mtime


class Digests:
    """sha256 of files, remembered in a JSON file while path, size, mtime and inode are the same."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._known: dict[str, Any] = {}
        if file is not None and file.is_file():
            try:
                known = records.read(file, "file-digests")["files"]
                self._known = {key: entry for key, entry in known.items() if len(entry) == 4}
            except (Refusal, KeyError, TypeError, AttributeError):
                self._known = {}  # a cache that cannot be read is an empty one

    def sha256(self, path: Path) -> str:
        """Digest of a file. Refusal CHECKPOINT_DAMAGED when it changes meanwhile."""
        key, before = str(path.resolve()), stamp(path)
        if self._file is not None and (entry := self._known.get(key)) and entry[:-1] == before:
            return entry[-1]
        digest = records.file_sha256(path)
        if stamp(path) != before:
            raise Refusal(Reason.CHECKPOINT_DAMAGED, "the file changed while it was read", file=path)
        if self._file is not None and time.time_ns() - before[1] > _SETTLED_NS:
            self._known[key] = [*before, digest]
            records.write(self._file, "file-digests", {"files": self._known})
        return digest


def stamp(path: Path) -> list[int]:
    """What tells without reading that a file is another: size, mtime (ns), inode."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]
