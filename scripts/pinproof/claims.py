"""Claims: the rows that a case measures again, one model a kind of row."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from pinproof import records
from pinproof.baselines import Published
from pinproof.findings import Strict, alternatives
from pinproof.ids import CallableName, Id

Metric = Literal["output_throughput", "median_tpot", "median_ttft"]
SpeculativeMetric = Literal["output_throughput", "median_tpot", "median_ttft", "acceptance_length", "acceptance_rate"]
StartMetric = Literal["first_health", "first_completion"]

# A start varies from life to life by more than a serving figure does: less than this is not a claim.
LEAST_START_TOLERANCE = 0.05
Direction = Literal["two-sided", "no-worse"]
_DIRECTION = "which side of the tolerance makes a row red"


def _rising(looks: list[int]) -> list[int]:
    if looks[0] < 3 or looks != sorted(set(looks)):
        raise ValueError("looks must increase and start at 3 or more")
    return looks


Looks = Annotated[list[int], Field(min_length=1), AfterValidator(_rising)]


class Serve(Strict):
    """How a server is started: arguments and environment, never through a shell."""

    args: list[str] = Field(default=[], description="arguments after `vllm serve MODEL`")
    env: dict[str, str] = Field(default={}, description="environment variables of the server")


class Cell(Strict):
    """A load point: a closed loop of `concurrency` clients over `prompts` requests a leg."""

    concurrency: int = Field(gt=0, le=4096, description="requests in flight at most")
    prompts: int = Field(gt=0, le=100_000, description="requests in one leg")

    @property
    def id(self) -> str:
        """The cell's name in paths and pages: c1, c4, …"""
        return f"c{self.concurrency}"


class Recipe(Strict):
    """What every request of a row looks like."""

    input_tokens: int = Field(ge=16, description="prompt tokens of every request")
    output_tokens: int = Field(gt=1, description="generated tokens of every request (TPOT needs two)")
    warmup_prompts: int = Field(default=4, ge=1, description="untimed requests a cell and arm before its first leg")


class MetricClaim(Strict):
    """One gated metric of a row. Ratios say times better: above 1 the numerator arm wins."""

    name: Metric = Field(description="which metric of a leg")
    tolerance: float = Field(gt=0, lt=1, description="largest move of the ratio that is still called the same")
    baseline: float = Field(default=1.0, gt=0, description="the published ratio, of every cell")
    baselines: dict[Id, Annotated[float, Field(gt=0)]] | None = Field(
        default=None,
        min_length=1,
        description="in the place of `baseline`: the published ratio of each cell; in a cell that is not named the "
        "metric is not gated",
    )
    baseline_reps: int | None = Field(default=None, gt=0, description="reps behind the baseline; null: it is exact")

    @model_validator(mode="after")
    def _says_how_exact(self) -> MetricClaim:
        if self.baselines is not None and self.baseline != 1.0:
            raise ValueError("baseline and baselines exclude each other: say one ratio, or one a cell")
        stated = self.baseline != 1.0 or self.baselines is not None
        if stated and "baseline_reps" not in self.model_fields_set:
            raise ValueError("a baseline needs baseline_reps: the reps behind it, or null if it is exact")
        return self


class Claim(Strict):
    """What every row says: which arms are compared, and which side is a red one."""

    id: Id = Field(description="name of the row")
    numerator: Id = Field(description="arm in the numerator of a throughput ratio: the one that is judged")
    denominator: Id = Field(description="arm in its denominator: the one that it is compared with")
    direction: Direction = Field(description=_DIRECTION)
    published: Published | None = Field(
        default=None, description="the record behind the baselines; null: none is named"
    )


class Measured(Claim):
    """A row that is measured with servers of its own."""

    checkpoint: Id = Field(description="which of the case's checkpoints is the subject")
    serve: Serve = Field(default=Serve(), description="what both arms' servers get for this row")
    start_timeout_s: int = Field(default=900, gt=0, description="longest wait for a server to be ready, seconds")
    stall_timeout_s: int = Field(
        default=300, gt=0, description="longest silence of a server that starts or has work, seconds"
    )
    looks: Looks | None = Field(default=None, description="numbers of reps at which to look; null: the case's")
    noise_pairs: int | None = Field(
        default=None, ge=3, le=64, description="pairs of the A/A band of this row; null: the case's"
    )


