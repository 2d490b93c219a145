"""Which binaries of a named wheel a precompiled build really took: member by member, by the wheels' RECORDs."""

from __future__ import annotations

import csv
import io
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

from pinproof import wheel


@dataclass(frozen=True)
class Taken:
    """The wheel that was named, and its compiled members: taken into the built wheel, or left.

    `own` are compiled members of the built wheel that the named one does not have with these bytes.
    """

    file: str
    sha256: str
    name: str
    version: str
    commit_id: str | None
    copied: tuple[str, ...]
    left: tuple[str, ...]
    own: tuple[str, ...]

    @property
    def said(self) -> str:
        """In words; a machine whose variant of an extension was left cannot be served by this wheel."""
        text = f"{len(self.copied)} compiled files taken from {self.file} (sha256 {self.sha256})"
        left = f"; left: {', '.join(self.left)}: a machine that wants one of them cannot be served" if self.left else ""
        own = f"; not from it: {', '.join(self.own)}" if self.own else ""
        return text + left + own

    def as_record(self) -> dict:
        """What was taken, as JSON values."""
        return {**asdict(self), "said": self.said}


def taken(built: Path, named: Path) -> Taken:
    """Compare a built wheel with the wheel that its binaries were to come from."""
    facts = wheel.inspect(named)
    theirs = {one.path for one in facts.extensions} | _programs(named)
    ours = {one.path for one in wheel.inspect(built).extensions} | _programs(built)
    there, here = _digests(named), _digests(built)
    copied = {path for path in theirs if here.get(path) == there[path]}
    return Taken(
        file=named.name,
        sha256=facts.sha256,
        name=facts.name,
        version=facts.version,
        commit_id=facts.commit_id,
        copied=tuple(sorted(copied)),
        left=tuple(sorted(theirs - copied)),
        own=tuple(sorted(ours - copied)),
    )


def _digests(path: Path) -> dict[str, str]:
    """The digest that RECORD gives every file of a wheel."""
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        rows = csv.reader(io.StringIO(archive.read(name).decode(), newline=""))
        return {row[0]: row[1] for row in rows if row}


def _programs(path: Path) -> set[str]:
    """Members that are ELF programs without the name of an extension, such as vllm/vllm-rs."""
    found = set()
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.external_attr >> 16 & 0o111 and "." not in member.filename.rsplit("/", 1)[-1]:
                with archive.open(member) as stream:
                    if stream.read(4) == b"\x7fELF":
                        found.add(member.filename)
    return found
