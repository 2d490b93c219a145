"""Outcomes of a warm-up row: what became of its callables in every life, and what share of a start they took.

A leg of a start-up row holds, for every named span, its outcome and the intervals of its calls in
seconds since the spawn. Whether a callable succeeded is a hard gate without statistics; only a
failure of the oracle that recurs in a second life, and in no life went well, speaks against the pin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinproof.case import ORACLE
from pinproof.claims import Warmup
from pinproof.reasons import Reason

SUCCEEDED, FAILED, UNKNOWN = "succeeded", "failed", "unknown"
RECURRED = 2  # lives that must have failed
_UNSEEN = {"outcome": UNKNOWN, "seconds": None, "exception": None, "why": "not watched"}


@dataclass(frozen=True)
class Gate:
    """Whether one callable succeeded on one arm; None: it is not known."""

    arm: str
    callable: str
    passed: bool | None
    reason: Reason | None
    text: str

    @property
    def subject(self) -> str:
        return f"{self.callable} of {self.arm}"

    def as_record(self) -> dict[str, Any]:
        reason = self.reason and self.reason.code
        return {"arm": self.arm, "callable": self.callable, "passed": self.passed, "reason": reason, "text": self.text}


def share(record: Mapping[str, Any], callables: Sequence[str]) -> float | None:
    """Percentage points of a start, spawn to the first /health 200, that the callables took together.

    Calls that overlap, in one process or in several, count once. None when a mark, an outcome or the time
    of a call is unknown.
    """
    start, spans = record["marks"]["first_health_200"], record["spans"]
    if not start or spans is None:
        return None
    found = [spans.get(name) for name in callables]
    if any(one is None or one["outcome"] == UNKNOWN or one["summed_calls"] for one in found):
        return None
    return 100 * covered([tuple(each) for one in found for each in one["intervals"]], start) / start


def covered(intervals: Sequence[tuple[float, float]], end: float) -> float:
    """Seconds before `end` that lie in at least one interval."""
    total = reached = 0.0
    for begin, last in sorted(intervals):
        total += max(0.0, min(last, end) - max(begin, reached))
        reached = max(reached, last)
    return total


def table(row: Warmup, legs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By arm and callable: lives by outcome, and the seconds of each life that told them, in order."""
    return {
        arm: {
            name: {
                "lives": dict(sorted(Counter(_outcome(one, name) for one in _of(arm, legs)).items())),
                "seconds": [_seconds(one, name) for one in _of(arm, legs)],
                "exceptions": sorted({text for one in _of(arm, legs) if (text := _span(one, name)["exception"])}),
                "whys": sorted({text for one in _of(arm, legs) if (text := _why(one, name))}),
            }
            for name in row.callables
        }
        for arm in (row.numerator, row.denominator)
    }


def gates(row: Warmup, found: Mapping[str, Any]) -> Iterator[Gate]:
    """The hard gates of a table of outcomes."""
    for arm in row.judged_arms:
        for name in row.callables:
            passed, reason, text = _judge(found[arm][name])
            if reason is Reason.WARMUP_FAILED and arm != ORACLE:
                reason = Reason.REFERENCE_FAILED
            yield Gate(arm, name, passed, reason, text)


def _judge(one: Mapping[str, Any]) -> tuple[bool | None, Reason | None, str]:
    lives = one["lives"]
    text = ", ".join(f"{outcome} in {number}" for outcome, number in lives.items()) or "no life"
    if set(lives) == {SUCCEEDED}:
        return True, None, text
    said = f"{text}: {'; '.join(one['exceptions'])}" if one["exceptions"] else text
    if lives.get(FAILED, 0) >= RECURRED and SUCCEEDED not in lives:
        return False, Reason.WARMUP_FAILED, said
    if lives.get(FAILED):
        return None, Reason.WARMUP_UNCONFIRMED, said
    if lives and UNKNOWN not in lives:
        return None, Reason.WARMUP_DID_NOT_RUN, said
    return None, Reason.WARMUP_UNKNOWN, said


def _of(arm: str, legs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in legs if one["id"]["arm"] == arm]


def _span(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return (record["spans"] or {}).get(name) or _UNSEEN


def _outcome(record: Mapping[str, Any], name: str) -> str:
    return _span(record, name)["outcome"]


def _seconds(record: Mapping[str, Any], name: str) -> float | None:
    return _span(record, name)["seconds"]


def _why(record: Mapping[str, Any], name: str) -> str | None:
    """Why a callable did not succeed in a life."""
    span = _span(record, name)
    return None if span["outcome"] == SUCCEEDED else span["why"]