class Serving(Measured):
    """Kind `serving`: a closed-loop serving benchmark of two arms."""

    kind: Literal["serving"] = Field(description="closed-loop serving benchmark")
    residency: Literal["shared", "exclusive"] = Field(
        description="shared: both arms are up at once and legs alternate; exclusive: one server at a time"
    )
    recipe: Recipe = Field(description="lengths of the requests")
    cells: list[Cell] = Field(min_length=1, description="load points")
    metrics: list[MetricClaim] = Field(min_length=1, description="what is gated in every cell")
    leg_timeout_s: int = Field(default=600, gt=0, description="longest leg, seconds")
    discard_first: int = Field(
        default=0,
        ge=0,
        le=3,
        description="pairs of every cell and series that are run first, kept, shown and not counted, as published "
        "recipes do with a cold one",
    )


# -- speculative decoding ------------------------------------------------------------------------


class SpeculativeClaim(MetricClaim):
    """One gated metric of a speculative row: a metric of a serving row, or of what was drafted and accepted."""

    name: SpeculativeMetric = Field(description="which metric of a leg")
    tolerance: float | None = Field(
        default=None, gt=0, lt=1, description="largest move of the ratio that is still called the same; null: exact"
    )
    exact: bool = Field(
        default=False,
        description="in the place of a tolerance: equal on both arms in every rep (greedy decoding, equal weights)",
    )

    @model_validator(mode="after")
    def _is_exact_or_has_a_tolerance(self) -> SpeculativeClaim:
        if self.exact == (self.tolerance is not None):
            raise ValueError("a metric needs a tolerance, or exact: true; not both")
        if self.exact and not self.name.startswith("acceptance"):
            raise ValueError(f"only acceptance_length and acceptance_rate can be exact; {self.name} is a time")
        if self.exact and self.baseline != 1.0:
            raise ValueError("what is exact is equal on both arms: its baseline is 1")
        return self


class Speculative(Serving):
    """Kind `speculative`: a serving benchmark with speculative decoding on both arms."""

    kind: Literal["speculative"] = Field(description="serving benchmark with speculative decoding")
    config: dict[str, Any] = Field(
        min_length=1, description="what `--speculative-config` gets on both arms; every kind that the engine knows"
    )
    metrics: list[SpeculativeClaim] = Field(min_length=1, description="what is gated in every cell")
    noise_prompts: Literal["own", "same"] = Field(
        default="own",
        description="prompts of the legs of an A/A pair: own, so that none comes from the prefix cache; same, as both "
        "legs of a rep get, since what is accepted depends on the prompts (prefix caching must be off)",
    )
    off_legs: int = Field(
        default=0,
        ge=0,
        le=12,
        description="legs of each arm and cell without speculation, beside the reps and never gated; each arm's "
        "need one more server life",
    )

    @field_validator("config")
    @classmethod
    def _says_how_many(cls, config: dict[str, Any]) -> dict[str, Any]:
        try:
            records.canonical(config)
        except (TypeError, ValueError):
            raise ValueError("must hold what JSON can hold: it is given to the engine as JSON") from None
        if type(config.get("num_speculative_tokens")) is not int:
            raise ValueError("num_speculative_tokens must be a whole number: what is accepted is counted against it")
        return config


# -- start-up and warm-up ------------------------------------------------------------------------


class StartCell(Strict):
    """The one cell of a start: there is no load."""

    id: Literal["start"] = "start"


START = StartCell()


