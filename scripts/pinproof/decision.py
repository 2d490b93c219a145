"""The decision: from recorded ratios to what a metric, a row and the pin are.

A pure function of values: `decide` judges a row by one or two series, `decide_pin` all rows and
hard gates. Every figure on the way is kept in what they return. The arithmetic of one look is in
`equivalence`, the boundaries in `boundaries`.

Unknown is never a pass: a missing ratio, noise band, cell, row or gate leaves the pin UNDECIDED.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from pinproof.advice import Needed, companion, to_be_feasible, to_decide
from pinproof.boundaries import Spending
from pinproof.equivalence import (
    Look,
    MetricPlan,
    NoiseBand,
    Outcome,
    Plan,
    Scale,
    Side,
    noise_share,
    outside_p,
    spending_for,
    walk,
)
from pinproof.reasons import Owner, Reason

# One series alone confirms no RED.
_REASONS = {Outcome.RED: Reason.UNCONFIRMED_RED, Outcome.INCONCLUSIVE: Reason.NOISE}
# A row with a metric that reps do not mend stops, and spends no more device time; the first of these names it.
_STOPPERS = (Reason.INFEASIBLE, Reason.NOT_MEASURED, Reason.METRIC_MISSING)


@dataclass(frozen=True)
class MetricDecision:
    """What one series says of one metric.

    `noise_share` is the A/A standard deviation (with the baseline's part) over the tolerance. The
    last of `looks` is the one that decided, or the latest. `outside_p` is the p of a RED with all
    looks so far accounted for, as a correction over rows needs it. `companion` is the finding in
    plain language, by signs alone. `next_look` is the number of reps to go on to.
    """

    metric: MetricPlan
    outcome: Outcome
    reason: Reason | None
    noise: NoiseBand | None
    reps: int
    noise_share: float | None = None
    spending: Spending | None = None
    looks: tuple[Look, ...] = ()
    side: Side | None = None
    outside_p: float | None = None
    next_look: int | None = None
    needed: Needed | None = None
    companion: str | None = None


@dataclass(frozen=True)
class CellSeries:
    """What one series recorded in one cell: by metric, the A/A band and the ratio of each valid rep, in order.

    A ratio that is None or NaN is unknown. `invalid_reps` counts reps that were set aside for a
    reason that does not look at the metric.
    """

    ratios: Mapping[str, Sequence[float | None]]
    noise: Mapping[str, NoiseBand | None]
    invalid_reps: int = 0


@dataclass(frozen=True)
class SeriesDecision:
    """What one series says of a row. `reps` is the look that decided it; `next_look` the one to go on to."""

    outcome: Outcome
    reason: Reason | None
    metrics: tuple[MetricDecision, ...]
    invalid_share: Mapping[str, float]
    reps: int | None
    next_look: int | None


@dataclass(frozen=True)
class RowDecision:
    """What is known of a row.

    `p` is that of a confirmed RED, for Holm over the rows; `next_look` the number of reps that the
    running series goes on to while the outcome is CONTINUE.
    """

    outcome: Outcome
    reason: Reason | None
    confirmed: bool
    p: float | None
    next_look: int | None
    first: SeriesDecision
    second: SeriesDecision | None

    def as_record(self) -> dict[str, Any]:
        """The row and every figure behind it as JSON values."""
        return as_value(self)


def decide(plan: Plan, first: Mapping[str, CellSeries], second: Mapping[str, CellSeries] | None = None) -> RowDecision:
    """Judge a row by its first series and, where that was RED, a second; each maps a cell to its data.

    ValueError for a second series after anything but a RED: measuring again until it is green is
    what this rule forbids.
    """
    return combine_series(decide_series(plan, first), None if second is None else decide_series(plan, second))


def decide_metric(
    plan: Plan, metric: MetricPlan, noise: NoiseBand | None, ratios: Sequence[float | None]
) -> MetricDecision:
    """Judge one metric by the reps of one series, in their order.

    `ratios` are times better, one a valid rep; a single unknown one is enough for INCONCLUSIVE.
    Looks are taken in order and the first that decides stands: the budgets are spent for stopping
    there, so a metric that has passed stays passed while the row goes on for another's sake. Reps
    beyond the planned end are not looked at.
    """
    if metric.scale is Scale.EXACT:
        return _decide_exact(plan, metric, ratios)
    if noise is None:
        return MetricDecision(metric, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, None, len(ratios))
    share = noise_share(plan, metric, noise)
    spending = spending_for(share)
    judged = functools.partial(
        MetricDecision, metric, noise=noise, reps=len(ratios), noise_share=share, spending=spending
    )
    if spending is None:
        needed = to_be_feasible(plan, metric, noise)
        return judged(outcome=Outcome.INCONCLUSIVE, reason=Reason.INFEASIBLE, needed=needed)
    shifts = metric.shifts(ratios)
    if shifts is None:
        return judged(outcome=Outcome.INCONCLUSIVE, reason=Reason.METRIC_MISSING)
    looks = walk(plan, metric, noise, shifts, spending)
    if not looks:
        return judged(outcome=Outcome.CONTINUE, reason=None, next_look=plan.looks[0])
    outcome, now = looks[-1].outcome, looks[-1].estimate
    is_red = outcome is Outcome.RED
    return judged(
        outcome=outcome,
        reason=_REASONS.get(outcome),
        looks=looks,
        side=(Side.BELOW if now.mean < 0 else Side.ABOVE) if is_red else None,
        outside_p=outside_p(plan, looks, spending) if is_red else None,
        next_look=plan.looks[len(looks)] if outcome is Outcome.CONTINUE else None,
        needed=to_decide(plan, metric, spending, now) if outcome is Outcome.INCONCLUSIVE else None,
        companion=companion(metric, shifts[: now.n]),
    )


def _decide_exact(plan: Plan, metric: MetricPlan, ratios: Sequence[float | None]) -> MetricDecision:
    """Equal in every rep up to the first look, or RED at the first that differs; noise plays no part.

    What is equal by its nature has no chance of being unequal: the p of such a RED is 0.
    """
    judged = functools.partial(MetricDecision, metric, noise=None, reps=len(ratios))
    shifts = metric.shifts(ratios)
    if shifts is None:
        return judged(outcome=Outcome.INCONCLUSIVE, reason=Reason.METRIC_MISSING)
    equal = f"equal on both arms in {sum(x == 0 for x in shifts)} of {len(shifts)} reps"
    if other := [x for x in shifts if x != 0]:
        side = Side.BELOW if other[0] < 0 else Side.ABOVE
        red = functools.partial(judged, outcome=Outcome.RED, reason=Reason.UNCONFIRMED_RED)
        return red(side=side, outside_p=0.0, companion=equal)
    if len(ratios) < plan.looks[0]:
        return judged(outcome=Outcome.CONTINUE, reason=None, next_look=plan.looks[0], companion=equal)
    return judged(outcome=Outcome.PASS, reason=None, companion=equal)


def decide_series(plan: Plan, cells: Mapping[str, CellSeries]) -> SeriesDecision:
    """Judge a row, that is all its metrics in all its cells, by one series.

    PASS needs every metric to pass (an intersection of tests needs no correction). RED is any
    metric's RED. Otherwise a metric that can no longer pass for a cause that reps do not mend ends
    the row; one that was merely too noisy does not while another could still turn out RED.
    """
    metrics = tuple(_decide_in(plan, metric, cells.get(metric.cell)) for metric in plan.metrics)
    planned = dict.fromkeys(metric.cell for metric in plan.metrics)
    invalid = {name: _invalid_share(plan, cells[name]) for name in planned if name in cells}
    outcome, reason = _of_series(plan, metrics, invalid)
    decided_by = [one.looks[-1].n for one in metrics if one.outcome is outcome and one.looks]
    waiting = [one.next_look for one in metrics if one.next_look is not None]
    return SeriesDecision(
        outcome=outcome,
        reason=reason,
        metrics=metrics,
        invalid_share=invalid,
        reps=(min if outcome is Outcome.RED else max)(decided_by, default=None),
        next_look=min(waiting) if outcome is Outcome.CONTINUE else None,
    )


def _decide_in(plan: Plan, metric: MetricPlan, cell: CellSeries | None) -> MetricDecision:
    if cell is None or metric.name not in cell.ratios:
        return MetricDecision(metric, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, None, 0)
    return decide_metric(plan, metric, cell.noise.get(metric.name), cell.ratios[metric.name])


def _invalid_share(plan: Plan, cell: CellSeries) -> float:
    """Share of invalid reps at the cell's next look: between looks a rep run again still counts for it."""
    valid = max((len(ratios) for ratios in cell.ratios.values()), default=0)
    ahead = min((look for look in plan.looks if look >= valid), default=valid)
    return cell.invalid_reps / (cell.invalid_reps + ahead)


def _of_series(
    plan: Plan, metrics: Sequence[MetricDecision], invalid: Mapping[str, float]
) -> tuple[Outcome, Reason | None]:
    if any(share > plan.max_invalid_share for share in invalid.values()):
        return Outcome.INCONCLUSIVE, Reason.INVALID_REPS
    outcomes = {one.outcome for one in metrics}
    if Outcome.RED in outcomes:
        return Outcome.RED, Reason.UNCONFIRMED_RED
    reasons = {one.reason for one in metrics}
    for reason in _STOPPERS:
        if reason in reasons:
            return Outcome.INCONCLUSIVE, reason
    if Outcome.CONTINUE in outcomes:
        return Outcome.CONTINUE, None
    return (Outcome.PASS, None) if outcomes == {Outcome.PASS} else (Outcome.INCONCLUSIVE, Reason.NOISE)


def combine_series(first: SeriesDecision, second: SeriesDecision | None) -> RowDecision:
    """A RED must recur: the same metric in the same cell on the same side, in a second series.

    The second series is asked about the REDs of the first only. One that recurs is confirmed; all
    of them gone, or on the other side, is a series effect; while one is open the series goes on,
    whatever else turned red. A second series that ends without an answer neither confirms nor
    contradicts: the RED stays unconfirmed. ValueError for a second series after anything but a RED.
    """
    if first.outcome is not Outcome.RED:
        if second is not None:
            raise ValueError(f"a second series follows a RED only; the first is {first.outcome}")
        return RowDecision(first.outcome, first.reason, False, None, first.next_look, first, None)
    row = functools.partial(RowDecision, confirmed=False, p=None, next_look=None, first=first, second=second)
    if second is None or second.reason is Reason.INVALID_REPS:
        return row(Outcome.RED, Reason.UNCONFIRMED_RED)
    after = {one.metric.key: one for one in second.metrics}
    reds = [(one, after[one.metric.key]) for one in first.metrics if one.outcome is Outcome.RED]
    recurred = [(one, again) for one, again in reds if again.outcome is Outcome.RED and again.side is one.side]
    if recurred:
        return row(Outcome.RED, Reason.REGRESSION, confirmed=True, p=_recurrence_p(recurred, len(first.metrics)))
    waiting = [again.next_look for _, again in reds if again.outcome is Outcome.CONTINUE]
    if waiting and second.outcome is not Outcome.INCONCLUSIVE:
        return row(Outcome.CONTINUE, Reason.UNCONFIRMED_RED, next_look=min(waiting))
    if waiting or any(again.outcome is Outcome.INCONCLUSIVE for _, again in reds):
        return row(Outcome.RED, Reason.UNCONFIRMED_RED)
    return row(Outcome.INCONCLUSIVE, Reason.SERIES_EFFECT)


def _recurrence_p(recurred: Sequence[tuple[MetricDecision, MetricDecision]], metrics: int) -> float:
    """p of the clearest RED that recurred, times the number of the row's metrics (Bonferroni).

    Two series share nothing but the baseline. With an exact one they are independent, and both p
    values lie below u with probability u squared; with b reps its error is in both, and only the
    larger of the two may be claimed.
    """
    larger = ((max(one.outside_p, again.outside_p), one.metric.baseline_reps is None) for one, again in recurred)
    return min(1.0, metrics * min(p**2 if exact else p for p, exact in larger))


class Verdict(StrEnum):
    """Does the pin hold?"""

    HOLD = "HOLD"
    REVERT = "REVERT"
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True)
class HardGate:
    """A yes or no without statistics: identity, warm-up compile, parity. None: it is not known.

    ValueError when a gate did not pass and names no reason: only a failure whose owner is the
    target counts against the pin.
    """

    name: str
    passed: bool | None
    reason: Reason | None = None

    def __post_init__(self) -> None:
        if self.passed is not True and self.reason is None:
            raise ValueError(f"hard gate {self.name} did not pass and names no reason")


