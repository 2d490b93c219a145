"""The case file: what a person asks of pinproof, parsed at the border and trusted inside.

The models below are the only definition of a case. config/schemas/case.schema.json is made from
them (`make schemas`), and a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from pinproof import ids, yamlfile
from pinproof.claims import Row, Serve
from pinproof.engines import Engine
from pinproof.findings import Finding, Strict, check, refusal
from pinproof.ids import Id
from pinproof.subjects import Checkpoint

ORACLE = "oracle"

# Folders beside those of the cases, when engines and checkpoints lie in the same root.
STORE_FOLDERS = ("engines", "checkpoints")

# Fields of a pin block whose versions are compared.
Version = Literal[
    "vllm_runtime_version",
    "vllm_distribution_version",
    "flashinfer_version",
    "torch_version",
    "transformers_version",
    "nvidia_cutlass_dsl_version",
]


class Arm(Strict):
    """An engine under measurement."""

    pin: str = Field(description="Markdown file with one parity-pin block: the declared identity")
    compare: dict[Version, Literal["exact", "release"]] = Field(
        default={}, description="how a field of the block is compared; exact where nothing is said"
    )
    engine: Engine = Field(description="where the engine comes from")
    serve: Serve = Field(default=Serve(), description="what this arm's server needs besides the row's arguments")


class Placement(Strict):
    """Which cores the processes of a CPU server compute on once it is ready."""

    front: list[Annotated[int, Field(ge=0)]] = Field(min_length=1, description="API server and load client")
    engine: list[Annotated[int, Field(ge=0)]] = Field(min_length=1, description="engine and workers")


class DecisionPlan(Strict):
    """When a row is looked at and how much error is spent; see docs/decision.md."""

    looks: list[int] = Field(default=[3, 4, 6, 8, 12], min_length=1, description="numbers of reps at which to look")
    pass_budget: float = Field(default=0.05, gt=0, lt=0.5, description="one-sided error of a false PASS")
    red_budget: float = Field(default=0.01, gt=0, lt=0.5, description="one-sided error of a false RED")
    noise_pairs: int = Field(default=8, ge=3, le=64, description="pairs of the A/A band")
    max_invalid_share: float = Field(default=0.25, ge=0, lt=1, description="invalid reps above this end a row")
    order_seed: int = Field(default=0, ge=0, description="draws which arm goes first")

    @field_validator("looks")
    @classmethod
    def _looks_increase(cls, looks: list[int]) -> list[int]:
        if looks[0] < 3 or looks != sorted(set(looks)):
            raise ValueError("looks must increase and start at 3 or more")
        return looks


class Device(Strict):
    """The device that the case's baselines belong to; a number taken on another is refused."""

    kind: Literal["cpu"] = Field(description="what kind of device")
    name: str | None = Field(default=None, description="its name as the machine reports it; null: any of this kind")
    placement: Placement | None = Field(
        default=None, description="which cores compute what, on both arms; null: wherever"
    )

    @property
    def declared(self) -> dict[str, Any]:
        """What the device is declared to be; null asks for nothing."""
        return self.model_dump(exclude={"placement"})


class Budgets(Strict):
    """What a run may need, checked before anything slow."""

    disk_gb: float = Field(gt=0, description="free disk for engines and results, GB")
    memory_gb: float = Field(gt=0, description="free memory while servers are up, GB")


class Case(Strict):
    """A whole case."""

    case: Id = Field(description="name of the case; its results lie under results/NAME")
    question: str = Field(min_length=1, description="what the verdict answers, in words")
    advance: Literal["candidate", "pinned"] = Field(
        description="whether the oracle is a candidate or already the current pin"
    )
    arms: dict[Id, Arm] = Field(
        description="engines under measurement, by name; one is called oracle",
        json_schema_extra={"additionalProperties": False},
    )
    client: Id = Field(default=ORACLE, description="arm whose environment the load client comes from, for all arms")
    checkpoints: dict[Id, Checkpoint] = Field(
        description="subjects, by name", json_schema_extra={"additionalProperties": False}
    )
    device: Device = Field(description="where the case is measured")
    budgets: Budgets = Field(description="checked before anything slow")
    decision: DecisionPlan = Field(default=DecisionPlan(), description="looks and budgets of the decision")
    rows: list[Row] = Field(min_length=1, description="claims to measure again")

    def row(self, row_id: str) -> Row:
        """The row of this id; KeyError when the case has none."""
        for row in self.rows:
            if row.id == row_id:
                return row
        raise KeyError(row_id)


