"""The plan of a row: by what and in which order, stated before data."""

from pathlib import Path
from typing import Any

import pytest
from tests.builders import places

from pinproof import plan, records
from pinproof.equivalence import Direction

CELLS = [{"concurrency": 1, "prompts": 2}, {"concurrency": 4, "prompts": 8}]


def digest(root: Path, changes: dict[str, Any] | None = None) -> str:
    found = places(root, changes)
    return plan.digest(found.case, found.row("serving"))


def order(root: Path, seed: int, reps: int) -> list[str]:
    found = places(root, {"decision.order_seed": seed})
    arms = [plan.order(found.case, found.case.rows[0], index) for index in range(reps)]
    return ["".join({"oracle": "A", "previous": "B"}[arm] for arm in pair) for pair in arms]


def test_every_metric_is_judged_in_every_cell(tmp_path: Path) -> None:
    found = places(tmp_path, {"rows[0].cells": CELLS, "rows[0].direction": "no-worse"})
    made = plan.of(found.case, found.case.rows[0])
    assert [metric.key for metric in made.metrics] == [
        ("c1", "output_throughput"),
        ("c1", "median_tpot"),
        ("c4", "output_throughput"),
        ("c4", "median_tpot"),
    ]
    assert {metric.direction for metric in made.metrics} == {Direction.NO_WORSE}
    assert (made.looks, made.pass_budget, made.red_budget, made.max_invalid_share) == ((3, 4), 0.05, 0.01, 0.25)


def test_a_published_ratio_brings_its_reps(tmp_path: Path) -> None:
    claim = {"name": "median_tpot", "tolerance": 0.1, "baseline": 1.4, "baseline_reps": 3}
    found = places(tmp_path, {"rows[0].metrics": [claim]})
    (metric,) = plan.of(found.case, found.case.rows[0]).metrics
    assert (metric.tolerance, metric.baseline_ratio, metric.baseline_reps) == (0.1, 1.4, 3)


def test_the_order_is_serpentine(tmp_path: Path) -> None:
    assert order(tmp_path, 0, 6) in (["AB", "BA"] * 3, ["BA", "AB"] * 3)


def test_the_seed_draws_which_arm_goes_first_and_nothing_else(tmp_path: Path) -> None:
    orders = {tuple(order(tmp_path, seed, 4)) for seed in range(10)}
    assert orders == {("AB", "BA", "AB", "BA"), ("BA", "AB", "BA", "AB")}
    assert order(tmp_path, 3, 4) == order(tmp_path, 3, 4)


def test_the_plan_says_which_arm_goes_first(tmp_path: Path) -> None:
    found = places(tmp_path)
    body = plan.body(found.case, found.row("serving"))
    assert body["first_arm"] == plan.order(found.case, found.case.rows[0], 0)[0]


def test_a_plan_has_the_digest_of_the_record_that_is_written_of_it(tmp_path: Path) -> None:
    found = places(tmp_path)
    place = found.row("serving")
    records.write(place.plan, "plan", plan.body(found.case, place), provenance={"pid": 7})
    assert records.content_digest(records.read(place.plan, "plan")) == plan.digest(found.case, place)


@pytest.mark.parametrize(
    "changes",
    [
        {"rows[0].metrics[0].tolerance": 0.2},
        {"rows[0].metrics": [{"name": "median_tpot", "tolerance": 0.1}]},
        {"rows[0].direction": "no-worse"},
        {"decision.looks": [3, 6]},
        {"decision.pass_budget": 0.1},
        {"decision.order_seed": 1},
        {"rows[0].recipe.input_tokens": 19},
        {"arms.oracle.engine.sha256": "c" * 64},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_plan_is_another_when_it_judges_otherwise(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert digest(tmp_path, changes) != digest(tmp_path)


@pytest.mark.parametrize("changes", [{"question": "Another?"}, {"budgets.disk_gb": 9}], ids=lambda one: next(iter(one)))
def test_what_is_not_judged_is_not_in_the_plan(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert digest(tmp_path, changes) == digest(tmp_path)
