"""Artifacts: where what is made of a verdict lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pinproof.layout import Layout


@dataclass(frozen=True)
class Artifacts:
    """The places of what is made of a case's verdict."""

    places: Layout

    @property
    def junit(self) -> Path:
        return self.places.folder / "junit.xml"

    @property
    def comment(self) -> Path:
        return self.places.folder / "comment.md"

    @property
    def status(self) -> Path:
        """The exit status that the last `gate` asked for."""
        return self.places.folder / "gate.status"

    def figure(self, row_id: str, kind: str) -> Path:
        return self.places.folder / "figures" / f"{row_id}-{kind}.svg"

    @property
    def webpage(self) -> Path:
        return self.places.folder / "verdict.html"

    @property
    def report(self) -> Path:
        return self.places.folder / "report.html"

    @property
    def archive(self) -> Path:
        return self.places.folder / "verdict.tar.zst"

    @property
    def attestation(self) -> Path:
        return self.places.folder / "attestation.json"

    @property
    def verdicts(self) -> Path:
        """A copy of every verdict of this case, whichever pin it was of."""
        return self.places.folder / "verdicts"

    @property
    def history(self) -> Path:
        """The page of all pins; its figure lies beside it."""
        return self.places.results / "history.md"
