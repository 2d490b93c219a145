"""Metrics that are no ratio: points on a linear scale, and what is equal or is not."""

from __future__ import annotations

import math

import pytest

from pinproof.decision import CellSeries, decide, decide_metric
from pinproof.equivalence import Direction, MetricPlan, NoiseBand, Outcome, Plan, Scale, Side
from pinproof.reasons import Reason

TIGHT = NoiseBand(0.5, 4)  # points


def points(tolerance: float = 5.0, baseline: float = 0.0, **fields: object) -> MetricPlan:
    return MetricPlan(
        "start", "warmup_share", tolerance, baseline, None, scale=Scale.LINEAR, has_prompts=False, **fields
    )


def judged(metric: MetricPlan, values: list[float | None], noise: NoiseBand | None = TIGHT):
    return decide_metric(Plan((metric,)), metric, noise, values)


# -- points --------------------------------------------------------------------------------------


def test_a_share_that_has_not_moved_passes() -> None:
    found = judged(points(), [0.25, -0.25, 0.0])
    assert (found.outcome, found.looks[-1].estimate.mean) == (Outcome.PASS, 0.0)
    low, high = found.looks[-1].interval
    assert -5 < low < 0 < high < 5
    assert math.isclose(low, -high)


@pytest.mark.parametrize(("moved", "side"), [(-9.0, Side.BELOW), (9.0, Side.ABOVE)])
def test_a_share_that_has_moved_is_red_on_its_side(moved: float, side: Side) -> None:
    values = [moved + step for step in (-0.2, 0.0, 0.2)]
    found = judged(points(), values)
    assert (found.outcome, found.side) == (Outcome.RED, side)
    assert judged(points(direction=Direction.NO_WORSE), values).outcome is (
        Outcome.RED if side is Side.BELOW else Outcome.PASS
    )


def test_a_share_is_compared_with_its_baseline_in_points() -> None:
    assert judged(points(baseline=-4.0), [-4.1, -3.9, -4.0]).outcome is Outcome.PASS
    assert judged(points(baseline=4.0), [-4.1, -3.9, -4.0]).outcome is Outcome.RED


def test_the_margin_is_the_tolerance_itself() -> None:
    assert points(5.0).margin == 5.0
    assert points(5.0).slack(-2.0) == 3.0


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_an_unknown_share_never_passes(value: float | None) -> None:
    found = judged(points(), [0.0, 0.0, value])
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, Reason.METRIC_MISSING)


def test_the_noise_of_points_is_their_spread() -> None:
    band = NoiseBand.from_ratios([1.0, -1.0, 0.0], Scale.LINEAR)
    assert band == NoiseBand(1.0, 3)
    assert NoiseBand.from_ratios([1.0, None], Scale.LINEAR) is None


def test_too_noisy_points_are_told_in_points() -> None:
    found = judged(points(1.0), [0.0] * 3, NoiseBand(2.0, 4))
    assert (found.reason, found.needed.sentence) == (Reason.INFEASIBLE, "a tolerance of 2 points")


def test_a_leg_without_prompts_is_not_told_to_take_more_of_them() -> None:
    start = MetricPlan("start", "first_health", 0.05, 1.0, None, has_prompts=False)
    found = judged(start, [1.0] * 3, NoiseBand(0.2, 4))
    assert found.needed.prompts_factor is None
    assert "prompts" not in found.needed.sentence


# -- equal or not --------------------------------------------------------------------------------


EXACT = MetricPlan("c1", "acceptance_length", 0.0, 1.0, None, scale=Scale.EXACT)


def test_equal_in_every_rep_up_to_the_first_look_passes_without_an_a_a_band() -> None:
    assert judged(EXACT, [1.0, 1.0], None).next_look == 3
    found = judged(EXACT, [1.0, 1.0, 1.0], None)
    assert (found.outcome, found.companion) == (Outcome.PASS, "equal on both arms in 3 of 3 reps")


@pytest.mark.parametrize(("ratio", "side"), [(0.999999, Side.BELOW), (1.000001, Side.ABOVE)])
def test_one_rep_that_differs_is_red_at_once_on_either_side(ratio: float, side: Side) -> None:
    found = judged(EXACT, [1.0, ratio], None)
    assert (found.outcome, found.side, found.outside_p) == (Outcome.RED, side, 0.0)


def test_a_difference_must_recur_and_then_no_correction_takes_it_back() -> None:
    plan = Plan((EXACT,))
    cells = {"c1": CellSeries({"acceptance_length": [0.9]}, {"acceptance_length": None})}
    assert decide(plan, cells).reason is Reason.UNCONFIRMED_RED
    again = decide(plan, cells, cells)
    assert (again.confirmed, again.p) == (True, 0.0)


def test_what_is_not_known_is_not_equal() -> None:
    assert judged(EXACT, [1.0, None, 1.0], None).reason is Reason.METRIC_MISSING


@pytest.mark.parametrize(("tolerance", "baseline"), [(0.1, 1.0), (0.0, 0.9)])
def test_what_is_exact_has_no_tolerance_and_no_other_baseline(tolerance: float, baseline: float) -> None:
    with pytest.raises(ValueError, match="what is exact"):
        MetricPlan("c1", "acceptance_length", tolerance, baseline, None, scale=Scale.EXACT)
