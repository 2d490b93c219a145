"""The case file: what a person asks of pinproof, parsed at the border and trusted inside.

The models below are the only definition of a case. config/schemas/case.schema.json is made from
them (`make schemas`), and a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from pinproof import ids, yamlfile
from pinproof.claims import Looks, Row, Serve, Serving, Speculative, Startup, Warmup
from pinproof.engines import Engine
from pinproof.findings import Finding, Strict, alternatives, check, refusal
from pinproof.hardware import Device, Worker
from pinproof.ids import Id
from pinproof.scope import Discharge, NotOwed
from pinproof.subjects import Checkpoint

ORACLE = "oracle"

PREFIX_OFF = "--no-enable-prefix-caching"
# Where engines keep what they compiled, by the kind of cache that a start-up row names.
CACHE_VARIABLES = {
    "VLLM_CACHE_ROOT": "compile",
    "TORCHINDUCTOR_CACHE_DIR": "compile",
    "TRITON_CACHE_DIR": "jit",
    "FLASHINFER_WORKSPACE_BASE": "jit",
    "CUTE_DSL_CACHE_DIR": "jit",
    "TILELANG_CACHE_DIR": "jit",
    "DG_JIT_CACHE_DIR": "jit",
    "CUDA_CACHE_PATH": "jit",
}

# Folders beside those of the cases, when engines and checkpoints lie in the same root.
STORE_FOLDERS = ("engines", "checkpoints", "builds", "build-environments")

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


class DecisionPlan(Strict):
    """When a row is looked at and how much error is spent; see docs/decision.md."""

    looks: Looks = Field(default=[3, 4, 6, 8, 12], description="numbers of reps at which to look")
    pass_budget: float = Field(default=0.05, gt=0, lt=0.5, description="one-sided error of a false PASS")
    red_budget: float = Field(default=0.01, gt=0, lt=0.5, description="one-sided error of a false RED")
    noise_pairs: int = Field(default=8, ge=3, le=64, description="pairs of the A/A band")
    max_invalid_share: float = Field(default=0.25, ge=0, lt=1, description="invalid reps above this end a row")
    order_seed: int = Field(default=0, ge=0, description="draws which arm goes first")


class FileLease(Strict):
    """Kind `filelock`: a kernel lock on a file of this machine, one for all its accounts and checkouts."""

    kind: Literal["filelock"] = Field(description="the device is claimed by a kernel lock of this machine")


class CommandLease(Strict):
    """Kind `command`: a wrapper such as `rc run -d gpu0 --` claims the device for what it runs.

    It grants the device to its child alone, so everything that touches the device runs under it.
    """

    kind: Literal["command"] = Field(description="the device is claimed by a wrapper, for the command that it runs")
    argv: list[str] = Field(min_length=1, description="the wrapper and its arguments; the command to run is appended")
    proof_env: str | None = Field(
        default=None,
        min_length=1,
        description="environment variable that the wrapper sets for its command, which is refused without it",
    )


class SlurmLease(Strict):
    """Kind `slurm`: the allocation of the Slurm job that the workflow runs in is the lease."""

    kind: Literal["slurm"] = Field(description="the device is claimed by the Slurm job that the workflow runs in")


Lease = alternatives("kind", filelock=FileLease, command=CommandLease, slurm=SlurmLease)


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
    lease: Lease = Field(default=FileLease(kind="filelock"), description="what makes the device ours alone")
    worker: Worker | None = Field(
        default=None, description="the machine without a network that `bundle` is for; null: one like this one"
    )
    budgets: Budgets = Field(description="checked before anything slow")
    decision: DecisionPlan = Field(default=DecisionPlan(), description="looks and budgets of the decision")
    rows: list[Row] = Field(min_length=1, description="claims to measure again")
    previous_pin: str | None = Field(
        default=None, description="pin file of the pin before the advance, which baselines and a revert refer to"
    )
    pages: str | None = Field(
        default=None, description="folder of the pages that baselines cite, such as a checkout; null: not at hand"
    )
    tie_band: float | None = Field(
        default=None, gt=0, lt=1, description="share under which a difference is called a tie by who published it"
    )
    discharges: list[Discharge] = Field(
        default=[], description="arguments that something which moved cannot have moved a number; re-checked"
    )
    not_owed: list[NotOwed] = Field(default=[], description="what the verdict does not speak of, and why")

    def row(self, row_id: str) -> Row:
        """The row of this id; KeyError when the case has none."""
        for row in self.rows:
            if row.id == row_id:
                return row
        raise KeyError(row_id)

    def lives(self, row: Row) -> Row:
        """The row whose legs a row is judged by: the start-up row of a warm-up row, else the row itself."""
        return self.row(row.of) if isinstance(row, Warmup) else row

    def warmups(self, row: Row) -> list[Warmup]:
        """The warm-up rows that are judged by the lives of this row."""
        return [one for one in self.rows if isinstance(one, Warmup) and one.of == row.id]

    def decision_of(self, row: Row) -> DecisionPlan:
        """Looks and A/A pairs of a row: its own where it says so, those of the case else."""
        own = self.lives(row)
        said = {name: value for name in ("looks", "noise_pairs") if (value := getattr(own, name)) is not None}
        return self.decision.model_copy(update=said)


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
    if findings := [*_wrong_names(case), *_wrong_lengths(case), *_wrong_scope(case)]:
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
        if isinstance(row, Warmup):
            yield from _wrong_warmup(case, key, row)
            continue
        if row.checkpoint not in case.checkpoints:
            yield f"{key}.checkpoint", f"no such checkpoint: {row.checkpoint}; {checkpoints}"
        yield from _twice(f"{key}.cells", [cell.id for cell in row.cells])
        yield from _twice(f"{key}.metrics", [metric.name for metric in row.metrics])
        yield from _other_cells(key, row)
        if isinstance(row, Speculative) and row.noise_prompts == "same" and PREFIX_OFF not in row.serve.args:
            yield f"{key}.noise_prompts", f"the same prompts again would come from the prefix cache: add {PREFIX_OFF}"
        if isinstance(row, Startup):
            yield from _twice(f"{key}.spans", [span.name for span in row.spans])
            yield from _own_caches(case, key, row)


def _wrong_warmup(case: Case, key: str, row: Warmup) -> Iterator[Finding]:
    """A warm-up row must fit the start-up row whose lives it is judged by."""
    starts = {one.id: one for one in case.rows if isinstance(one, Startup)}
    if row.of not in starts:
        yield f"{key}.of", f"no such start-up row: {row.of}; start-up rows are {', '.join(sorted(starts)) or 'none'}"
        return
    lives = starts[row.of]
    for side in ("numerator", "denominator"):
        if (name := getattr(row, side)) != (there := getattr(lives, side)):
            yield f"{key}.{side}", f"must be {there}, as in row {lives.id}, whose lives are looked at (got {name})"
    spans = [span.name for span in lives.spans]
    yield from _twice(f"{key}.callables", row.callables)
    for name in row.callables:
        if name not in spans:
            known = ", ".join(spans) or "none"
            yield f"{key}.callables", f"no such span in row {lives.id}: {name}; its spans are {known}"
    for arm in row.arms or ():
        if arm not in (row.numerator, row.denominator):
            yield f"{key}.arms", f"{arm} is not measured by row {lives.id}"


def _own_caches(case: Case, key: str, row: Startup) -> Iterator[Finding]:
    """A start-up row sets the caches itself: who moves one makes its state a guess."""
    places = {f"{key}.serve.env": row.serve.env}
    places |= {f"arms.{arm}.serve.env": case.arms[arm].serve.env for arm in case.arms}
    for place, env in places.items():
        for name in sorted(set(env) & set(CACHE_VARIABLES)):
            yield f"{place}.{name}", f"row {row.id} sets the caches of every start itself; leave it out"


def _other_cells(key: str, row: Row) -> Iterator[Finding]:
    """Ratios and absolutes of cells that the row does not have."""
    cells = [cell.id for cell in row.cells]
    for at, metric in enumerate(row.metrics):
        for cell in sorted(set(metric.baselines or ()) - set(cells)):
            yield f"{key}.metrics[{at}].baselines", f"no such cell: {cell}; cells are {', '.join(cells)}"
    for at, one in enumerate(row.published.absolutes if row.published else ()):
        if one.cell not in cells:
            yield f"{key}.published.absolutes[{at}].cell", f"no such cell: {one.cell}; cells are {', '.join(cells)}"


def _wrong_scope(case: Case) -> Iterator[Finding]:
    yield from _twice("discharges", [one.id for one in case.discharges])
    for index, one in enumerate(case.discharges):
        for arm in one.arms or ():
            if arm not in case.arms:
                known = ", ".join(sorted(case.arms))
                yield f"discharges[{index}].arms", f"no such arm: {arm}; arms are {known}"


def _twice(key: str, names: list[str]) -> Iterator[Finding]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield key, f"{name} is there twice; each is allowed once"


def _wrong_lengths(case: Case) -> Iterator[Finding]:
    """Requests that are longer than the model, or than what a server is told to take."""
    for index, row in enumerate(case.rows):
        if not isinstance(row, Serving):
            continue
        asked = row.recipe.input_tokens + row.recipe.output_tokens
        limits = {}
        if row.checkpoint in case.checkpoints:
            positions = getattr(case.checkpoints[row.checkpoint], "positions", None)  # of others the files tell
            limits[f"checkpoint {row.checkpoint} has {{}} positions"] = positions
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