class Caches(Strict):
    """What a start finds; set before every life, equal on both arms, and recorded."""

    page: Literal["dropped", "warm"] = Field(
        description="files of the engine and the checkpoint in the machine's memory: dropped from it, or read into it"
    )
    compile: Literal["fresh", "warm"] = Field(
        description="caches of compiled graphs: empty, or as a start of the same arm left them"
    )
    jit: Literal["fresh", "warm"] = Field(
        description="caches of compiled kernels and of autotuning: empty, or as a start of the same arm left them"
    )

    @property
    def needs_a_first_life(self) -> bool:
        """Whether a life of each arm must come before, to fill what is to be warm."""
        return "warm" in (self.compile, self.jit)


class Span(Strict):
    """A callable inside the engine whose calls are timed, in every process of the engine."""

    name: Id = Field(description="what it is called in the results")
    callable: CallableName = Field(description="module:name, or module:Class.method")
    inside: CallableName | None = Field(
        default=None,
        description="the inner call that does the work; it must be seen to return for the outer one to count as "
        "succeeded, and where it did not run, the outer one was skipped",
    )


class StartClaim(MetricClaim):
    """One gated metric of a start: seconds from the spawn to a mark."""

    name: StartMetric = Field(description="first_health: /health answers 200; first_completion: a token came")
    tolerance: float = Field(
        ge=LEAST_START_TOLERANCE, lt=1, description="largest move of the ratio that is still called the same"
    )


class Startup(Measured):
    """Kind `startup`: one fresh server life a leg, from the spawn to its first finished completion."""

    kind: Literal["startup"] = Field(description="server starts, one life a leg, alone on the device")
    caches: Caches = Field(description="what every start finds, on both arms")
    metrics: list[StartClaim] = Field(min_length=1, description="what is gated")
    spans: list[Span] = Field(
        default=[], description="callables inside the engine that are timed; empty: the span plugin stays out"
    )

    @property
    def cells(self) -> list[StartCell]:
        """A start has one cell."""
        return [START]


class Change(Strict):
    """How far the share of start-up may move from arm to arm."""

    tolerance_points: float = Field(gt=0, lt=100, description="largest move that is still called the same, in points")
    baseline_points: float = Field(
        default=0.0, gt=-100, lt=100, description="published: share of the denominator minus that of the numerator"
    )
    baseline_reps: int | None = Field(default=None, gt=0, description="reps behind the baseline; null: it is exact")


class PointsClaim(Strict):
    """The gated metric of a warm-up row, on a linear scale: percentage points."""

    name: Literal["warmup_share"] = "warmup_share"
    tolerance: float
    baseline: float
    baseline_reps: int | None


class Warmup(Claim):
    """Kind `warmup`: what became of named callables in the lives of a start-up row, and what share they took.

    It has no lives of its own. Whether a callable succeeded is a hard gate without statistics.
    """

    kind: Literal["warmup"] = Field(description="warm-up of an engine, seen in the lives of a start-up row")
    of: Id = Field(description="the start-up row whose lives are looked at")
    callables: list[Id] = Field(min_length=1, description="names of spans of that row: all must succeed in every life")
    arms: list[Id] | None = Field(
        default=None, min_length=1, description="arms whose callables must succeed; null: both arms of the row"
    )
    change: Change | None = Field(
        default=None, description="gates the change of the callables' share of start-up; null: it is only reported"
    )

    @property
    def cells(self) -> list[StartCell]:
        """A start has one cell."""
        return [START]

    @property
    def judged_arms(self) -> tuple[str, ...]:
        """Arms whose callables must succeed."""
        return tuple(self.arms or (self.numerator, self.denominator))

    @property
    def metrics(self) -> list[PointsClaim]:
        """What is gated by statistics; none when only the outcome is."""
        if self.change is None:
            return []
        change = self.change
        return [
            PointsClaim(
                tolerance=change.tolerance_points, baseline=change.baseline_points, baseline_reps=change.baseline_reps
            )
        ]


Row = alternatives("kind", serving=Serving, startup=Startup, warmup=Warmup, speculative=Speculative)


def baseline_of(metric: MetricClaim | PointsClaim, cell: str) -> float | None:
    """The ratio that a metric is compared with in a cell; None where it is not gated."""
    baselines = getattr(metric, "baselines", None)
    return metric.baseline if baselines is None else baselines.get(cell)