def json_schema() -> dict[str, Any]:
    """The published JSON Schema of a case file. What holds between keys (names, lengths) is not in it."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Case.model_json_schema()}


def load(path: Path) -> Case:
    """Read and check a case file (YAML). Refusal CASE_INVALID names file, key and what is allowed."""
    return parse(yamlfile.read(path), path)


def parse(value: Any, path: Path) -> Case:
    """Check a case that is already a value; `path` is named in refusals.

    A refusal holds all findings: those of single keys, or else those between keys.
    """
    case = check(Case, value, path, patterns=ids.PATTERNS)
    if findings := [*_wrong_names(case), *_wrong_lengths(case)]:
        raise refusal(path, findings)
    return case


# -- what must hold between keys -----------------------------------------------------------------


def _wrong_names(case: Case) -> Iterator[Finding]:
    arms = f"arms are {', '.join(sorted(case.arms)) or 'none'}"
    checkpoints = f"checkpoints are {', '.join(sorted(case.checkpoints)) or 'none'}"
    if case.case in STORE_FOLDERS:
        yield "case", f"{case.case} is a folder of the store; give the case another name"
    if ORACLE not in case.arms:
        yield "arms", f"no arm is called {ORACLE}; {arms}"
    if case.client not in case.arms:
        yield "client", f"no such arm: {case.client}; {arms}"
    yield from _twice("rows", [row.id for row in case.rows])
    for index, row in enumerate(case.rows):
        key = f"rows[{index}]"
        if row.id.endswith(".json"):
            yield f"{key}.id", f"{row.id} would be a folder and a file of one name; leave out .json"
        for side in ("numerator", "denominator"):
            if (name := getattr(row, side)) not in case.arms:
                yield f"{key}.{side}", f"no such arm: {name}; {arms}"
        if row.numerator == row.denominator:
            yield f"{key}.denominator", "an arm is not compared with itself; name two arms"
        if row.checkpoint not in case.checkpoints:
            yield f"{key}.checkpoint", f"no such checkpoint: {row.checkpoint}; {checkpoints}"
        yield from _twice(f"{key}.cells", [cell.id for cell in row.cells])
        yield from _twice(f"{key}.metrics", [metric.name for metric in row.metrics])


def _twice(key: str, names: list[str]) -> Iterator[Finding]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield key, f"{name} is there twice; each is allowed once"


def _wrong_lengths(case: Case) -> Iterator[Finding]:
    """Requests that are longer than the model, or than what a server is told to take."""
    for index, row in enumerate(case.rows):
        asked = row.recipe.input_tokens + row.recipe.output_tokens
        limits = {}
        if row.checkpoint in case.checkpoints:
            limits[f"checkpoint {row.checkpoint} has {{}} positions"] = case.checkpoints[row.checkpoint].positions
        for name in (row.numerator, row.denominator):
            if name in case.arms:
                arguments = [*row.serve.args, *case.arms[name].serve.args]
                limits[f"--max-model-len of arm {name} is {{}}"] = _max_model_len(arguments)
        for text, limit in limits.items():
            if limit is not None and asked > limit:
                yield f"rows[{index}].recipe", f"input_tokens + output_tokens is {asked}, but {text.format(limit)}"


def _max_model_len(arguments: list[str]) -> int | None:
    """The last --max-model-len among a server's arguments; None where there is none in plain digits."""
    limit = None
    for word, following in pairwise([*arguments, ""]):
        name, _, value = word.partition("=")
        if name == "--max-model-len":
            limit = int(value or following) if re.fullmatch("[0-9]+", value or following) else None
    return limit
