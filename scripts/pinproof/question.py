"""A decision without an engine: a file of reps and a plan in, a decision out, in words.

It answers "what would these numbers have said?" by the very rule that judges a row. The file is YAML
or JSON; docs/decision.md shows one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from pinproof import yamlfile
from pinproof.decision import CellSeries, MetricDecision, RowDecision, SeriesDecision, decide
from pinproof.equivalence import Direction, Look, MetricPlan, NoiseBand, Outcome, Plan
from pinproof.findings import TAG, Finding, Strict, check, refusal
from pinproof.reasons import Reason

Positive = Annotated[float, Field(gt=0)]
Unknown = Positive | None  # one rep's value; null: it is not known

# -- the file ------------------------------------------------------------------------------------


class Legs(Strict):
    """What both arms' legs gave, rep by rep; from them come the ratios, times better."""

    numerator: list[Unknown] = Field(min_length=1, description="values of the arm that is judged")
    denominator: list[Unknown] = Field(min_length=1, description="values of the arm that it is compared with")
    better: Literal["higher", "lower"] = Field(description="which values are the better ones")

    @model_validator(mode="after")
    def _are_pairs(self) -> Legs:
        if (ours := len(self.numerator)) != (theirs := len(self.denominator)):
            raise ValueError(f"a rep is a leg of each arm: the numerator has {ours}, the denominator {theirs}")
        return self

    @property
    def ratios(self) -> list[float | None]:
        """Times better, a rep each."""
        pairs = zip(self.numerator, self.denominator, strict=True)
        return [self._ratio(*pair) for pair in pairs]

    def _ratio(self, ours: float | None, theirs: float | None) -> float | None:
        if ours is None or theirs is None:
            return None
        return ours / theirs if self.better == "higher" else theirs / ours


class Band(Strict):
    """An A/A band that is known already."""

    sd: float = Field(ge=0, description="standard deviation of the log ratios (0.01 is 1 %)")
    pairs: int = Field(ge=2, description="pairs of legs that it comes from")


class Claim(Strict):
    """What is claimed of one metric in one cell; the names are free."""

    cell: str = Field(min_length=1, description="load point")
    name: str = Field(min_length=1, description="metric")
    tolerance: float = Field(gt=0, lt=1, description="largest move of the ratio that is still called the same")
    baseline_ratio: float = Field(default=1.0, gt=0, description="the published ratio, times better")
    baseline_reps: int | None = Field(default=None, gt=0, description="reps behind it; null: it is exact")
    direction: Literal["two-sided", "no-worse"] = Field(default="two-sided", description="which side makes it red")

    @model_validator(mode="after")
    def _says_how_exact(self) -> Claim:
        if self.baseline_ratio != 1.0 and "baseline_reps" not in self.model_fields_set:
            raise ValueError("a baseline_ratio needs baseline_reps: the reps behind it, or null if it is exact")
        return self


class Planned(Strict):
    """What the numbers are judged by."""

    metrics: list[Claim] = Field(min_length=1, description="what is gated")
    looks: list[int] = Field(default=[3, 4, 6, 8, 12], min_length=1, description="numbers of reps at which to look")
    pass_budget: float = Field(default=0.05, gt=0, lt=0.5, description="one-sided error of a false PASS")
    red_budget: float = Field(default=0.01, gt=0, lt=0.5, description="one-sided error of a false RED")
    max_invalid_share: float = Field(default=0.25, ge=0, lt=1, description="invalid reps above this end a row")

    @field_validator("looks")
    @classmethod
    def _looks_increase(cls, looks: list[int]) -> list[int]:
        if looks[0] < 2 or looks != sorted(set(looks)):
            raise ValueError("looks must increase and start at 2 or more")
        return looks


def _list_or_mapping(value: Any) -> str:
    return f"{TAG}mapping" if isinstance(value, dict) else f"{TAG}list"


_InList, _InMapping = Tag(f"{TAG}list"), Tag(f"{TAG}mapping")
Ratios = Annotated[list[Unknown], Field(min_length=1)]
AtLeastTwo = Annotated[list[Unknown], Field(min_length=2)]
Reps = Annotated[Annotated[Ratios, _InList] | Annotated[Legs, _InMapping], Discriminator(_list_or_mapping)]
Noise = Annotated[Annotated[AtLeastTwo, _InList] | Annotated[Band, _InMapping], Discriminator(_list_or_mapping)]
Series = dict[str, dict[str, Reps]]  # cell -> metric


class _File(Strict):
    plan: Planned = Field(description="what the numbers are judged by")
    noise: dict[str, dict[str, Noise | None]] = Field(
        description="by cell and metric, the A/A band, or the ratios of its pairs; null: not known"
    )
    first: Series | None = Field(default=None, description="ratios of the valid reps in order; null: none yet")
    second: Series | None = Field(default=None, description="those of a second series, after a RED")
    invalid: dict[str, Annotated[int, Field(ge=0)]] = Field(default={}, description="by cell, reps that did not count")


