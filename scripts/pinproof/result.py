"""The result of a row: what its legs say, under the plan that the case states now."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from pinproof import decision, leg, plan, records
from pinproof.claims import Row
from pinproof.layout import Layout, RowPlace
from pinproof.legbook import FIRST, SECOND, Legbook, LegId
from pinproof.reasons import Reason, Refusal


def of(places: Layout, row_id: str) -> dict[str, Any]:
    """The body of a row's result; `outcome` is pass, red, inconclusive, or failed.

    Refusals: RECORD_DAMAGED when a leg is not the one that series.json names, or the client's output
    is not the one that the leg names; RECORD_MISSING without it.
    """
    place = places.row(row_id)
    series = records.read(place.series, "series")
    book = Legbook(place.legs, place.row)
    _check_legs(series, book, place)
    judged = book.decide(plan.of(places.case, place.row))
    failure = series["failure"]
    measured_plan, now = series["plan_digest"], plan.digest(places.case, place)
    return {
        "row": row_id,
        "outcome": "failed" if failure else _outcome(judged),
        "failure": failure,
        "question": _question(place.row),
        "decision": judged.as_record(),
        "absolutes": _absolutes(place.row, book),
        "reps": {cell.id: _reps(place.row, book, cell.id) for cell in place.row.cells},
        "legs": {"count": len(series["legs"]), "invalid": _invalid(book), "digest": records.digest(series["legs"])},
        "plan": {
            "measured_under": measured_plan,
            "decided_under": now,
            "changed_after_data": measured_plan and measured_plan != now,
        },
        "measured": {
            "digest": place.folder.name,
            "key": place.key,
            "versions": _versions(book),
            "devices": _devices(book),
        },
        "series_digest": records.content_digest(series),
    }


def _outcome(judged: decision.RowDecision) -> str:
    """A row whose looks are not used up has no outcome yet: not measured to the end is not a pass."""
    return "inconclusive" if judged.outcome == "continue" else str(judged.outcome)


def _check_legs(series: dict, book: Legbook, place: RowPlace) -> None:
    if book.digests() != series["legs"]:
        message = "the legs are not those that the series names"
        raise Refusal(Reason.RECORD_DAMAGED, message, file=place.legs)
    for one in book.legs:
        raw = book.path(LegId(**one["id"]), ".raw.json")
        if not raw.is_file():
            raise Refusal(Reason.RECORD_MISSING, "a leg without the output of its client", file=raw)
        if records.file_sha256(raw) != one["raw_sha256"]:
            raise Refusal(Reason.RECORD_DAMAGED, "not the output that the leg was read from", file=raw)
        if told := _contradiction(one, place.row, raw):
            raise Refusal(Reason.RECORD_DAMAGED, told, file=book.path(LegId(**one["id"]), ".json"))


def _contradiction(one: dict, row: Row, raw: Path) -> str | None:
    """What a leg says that the output of its client, or the row, does not bear out; None when all is well."""
    try:
        cell = next(cell for cell in row.cells if cell.id == one["id"]["cell"])
        asked = leg.Asked(cell.prompts, row.recipe.input_tokens, row.recipe.output_tokens)
        output = leg.read_raw(raw)
        if one["asked"] != vars(asked):
            return f"it was asked for {one['asked']}, the row asks for {vars(asked)}"
        if one["metrics"] != leg.metrics(output):
            return "its metrics are not those of its client's output"
        if one["valid"] != (not one["objections"]):
            return "valid and objections contradict each other"
        found = leg.objections(output, asked, one["counters"]) if one["valid"] else []
    except (KeyError, TypeError, StopIteration):
        return "not a whole leg of this row"
    return f"it counts although {found[0].message}" if found else None


def _question(row: Row) -> str:
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
                "unit": leg.UNITS[metric.name],
                **{arm: _median(legs, arm, metric.name) for arm in (row.numerator, row.denominator)},
            }
            for metric in row.metrics
        }
    return found


def _median(legs: list[dict], arm: str, metric: str) -> float | None:
    values = [one["metrics"][metric] for one in legs if one["id"]["arm"] == arm]
    known = [value for value in values if value is not None]
    return decision.rounded(statistics.median(known)) if known and len(known) == len(values) else None


def _reps(row: Row, book: Legbook, cell: str) -> dict[str, Any]:
    """The ratio of every valid rep, by series and metric."""
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


def _devices(book: Legbook) -> list[str]:
    """Digest of the identity of every device that legs were taken on; one, or something is wrong."""
    return sorted({one["device_digest"] for one in book.legs})


def _versions(book: Legbook) -> dict[str, list[str]]:
    """Digest of the version record that each arm's legs were taken with; one, or something is wrong."""
    found: dict[str, set[str]] = {}
    for one in book.legs:
        found.setdefault(one["id"]["arm"], set()).add(one["version_digest"])
    return {arm: sorted(digests) for arm, digests in sorted(found.items())}
