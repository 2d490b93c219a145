"""The plan of a row: what it will be judged by and in which order, written before data."""

from __future__ import annotations

import random
from typing import Any

from pinproof import equivalence, layout, measures, records
from pinproof.case import Case
from pinproof.claims import Row, Serving, Warmup, baseline_of
from pinproof.equivalence import MetricPlan, Scale


def of(case: Case, row: Row) -> equivalence.Plan:
    """The plan that the decision takes: every metric of the row in every cell.

    ValueError for a warm-up row without a change to gate: statistics decide nothing there.
    """
    decision = case.decision_of(row)
    return equivalence.Plan(
        metrics=_metrics(row),
        looks=tuple(decision.looks),
        pass_budget=decision.pass_budget,
        red_budget=decision.red_budget,
        max_invalid_share=decision.max_invalid_share,
    )


def _metrics(row: Row) -> tuple[MetricPlan, ...]:
    return tuple(
        MetricPlan(
            cell=cell.id,
            name=metric.name,
            tolerance=0.0 if (exact := getattr(metric, "exact", False)) else metric.tolerance,
            baseline_ratio=baseline,
            baseline_reps=metric.baseline_reps,
            direction=equivalence.Direction(row.direction),
            scale=Scale.EXACT if exact else measures.MEASURES[metric.name].scale,
            has_prompts=isinstance(row, Serving),
        )
        for cell in row.cells
        for metric in row.metrics
        if (baseline := baseline_of(metric, cell.id)) is not None
    )


def body(case: Case, place: layout.RowPlace) -> dict[str, Any]:
    """The body of plan.json: the row's identity, what it is judged by, and the order of its legs."""
    row = place.row
    return {
        "row": row.id,
        "measured": place.key,
        "numerator": row.numerator,
        "denominator": row.denominator,
        "direction": row.direction,
        "metrics": [metric.model_dump() for metric in row.metrics],
        **_of_kind(row),
        "decision": case.decision_of(row).model_dump(),
        "first_arm": order(case, row, 0)[0],
    }


def _of_kind(row: Row) -> dict[str, Any]:
    """What else a kind of row is judged by."""
    if isinstance(row, Warmup):
        return {"callables": row.callables, "arms": list(row.judged_arms)}
    return {"discard_first": row.discard_first} if getattr(row, "discard_first", 0) else {}


def digest(case: Case, place: layout.RowPlace) -> str:
    """Content digest of the plan record that the case states now."""
    return records.content_digest(records.headed("plan", body(case, place)))


def order(case: Case, row: Row, index: int) -> tuple[str, str]:
    """The arms of rep `index` in time: serpentine (AB BA AB …), the first arm drawn from the seed."""
    arms = (row.numerator, row.denominator)
    swapped = random.Random(case.decision.order_seed).random() < 0.5  # nosec B311 # an order, not a secret
    return arms if swapped == bool(index % 2) else arms[::-1]
