"""The decision rule, a test a sentence: shown inside, shown outside, or not known."""

from __future__ import annotations

import dataclasses
import json
import math
import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_paired

from pinproof.boundaries import Spending, nominal_p, spent
from pinproof.decision import (
    CellSeries,
    HardGate,
    Verdict,
    as_value,
    combine_series,
    decide,
    decide_metric,
    decide_pin,
    decide_series,
    holm,
    rounded,
)
from pinproof.equivalence import Direction, MetricPlan, NoiseBand, Outcome, Plan, Side, noise_share, spending_for
from pinproof.reasons import Owner, Reason

PASS, RED, INCONCLUSIVE, CONTINUE = Outcome.PASS, Outcome.RED, Outcome.INCONCLUSIVE, Outcome.CONTINUE
QUIET = NoiseBand(0.005, 8)  # a quarter of the tolerance: Pocock-type spending
NO_FLOOR = NoiseBand(0.0, 8)  # the own variance is never below this


def metric(name="throughput", **fields):
    exact = {"cell": "c1", "tolerance": 0.02, "baseline_ratio": 1.0, "baseline_reps": None}
    return MetricPlan(name=name, **{**exact, **fields})


def plan(*metrics, **fields):
    return Plan(metrics or (metric(),), **fields)


def ratios(n, shift=0.0, sd=0.004, baseline=1.0):
    """n ratios whose logarithms have exactly this mean shift from the baseline and this standard deviation."""
    steps = [i - (n - 1) / 2 for i in range(n)]
    unit = math.sqrt(sum(step**2 for step in steps) / (n - 1))
    return [baseline * math.exp(shift + sd * step / unit) for step in steps]


def judge(values, noise=QUIET, one=None, **fields):
    one = one or metric()
    return decide_metric(plan(one, **fields), one, noise, values)


INSIDE, BELOW, ABOVE = ratios(3), ratios(3, -0.1), ratios(3, 0.1)
OPEN = ratios(3, 0.015)  # inside, but too near the margin for three reps


# --- the tests of one look


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(3, 12), shift=st.floats(-0.05, 0.05))
def test_at_a_fixed_n_without_floor_it_is_the_paired_equivalence_test(seed, n, shift):
    draw = random.Random(seed)
    ours = [draw.gauss(shift, 0.02) for _ in range(n)]
    theirs = [draw.gauss(0, 0.02) for _ in range(n)]
    values = [math.exp(a - b) for a, b in zip(ours, theirs, strict=True)]
    decision = judge(values, NO_FLOOR, looks=(n,))
    margin = math.log(1.02)
    expected = ttost_paired(np.array(ours), np.array(theirs), -margin, margin)[0]
    assert decision.looks[0].pass_p == pytest.approx(expected, rel=1e-6)
    assert (decision.outcome is PASS) == (expected < 0.05)


def test_red_is_the_one_sided_test_of_a_shift_beyond_the_margin():
    values = ratios(5, -0.04, 0.01)
    look = judge(values, NO_FLOOR, looks=(5,)).looks[0]
    beyond = stats.ttest_1samp([math.log(value) for value in values], -math.log(1.02), alternative="less")
    assert look.red_p == pytest.approx(beyond.pvalue)
    assert look.outcome is RED


def test_x_is_the_logarithm_of_measured_over_baseline():
    look = judge(ratios(3, 0.007, baseline=1.6), one=metric(baseline_ratio=1.6)).looks[0]
    assert look.estimate.mean == pytest.approx(0.007)


def test_the_margin_is_the_logarithm_of_one_plus_the_tolerance():
    assert metric(tolerance=0.02).margin == pytest.approx(math.log(1.02))
    assert judge(ratios(3, 0.007)).looks[0].estimate.slack == pytest.approx(math.log(1.02) - 0.007)


@pytest.mark.parametrize(("values", "outcome"), [(INSIDE, PASS), (BELOW, RED), (ABOVE, RED), (OPEN, CONTINUE)])
def test_three_reps_show_inside_or_outside_or_ask_for_more(values, outcome):
    assert judge(values).outcome is outcome


def test_the_first_look_is_at_the_first_planned_n():
    decision = judge(ratios(2))
    assert (decision.outcome, decision.looks, decision.next_look) == (CONTINUE, (), 3)


def test_an_undecided_look_names_the_next():
    assert judge(OPEN).next_look == 4


def test_reps_between_looks_wait_for_the_next_look():
    decision = judge([1.0, 1.02, 1.01, 1.03, 1.0])
    assert [look.n for look in decision.looks] == [3, 4]
    assert decision.next_look == 6


def test_reps_beyond_the_planned_end_are_not_looked_at():
    on_the_margin = ratios(12, math.log(1.02), 0.012)
    decision = judge(on_the_margin + [1.0] * 50, looks=(12,))
    assert (decision.outcome, decision.looks[-1].n, decision.reps) == (INCONCLUSIVE, 12, 62)


def test_a_metric_that_has_passed_stays_passed():
    decision = judge(INSIDE + [0.5] * 9)
    assert (decision.outcome, decision.looks[-1].n) == (PASS, 3)


def test_a_metric_that_was_red_stays_red():
    assert judge(BELOW + [1.0] * 9).outcome is RED


def test_the_end_without_a_verdict_is_inconclusive_for_noise():
    decision = judge([1.001, 1.031, 1.016] * 4, NoiseBand(0.0125, 8))
    assert (decision.outcome, decision.reason, decision.looks[-1].n) == (INCONCLUSIVE, Reason.NOISE, 12)


