"""Side notes: figures that stand beside a row's decision and gate nothing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from pinproof.claims import Row, Speculative, Startup
from pinproof.decision import rounded
from pinproof.legbook import FIRST, SECOND, Legbook
from pinproof.speculation import Counts

OFF = ("output_throughput", "median_tpot", "median_ttft")  # a speculative row against itself without speculation


def of(row: Row, book: Legbook) -> dict[str, Any] | None:
    """What a kind of row tells besides; null for one that tells nothing."""
    if isinstance(row, Speculative):
        return _speculative(row, book)
    return _startup(row, book) if isinstance(row, Startup) else None


def _speculative(row: Speculative, book: Legbook) -> dict[str, Any]:
    arms = (row.numerator, row.denominator)
    return {
        "positions": {cell.id: {arm: _positions(_legs(book, cell.id, arm)) for arm in arms} for cell in row.cells},
        "over_off": {cell.id: {arm: _over_off(book, cell.id, arm) for arm in arms} for cell in row.cells},
        "engines": {arm: _first(book, arm, "engine_says") for arm in arms},
    }


def _positions(legs: list[Mapping[str, Any]]) -> list[float] | None:
    """Acceptance rates by position over all valid legs of the reps together."""
    counts = [Counts.from_record(one["speculation"]) for one in legs]
    drafts = sum(one.drafts or 0 for one in counts)
    longest = max((len(one.accepted_by_position) for one in counts), default=0)
    if not drafts or not longest:
        return None
    at = range(longest)
    return [rounded(sum(sum(one.accepted_by_position[here : here + 1]) for one in counts) / drafts) for here in at]


def _over_off(book: Legbook, cell: str, arm: str) -> dict[str, float | None]:
    """Median with speculation over median without, by metric; throughput above 1 is a gain, a latency below 1."""
    on = _legs(book, cell, arm)
    off = [one for pair in book.valid(FIRST, "off", cell) for one in pair.values() if one["id"]["arm"] == arm]
    return {name: _over(_median(on, name), _median(off, name)) for name in OFF}


def _over(on: float | None, off: float | None) -> float | None:
    return rounded(on / off) if on and off else None


def _startup(row: Startup, book: Legbook) -> dict[str, Any]:
    """The waterfall of the middle life of each arm, and what share of a start no span names."""
    return {arm: _middle(_legs(book, "start", arm)) for arm in (row.numerator, row.denominator)}


def _middle(legs: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    ordered = sorted(
        (one for one in legs if one["waterfall"]),
        key=lambda one: (one["marks"]["first_health_200"], one["id"]["index"]),
    )
    if not ordered:
        return None
    middle = ordered[(len(ordered) - 1) // 2]
    line = middle["waterfall"]["line"]
    return {
        "id": middle["id"],
        "marks": middle["marks"],
        "caches": middle["caches"]["before"],
        "graphs": middle["graphs"],
        "line": line,
        "calls": _longest(middle, lambda call: call["seconds"] or 0.0),
        "unlabelled_share": rounded(line["unlabelled"] / line["seconds"]),
        "disagreements": sorted({one["disagreement"] for one in middle["spans"].values() if one["disagreement"]}),
    }


def _longest(record: Mapping[str, Any], key: Callable[[Mapping[str, Any]], float]) -> list[dict[str, Any]]:
    """The calls of all processes, the longest first, at most twenty."""
    calls = [
        {"process": lane["process"].rsplit(" pid=", 1)[0], **call}
        for lane in record["waterfall"]["lanes"]
        for call in lane["calls"]
    ]
    return sorted(calls, key=lambda call: (-key(call), call["begin"]))[:20]


def _legs(book: Legbook, cell: str, arm: str) -> list[Mapping[str, Any]]:
    """The valid legs of an arm's reps, of both series."""
    pairs = [pair for series in (FIRST, SECOND) for pair in book.valid(series, "rep", cell)]
    return [one for pair in pairs for one in pair.values() if one["id"]["arm"] == arm]


def _median(legs: list[Mapping[str, Any]], metric: str) -> float | None:
    values = [one["metrics"][metric] for one in legs]
    return statistics.median(values) if values and None not in values else None


def _first(book: Legbook, arm: str, key: str) -> Any:
    return next((one[key] for one in book.legs if one["id"]["arm"] == arm and one["id"]["phase"] != "off"), None)
