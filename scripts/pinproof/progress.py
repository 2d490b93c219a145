"""Progress of a series, in words: which leg of how many, and about how long to the next look."""

from __future__ import annotations

from collections.abc import Callable

from pinproof import records
from pinproof.legbook import LegId

Say = Callable[[str], None]


class Progress:
    """Which leg of how many, and about how long to the next look."""

    def __init__(self, say: Say, publish: Callable[[str], None]) -> None:
        self._say, self._publish = say, publish
        self._seconds: dict[str, list[float]] = {}

    def before(self, which: LegId, wanted: int, cells: int) -> None:
        known = [value for values in self._seconds.values() for value in values]
        pairs_left = max(wanted - which.index, 1)
        left = f", about {_minutes(pairs_left * 2 * cells * sum(known) / len(known))} to go" if known else ""
        what = {"noise": "A/A pair", "rep": "rep"}.get(which.phase, "pair without speculation")
        text = f"series {which.series}: {what} {which.index + 1} of {wanted}, {which.cell}, {which.arm}{left}"
        self._say(text)
        self._publish(text)

    def after(self, record: dict) -> None:
        self._seconds.setdefault(record["id"]["cell"], []).append(record[records.PROVENANCE]["seconds"])
        for objection in record["objections"]:
            self._say(f"does not count: {objection['message']} [{objection['reason']}]")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