def test_reps_without_any_spread_are_judged_by_where_they_lie():
    assert judge([1.01] * 3, NO_FLOOR).outcome is PASS
    assert judge([1.03] * 3, NO_FLOOR).outcome is RED


def test_every_figure_of_a_look_can_be_had_by_hand():
    decision = judge(ratios(3, 0.001, 0.01), NoiseBand(0.005, 8))
    look, now = decision.looks[0], decision.looks[0].estimate
    assert (now.n, now.df) == (3, 2)
    assert now.mean == pytest.approx(0.001)
    assert now.sd_own == now.sd_used == pytest.approx(0.01)
    assert now.standard_error == pytest.approx(0.01 / math.sqrt(3))
    assert look.pass_boundary == pytest.approx(0.01787, abs=5e-6)
    assert look.red_boundary == pytest.approx(0.00357, abs=5e-6)
    half = stats.t.isf(look.pass_boundary, 2) * 0.01 / math.sqrt(3)
    assert look.interval == pytest.approx((math.exp(0.001 - half), math.exp(0.001 + half)))
    assert decision.noise_share == pytest.approx(0.25)
    assert decision.spending is Spending.POCOCK


samples = st.lists(st.floats(0.9, 1.1), min_size=3, max_size=12)


@settings(max_examples=60, deadline=None)
@given(values=samples, sd=st.floats(0, 0.02), reps=st.sampled_from([None, 3, 30]))
def test_the_intervals_say_what_the_tests_say(values, sd, reps):
    for look in judge(values, NoiseBand(sd, 8), metric(baseline_reps=reps)).looks:
        assume(abs(look.pass_p / look.pass_boundary - 1) > 1e-6 and abs(look.red_p / look.red_boundary - 1) > 1e-6)
        low, high = look.interval
        assert (look.outcome is PASS) == (low > 1 / 1.02 and high < 1.02)
        low, high = look.red_interval
        assert (look.outcome is RED) == (high < 1 / 1.02 or low > 1.02)


# --- the direction


def test_two_sided_a_faster_oracle_is_red_too():
    decision = judge(ABOVE)
    assert (decision.outcome, decision.side) == (RED, Side.ABOVE)


def test_no_worse_passes_whatever_is_better():
    assert judge(ABOVE, one=metric(direction=Direction.NO_WORSE)).outcome is PASS


def test_no_worse_is_red_for_what_is_worse():
    decision = judge(BELOW, one=metric(direction=Direction.NO_WORSE))
    assert (decision.outcome, decision.side) == (RED, Side.BELOW)


def test_no_worse_needs_only_the_lower_test():
    look = judge(ratios(3, 0.015), one=metric(direction=Direction.NO_WORSE)).looks[0]
    assert look.pass_p == pytest.approx(stats.t.sf((0.015 + math.log(1.02)) / look.estimate.standard_error, 9))


# --- the variance floor


def test_an_own_variance_below_the_band_is_pooled_with_it():
    now = judge(ratios(3, sd=0.002), NoiseBand(0.008, 8)).looks[0].estimate
    assert now.df == 7 + 2
    assert now.sd_used == pytest.approx(math.sqrt((7 * 0.008**2 + 2 * 0.002**2) / 9))


def test_an_own_variance_above_the_band_stands_alone():
    now = judge(ratios(3, sd=0.009), NoiseBand(0.008, 8)).looks[0].estimate
    assert (now.df, now.sd_used) == (2, pytest.approx(0.009))


def test_three_reps_that_agree_by_luck_do_not_pass_in_a_noisy_place():
    lucky = ratios(3, 0.012, sd=0.0001)
    assert judge(lucky, NO_FLOOR).outcome is PASS
    assert judge(lucky, NoiseBand(0.01, 8)).outcome is CONTINUE


def test_a_band_is_the_standard_deviation_of_log_ratios():
    band = NoiseBand.from_ratios(ratios(8, 0.003, 0.01))
    assert (band.sd, band.pairs, band.df) == (pytest.approx(0.01), 8, 7)


@pytest.mark.parametrize("values", [[1.0, None, 1.1], [1.0], [], [1.0, math.nan]])
def test_a_band_of_unknown_pairs_is_unknown(values):
    assert NoiseBand.from_ratios(values) is None


# --- the baseline


def test_a_baseline_of_b_reps_widens_the_standard_error():
    now = judge(ratios(3, sd=0.006), one=metric(baseline_reps=6)).looks[0].estimate
    assert now.standard_error == pytest.approx(0.006 * math.sqrt(1 / 3 + 1 / 6))


def test_what_passes_against_an_exact_baseline_may_not_against_one_of_three_reps():
    values = ratios(3, 0.012)
    assert judge(values).outcome is PASS
    assert judge(values, one=metric(baseline_reps=3)).outcome is CONTINUE


# --- feasibility


@pytest.mark.parametrize(
    ("share", "kind"),
    [
        (0.3, Spending.POCOCK),
        (0.6, Spending.POCOCK),
        (math.nextafter(0.6, 1), Spending.POCOCK),  # what a division may leave of 0.6
        (0.601, Spending.OBRIEN_FLEMING),
        (1.0, Spending.OBRIEN_FLEMING),
        (1.001, None),
    ],
)
def test_noise_over_tolerance_chooses_the_spending(share, kind):
    assert spending_for(share) is kind


