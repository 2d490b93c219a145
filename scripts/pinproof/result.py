"""The result of a row: what its legs say, under the plan that the case states now."""

from __future__ import annotations

import statistics
from typing import Any

from pinproof import clocks, decision, evidence, measures, outcomes, plan, records, sidenotes
from pinproof.claims import Row, Warmup
from pinproof.layout import Layout
from pinproof.legbook import FIRST, SECOND, Legbook
from pinproof.reasons import Owner, Reason, Refusal


def of(places: Layout, row_id: str) -> dict[str, Any]:
    """The body of a row's result, as `judge` gives it."""
    return judge(places, row_id)[0]


def judge(places: Layout, row_id: str) -> tuple[dict[str, Any], decision.RowDecision | None]:
    """The body of a row's result and the decision in it; `outcome` is pass, red, inconclusive, or failed.

    `decision` is null for a warm-up row that gates no change: its outcomes alone are judged.
    Refusals: RECORD_DAMAGED when a leg is not the one that series.json names, or the client's output
    is not the one that the leg names; RECORD_MISSING without it.
    """
    place = places.row(row_id)
    series = records.read(place.series, "series")
    book = Legbook(place.legs, place.row, places.originals)
    if book.digests() != series["legs"]:
        message = "the legs are not those that the series names"
        raise Refusal(Reason.RECORD_DAMAGED, message, file=place.legs)
    evidence.check(place.lives, book)
    judged = book.decide(plan.of(places.case, place.row)) if place.row.metrics else None
    warmed = _warmed(place.row, book)
    failure = series["failure"]
    measured_plan = series["plan_digest"] if place.row is place.lives else series["warmup_plans"].get(row_id)
    now = plan.digest(places.case, place)
    body = {
        "row": row_id,
        "kind": place.row.kind,
        "outcome": _outcome(judged, warmed, failure),
        "failure": failure,
        "question": _question(place.row),
        "decision": judged and judged.as_record(),
        "warmup": warmed,
        "beside": sidenotes.of(place.row, book),
        "absolutes": _absolutes(place.row, book),
        "reps": {cell.id: _reps(place.row, book, cell.id) for cell in place.row.cells},
        "legs": {
            "count": len(series["legs"]),
            "invalid": _invalid(book),
            "discarded": _discarded(place.row, book),
            "digest": records.digest(series["legs"]),
        },
        "plan": {
            "measured_under": measured_plan,
            "decided_under": now,
            "changed_after_data": measured_plan != now if measured_plan or series["legs"] else None,
        },
        "measured": {
            "digest": place.folder.name,
            "key": place.key,
            "versions": _versions(book),
            "devices": _devices(book),
        },
        "series_digest": places.originals.content(place.series, series),
        **({"clocks": seen} if (seen := clocks.of_legs(book.legs)) else {}),
    }
    return body, judged


def _outcome(judged: decision.RowDecision | None, warmed: dict[str, Any] | None, failure: dict | None) -> str:
    """A row whose looks are not used up has no outcome yet: not measured to the end is not a pass.

    Of a warm-up row's outcomes and its statistics the worse one counts; a start that failed because a
    callable did is what the row is about.
    """
    gates = warmed["gates"] if warmed else []
    if any(gate["passed"] is False and Reason.from_code(gate["reason"]).owner is Owner.TARGET for gate in gates):
        return "red"
    if failure:
        return "failed"
    if any(gate["passed"] is not True for gate in gates):
        return "inconclusive"
    if judged is None:
        return "pass"
    return "inconclusive" if judged.outcome == "continue" else str(judged.outcome)


def _warmed(row: Row, book: Legbook) -> dict[str, Any] | None:
    """What became of the callables of a warm-up row in every life, and the hard gates of that."""
    if not isinstance(row, Warmup):
        return None
    table = outcomes.table(row, book.legs)
    return {"outcomes": table, "gates": [gate.as_record() for gate in outcomes.gates(row, table)]}


def _question(row: Row) -> str:
    if isinstance(row, Warmup):
        arms = " and ".join(row.judged_arms)
        asked = f"Did {', '.join(row.callables)} succeed in every life of {arms}"
        return f"{asked}{', and is their share of start-up the same, within the tolerance' if row.change else ''}?"
    side = "not worse than" if row.direction == "no-worse" else "the same as"
    return f"Is {row.numerator} {side} {row.denominator}, within the tolerance, in every cell and metric?"


def _absolutes(row: Row, book: Legbook) -> dict[str, Any]:
    """Medians over the valid legs of the reps, by cell, metric and arm, with the number of legs."""
    found: dict[str, Any] = {}
    for cell in row.cells:
        legs = [
            one for series in (FIRST, SECOND) for pair in book.valid(series, "rep", cell.id) for one in pair.values()
        ]
        found[cell.id] = {
            metric.name: {
                "unit": measures.MEASURES[metric.name].unit,
                **{
                    arm: _median([book.value(one, metric.name) for one in legs if one["id"]["arm"] == arm])
                    for arm in (row.numerator, row.denominator)
                },
            }
            for metric in row.metrics
        }
    return found


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return decision.rounded(statistics.median(known)) if known and len(known) == len(values) else None


def _reps(row: Row, book: Legbook, cell: str) -> dict[str, Any]:
    """The ratio (the points, for a share) of every valid rep, by series and metric."""
    return {
        str(series): {
            metric.name: [value and decision.rounded(value) for value in book.ratios(series, cell, metric.name)]
            for metric in row.metrics
        }
        for series in (FIRST, SECOND)
        if book.has(series)
    }


def _invalid(book: Legbook) -> list[dict[str, Any]]:
    return [{"id": one["id"], "objections": one["objections"]} for one in book.legs if not one["valid"]]


def _discarded(row: Row, book: Legbook) -> list[dict[str, Any]]:
    """The legs that the row's recipe discards: they were run first, and are shown and not counted."""
    return [
        {"id": one["id"], "metrics": one["metrics"]}
        for series in (FIRST, SECOND)
        for phase in ("noise", "rep")
        for cell in row.cells
        for pair in book.discarded(series, phase, cell.id)
        for one in pair.values()
    ]


def _devices(book: Legbook) -> list[str]:
    """Digest of the identity of every device that legs were taken on; one, or something is wrong."""
    return sorted({one["device_digest"] for one in book.legs})


def _versions(book: Legbook) -> dict[str, list[str]]:
    """Digest of the version record that each arm's legs were taken with; one, or something is wrong."""
    found: dict[str, set[str]] = {}
    for one in book.legs:
        found.setdefault(one["id"]["arm"], set()).add(one["version_digest"])
    return {arm: sorted(digests) for arm, digests in sorted(found.items())}
