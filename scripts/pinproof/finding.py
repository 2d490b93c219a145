"""Findings of a preflight: what was looked at, and what would clear what is in the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pinproof.reasons import Reason

State = Literal["ready", "blocks", "unknown"]
GB = 1e9


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: whether it is ready, and if not, why and what would clear it."""

    subject: str
    state: State
    text: str
    reason: Reason | None = None

    @property
    def words(self) -> str:
        """The finding for a terminal, and what would clear it."""
        clear = f" (remedy: {self.reason.remedy})" if self.reason and self.state != "ready" else ""
        return f"{self.state}: {self.subject}: {self.text}{clear}"

    def as_record(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "state": self.state,
            "text": self.text,
            "reason": self.reason.code if self.reason else None,
            "remedy": self.reason.remedy if self.reason else None,
        }