@pytest.mark.parametrize(("reps", "share"), [(None, 0.5), (12, 0.5 * math.sqrt(2)), (4, 1.0)])
def test_a_baseline_of_b_reps_counts_into_the_noise(reps, share):
    one = metric(baseline_reps=reps)
    assert noise_share(plan(one), one, NoiseBand(0.01, 8)) == pytest.approx(share)


def test_an_infeasible_metric_is_inconclusive_before_any_rep():
    decision = judge([], NoiseBand(0.04, 8))
    assert (decision.outcome, decision.reason) == (INCONCLUSIVE, Reason.INFEASIBLE)


def test_infeasible_says_how_many_prompts_or_which_tolerance():
    needed = judge([], NoiseBand(0.04, 8)).needed
    assert (needed.prompts_factor, needed.tolerance) == (pytest.approx(4), pytest.approx(0.04))
    assert needed.sentence == "about 4 times the prompts a leg, or a tolerance of 4 %"


def test_more_prompts_do_not_mend_what_the_baseline_lacks():
    decision = judge([], NoiseBand(0.015, 8), metric(baseline_reps=3))
    assert decision.reason is Reason.INFEASIBLE
    assert decision.needed.prompts_factor is None
    assert decision.needed.baseline_reps == math.ceil(12 / ((0.02 / 0.015) ** 2 - 1))


def test_late_spending_asks_more_of_early_looks():
    values = ratios(4, 0.0, 0.005)
    assert judge(values, NoiseBand(0.012, 8)).spending is Spending.POCOCK
    assert judge(values, NoiseBand(0.0125, 8)).spending is Spending.OBRIEN_FLEMING
    assert judge(values, NoiseBand(0.0125, 8)).looks[0].pass_boundary == pytest.approx(8.86e-5, rel=1e-3)


# --- futility


def test_a_hopeless_row_stops_early():
    decision = judge(ratios(8, 0.02, 0.06), looks=(8, 12))
    assert (decision.outcome, decision.reason) == (INCONCLUSIVE, Reason.NOISE)
    assert (decision.looks[-1].n, decision.looks[-1].futile) == (8, True)


def futile_by_hand(shift, sd, share):
    """Eight reps of twelve, own variance alone, `share` = 1/b: does a one-in-ten move reach no verdict?"""
    move, error = stats.norm.isf(0.1) * sd * math.sqrt((12 - 8) / (12 * 8)), sd * math.sqrt(1 / 12 + share)
    pass_end, red_end = (nominal_p((8, 12), budget, Spending.POCOCK)[-1] for budget in (0.05, 0.01))
    inside = max(shift - move, 0) + stats.t.isf(pass_end, 11) * error < math.log(1.02)
    outside = shift + move - stats.t.isf(red_end, 11) * error > math.log(1.02)
    return not inside and not outside


@pytest.mark.parametrize("reps", [None, 24])
def test_futile_is_when_a_lucky_move_reaches_neither_verdict(reps):
    found = set()
    for shift in (0.0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04):
        for sd in (0.01, 0.02, 0.022, 0.024, 0.026, 0.028, 0.03, 0.035, 0.04):
            look = judge(ratios(8, shift, sd), NO_FLOOR, metric(baseline_reps=reps), looks=(8, 12)).looks[0]
            by_hand = futile_by_hand(shift, sd, 0 if reps is None else 1 / reps)
            assert look.futile == (by_hand and look.outcome not in (PASS, RED)), (shift, sd)
            found.add(look.futile)
    assert found == {True, False}


def test_late_spending_never_stops_for_futility():
    decision = judge(ratios(8, 0.02, 0.06), NoiseBand(0.015, 8), looks=(8, 12))
    assert (decision.outcome, decision.next_look) == (CONTINUE, 12)


def test_inconclusive_says_how_many_reps_would_decide():
    decision = judge(ratios(12, 0.016, 0.012), NoiseBand(0.0125, 8), looks=(12,))
    assert decision.reason is Reason.NOISE
    now, n = decision.looks[-1].estimate, decision.needed.reps
    quantile = stats.t.isf(0.05, now.df)
    assert quantile * now.sd_used / math.sqrt(n) <= now.slack < quantile * now.sd_used / math.sqrt(n - 1)
    assert decision.needed.prompts_factor == pytest.approx(n / 12, abs=1 / 12)


def test_a_mean_outside_says_how_many_reps_would_show_it():
    decision = judge(ratios(12, 0.026, 0.012), looks=(12,))
    now, n = decision.looks[-1].estimate, decision.needed.reps
    quantile = stats.t.isf(0.01, now.df)
    assert quantile * now.sd_used / math.sqrt(n) <= -now.slack < quantile * now.sd_used / math.sqrt(n - 1)


def test_a_mean_on_the_margin_is_decided_by_nothing_practical():
    decision = judge([1.02, 1.02 * 1.02, 1.0] * 4, looks=(12,))
    assert decision.needed.reps is None
    assert decision.needed.sentence.startswith("nothing practical")


# --- unknown, and what changes nothing


@given(values=samples, place=st.integers(0, 11), unknown=st.sampled_from([None, math.nan, math.inf, 0.0, -1.0]))
@settings(max_examples=30, deadline=None)
def test_one_unknown_ratio_never_passes(values, place, unknown):
    values.insert(place, unknown)
    decision = judge(values)
    assert (decision.outcome, decision.reason) == (INCONCLUSIVE, Reason.METRIC_MISSING)


