"""Documents: what the records that leave the machine look like, as models from which their schemas are published.

A reader of a verdict needs no code of ours: config/schemas/verdict.schema.json says what is in it. Keys
that are told are there and of that kind; others may be added without a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from pinproof.reasons import Owner, Reason, Refusal

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# One of the closed list in reasons.py.
ReasonCode = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
OwnerName = Literal[tuple(str(owner) for owner in Owner)]
Answer = Literal["HOLD", "REVERT", "UNDECIDED"]
Judged = Literal["pass", "red", "inconclusive", "continue"]


class Document(BaseModel):
    """Part of a record: nothing is converted, and no number is NaN or infinite."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class Schema(Document):
    """Which record this is."""

    name: str = Field(pattern=r"^pinproof(-rehearsal)?/[a-z-]+$", description="the rehearsal's are of another family")
    version: Literal[1]


class Record(Document):
    """A record. What varies without meaning (times, paths, run ids) is under `provenance`."""

    schema_: Schema = Field(alias="schema")
    provenance: dict[str, Any] | None = None


class Cause(Document):
    """Why a verdict is not HOLD."""

    subject: str = Field(description="gate or row")
    reason: ReasonCode
    owner: OwnerName = Field(description="whose failure it is; only a target's can lead to REVERT")
    needs: str = Field(description="what would decide or mend it")


class Failure(Document):
    """The refusal that the last attempt at a row ended in."""

    reason: ReasonCode
    owner: OwnerName
    message: str
    file: str | None
    key: str | None
    remedy: str


class Noise(Document):
    """The A/A band: pairs of one arm against itself."""

    sd: float | None = Field(description="standard deviation of their log ratios (of points, for a share)")
    pairs: int


class Estimate(Document):
    """The mean of the reps at one look, on the scale of the metric, relative to the baseline."""

    n: int = Field(description="reps")
    mean: float | None
    standard_error: float | None


class Look(Document):
    """What one look at the reps said."""

    estimate: Estimate
    interval: list[float | None] = Field(
        min_length=2, max_length=2, description="what a PASS at that look does not rule out, relative to the baseline"
    )
    outcome: Judged


class MetricPlan(Document):
    """What a metric of a cell is judged by."""

    cell: str
    name: str
    tolerance: float
    baseline_ratio: float
    direction: Literal["two-sided", "no-worse"]
    scale: Literal["log", "linear", "exact"]


class Metric(Document):
    """The decision about one metric in one cell, by one series."""

    metric: MetricPlan
    outcome: Judged
    reason: ReasonCode | None
    noise: Noise | None
    reps: int
    looks: list[Look]
    next_look: int | None


class Series(Document):
    """The decision by the reps of one lease."""

    outcome: Judged
    reason: ReasonCode | None
    metrics: list[Metric]
    reps: int | None
    next_look: int | None


class Decision(Document):
    """The decision about a row; a red of the first series counts when the second says it again."""

    outcome: Judged
    reason: ReasonCode | None
    confirmed: bool
    p: float | None
    next_look: int | None
    first: Series
    second: Series | None


class Objection(Document):
    """Why a leg does not count."""

    reason: ReasonCode
    owner: OwnerName
    message: str


class LegId(Document):
    """Which leg."""

    series: int
    phase: Literal["noise", "rep", "off", "first"]
    cell: str
    index: int
    position: int
    arm: str


class InvalidLeg(Document):
    """A leg that does not count."""

    id: LegId
    objections: list[Objection]


class Legs(Document):
    """The legs that a row was judged by."""

    count: int
    invalid: list[InvalidLeg]
    digest: Sha256 = Field(description="of every leg's content digest by name")


class Plan(Document):
    """Content digests of the plan that was written before data, and of the one that was decided under."""

    measured_under: Sha256 | None
    decided_under: Sha256
    changed_after_data: bool | None


class Measured(Document):
    """Of what the legs were taken."""

    digest: str = Field(description="folder of what was measured: a digest of `key`")
    key: dict[str, Any]
    versions: dict[str, list[Sha256]] = Field(description="content digest of each arm's version record")
    devices: list[str]