# -- the question --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """What was planned and what was measured, and the file that says so."""

    plan: Plan
    first: Mapping[str, CellSeries]
    second: Mapping[str, CellSeries] | None
    file: Path


def read(path: Path) -> Question:
    """Read a question. Refusal CASE_INVALID names the file and every key that is wrong."""
    file = check(_File, yamlfile.read(path), path)
    if findings := [*_twice(file.plan), *_strangers(file), *_uneven(file)]:
        raise refusal(path, findings)
    return Question(
        plan=_plan(file.plan),
        first=_cells(file, _nothing_yet(file) if file.first is None else _ratios(file.first)),
        second=None if file.second is None else _cells(file, _ratios(file.second)),
        file=path,
    )


def answer(question: Question) -> RowDecision:
    """Judge the numbers. Refusal CASE_INVALID for a second series after anything but a RED."""
    try:
        return decide(question.plan, question.first, question.second)
    except ValueError as error:
        raise refusal(question.file, [("second", str(error))]) from None


def _plan(planned: Planned) -> Plan:
    metrics = (
        MetricPlan(
            cell=claim.cell,
            name=claim.name,
            tolerance=claim.tolerance,
            baseline_ratio=claim.baseline_ratio,
            baseline_reps=claim.baseline_reps,
            direction=Direction(claim.direction),
        )
        for claim in planned.metrics
    )
    return Plan(
        metrics=tuple(metrics),
        looks=tuple(planned.looks),
        pass_budget=planned.pass_budget,
        red_budget=planned.red_budget,
        max_invalid_share=planned.max_invalid_share,
    )


def _ratios(series: Series) -> dict[str, dict[str, list[float | None]]]:
    return {
        cell: {name: reps.ratios if isinstance(reps, Legs) else reps for name, reps in metrics.items()}
        for cell, metrics in series.items()
    }


def _nothing_yet(file: _File) -> dict[str, dict[str, list[float | None]]]:
    cells: dict[str, dict[str, list[float | None]]] = {}
    for claim in file.plan.metrics:
        cells.setdefault(claim.cell, {})[claim.name] = []
    return cells


def _cells(file: _File, ratios: Mapping[str, Mapping[str, list[float | None]]]) -> dict[str, CellSeries]:
    return {
        cell: CellSeries(
            ratios=metrics,
            noise={name: _band(band) for name, band in file.noise.get(cell, {}).items()},
            invalid_reps=file.invalid.get(cell, 0),
        )
        for cell, metrics in ratios.items()
    }


def _band(noise: list[float | None] | Band | None) -> NoiseBand | None:
    if isinstance(noise, Band):
        return NoiseBand(noise.sd, noise.pairs)
    return None if noise is None else NoiseBand.from_ratios(noise)


# -- what must hold between keys -----------------------------------------------------------------


def _twice(plan: Planned) -> Iterator[Finding]:
    keys = [(claim.cell, claim.name) for claim in plan.metrics]
    for cell, name in sorted({key for key in keys if keys.count(key) > 1}):
        yield "plan.metrics", f"{cell} {name} is there twice; each is allowed once"


def _strangers(file: _File) -> Iterator[Finding]:
    """Names that the plan does not have: a slip of the pen would leave a metric unmeasured, unseen."""
    planned: dict[str, set[str]] = {}
    for claim in file.plan.metrics:
        planned.setdefault(claim.cell, set()).add(claim.name)
    tables = {"noise": file.noise, "first": file.first, "second": file.second, "invalid": file.invalid}
    for key, table in tables.items():
        for cell, metrics in (table or {}).items():
            if cell not in planned:
                yield f"{key}.{cell}", f"no such cell in the plan; its cells are {', '.join(sorted(planned))}"
            elif isinstance(metrics, Mapping):
                for name in sorted(metrics.keys() - planned[cell]):
                    known = ", ".join(sorted(planned[cell]))
                    yield f"{key}.{cell}.{name}", f"no such metric in the plan; those of {cell} are {known}"


def _uneven(file: _File) -> Iterator[Finding]:
    for key, series in (("first", file.first), ("second", file.second)):
        for cell, metrics in _ratios(series or {}).items():
            counts = {name: len(ratios) for name, ratios in metrics.items()}
            if len(set(counts.values())) > 1:
                text = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
                yield f"{key}.{cell}", f"a rep gives every metric; null where one is not known (reps: {text})"


# -- the answer in words -------------------------------------------------------------------------

