"""Published rows as data: what would each of these ratios need to be decidable?

The file names ratios as they were printed, the noise that was recorded beside them, and what is
called a tie. Nothing is measured: each noise stands for the A/A band that a run might find. The
answer is the rule's own arithmetic; docs/examples/headpin-rows.yaml is such a file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator
from tabulate import tabulate

from pinproof import yamlfile
from pinproof.advice import to_be_feasible
from pinproof.boundaries import Spending, nominal_p
from pinproof.decision import MetricDecision, as_value, decide_metric
from pinproof.equivalence import MetricPlan, NoiseBand, Outcome, Plan, noise_share, spending_for, t_above
from pinproof.findings import Strict, check
from pinproof.question import Legs, percent

_FIGURE = r"^[0-9]+(\.[0-9]+)?$"
Figure = Annotated[str, StringConstraints(pattern=_FIGURE)]
Text = Annotated[str, StringConstraints(min_length=1)]

# -- the file ------------------------------------------------------------------------------------


class RecordedNoise(Strict):
    """A spread that the record gives."""

    name: Text = Field(description="what it is the noise of")
    sd: float = Field(gt=0, lt=1, description="as a standard deviation of log ratios (0.01 is 1 %)")
    cells: list[Text] = Field(min_length=1, description="cells that it may be taken for")
    cited: Text = Field(description="where it is published")


class TieBand(Strict):
    """The difference that the project itself calls a tie."""

    share: float = Field(gt=0, lt=1, description="largest such difference (0.005 is 0.5 %)")
    cited: Text = Field(description="where it is published")


class PublishedRatio(Strict):
    """One published ratio, in figures as printed; or what was said, and the absolutes of both arms."""

    cell: Text = Field(description="load point")
    metric: Text = Field(description="which metric")
    prompts: Text | None = Field(default=None, description="which prompts, where a cell has several sets")
    ratio: Figure | None = Field(default=None, description="times better than the oracle, as printed")
    says: Text | None = Field(default=None, description="what was published where no figure was")
    ours: Figure | None = Field(default=None, description="absolute of the project's own arm")
    oracle: Figure | None = Field(default=None, description="absolute of the oracle")
    better: Literal["higher", "lower"] | None = Field(default=None, description="which absolutes are the better ones")
    reps: Legs | None = Field(default=None, description="the reps, where they were published")

    @model_validator(mode="after")
    def _has_a_ratio(self) -> PublishedRatio:
        absolutes = (self.ours, self.oracle, self.better)
        if None in absolutes and absolutes != (None, None, None):
            raise ValueError("ours, oracle and better go together")
        if self.ratio is None and self.ours is None:
            raise ValueError("a ratio is needed, or the absolutes ours and oracle")
        if not all(float(figure) > 0 for figure in (self.ratio, self.ours, self.oracle) if figure):
            raise ValueError("figures are positive")
        return self

    @property
    def subject(self) -> str:
        """Cell, prompts and metric in words."""
        return " ".join(part for part in (self.cell, self.prompts, self.metric) if part)

    @property
    def range(self) -> tuple[float, float]:
        """The ratios that would be printed so; without a printed one, those of the absolutes."""
        if self.ratio is not None:
            return _rounded_from(self.ratio)
        above, below = (self.ours, self.oracle) if self.better == "higher" else (self.oracle, self.ours)
        (low, high), (least, most) = _rounded_from(above), _rounded_from(below)
        return low / most, high / least

    @property
    def value(self) -> float:
        """The ratio, from the absolutes where none was printed."""
        if self.ratio is not None:
            return float(self.ratio)
        ratio = float(self.ours) / float(self.oracle)
        return ratio if self.better == "higher" else 1 / ratio


class PublishedRow(Strict):
    """The ratios of one row, which share citation and repetitions."""

    id: Text = Field(description="name of the row")
    cited: Text = Field(description="where its figures are published")
    repetitions: Annotated[int, Field(gt=0)] | None = Field(
        description="reps behind each ratio; null: the record does not say"
    )
    tolerance: float | None = Field(default=None, gt=0, lt=1, description="asked of this row instead of the file's")
    remark: Text | None = Field(default=None, description="what the record says against the row")
    claims: list[PublishedRatio] = Field(min_length=1, description="its ratios")


class Record(Strict):
    """What was published."""

    subject: Text = Field(description="whose record, on which device, at which pin")
    noise: list[RecordedNoise] = Field(min_length=1, description="spreads that the record gives")
    pairs: int = Field(default=8, ge=2, description="pairs of the A/A band that is still to be run")
    tie_band: TieBand = Field(description="what the project calls a tie")
    tolerance: float = Field(gt=0, lt=1, description="what does this tolerance need?")
    rows: list[PublishedRow] = Field(min_length=1, description="published rows")


def read(path: Path) -> Record:
    """Read a record. Refusal CASE_INVALID names the file and every key that is wrong."""
    patterns = {_FIGURE: "digits with one point at most, in quotes, as printed"}
    return check(Record, yamlfile.read(path), path, patterns=patterns)


def _rounded_from(figure: str) -> tuple[float, float]:
    """What may have been rounded to these digits."""
    half = 0.5 * 10.0 ** -len(figure.partition(".")[2])
    return float(figure) - half, float(figure) + half


# -- what a ratio needs --------------------------------------------------------------------------


class Tie(StrEnum):
    """Where the distance of a ratio from 1 lies, whatever its missing digits were."""

    UNDER = "under"
    AT = "at"  # within its rounding of the tie band
    OVER = "over"


@dataclass(frozen=True)
class Needs:
    """What a tolerance needs when the A/A band shows this noise.

    `least_tolerance` is feasible at the planned end. Where the asked one is feasible, `passes_at` is
    the look at which a ratio that has not moved passes, when its reps vary just as the A/A band.
    Where it is not, each alone would bring the standard error down to that of a feasible row: `reps`
    in all, or `baseline_reps`; where neither does, `both` is the number for each. None: it cannot,
    or need not.
    """

    noise: str
    sd: float
    recorded: bool  # for this cell
    least_tolerance: float
    spending: Spending | None
    passes_at: int | None = None
    reps: int | None = None
    baseline_reps: int | None = None
    both: int | None = None


@dataclass(frozen=True)
class Parity:
    """What published reps say of parity at one tolerance and noise, in the order they were listed.

    `other_pairings` are the outcomes of all other ways to pair the arms' values: the record may
    not say which legs were neighbours.
    """

    noise: str
    sd: float
    decision: MetricDecision
    other_pairings: tuple[Outcome, ...]


@dataclass(frozen=True)
class Needed:
    """A published ratio and what it needs. `most_noise` is the largest A/A sd at which it is feasible."""

    row: str
    cited: str
    claim: PublishedRatio
    tie: Tie
    margin: float
    repetitions: int | None
    tolerance: float
    most_noise: float
    needs: tuple[Needs, ...]
    parity: tuple[Parity, ...]

    @property
    def subject(self) -> str:
        """Row, cell and metric in words."""
        return f"{self.row} {self.claim.subject}"

    def as_record(self) -> dict[str, Any]:
        """Every figure as JSON values."""
        claim = {**self.claim.model_dump(), "value": self.claim.value, "range": self.claim.range}
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return as_value({**fields, "claim": claim})


def needed(record: Record) -> tuple[Needed, ...]:
    """What every published ratio needs. A ratio of unknown repetitions is taken to have one, the least it has."""
    return tuple(_needed(record, row, claim) for row in record.rows for claim in row.claims)


def _needed(record: Record, row: PublishedRow, claim: PublishedRatio) -> Needed:
    tolerance = row.tolerance or record.tolerance
    metric = MetricPlan(claim.cell, claim.metric, tolerance, claim.value, row.repetitions or 1)
    plan = Plan((metric,))
    return Needed(
        row=row.id,
        cited=row.cited,
        claim=claim,
        tie=tie(claim, record.tie_band.share),
        margin=abs(claim.value - 1),
        repetitions=row.repetitions,
        tolerance=tolerance,
        most_noise=1 / noise_share(plan, metric, NoiseBand(1.0, record.pairs)),
        needs=tuple(_needs(plan, metric, record, noise) for noise in record.noise),
        parity=tuple(_parity(record, claim)) if claim.reps else (),
    )


def tie(claim: PublishedRatio, band: float) -> Tie:
    """Is the ratio's distance from 1 under the tie band, over it, or is that hidden by its rounding?"""
    low, high = claim.range
    nearest, farthest = max(low - 1, 1 - high, 0.0), max(high - 1, 1 - low)
    return Tie.UNDER if farthest < band else Tie.OVER if nearest > band else Tie.AT