@dataclass(frozen=True)
class Cause:
    """A row or a gate that is not in order, why, and what would decide or mend it."""

    subject: str
    reason: Reason
    needs: str


@dataclass(frozen=True)
class PinDecision:
    """The verdict, what speaks `against` the pin, what is `open`, and which REDs survived Holm."""

    verdict: Verdict
    against: tuple[Cause, ...]
    open: tuple[Cause, ...]
    row_p: Mapping[str, float]
    rejected: tuple[str, ...]

    def as_record(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return as_value(self)


def holm(p_values: Mapping[str, float], alpha: float) -> set[str]:
    """Ids whose p is rejected at family-wise error `alpha` (Holm 1979); an unknown p is not."""
    ranked = sorted((1.0 if math.isnan(p) else p, name) for name, p in p_values.items())
    rejected = set()
    for rank, (p, name) in enumerate(ranked):
        if p > alpha / (len(ranked) - rank):
            break
        rejected.add(name)
    return rejected


def decide_pin(
    rows: Mapping[str, RowDecision | None],
    hard_gates: Sequence[HardGate],
    *,
    alpha: float = 0.01,
    discharged: Collection[str] = (),
) -> PinDecision:
    """HOLD, REVERT or UNDECIDED from the gating rows (None: not measured) and the hard gates.

    HOLD: every gate passed and every row is a PASS or was discharged without being measured; a
    discharge excuses from measuring, never from a measurement. REVERT: a hard gate of the target
    failed, or a confirmed RED survives Holm over all rows at `alpha`. All else is UNDECIDED, and
    so is a pin with no gates or no rows at all: nothing was shown.
    """
    p_values = {name: 1.0 if row is None or row.p is None else row.p for name, row in rows.items()}
    rejected = holm(p_values, alpha)
    against: list[Cause] = []
    unknown: list[Cause] = []
    for gate in hard_gates:
        if gate.passed is not True:
            failed = gate.passed is False and gate.reason.owner is Owner.TARGET
            (against if failed else unknown).append(Cause(gate.name, gate.reason, gate.reason.remedy))
    for name, row in sorted(rows.items()):
        if row is None:
            if name not in discharged:
                unknown.append(Cause(name, Reason.NOT_MEASURED, Reason.NOT_MEASURED.remedy))
        elif row.confirmed and name in rejected:
            against.append(Cause(name, Reason.REGRESSION, Reason.REGRESSION.remedy))
        elif row.outcome is not Outcome.PASS:
            unknown.append(_open_row(name, row, len(rows)))
    if not hard_gates or not rows:
        unknown.append(Cause("pin", Reason.NOT_MEASURED, "at least one hard gate and one gating row"))
    verdict = Verdict.REVERT if against else Verdict.UNDECIDED if unknown else Verdict.HOLD
    return PinDecision(verdict, tuple(against), tuple(unknown), p_values, tuple(sorted(rejected)))


def _open_row(name: str, row: RowDecision, family: int) -> Cause:
    if row.confirmed:
        needs = f"a clearer RED: p = {row.p:.2g} does not survive Holm's correction over {family} rows"
        return Cause(name, Reason.UNCONFIRMED_RED, needs)
    if row.outcome is Outcome.CONTINUE:
        return Cause(name, row.reason or Reason.NOT_MEASURED, f"reps up to {row.next_look}")
    ways = [
        f"{one.metric.cell}/{one.metric.name}: {one.needed.sentence if one.needed else one.reason.remedy}"
        for one in (row.second or row.first).metrics
        if one.reason is row.reason
    ]
    return Cause(name, row.reason, "; ".join(ways) or row.reason.remedy)


def rounded(value: float) -> float | None:
    """The value to 9 significant digits, so that two machines write one number; None when it is not finite."""
    return float(f"{value:.9g}") if math.isfinite(value) else None


def as_value(thing: Any) -> Any:
    """Decisions as JSON values: floats rounded, reasons as their codes, unknown as None."""
    if isinstance(thing, float):
        return rounded(thing)
    if isinstance(thing, Enum):
        return thing.code if isinstance(thing, Reason) else thing.value
    if dataclasses.is_dataclass(thing):
        thing = {one.name: getattr(thing, one.name) for one in dataclasses.fields(thing)}
    if isinstance(thing, Mapping):
        return {key: as_value(value) for key, value in thing.items()}
    return [as_value(value) for value in thing] if isinstance(thing, tuple) else thing
