"""The overview of a verdict: one line a row, failures before passes, for pages that have no room for more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pinproof import rowtables
from pinproof.markdown import table
from pinproof.measures import MEASURES

HEADS = ["row", "outcome", "nearest to its bound", "baseline", "measured", "interval", "tolerance", "reps"]
_WORST_FIRST = ("red", "failed", "inconclusive", "pass")
_NOTHING = ["-"] * 6


def ordered(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Row results, the worst first, by their names among equals."""
    return sorted(rows, key=lambda row: (_WORST_FIRST.index(row["outcome"]), row["row"]))


def counts(rows: Iterable[Mapping[str, Any]]) -> str:
    """How many rows came to which outcome, in words."""
    found = Counter(row["outcome"] for row in rows)
    told = ", ".join(f"{found[outcome]} {outcome.upper()}" for outcome in _WORST_FIRST if found[outcome])
    return f"{found.total()} {'row' if found.total() == 1 else 'rows'}: {told}."


def of(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of row results, as they come."""
    return table([line(row) for row in rows], HEADS)


def line(row: Mapping[str, Any]) -> list[Any]:
    """A row in cells under `HEADS`: the metric that is furthest from its baseline, as tolerances go."""
    outcome = row["outcome"].upper()
    reason = (row["failure"] or row["decision"] or {}).get("reason")
    outcome += f" ({reason})" if reason else ""
    if not row["decision"]:
        return [row["row"], outcome, *_NOTHING]
    found = max(rowtables.series(row)["metrics"], key=_distance)
    metric = found["metric"]
    baseline, measured, interval, tolerance, _ = rowtables.shown(found)
    where = f"{metric['cell']}, {MEASURES[metric['name']].title}"
    return [row["row"], outcome, where, baseline, measured, interval, tolerance, rowtables.reps(found)]


def _distance(found: Mapping[str, Any]) -> tuple[bool, float]:
    """What did not pass before what did, then the share of the tolerance that the mean took up."""
    look, tolerance = rowtables.last(found), found["metric"]["tolerance"]
    mean = look and look["estimate"]["mean"]
    return found["outcome"] != "pass", abs(mean) / tolerance if mean and tolerance else 0.0
