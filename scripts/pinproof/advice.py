"""Advice: what would decide an inconclusive metric, and what its reps say in plain language."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pinproof.boundaries import Spending, nominal_p
from pinproof.equivalence import Estimate, MetricPlan, NoiseBand, Plan, Scale, noise_share, t_above

# More than this many times today's reps or prompts is no advice.
_MANY = 10_000


@dataclass(frozen=True)
class Needed:
    """What would decide an inconclusive metric; each alone, if noise and mean stay. None: it cannot.

    `reps` of a row, `prompts_factor` times today's prompts a leg (noise falls with their root; the
    baseline's part stays), `baseline_reps`, or a `tolerance` (fraction, or `tolerance_points`; only
    before data).
    """

    reps: int | None = None
    prompts_factor: float | None = None
    baseline_reps: int | None = None
    tolerance: float | None = None
    tolerance_points: float | None = None

    @property
    def sentence(self) -> str:
        """The ways in words, for a page."""
        ways = [
            self.reps and f"about {self.reps} reps",
            self.prompts_factor and f"about {math.ceil(self.prompts_factor * 10) / 10:g} times the prompts a leg",
            self.baseline_reps and f"a baseline of about {self.baseline_reps} reps",
            self.tolerance and f"a tolerance of {math.ceil(self.tolerance * 1000) / 10:g} %",
            self.tolerance_points and f"a tolerance of {math.ceil(self.tolerance_points * 10) / 10:g} points",
        ]
        return ", or ".join(way for way in ways if way) or "nothing practical: the shift lies at the margin"


def to_be_feasible(plan: Plan, metric: MetricPlan, noise: NoiseBand) -> Needed:
    """What would bring the noise share down to 1 before any data."""
    share, end, variance = noise_share(plan, metric, noise), plan.looks[-1], noise.sd**2
    room = metric.tolerance**2 / end
    least = share * metric.tolerance
    linear = metric.scale is Scale.LINEAR
    return Needed(
        prompts_factor=_prompts(metric, variance / end, room - variance * metric.baseline_share),
        baseline_reps=_whole(_over(variance, room - variance / end)) if metric.baseline_share else None,
        tolerance=None if linear else least,
        tolerance_points=least if linear else None,
    )


def to_decide(plan: Plan, metric: MetricPlan, spending: Spending, now: Estimate) -> Needed:
    """More of the same data, for the verdict on whose side the mean lies, by the planned end's boundary."""
    end, variance = plan.looks[-1], now.sd_used**2
    budget = plan.pass_budget if now.slack > 0 else plan.red_budget
    quantile = t_above(nominal_p(plan.looks, budget, spending)[-1], now.df + end - now.n)
    room = (now.slack / quantile) ** 2
    rest = room - variance * metric.baseline_share
    return Needed(
        reps=_whole(_over(variance, rest)),
        prompts_factor=_prompts(metric, variance / end, rest),
        baseline_reps=_whole(_over(variance, room - variance / end)) if metric.baseline_share else None,
    )


def _prompts(metric: MetricPlan, part: float, room: float) -> float | None:
    return _over(part, room) if metric.has_prompts else None


def _over(part: float, room: float) -> float | None:
    """part / room; None when there is no room, or more than advice can ask for."""
    return part / room if room > part / _MANY else None


def _whole(value: float | None) -> int | None:
    return None if value is None else math.ceil(value)


def companion(metric: MetricPlan, shifts: Sequence[float]) -> str:
    """The finding by signs alone: n of n on one side of a median's bound has a chance of 1 / 2^n."""
    n = len(shifts)
    inside = sum(metric.slack(x) > 0 for x in shifts)
    below = sum(metric.slack(x) <= 0 and x < 0 for x in shifts)
    chance = 100 * 0.5**n
    level = f"{chance:.1f} % per side" if chance >= 0.1 else f"{chance:.1g} % per side"
    if inside == n:
        return f"all {n} of {n} reps inside the margin: shows the median inside at {level}"
    for count, side in ((below, "below"), (n - inside - below, "above")):
        if count == n:
            return f"all {n} of {n} reps {side} the margin: shows the median outside at {level}"
    return f"{inside} of {n} reps inside the margin, {below} below, {n - inside - below} above"
