"""The plan of a row: what it will be judged by and in which order, written before data."""

from __future__ import annotations

import random
from typing import Any

from pinproof import equivalence, layout, records
from pinproof.case import Case
from pinproof.claims import Row


def of(case: Case, row: Row) -> equivalence.Plan:
    """The plan that the decision takes: every metric of the row in every cell."""
    return equivalence.Plan(
        metrics=tuple(
            equivalence.MetricPlan(
                cell=cell.id,
                name=metric.name,
                tolerance=metric.tolerance,
                baseline_ratio=metric.baseline,
                baseline_reps=metric.baseline_reps,
                direction=equivalence.Direction(row.direction),
            )
            for cell in row.cells
            for metric in row.metrics
        ),
        looks=tuple(case.decision.looks),
        pass_budget=case.decision.pass_budget,
        red_budget=case.decision.red_budget,
        max_invalid_share=case.decision.max_invalid_share,
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
        "decision": case.decision.model_dump(),
        "first_arm": order(case, row, 0)[0],
    }


def digest(case: Case, place: layout.RowPlace) -> str:
    """Content digest of the plan record that the case states now."""
    return records.content_digest(records.headed("plan", body(case, place)))


def order(case: Case, row: Row, index: int) -> tuple[str, str]:
    """The arms of rep `index` in time: serpentine (AB BA AB …), the first arm drawn from the seed."""
    arms = (row.numerator, row.denominator)
    swapped = random.Random(case.decision.order_seed).random() < 0.5
    return arms if swapped == bool(index % 2) else arms[::-1]
