"""Which of two values is the better one: times better, or points."""

from __future__ import annotations

from typing import get_args

import pytest

from pinproof import claims, measures

HIGHER = {"output_throughput", "acceptance_length", "acceptance_rate"}


def test_every_metric_that_a_row_can_gate_is_a_measure() -> None:
    kinds = (claims.Metric, claims.SpeculativeMetric, claims.StartMetric)
    names = {name for kind in kinds for name in get_args(kind)} | {"warmup_share"}
    assert set(measures.MEASURES) == names


@pytest.mark.parametrize("name", sorted(set(measures.MEASURES) - {"warmup_share"}))
def test_a_ratio_says_times_better(name: str) -> None:
    assert measures.better(name, 20.0, 10.0) == (2.0 if name in HIGHER else 0.5)


def test_a_share_is_compared_in_points_and_the_smaller_one_is_better() -> None:
    assert measures.better("warmup_share", 40.0, 45.0) == 5.0
    assert measures.better("warmup_share", 45.0, 40.0) == -5.0


@pytest.mark.parametrize("pair", [(None, 1.0), (1.0, None), (None, None)])
@pytest.mark.parametrize("name", ["median_tpot", "warmup_share"])
def test_what_is_unknown_is_not_compared(name: str, pair: tuple[float | None, float | None]) -> None:
    assert measures.better(name, *pair) is None