def _needs(plan: Plan, metric: MetricPlan, record: Record, noise: RecordedNoise) -> Needs:
    band = NoiseBand(noise.sd, record.pairs)
    advice = to_be_feasible(plan, metric, band)
    spending = spending_for(noise_share(plan, metric, band))
    known = {"noise": noise.name, "sd": noise.sd, "recorded": metric.cell in noise.cells}
    known |= {"least_tolerance": advice.tolerance, "spending": spending}
    if spending is not None:
        return Needs(**known, passes_at=_passes_at(plan, metric, band, spending))
    end = plan.looks[-1]
    reps = None if advice.prompts_factor is None else math.ceil(end * advice.prompts_factor)
    alone = reps or advice.baseline_reps
    both = None if alone else math.ceil(2 * end * (noise.sd / metric.tolerance) ** 2)
    return Needs(**known, reps=reps, baseline_reps=advice.baseline_reps, both=both)


def _passes_at(plan: Plan, metric: MetricPlan, band: NoiseBand, spending: Spending) -> int | None:
    """The first look at which a mean on the baseline passes, with the band's own spread."""
    for n, p in zip(plan.looks, nominal_p(plan.looks, plan.pass_budget, spending), strict=True):
        error = band.sd * math.sqrt(1 / n + metric.baseline_share)
        if t_above(p, band.df + n - 1) * error < metric.slack(0.0):
            return n
    return None


