"""One metric: shown inside the margin, shown outside it, or not known yet.

Two one-sided tests (Schuirmann 1987) at the looks of a group-sequential plan, on the log scale:
x = log(measured ratio) - log(baseline ratio), margin m = log(1 + tolerance). Ratios say "times
better", so a negative x is worse than the baseline. Values in, every figure out: no clock, no file.
A share in percentage points is on a linear scale: x = measured - baseline "points better", m = tolerance.

The distance that all tests are about is the `slack`: how far the mean of x lies inside the margin
(negative: outside). Two-sided it is m - |mean|; for `no-worse` it is m + mean, so that being better
neither hinders a PASS nor makes a RED. PASS needs the mean inside by t * standard error, RED needs
it outside by as much: in the two-sided case these are exactly the larger p of both tests of
equivalence and the smaller p of both tests of a shift beyond the margin.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pinproof.boundaries import Spending, nominal_p, spent

# Noise as a share of the tolerance: up to here even spending, then late spending, then infeasible.
POCOCK_LIMIT = 0.6
FEASIBLE_LIMIT = 1.0
# Standard normal quantile of 0.90: a move as lucky as one in ten, for the futility stop.
_LUCK = 1.2815515655446004


class Outcome(StrEnum):
    """What is known of a metric, of a series, or of a row."""

    PASS = "pass"  # shown to be inside  # nosec B105 # the word of an outcome
    RED = "red"  # shown to be outside, on a side that counts
    INCONCLUSIVE = "inconclusive"  # neither, and more reps of this plan will not come
    CONTINUE = "continue"  # no look has decided and more looks remain


class Direction(StrEnum):
    """Which shifts count against a row; see the head of this module."""

    TWO_SIDED = "two-sided"  # a published ratio: a faster oracle makes it stale too
    NO_WORSE = "no-worse"  # a comparison with the previous pin: only the lower test counts


class Scale(StrEnum):
    """What a rep's value is, and how it is compared with the baseline; see the head of this module."""

    LOG = "log"  # a ratio, times better
    LINEAR = "linear"  # a difference in points, positive where the numerator is better
    EXACT = "exact"  # a ratio that is 1 or is not: no statistics


class Side(StrEnum):
    """Where a RED lies: the measured ratio is below (worse than) or above the baseline."""

    BELOW = "below"
    ABOVE = "above"


@dataclass(frozen=True)
class MetricPlan:
    """What is claimed of one metric in one cell. ValueError when a figure cannot be one.

    `tolerance` is a fraction (0.02 is 2 %), `baseline_ratio` times better, `baseline_reps` the
    number of reps behind it, or None for an exact one (a comparison with nothing published: 1). It
    has no default: a published ratio of unknown reps is not exact, the least it has is 1. On a linear
    scale tolerance and baseline are points; an exact metric has no tolerance (0) and the baseline 1.
    `has_prompts`: a leg of it has prompts, of which there could be more.
    """

    cell: str
    name: str
    tolerance: float
    baseline_ratio: float
    baseline_reps: int | None
    direction: Direction = Direction.TWO_SIDED
    scale: Scale = Scale.LOG
    has_prompts: bool = True

    def __post_init__(self) -> None:
        exact = self.scale is Scale.EXACT
        if exact and (self.tolerance, self.baseline_ratio) != (0, 1):
            raise ValueError(f"{self.cell}/{self.name}: what is exact has no tolerance, and the baseline 1")
        least = -math.inf if self.scale is Scale.LINEAR else 0.0
        if not (exact or 0 < self.tolerance < math.inf) or not least < self.baseline_ratio < math.inf:
            raise ValueError(f"{self.cell}/{self.name}: tolerance and baseline ratio are positive numbers")
        if self.baseline_reps is not None and self.baseline_reps < 1:
            raise ValueError(f"{self.cell}/{self.name}: baseline reps are 1 or more, or None: exact")
        object.__setattr__(self, "direction", Direction(self.direction))

    @property
    def key(self) -> tuple[str, str]:
        """(cell, name), once in a plan."""
        return self.cell, self.name

    @property
    def margin(self) -> float:
        """m: log(1 + tolerance), or the tolerance itself on a linear scale."""
        return self.tolerance if self.scale is Scale.LINEAR else math.log1p(self.tolerance)

    @property
    def baseline_share(self) -> float:
        """1 / b: variance that the baseline adds, in units of one rep's; 0 when it is exact."""
        return 0.0 if self.baseline_reps is None else 1 / self.baseline_reps

    def slack(self, mean: float) -> float:
        """How far a mean of x lies inside the margin (negative: outside)."""
        return self.margin - abs(mean) if self.direction is Direction.TWO_SIDED else self.margin + mean

    def shifts(self, values: Sequence[float | None]) -> tuple[float, ...] | None:
        """x of each rep; None when one value is unknown."""
        if self.scale is Scale.LINEAR:
            return linear_shifts(values, self.baseline_ratio)
        return log_shifts(values, self.baseline_ratio)

    def of_mean(self, mean: float) -> float:
        """A mean of x as a person reads it: a multiple of the baseline, or points beside it."""
        return mean if self.scale is Scale.LINEAR else _exp(mean)