MEANING = {
    Outcome.PASS: "every metric was shown to be inside its tolerance",
    Outcome.RED: "shown to be outside the tolerance",
    Outcome.INCONCLUSIVE: "shown neither inside nor outside",
    Outcome.CONTINUE: "not known yet",
}
_TOO_NOISY = {Reason.NOISE: "reps planned", Reason.INFEASIBLE: "tolerance"}


def words(judged: RowDecision) -> Iterator[str]:
    """The decision in plain words, the answer first."""
    yield f"{judged.outcome.upper()}: {_meaning(judged)}."
    series = [("first series", judged.first)] + ([("second series", judged.second)] if judged.second else [])
    for name, one in series:
        if judged.second:
            yield f"\n{name}: {one.outcome.upper()}"
        yield from _series(one)


def _meaning(judged: RowDecision) -> str:
    if judged.confirmed:
        return f"{MEANING[Outcome.RED]}, in a second series too (p = {judged.p:.2g})"
    text = MEANING[judged.outcome]
    if judged.outcome is Outcome.CONTINUE:
        which = " of the second series" if judged.second else ""
        return f"{text}; go on to {judged.next_look} reps{which}"
    if judged.reason in _TOO_NOISY:
        return f"{text}: too much noise for the {_TOO_NOISY[judged.reason]}"
    return f"{text}; {judged.reason.code}: {judged.reason.remedy}" if judged.reason else text


def _series(series: SeriesDecision) -> Iterator[str]:
    for cell, share in series.invalid_share.items():
        if share > 0:
            yield f"{cell}: {share:.0%} of the reps did not count"
    for metric in series.metrics:
        yield f"- {metric.metric.cell} {metric.metric.name}: {_outcome(metric)}"
        yield from (f"  {line}" for line in _metric(metric))


def _outcome(found: MetricDecision) -> str:
    text = found.outcome.upper() + (f", {found.side} the tolerance" if found.side else "")
    if found.looks:
        n = found.looks[-1].n
        text += f" after {n} reps" + (f" (of {found.reps} given)" if found.reps != n else "")
        text += ", stopped as hopeless" if found.looks[-1].futile else ""
    return text + (f" ({found.reason.code})" if found.reason and found.outcome is Outcome.INCONCLUSIVE else "")


def _metric(found: MetricDecision) -> Iterator[str]:
    plan = found.metric
    yield f"tested: {_tested(plan)}"
    if found.looks:
        yield f"measured: {_measured(plan, found.looks[-1])}"
    yield f"noise: {_noise(found)}"
    if found.companion:
        yield f"by signs alone: {found.companion}"
    if found.reason is Reason.METRIC_MISSING:
        yield "would decide it: every rep's ratio; one is not known"
    elif found.reason is Reason.NOT_MEASURED:
        yield f"would decide it: {'its A/A band' if found.reps else 'its reps, and its A/A band'}"
    elif found.needed:
        yield f"would decide it: {found.needed.sentence}"
    elif found.outcome is Outcome.CONTINUE:
        yield f"would decide it, perhaps: {found.next_look} reps"


def _tested(plan: MetricPlan) -> str:
    exact = "exact" if plan.baseline_reps is None else f"of {plan.baseline_reps} reps"
    low, high = plan.baseline_ratio / (1 + plan.tolerance), plan.baseline_ratio * (1 + plan.tolerance)
    bounds = f"at least {low:.4f}" if plan.direction is Direction.NO_WORSE else f"within {low:.4f} to {high:.4f}"
    return (
        f"whether the ratio is {bounds}, that is {plan.baseline_ratio:g} ({exact}) "
        f"with a tolerance of {percent(plan.tolerance)}, {plan.direction}"
    )


def _measured(plan: MetricPlan, look: Look) -> str:
    is_red = look.outcome is Outcome.RED
    mean = math.exp(min(look.estimate.mean, 700))
    low, high = (plan.baseline_ratio * end for end in (look.red_interval if is_red else look.interval))
    text = f"{plan.baseline_ratio * mean:.4f} ({100 * (mean - 1):+.2f} %), interval {low:.4f} to {high:.4f}"
    if is_red:
        return f"{text}: wholly outside"
    return f"{text}: {'wholly inside' if look.outcome is Outcome.PASS else 'reaches over the tolerance'}"


def _noise(found: MetricDecision) -> str:
    if found.noise is None or found.noise_share is None:
        return "not known"
    kinds = {"pocock": "budgets spent evenly", "obrien-fleming": "budgets spent late", None: "infeasible"}
    return (
        f"A/A standard deviation {percent(found.noise.sd)} of {found.noise.pairs} pairs, "
        f"{found.noise_share:.2f} of the tolerance with the baseline's part: {kinds[found.spending]}"
    )


def percent(share: float) -> str:
    """A share for a person: three digits and no exponent."""
    return f"{float(f'{100 * share:.3g}'):.12g} %"