def _parity(record: Record, claim: PublishedRatio) -> Iterator[Parity]:
    reps = claim.reps
    for tolerance in dict.fromkeys((record.tie_band.share, record.tolerance)):
        metric = MetricPlan(claim.cell, claim.metric, tolerance, 1.0, None)
        for noise in record.noise:
            if claim.cell in noise.cells:
                band = NoiseBand(noise.sd, record.pairs)
                listed, *others = (
                    decide_metric(
                        Plan((metric,)), metric, band, reps.model_copy(update={"denominator": pairing}).ratios
                    )
                    for pairing in itertools.permutations(reps.denominator)
                )
                yield Parity(noise.name, noise.sd, listed, tuple(sorted({one.outcome for one in others})))


# -- in words ------------------------------------------------------------------------------------


def words(record: Record, rows: Sequence[Needed]) -> Iterator[str]:
    """The answer first, then the table, how to read it, and what published reps say."""
    yield f"{len(rows)} published ratios, {record.subject}"
    band = percent(record.tie_band.share)
    for side in (Tie.UNDER, Tie.AT):
        for row in rows:
            if row.tie is side:
                yield f"{side} the tie band of {band}: {row.subject}, {_printed(row.claim)}, a margin of {_margin(row)}"
    yield ""
    yield _table(record, rows)
    yield ""
    yield from _legend(record)
    for row in record.rows:
        if row.remark:
            yield f"- {row.id}: {row.remark}"
    for row in rows:
        if row.parity:
            yield ""
            yield from _parity_words(row)


def _table(record: Record, rows: Sequence[Needed]) -> str:
    heads = ["row", "cell", "metric", "published", "margin", "tie band", "reps", "tolerance", "most noise"]
    heads += [f"at {percent(noise.sd)}" for noise in record.noise]
    lines = [
        [
            row.row,
            " ".join(part for part in (row.claim.cell, row.claim.prompts) if part),
            row.claim.metric,
            _printed(row.claim),
            _margin(row),
            row.tie,
            row.repetitions or "unknown",
            percent(row.tolerance),
            percent(_down(row.most_noise)),
            *(in_words(one) for one in row.needs),
        ]
        for row in rows
    ]
    return tabulate(lines, heads, tablefmt="github", disable_numparse=True)


def _legend(record: Record) -> Iterator[str]:
    noise = ", ".join(f"{percent(one.sd)} {one.name}" for one in record.noise)
    cited = "; ".join(dict.fromkeys(one.cited for one in record.noise))
    yield f"- noise: {noise} ({cited})"
    yield "- reps: those behind the published ratio; unknown counts as 1"
    yield "- most noise: the largest A/A standard deviation at which the tolerance is feasible at 12 reps"
    yield (
        "- at a noise: the least tolerance that is feasible at 12 reps, then what the row's tolerance needs: the "
        "look at which a ratio that has not moved passes; or else how many reps, on which side, carry enough"
    )
    yield "- *: the record gives this noise for other cells only"
    yield (
        "- more than 12 reps: what carries as much information as 12 reps of a feasible row; the rule itself goes by "
        "noise over tolerance, whatever the reps, and starts no such row"
    )
    yield f"- tie band: {percent(record.tie_band.share)} ({record.tie_band.cited})"


def _printed(claim: PublishedRatio) -> str:
    return claim.ratio or f"{claim.says + ': ' if claim.says else ''}{claim.value:.3f}"


def _margin(row: Needed) -> str:
    return f"{100 * row.margin:.1f} %"


def in_words(one: Needs) -> str:
    """The least tolerance, rounded up, and what the tolerance that was asked needs."""
    return f"{percent(_up(one.least_tolerance))}: {_way(one)}{'' if one.recorded else ' *'}"


def _way(one: Needs) -> str:
    if one.spending is not None:
        return f"{one.passes_at} reps" if one.passes_at else "12 reps may not do"
    ways = [one.reps and f"{one.reps} reps", one.baseline_reps and f"a baseline of {one.baseline_reps}"]
    ways += [one.both and f"{one.both} reps and a baseline of {one.both}"]
    return ", or ".join(way for way in ways if way)


def _parity_words(row: Needed) -> Iterator[str]:
    yield f"{row.subject}: what its published reps say of parity (1.0, exact)"
    for one in row.parity:
        found = one.decision
        text = found.outcome.upper()
        if found.reason:
            text += f" ({found.reason.code})"
        if found.looks:
            low, high = found.looks[-1].interval
            text += f" at {found.looks[-1].n} reps, interval {low:.4f} to {high:.4f}"
        if found.next_look:
            text += f", go on to {found.next_look}"
        if found.needed:
            text += f"; would decide it: {found.needed.sentence}"
        other = ", ".join(one.other_pairings)
        same = set(one.other_pairings) <= {found.outcome}
        text += "; however the legs are paired" if same else f"; paired otherwise: {other}"
        yield f"- tolerance {percent(found.metric.tolerance)}, noise {percent(one.sd)}: {text}"


def _up(value: float) -> float:
    """To three digits, never less."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit - 1e-9) * unit


def _down(value: float) -> float:
    """To three digits, never more."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.floor(value / unit + 1e-9) * unit