class Row(Document):
    """The result of a row."""

    row: str
    kind: Literal["serving", "startup", "warmup", "speculative"]
    outcome: Literal["pass", "red", "inconclusive", "failed"]
    failure: Failure | None
    question: str
    decision: Decision | None = Field(description="null for a row whose hard gates are all that it has")
    warmup: dict[str, Any] | None
    beside: dict[str, Any] | None = Field(description="figures that gate nothing")
    absolutes: dict[str, dict[str, dict[str, float | str | None]]] = Field(
        description="by cell and metric: unit, and the median over legs by arm"
    )
    reps: dict[str, dict[str, dict[str, list[float | None]]]] = Field(
        description="by cell, series and metric: the ratio of every rep, times better (points, for a share)"
    )
    legs: Legs
    plan: Plan
    measured: Measured
    series_digest: Sha256


class RowRecord(Row, Record):
    """rows/ROW.json: what was decided about a row."""


class GateRow(Document):
    """One field of a pin block against what was read of the engine."""

    field: str
    declared: str | None
    measured: str | None
    verdict: str
    reason: ReasonCode | None


class Gate(Document):
    """Whether an engine is what its block declares."""

    arm: str
    engine: str
    outcome: Literal["pass", "fail", "unknown"]
    build_mode: str
    rows: list[GateRow]
    version_digest: Sha256


class Arm(Document):
    """An engine under measurement."""

    engine: str = Field(description="digest that its files lie under")
    key: dict[str, Any] = Field(description="what that is a digest of")
    gate: Gate
    environment: dict[str, str | None] = Field(description="what was read of it; null: unknown")
    version_digest: Sha256


class Device(Document):
    """Where it was measured."""

    identity: dict[str, Any]
    digest: str


class Checkpoint(Document):
    """A subject."""

    kind: str
    digest: str
    parameters: int | None


class Verdict(Record):
    """verdict.json: whether the pin holds, and all that it follows from."""

    case: str
    question: str
    advance: Literal["candidate", "pinned"]
    verdict: Answer | Literal["REHEARSAL"]
    would_say: Answer | None = Field(default=None, description="of a rehearsal only")
    against: list[Cause] = Field(description="what speaks against the pin")
    open: list[Cause] = Field(description="what is not decided")
    decision: dict[str, Any]
    arms: dict[str, Arm]
    device: Device
    checkpoints: dict[str, Checkpoint]
    rows: dict[str, Row]
    baselines: dict[str, Any]
    discharges: list[dict[str, Any]]
    not_owed: list[dict[str, Any]]
    inputs: dict[str, Sha256] = Field(description="content digest of every record that it was made from")


class Leg(Record):
    """legs/NAME.json: one timed run of one arm at one cell, or one start."""

    id: LegId
    metrics: dict[str, float | None]
    valid: bool
    objections: list[Objection]
    raw_sha256: Sha256 = Field(description="of the output that it was read from, as it was written there")
    version_digest: Sha256
    device_digest: str


class Original(Document):
    """Of a file that was scrubbed: the digests by which records name it."""

    sha256: Sha256
    content: Sha256 | None = Field(default=None, description="content digest, where it is a record")


class File(Document):
    """A file of an archive."""

    bytes: int = Field(ge=0)
    sha256: Sha256
    original: Original | None = Field(default=None, description="only where secrets or home paths were taken out")


class Identities(Document):
    """What a machine adds to the identities of a case, and where the locks lie."""

    machine: dict[str, str]
    spans: Sha256 | None
    locks: dict[str, str]
    checkpoints: dict[str, dict[str, Any]]


class Index(Record):
    """index.json of an archive: every file in it but this one and its seal."""

    case: str
    code: Sha256 = Field(description="of the code that made it")
    identities: Identities
    files: dict[str, File]
    left_out: dict[str, Sha256] = Field(description="sha256 of files that are named and not archived, such as wheels")


MODELS: dict[str, type[Document]] = {"verdict": Verdict, "row": RowRecord, "leg": Leg, "archive": Index}


def json_schema(name: str) -> dict[str, Any]:
    """The published JSON Schema of a document."""
    schema = MODELS[name].model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def require(name: str, record: Mapping[str, Any], file: Path | str) -> None:
    """Refuse (RECORD_DAMAGED) what is not the document that it should be, with the first key that is wrong."""
    try:
        MODELS[name].model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise Refusal(
            Reason.RECORD_DAMAGED, f"{first['msg']} (got {first['input']!r:.80})", file=file, key=key
        ) from None
