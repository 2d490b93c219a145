"""Measures: every metric that a row can gate, its unit, and which of two values is the better one."""

from __future__ import annotations

from dataclasses import dataclass

from pinproof.equivalence import Scale


@dataclass(frozen=True)
class Measure:
    """One metric of a leg, for pages and for the comparison of two legs."""

    title: str
    unit: str
    higher_is_better: bool = False
    scale: Scale = Scale.LOG


MEASURES = {
    "output_throughput": Measure("output throughput", "tok/s", higher_is_better=True),
    "median_tpot": Measure("median TPOT", "ms"),
    "median_ttft": Measure("median TTFT", "ms"),
    "acceptance_length": Measure("acceptance length", "tokens", higher_is_better=True),
    "acceptance_rate": Measure("acceptance rate", "share", higher_is_better=True),
    "first_health": Measure("spawn to first /health 200", "s"),
    "first_completion": Measure("spawn to first completion", "s"),
    "warmup_share": Measure("warm-up's share of start-up", "points", scale=Scale.LINEAR),
}


def better(name: str, numerator: float | None, denominator: float | None) -> float | None:
    """How much better the numerator is: times better, or points on a linear scale; None when one is unknown."""
    if numerator is None or denominator is None:
        return None
    measure = MEASURES[name]
    first, second = (numerator, denominator) if measure.higher_is_better else (denominator, numerator)
    return first - second if measure.scale is Scale.LINEAR else first / second