@dataclass(frozen=True)
class Plan:
    """What a row will be judged by, fixed before data.

    `looks` in reps, one-sided budgets as probabilities, and the share of invalid reps above which
    a row is not judged. ValueError when looks do not rise from 2 or more, a budget is outside
    (0, 0.5), a share outside [0, 1), there is no metric, or two have one key.
    """

    metrics: tuple[MetricPlan, ...]
    looks: tuple[int, ...] = (3, 4, 6, 8, 12)
    pass_budget: float = 0.05
    red_budget: float = 0.01
    max_invalid_share: float = 0.25

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", tuple(self.metrics))
        object.__setattr__(self, "looks", tuple(self.looks))
        if not self.looks or self.looks[0] < 2 or list(self.looks) != sorted(set(self.looks)):
            raise ValueError(f"looks must rise from 2 or more: {self.looks}")
        if not (0 < self.pass_budget < 0.5 and 0 < self.red_budget < 0.5):
            raise ValueError("one-sided budgets lie between 0 and 0.5")
        if not 0 <= self.max_invalid_share < 1:
            raise ValueError("a share of invalid reps lies between 0 and 1")
        if not self.metrics or len({metric.key for metric in self.metrics}) < len(self.metrics):
            raise ValueError("a plan needs metrics, each (cell, name) once")


@dataclass(frozen=True)
class NoiseBand:
    """A/A band of one metric: standard deviation of x over pairs of one arm against itself."""

    sd: float
    pairs: int

    def __post_init__(self) -> None:
        if not (0 <= self.sd < math.inf and self.pairs >= 2):
            raise ValueError("a noise band needs a standard deviation and 2 pairs or more")

    @property
    def df(self) -> int:
        """Degrees of freedom of the standard deviation."""
        return self.pairs - 1

    @classmethod
    def from_ratios(cls, ratios: Sequence[float | None], scale: Scale = Scale.LOG) -> NoiseBand | None:
        """The band of A/A ratios (of differences, on a linear scale); None when one of them is unknown or
        fewer than two exist."""
        shifts = linear_shifts(ratios, 0.0) if scale is Scale.LINEAR else log_shifts(ratios, 1.0)
        return None if shifts is None or len(shifts) < 2 else cls(math.sqrt(_moments(shifts)[1]), len(shifts))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the first `n` reps say of x: figures before any test."""

    n: int
    mean: float
    sd_own: float
    sd_used: float
    df: int
    standard_error: float
    slack: float


@dataclass(frozen=True, slots=True)
class Look:
    """All figures of one look.

    `interval` holds the multiples of the baseline (the points beside it, on a linear scale) that a PASS
    does not rule out: it lies within 1/(1+t) to 1+t (-t to t) exactly when the look shows PASS (its
    lower end above the lower of these for `no-worse`).
    `red_interval` lies wholly outside exactly when it shows RED. The p values are one-sided and
    the look's own; each is to lie below its boundary.
    """

    estimate: Estimate
    interval: tuple[float, float]
    red_interval: tuple[float, float]
    pass_p: float
    pass_boundary: float
    red_p: float
    red_boundary: float
    futile: bool
    outcome: Outcome

    @property
    def n(self) -> int:
        """Reps at this look."""
        return self.estimate.n


def noise_share(plan: Plan, metric: MetricPlan, noise: NoiseBand) -> float:
    """A/A standard deviation over the tolerance, times sqrt(1 + n/b) with n the planned end.

    At the planned end the baseline's part weighs most; there the share says the same of a row
    with b reps as of one with an exact baseline: the standard error is share * t / sqrt(N).
    """
    return noise.sd * math.sqrt(1 + plan.looks[-1] * metric.baseline_share) / metric.tolerance


def spending_for(share: float) -> Spending | None:
    """The kind of spending for a noise share; None when it is infeasible."""
    share = float(f"{share:.9g}")  # 0.6 is 0.6, whatever a division leaves in the last digits
    if share <= POCOCK_LIMIT:
        return Spending.POCOCK
    return Spending.OBRIEN_FLEMING if share <= FEASIBLE_LIMIT else None


def walk(
    plan: Plan, metric: MetricPlan, noise: NoiseBand, shifts: Sequence[float], spending: Spending
) -> tuple[Look, ...]:
    """Take the looks that `shifts` (x of each rep) reach, up to the first that decides."""
    looks: list[Look] = []
    for n in plan.looks:
        if n > len(shifts):
            break
        looks.append(_look(plan, metric, spending, estimate(metric, noise, shifts[:n])))
        if looks[-1].outcome is not Outcome.CONTINUE:
            break
    return tuple(looks)


def estimate(metric: MetricPlan, noise: NoiseBand, shifts: Sequence[float]) -> Estimate:
    """Mean and standard error of x over two or more reps, with the variance floor and the baseline's part."""
    n = len(shifts)
    mean, own = _moments(shifts)
    variance, df = _floored(own, n, noise)
    error = math.sqrt(variance * (1 / n + metric.baseline_share))
    return Estimate(n, mean, math.sqrt(own), math.sqrt(variance), df, error, metric.slack(mean))


