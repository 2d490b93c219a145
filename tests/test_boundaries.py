"""Boundaries: the error of all looks together is the budget, however often one looks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pinproof.boundaries import Spending, nominal_p, spent

LOOKS = (3, 4, 6, 8, 12)
POCOCK, LATE = Spending.POCOCK, Spending.OBRIEN_FLEMING


@pytest.mark.parametrize(
    ("budget", "kind", "table"),
    [
        (0.05, POCOCK, ["0.01787", "0.01193", "0.01540", "0.01649", "0.02251"]),
        (0.01, POCOCK, ["0.00357", "0.00203", "0.00262", "0.00269", "0.00370"]),
        (0.05, LATE, ["0.00009", "0.00066", "0.00535", "0.01463", "0.04478"]),
    ],
)
def test_boundaries_are_those_of_the_decision_rule(budget, kind, table):
    assert [f"{p:.5f}" for p in nominal_p(LOOKS, budget, kind)] == table


def test_red_boundaries_of_late_spending_are_derived_the_same_way():
    assert nominal_p(LOOKS, 0.01, LATE) == pytest.approx(
        (2.5819e-7, 8.048e-6, 2.66828e-4, 1.51852e-3, 9.47104e-3), 1e-4
    )


@pytest.mark.parametrize(
    ("kind", "published"),
    [(LATE, (4.8769, 3.3569, 2.6803, 2.2898, 2.0310)), (POCOCK, (2.4380, 2.4268, 2.4101, 2.3966, 2.3859))],
)
def test_five_even_looks_have_the_published_z_values(kind, published):
    z = stats.norm.isf(nominal_p((1, 2, 3, 4, 5), 0.025, kind))
    assert z == pytest.approx(published, abs=2e-4)


@pytest.mark.parametrize("budget", [0.05, 0.01])
@pytest.mark.parametrize("kind", list(Spending))
def test_chance_to_have_crossed_by_a_look_is_what_was_spent_by_it(budget, kind):
    z = stats.norm.isf(nominal_p(LOOKS, budget, kind))
    correlation = [[math.sqrt(min(a, b) / max(a, b)) for a in LOOKS] for b in LOOKS]
    for count in range(2, len(LOOKS) + 1):
        walk = stats.multivariate_normal(cov=[row[:count] for row in correlation[:count]], seed=1)
        assert 1 - walk.cdf(z[:count]) == pytest.approx(spent(LOOKS[count - 1] / 12, budget, kind), abs=2e-5)


def test_pocock_type_spends_by_the_logarithm():
    assert spent(0.25, 0.05, POCOCK) == pytest.approx(0.05 * math.log(1 + (math.e - 1) * 0.25))


def test_obrien_fleming_type_spends_by_the_normal_tail():
    assert spent(0.25, 0.05, LATE) == pytest.approx(2 - 2 * stats.norm.cdf(stats.norm.isf(0.025) / 0.5), rel=1e-6)


@pytest.mark.parametrize("kind", list(Spending))
def test_nothing_is_spent_at_the_start_and_all_at_the_end(kind):
    assert spent(0, 0.05, kind) == 0
    assert spent(1, 0.05, kind) == pytest.approx(0.05)


@pytest.mark.parametrize("kind", list(Spending))
def test_a_single_look_gets_the_whole_budget(kind):
    assert nominal_p((5,), 0.05, kind) == pytest.approx((0.05,))


def test_only_the_fractions_of_the_end_matter():
    assert nominal_p((10, 20, 40), 0.05, POCOCK) == pytest.approx(nominal_p((1, 2, 4), 0.05, POCOCK))


def test_a_look_with_nothing_to_spend_cannot_cross():
    assert nominal_p((1, 10_000), 0.01, LATE) == pytest.approx((0.0, 0.01))


@settings(max_examples=40, deadline=None)
@given(
    looks=st.sets(st.integers(1, 60), min_size=1, max_size=8).map(sorted),
    budget=st.floats(1e-4, 0.4),
    kind=st.sampled_from(list(Spending)),
)
def test_a_nominal_p_lies_between_what_its_look_spends_and_what_is_spent_by_then(looks, budget, kind):
    before = 0.0
    for look, p in zip(looks, nominal_p(looks, budget, kind), strict=True):
        now = spent(look / looks[-1], budget, kind)
        assert now - before - 1e-9 <= p <= now + 1e-9
        before = now


@pytest.mark.parametrize("looks", [(), (0, 3), (3, 3), (4, 3)])
def test_looks_must_rise_from_one(looks):
    with pytest.raises(ValueError, match="looks must rise"):
        nominal_p(looks, 0.05, POCOCK)


@pytest.mark.parametrize("budget", [0, 0.5, -0.1, math.nan])
def test_a_budget_is_a_one_sided_error_rate(budget):
    with pytest.raises(ValueError, match="budget"):
        nominal_p(LOOKS, budget, POCOCK)
