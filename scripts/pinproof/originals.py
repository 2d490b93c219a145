"""Originals: digests of files as they were measured.

A record names another file by its digest. Of a copy in an archive that was scrubbed of secrets and
home paths, the digest that counts is that of the original, which the archive's index keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinproof import records


@dataclass(frozen=True)
class Originals:
    """What files digest to; those that are not named here are originals themselves."""

    files: Mapping[Path, str] = field(default_factory=dict)  # sha256 of the bytes
    contents: Mapping[Path, str] = field(default_factory=dict)  # content digest of the record

    def sha256(self, path: Path) -> str:
        """sha256 of a file's bytes as they were measured."""
        return self.files.get(path) or records.file_sha256(path)

    def content(self, path: Path, record: Mapping[str, Any]) -> str:
        """Content digest of a record as it was written; `record` is what the file holds here."""
        return self.contents.get(path) or records.content_digest(record)


AS_THEY_ARE = Originals()
