"""Progress in words: what is waited for, which leg of how many, and about how long to the next look."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from pinproof import records
from pinproof.lease import Wait
from pinproof.legbook import LegId

T = TypeVar("T")
Say = Callable[[str], None]


def every(seconds: float, say: Callable[[T], None]) -> Callable[[T], None]:
    """Pass on a line at once, then at most once in so many seconds: progress in a log without a terminal."""
    last = -math.inf

    def tell(text: T) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            say(text)

    return tell


def waiting(say: Say) -> Callable[[Wait], None]:
    """Tell of a wait for the device, about every ten seconds."""
    return every(10, lambda wait: say(f"waiting for the device: {wait}"))


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