def _look(plan: Plan, metric: MetricPlan, spending: Spending, now: Estimate) -> Look:
    index = plan.looks.index(now.n)
    pass_boundary = nominal_p(plan.looks, plan.pass_budget, spending)[index]
    red_boundary = nominal_p(plan.looks, plan.red_budget, spending)[index]
    distance = _in_errors(now.slack, now.standard_error)
    pass_p, red_p = _t_below(-distance, now.df), _t_below(distance, now.df)
    outcome, futile = Outcome.CONTINUE, False
    if pass_p < pass_boundary:
        outcome = Outcome.PASS
    elif red_p < red_boundary:
        outcome = Outcome.RED
    elif now.n == plan.looks[-1]:
        outcome = Outcome.INCONCLUSIVE
    elif spending is Spending.POCOCK and _is_futile(plan, metric, now):
        outcome, futile = Outcome.INCONCLUSIVE, True
    return Look(
        estimate=now,
        interval=_interval(metric, now, pass_boundary),
        red_interval=_interval(metric, now, red_boundary),
        pass_p=pass_p,
        pass_boundary=pass_boundary,
        red_p=red_p,
        red_boundary=red_boundary,
        futile=futile,
        outcome=outcome,
    )


def _floored(own: float, n: int, noise: NoiseBand) -> tuple[float, int]:
    """Variance to use and its degrees of freedom: never below what A/A pairs taught us by luck."""
    floor = noise.sd**2
    if own <= floor:
        df = noise.df + n - 1
        return (noise.df * floor + (n - 1) * own) / df, df
    return own, n - 1


def _is_futile(plan: Plan, metric: MetricPlan, now: Estimate) -> bool:
    """Would even a lucky move of the mean reach neither verdict at the planned end, with today's variance?"""
    end = plan.looks[-1]
    move = _LUCK * now.sd_used * math.sqrt((end - now.n) / (end * now.n))
    error = now.sd_used * math.sqrt(1 / end + metric.baseline_share)
    df = now.df + end - now.n
    inward = now.slack + move
    if metric.direction is Direction.TWO_SIDED:
        inward = min(inward, metric.margin)  # a mean of 0 is as far inside as there is
    outward = move - now.slack
    pass_end = nominal_p(plan.looks, plan.pass_budget, Spending.POCOCK)[-1]
    red_end = nominal_p(plan.looks, plan.red_budget, Spending.POCOCK)[-1]
    return inward <= t_above(pass_end, df) * error and outward <= t_above(red_end, df) * error


def outside_p(plan: Plan, looks: Sequence[Look], spending: Spending) -> float:
    """p of a RED with its looks accounted for: what earlier looks have spent, and the look's own p.

    An upper bound of the p in the stage-wise order (Armitage 1957; Jennison & Turnbull 2000, 8.4);
    no more than what is spent by this look in all.
    """
    fractions = [0.0, *(look.n / plan.looks[-1] for look in looks)]
    earlier, now = (spent(fraction, plan.red_budget, spending) for fraction in fractions[-2:])
    return min(earlier + looks[-1].red_p, now)


def log_shifts(ratios: Sequence[float | None], baseline: float) -> tuple[float, ...] | None:
    """x of each rep; None when one ratio is unknown (None, NaN, infinite, not positive).

    To 12 decimals, so that what floats leave in the last bits is nothing: reps that cancel have a mean of 0.
    """
    if any(ratio is None or not 0 < ratio < math.inf for ratio in ratios):
        return None
    return tuple(round(math.log(ratio) - math.log(baseline), 12) for ratio in ratios)


def linear_shifts(values: Sequence[float | None], baseline: float) -> tuple[float, ...] | None:
    """x of each rep in points; None when one value is unknown (None, NaN, infinite). To 12 decimals."""
    if any(value is None or not math.isfinite(value) for value in values):
        return None
    return tuple(round(value - baseline, 12) for value in values)


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample variance, whatever the order of the values."""
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _interval(metric: MetricPlan, now: Estimate, p: float) -> tuple[float, float]:
    half = t_above(p, now.df) * now.standard_error if now.standard_error > 0 else 0.0
    return metric.of_mean(now.mean - half), metric.of_mean(now.mean + half)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _in_errors(slack: float, error: float) -> float:
    """Slack in standard errors; without any spread it is infinitely many, or none at the margin itself."""
    if error > 0:
        return slack / error
    return math.copysign(math.inf, slack) if slack else 0.0


def _t_below(value: float, df: int) -> float:
    from scipy.special import stdtr

    return float(stdtr(df, value))


@functools.cache
def t_above(p: float, df: int) -> float:
    """The t quantile that is exceeded with probability p; infinite at p = 0."""
    from scipy.special import stdtrit

    return -float(stdtrit(df, p))