def test_without_a_noise_band_nothing_is_judged():
    decision = judge(INSIDE, noise=None)
    assert (decision.outcome, decision.reason) == (INCONCLUSIVE, Reason.NOT_MEASURED)


legs = st.lists(st.tuples(st.floats(50, 60), st.floats(50, 60)), min_size=3, max_size=12)


@settings(max_examples=40, deadline=None)
@given(legs=legs, power=st.integers(-20, 20))
def test_the_unit_of_the_metric_changes_nothing(legs, power):
    scaled = [(a * 2.0**power, b * 2.0**power) for a, b in legs]
    assert judge([a / b for a, b in scaled], NO_FLOOR) == judge([a / b for a, b in legs], NO_FLOOR)


def is_clear(decision):
    """No p lies so near its boundary that the last digit of a float decides."""
    return all(
        abs(look.pass_p / look.pass_boundary - 1) > 1e-6 and abs(look.red_p / look.red_boundary - 1) > 1e-6
        for look in decision.looks
    )


def same(one, other):
    """Two records, equal but for what floats leave in the last digits (also of what should be 0)."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return other == pytest.approx(one, rel=1e-6, abs=1e-12) if isinstance(one, float) else one == other


plans = st.fixed_dictionaries(
    {
        "baseline_reps": st.sampled_from([None, 3, 30]),
        "direction": st.sampled_from(list(Direction)),
        "tolerance": st.sampled_from([0.005, 0.02, 0.05]),
    }
)


@settings(max_examples=60, deadline=None)
@given(legs=legs, factor=st.floats(1e-6, 1e6), baseline=st.floats(1e-3, 1e3), fields=plans, sd=st.floats(1e-4, 0.012))
def test_scaling_legs_or_scaling_ratios_and_baseline_changes_nothing(legs, factor, baseline, fields, sd):
    noise = NoiseBand(sd, 8)
    plain = judge([a / b for a, b in legs], noise, metric(**fields))
    assume(is_clear(plain))
    in_another_unit = judge([a * factor / (b * factor) for a, b in legs], noise, metric(**fields))
    assert same(as_value(plain), as_value(in_another_unit))
    against_another = judge([a / b * baseline for a, b in legs], noise, metric(baseline_ratio=baseline, **fields))
    assert same({**as_value(plain), "metric": None}, {**as_value(against_another), "metric": None})


@settings(max_examples=60, deadline=None)
@given(legs=legs, baseline=st.floats(0.5, 2), sd=st.floats(0.001, 0.012))
def test_two_sided_swapping_the_arms_mirrors_the_decision(legs, baseline, sd):
    noise = NoiseBand(sd, 8)
    one = judge([a / b * baseline for a, b in legs], noise, metric(baseline_ratio=baseline))
    other = judge([b / a / baseline for a, b in legs], noise, metric(baseline_ratio=1 / baseline))
    assume(is_clear(one))
    mirrored = {None: None, Side.BELOW: Side.ABOVE, Side.ABOVE: Side.BELOW}
    assert (one.outcome, one.reason, mirrored[one.side]) == (other.outcome, other.reason, other.side)
    for look, mirror in zip(one.looks, other.looks, strict=True):
        assert mirror.interval == pytest.approx((1 / look.interval[1], 1 / look.interval[0]))


@settings(max_examples=40, deadline=None)
@given(values=st.lists(st.floats(0.99, 1.01), min_size=3, max_size=12), more=st.integers(1, 9))
def test_reps_added_at_the_mean_never_turn_a_pass_red(values, more):
    before = judge(values, looks=(len(values),))
    assume(before.outcome is PASS)
    at_the_mean = math.exp(before.looks[-1].estimate.mean)
    assert judge(values + [at_the_mean] * more, looks=(len(values) + more,)).outcome is PASS


@settings(max_examples=80, deadline=None)
@given(
    shifts=st.lists(st.floats(-0.4, 0.4), min_size=3, max_size=12),  # in tolerances, as the noise is
    more=st.integers(1, 12),
    fields=plans,
    noise=st.floats(0, 0.4),
    looks=st.booleans(),
)
def test_whatever_has_passed_is_not_turned_red_by_reps_at_its_mean(shifts, more, fields, noise, looks):
    """At the looks of the plan, and where all reps are looked at once."""
    noise, one = NoiseBand(noise * fields["tolerance"], 8), metric(**fields)
    values = [math.exp(shift * fields["tolerance"]) for shift in shifts]
    before = judge(values, noise, one, **({} if looks else {"looks": (len(values),)}))
    assume(before.outcome is PASS)
    added = values + [math.exp(before.looks[-1].estimate.mean)] * more
    after = judge(added, noise, one, **({} if looks else {"looks": (len(added),)}))
    assert after.outcome is not RED
    assert not looks or after.outcome is PASS


@settings(max_examples=60, deadline=None)
@given(values=samples, fields=plans, sd=st.floats(0, 0.02), draw=st.randoms(use_true_random=False))
def test_the_last_bit_of_a_ratio_changes_no_outcome_and_no_digit_that_counts(values, fields, sd, draw):
    """Two machines may differ in the last bit of a quotient or of a logarithm."""
    noise, one = NoiseBand(sd, 8), metric(**fields)
    plain = judge(values, noise, one)
    assume(is_clear(plain))
    assume(all(look.estimate.sd_own > 1e-9 for look in plain.looks))  # a spread, not a remainder of rounding
    assume(all(abs(look.estimate.sd_own / sd - 1) > 1e-9 for look in plain.looks if sd > 0))  # nor on the floor
    other = judge([math.nextafter(value, draw.choice([0, 2])) for value in values], noise, one)
    assert same(as_value(plain), as_value(other))


@settings(max_examples=20, deadline=None)
@given(values=samples, draw=st.randoms(use_true_random=False))
def test_the_order_of_reps_within_a_look_changes_nothing(values, draw):
    other = list(values)
    draw.shuffle(other)
    assert judge(other, looks=(len(values),)).looks == judge(values, looks=(len(values),)).looks


# --- a row: all metrics in all cells


def cell(invalid=0, noise=QUIET, **values):
    return CellSeries(values, dict.fromkeys(values, noise), invalid)


TWO = plan(metric("throughput"), metric("ttft"))


@pytest.mark.parametrize(
    ("throughput", "ttft", "outcome", "reason"),
    [
        (INSIDE, INSIDE, PASS, None),
        (INSIDE, BELOW, RED, Reason.UNCONFIRMED_RED),
        (OPEN, BELOW, RED, Reason.UNCONFIRMED_RED),
        (INSIDE, OPEN, CONTINUE, None),
        (INSIDE, [1.0, None, 1.0], INCONCLUSIVE, Reason.METRIC_MISSING),
        (OPEN, [1.0, None, 1.0], INCONCLUSIVE, Reason.METRIC_MISSING),
        (BELOW, [1.0, None, 1.0], RED, Reason.UNCONFIRMED_RED),
    ],
)
def test_a_row_passes_with_all_its_metrics_and_is_red_with_any(throughput, ttft, outcome, reason):
    row = decide_series(TWO, {"c1": cell(throughput=throughput, ttft=ttft)})
    assert (row.outcome, row.reason) == (outcome, reason)


def test_every_cell_of_a_row_counts():
    both = plan(metric(cell="c1"), metric(cell="c4"))
    assert decide(both, {"c1": cell(throughput=INSIDE), "c4": cell(throughput=BELOW)}).outcome is RED
    assert decide(both, {"c1": cell(throughput=INSIDE), "c4": cell(throughput=INSIDE)}).outcome is PASS


@pytest.mark.parametrize("cells", [{}, {"c1": cell(throughput=INSIDE)}])
def test_a_planned_metric_that_was_not_measured_does_not_pass(cells):
    row = decide(TWO, cells)
    assert (row.outcome, row.reason) == (INCONCLUSIVE, Reason.NOT_MEASURED)


def test_an_infeasible_metric_ends_the_row_at_once():
    series = CellSeries({"throughput": [], "ttft": []}, {"throughput": QUIET, "ttft": NoiseBand(0.03, 8)})
    row = decide(TWO, {"c1": series})
    assert (row.outcome, row.reason, row.next_look) == (INCONCLUSIVE, Reason.INFEASIBLE, None)


def test_a_noisy_metric_does_not_end_the_row_while_another_could_turn_red():
    early = dataclasses.replace(TWO, looks=(8, 12))
    noisy, near = ratios(8, 0.02, 0.06), ratios(8, 0.017)
    row = decide(early, {"c1": cell(throughput=noisy, ttft=near)})
    assert (row.outcome, row.next_look) == (CONTINUE, 12)
    row = decide(early, {"c1": cell(throughput=noisy, ttft=ratios(8))})
    assert (row.outcome, row.reason) == (INCONCLUSIVE, Reason.NOISE)


def test_a_row_says_at_which_look_each_metric_and_the_row_decided():
    late = [*OPEN, *ratios(9, 0.0)]
    row = decide_series(TWO, {"c1": cell(throughput=INSIDE, ttft=late)})
    assert [one.looks[-1].n for one in row.metrics] == [3, 6]
    assert (row.outcome, row.reps) == (PASS, 6)


def test_a_row_is_red_at_the_first_look_that_shows_it():
    late = [1.03, 1.05, 1.04, 1.05, 1.04, 1.045]
    row = decide_series(TWO, {"c1": cell(throughput=late, ttft=BELOW)})
    assert [one.looks[-1].n for one in row.metrics] == [6, 3]
    assert (row.outcome, row.reps) == (RED, 3)


def test_a_row_goes_on_to_the_nearest_look_that_one_of_its_metrics_waits_for():
    row = decide_series(TWO, {"c1": cell(throughput=[1.0, 1.02, 1.01, 1.03, 1.0], ttft=OPEN)})
    assert [one.next_look for one in row.metrics] == [6, 4]
    assert (row.outcome, row.next_look) == (CONTINUE, 4)


@pytest.mark.parametrize(
    ("valid", "invalid", "outcome"),
    [
        (3, 1, PASS),
        (3, 2, INCONCLUSIVE),
        (8, 2, PASS),
        (8, 3, INCONCLUSIVE),
        (0, 1, CONTINUE),
        (0, 2, INCONCLUSIVE),
        (12, 4, PASS),
        (12, 5, INCONCLUSIVE),
    ],
)
def test_above_a_quarter_of_invalid_reps_a_row_is_inconclusive(valid, invalid, outcome):
    row = decide(plan(), {"c1": cell(invalid, throughput=[1.0] * valid)})
    assert row.outcome is outcome
    assert (row.reason is Reason.INVALID_REPS) == (outcome is INCONCLUSIVE)


def test_between_looks_invalid_reps_are_counted_for_the_next_look():
    values = [1.0, 1.02, 1.01, 1.03, 1.0]
    row = decide_series(plan(), {"c1": cell(2, throughput=values)})
    assert (row.outcome, row.invalid_share) == (CONTINUE, {"c1": 2 / 8})


def test_too_many_invalid_reps_outweigh_a_red():
    row = decide(plan(), {"c1": cell(2, throughput=BELOW)})
    assert (row.outcome, row.reason) == (INCONCLUSIVE, Reason.INVALID_REPS)


CELLS, METRICS = ("c1", "c4"), ("throughput", "ttft")
GRID = plan(*(metric(name, cell=place) for place in CELLS for name in METRICS))


def grid(values):
    """Both cells with both metrics, four lists of ratios."""
    ours = iter(values)
    return {place: cell(**{name: next(ours) for name in METRICS}) for place in CELLS}


kinds = st.lists(st.sampled_from([INSIDE, BELOW, ABOVE, OPEN, [1.0, None, 1.0]]), min_size=4, max_size=4)


@settings(max_examples=40, deadline=None)
@given(values=kinds, draw=st.randoms(use_true_random=False))
def test_the_order_of_metrics_and_of_cells_changes_nothing(values, draw):
    plain = decide(GRID, grid(values))
    shuffled = draw.sample(GRID.metrics, 4)
    cells = dict(draw.sample(list(grid(values).items()), 2))
    other = decide(dataclasses.replace(GRID, metrics=tuple(shuffled)), cells)
    place = {one.metric.key: one for one in other.first.metrics}
    assert [place[one.key] for one in GRID.metrics] == list(plain.first.metrics)
    bare = [dataclasses.replace(row, first=None) for row in (plain, other)]
    assert bare[0] == bare[1]


def without(cells, place, name, what):
    """The cells with something of one metric in one cell unknown."""
    there = cells[place]
    if what == "cell":
        return {key: value for key, value in cells.items() if key != place}
    if what == "metric":
        there = dataclasses.replace(there, ratios={key: v for key, v in there.ratios.items() if key != name})
    elif what == "reps":
        there = dataclasses.replace(there, ratios={**there.ratios, name: []})
    elif what == "band":
        there = dataclasses.replace(there, noise={**there.noise, name: None})
    else:
        there = dataclasses.replace(there, ratios={**there.ratios, name: [*there.ratios[name][:2], what]})
    return {**cells, place: there}


@settings(max_examples=60, deadline=None)
@given(
    values=kinds,
    place=st.sampled_from(CELLS),
    name=st.sampled_from(METRICS),
    what=st.sampled_from(["cell", "metric", "reps", "band", None, math.nan, math.inf, 0.0]),
)
def test_nothing_unknown_in_a_row_ever_passes_nor_holds_a_pin(values, place, name, what):
    row = decide(GRID, without(grid(values), place, name, what))
    assert row.outcome is not PASS
    assert decide_pin({"a": GREEN, "b": row}, [GATE]).verdict is not Verdict.HOLD


# --- a RED must recur


def series(invalid=0, **values):
    chosen = plan(*(metric(name) for name in values))
    return decide_series(chosen, {"c1": cell(invalid, **values)})


@pytest.mark.parametrize(
    ("second", "outcome", "reason", "confirmed"),
    [
        (None, RED, Reason.UNCONFIRMED_RED, False),
        (series(throughput=BELOW), RED, Reason.REGRESSION, True),
        (series(throughput=INSIDE), INCONCLUSIVE, Reason.SERIES_EFFECT, False),
        (series(throughput=ABOVE), INCONCLUSIVE, Reason.SERIES_EFFECT, False),
        (series(throughput=OPEN), CONTINUE, Reason.UNCONFIRMED_RED, False),
        (series(throughput=[1.0, None, 1.0]), RED, Reason.UNCONFIRMED_RED, False),
        (series(2, throughput=BELOW), RED, Reason.UNCONFIRMED_RED, False),
        (series(2, throughput=INSIDE), RED, Reason.UNCONFIRMED_RED, False),
    ],
)
def test_a_red_is_what_its_second_series_says(second, outcome, reason, confirmed):
    row = combine_series(series(throughput=BELOW), second)
    assert (row.outcome, row.reason, row.confirmed) == (outcome, reason, confirmed)


def test_a_red_elsewhere_is_not_the_same_red():
    first = series(throughput=BELOW, ttft=INSIDE)
    row = combine_series(first, series(throughput=INSIDE, ttft=BELOW))
    assert (row.outcome, row.reason) == (INCONCLUSIVE, Reason.SERIES_EFFECT)


def test_a_red_elsewhere_does_not_end_the_second_series_before_the_first_red_is_answered():
    row = combine_series(series(throughput=BELOW, ttft=OPEN), series(throughput=OPEN, ttft=BELOW))
    assert (row.outcome, row.next_look) == (CONTINUE, 4)


def test_a_second_series_that_cannot_go_on_leaves_the_red_unconfirmed():
    second = series(throughput=OPEN, ttft=[1.0, None, 1.0])
    row = combine_series(series(throughput=BELOW, ttft=OPEN), second)
    assert (row.outcome, row.reason, row.next_look) == (RED, Reason.UNCONFIRMED_RED, None)


def test_both_series_are_kept():
    first, second = series(throughput=BELOW), series(throughput=INSIDE)
    assert (combine_series(first, second).first, combine_series(first, second).second) == (first, second)


@pytest.mark.parametrize("values", [INSIDE, OPEN, [1.0, None, 1.0]])
def test_nothing_but_a_red_is_measured_again_until_green(values):
    with pytest.raises(ValueError, match="follows a RED only"):
        combine_series(series(throughput=values), series(throughput=INSIDE))


def test_two_series_with_an_exact_baseline_are_independent():
    first, second = series(throughput=BELOW, ttft=INSIDE), series(throughput=ratios(3, -0.06), ttft=INSIDE)
    larger = max(first.metrics[0].outside_p, second.metrics[0].outside_p)
    assert combine_series(first, second).p == pytest.approx(2 * larger**2, rel=1e-9, abs=0)


def test_two_series_with_a_published_baseline_share_its_error():
    published = plan(metric(baseline_reps=8))
    cells = {"c1": cell(throughput=BELOW)}
    row = decide(published, cells, cells)
    assert row.p == row.first.metrics[0].outside_p


def test_the_p_of_a_red_counts_what_earlier_looks_have_spent():
    decision = judge([1.03, 1.05, 1.04, 1.05, 1.04, 1.045])
    last = decision.looks[-1]
    assert (decision.outcome, last.n) == (RED, 6)
    by_four, by_six = (spent(n / 12, 0.01, Spending.POCOCK) for n in (4, 6))
    assert decision.outside_p == pytest.approx(min(by_four + last.red_p, by_six))


# --- Holm over the rows


def test_holm_rejects_step_by_step():
    assert holm({"a": 0.015, "b": 0.04, "c": 0.03, "d": 0.005}, 0.05) == {"a", "d"}


@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.integers(0, 50).map(lambda value: value / 1000), min_size=1, max_size=8))
def test_holm_is_holm(values):
    expected = multipletests(values, 0.05, method="holm")[0]
    assert holm(dict(enumerate(values)), 0.05) == {index for index, hit in enumerate(expected) if hit}


def test_an_unknown_p_is_not_rejected():
    assert holm({"a": math.nan, "b": 0.001}, 0.01) == {"b"}


# --- the pin


def row(first, second=None, **fields):
    again = None if second is None else {"c1": cell(throughput=second)}
    return decide(plan(metric(**fields)), {"c1": cell(throughput=first)}, again)


GATE = HardGate("identity", True)
FAILED = HardGate("identity", False, Reason.IDENTITY_MISMATCH)
GREEN, TWICE_RED = row(INSIDE), row(BELOW, BELOW)


def test_the_pin_holds_when_every_gate_and_every_row_passes():
    decision = decide_pin({"a": GREEN, "b": GREEN}, [GATE])
    assert (decision.verdict, decision.against, decision.open) == (Verdict.HOLD, (), ())


def test_a_confirmed_red_reverts():
    decision = decide_pin({"a": GREEN, "b": TWICE_RED}, [GATE])
    assert (decision.verdict, decision.rejected) == (Verdict.REVERT, ("b",))
    assert [(cause.subject, cause.reason) for cause in decision.against] == [("b", Reason.REGRESSION)]


def test_a_hard_gate_that_the_target_failed_reverts():
    assert decide_pin({"a": GREEN}, [FAILED]).verdict is Verdict.REVERT


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason.owner is not Owner.TARGET])
def test_a_gate_that_failed_for_any_other_reason_leaves_it_undecided(reason):
    decision = decide_pin({"a": GREEN}, [GATE, HardGate("parity", False, reason)])
    assert (decision.verdict, decision.against) == (Verdict.UNDECIDED, ())
    assert [(cause.subject, cause.needs) for cause in decision.open] == [("parity", reason.remedy)]


def test_an_unknown_gate_leaves_it_undecided_whoever_is_to_blame():
    assert decide_pin({"a": GREEN}, [HardGate("parity", None, Reason.SERVER_EXITED)]).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("passed", [False, None, 1, "yes"])
def test_a_gate_that_did_not_pass_names_its_reason(passed):
    with pytest.raises(ValueError, match="names no reason"):
        HardGate("parity", passed)


@pytest.mark.parametrize(
    ("open_row", "reason", "needs"),
    [
        (None, Reason.NOT_MEASURED, "run the row"),
        (row(BELOW), Reason.UNCONFIRMED_RED, "c1/throughput: run a second series"),
        (row(BELOW, INSIDE), Reason.SERIES_EFFECT, "look at what differs between the two series"),
        (row(OPEN), Reason.NOT_MEASURED, "reps up to 4"),
        (row(BELOW, OPEN), Reason.UNCONFIRMED_RED, "reps up to 4"),
        (row([1.0, None, 1.0]), Reason.METRIC_MISSING, "c1/throughput: read the client's raw output"),
        (
            row([], tolerance=0.004),
            Reason.INFEASIBLE,
            "c1/throughput: about 1.6 times the prompts a leg, or a tolerance",
        ),
    ],
)
def test_whatever_else_leaves_it_undecided_and_says_what_would_decide(open_row, reason, needs):
    decision = decide_pin({"a": GREEN, "b": open_row}, [GATE])
    assert decision.verdict is Verdict.UNDECIDED
    assert [(cause.subject, cause.reason) for cause in decision.open] == [("b", reason)]
    assert decision.open[0].needs.startswith(needs)


def test_a_confirmed_red_reverts_though_something_else_is_open():
    decision = decide_pin({"a": None, "b": TWICE_RED}, [GATE])
    assert decision.verdict is Verdict.REVERT
    assert [cause.subject for cause in decision.open] == ["a"]


def test_a_confirmed_red_that_does_not_survive_holm_leaves_it_undecided():
    faint = dataclasses.replace(TWICE_RED, p=0.004)
    assert decide_pin({"a": faint}, [GATE]).verdict is Verdict.REVERT
    decision = decide_pin({"a": faint, "b": GREEN, "c": GREEN}, [GATE])
    assert (decision.verdict, decision.open[0].reason) == (Verdict.UNDECIDED, Reason.UNCONFIRMED_RED)
    assert decision.open[0].needs == "a clearer RED: p = 0.004 does not survive Holm's correction over 3 rows"


@pytest.mark.parametrize(("rows", "gates"), [({}, [GATE]), ({"a": GREEN}, [])])
def test_a_pin_of_which_nothing_was_shown_is_undecided(rows, gates):
    assert decide_pin(rows, gates).verdict is Verdict.UNDECIDED


def test_a_discharge_excuses_from_measuring_but_not_from_a_measurement():
    assert decide_pin({"a": None, "b": GREEN}, [GATE], discharged=["a"]).verdict is Verdict.HOLD
    assert decide_pin({"a": row(BELOW), "b": GREEN}, [GATE], discharged=["a"]).verdict is Verdict.UNDECIDED
    assert decide_pin({"a": TWICE_RED, "b": GREEN}, [GATE], discharged=["a"]).verdict is Verdict.REVERT


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_rows_changes_nothing(order):
    rows = {"a": GREEN, "b": TWICE_RED, "c": row(BELOW), "d": None}
    shuffled, plain = decide_pin({name: rows[name] for name in order}, [GATE]), decide_pin(rows, [GATE])
    assert shuffled == plain
    assert json.dumps(shuffled.as_record(), sort_keys=True) == json.dumps(plain.as_record(), sort_keys=True)


# --- plans


@pytest.mark.parametrize(
    "wrong",
    [
        {"looks": ()},
        {"looks": (1, 3)},
        {"looks": (4, 3)},
        {"pass_budget": 0.0},
        {"red_budget": 0.5},
        {"max_invalid_share": 1.0},
        {"metrics": ()},
        {"metrics": (metric(), metric())},
    ],
)
def test_a_plan_that_cannot_be_one_is_refused(wrong):
    with pytest.raises(ValueError):
        Plan(**{"metrics": (metric(),), **wrong})


@pytest.mark.parametrize(
    "wrong", [{"tolerance": 0.0}, {"baseline_ratio": math.nan}, {"baseline_ratio": -1.0}, {"baseline_reps": 0}]
)
def test_a_claim_that_cannot_be_one_is_refused(wrong):
    with pytest.raises(ValueError):
        metric(**wrong)


@pytest.mark.parametrize(("sd", "pairs"), [(-0.1, 8), (math.nan, 8), (0.1, 1)])
def test_a_band_that_cannot_be_one_is_refused(sd, pairs):
    with pytest.raises(ValueError):
        NoiseBand(sd, pairs)


# --- plain language and records


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([1.0] * 5, "all 5 of 5 reps inside the margin: shows the median inside at 3.1 % per side"),
        ([1.2] * 7, "all 7 of 7 reps above the margin: shows the median outside at 0.8 % per side"),
        ([0.8] * 3, "all 3 of 3 reps below the margin: shows the median outside at 12.5 % per side"),
        ([1.0] * 12, "all 12 of 12 reps inside the margin: shows the median inside at 0.02 % per side"),
        ([0.9, 1.0, 1.01, 1.2], "2 of 4 reps inside the margin, 1 below, 1 above"),
    ],
)
def test_the_companion_counts_reps(values, sentence):
    assert judge(values, looks=(len(values),)).companion == sentence


def test_what_is_better_is_inside_for_no_worse():
    assert judge([1.5] * 5, one=metric(direction=Direction.NO_WORSE), looks=(5,)).companion.startswith(
        "all 5 of 5 reps inside"
    )


def test_figures_go_out_with_nine_digits():
    assert rounded(0.1 + 0.2) == 0.3
    assert rounded(123456.7890123) == 123456.789


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_a_number_goes_out_as_unknown(value):
    assert rounded(value) is None


@pytest.mark.parametrize(
    "thing",
    [
        GREEN,
        TWICE_RED,
        row([]),
        row([1.0, None, 1.0]),
        row([], tolerance=0.004),
        row([1e-300, 1e300, 1.0]),
        row([1.0] * 3),
    ],
)
def test_a_row_is_a_record_without_nan(thing):
    record = thing.as_record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_a_record_holds_codes_and_figures():
    record = TWICE_RED.as_record()
    assert (record["outcome"], record["reason"], record["confirmed"]) == ("red", "regression", True)
    first = record["first"]["metrics"][0]
    assert (first["spending"], first["side"], first["metric"]["direction"]) == ("pocock", "below", "two-sided")
    assert first["looks"][0]["estimate"]["mean"] == -0.1


def test_a_verdict_is_a_record():
    record = decide_pin({"a": GREEN, "b": None}, [GATE]).as_record()
    assert record == {
        "verdict": "UNDECIDED",
        "against": [],
        "open": [{"subject": "b", "reason": "not-measured", "needs": "run the row"}],
        "row_p": {"a": 1.0, "b": 1.0},
        "rejected": [],
    }
