"""Claims: the rows that a case measures again, one model a kind of row."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pinproof.findings import Strict, alternatives
from pinproof.ids import Id

Metric = Literal["output_throughput", "median_tpot", "median_ttft"]


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
    baseline: float = Field(default=1.0, gt=0, description="the published ratio")
    baseline_reps: int | None = Field(default=None, gt=0, description="reps behind the baseline; null: it is exact")

    @model_validator(mode="after")
    def _says_how_exact(self) -> MetricClaim:
        if self.baseline != 1.0 and "baseline_reps" not in self.model_fields_set:
            raise ValueError("a baseline needs baseline_reps: the reps behind it, or null if it is exact")
        return self


class Serving(Strict):
    """Kind `serving`: a closed-loop serving benchmark of two arms."""

    id: Id = Field(description="name of the row")
    kind: Literal["serving"] = Field(description="closed-loop serving benchmark")
    checkpoint: Id = Field(description="which of the case's checkpoints is the subject")
    numerator: Id = Field(description="arm in the numerator of a throughput ratio")
    denominator: Id = Field(description="arm in its denominator")
    residency: Literal["shared"] = Field(description="shared: both arms are up at once and legs alternate")
    direction: Literal["two-sided", "no-worse"] = Field(description="which side of the tolerance makes a row red")
    recipe: Recipe = Field(description="lengths of the requests")
    cells: list[Cell] = Field(min_length=1, description="load points")
    metrics: list[MetricClaim] = Field(min_length=1, description="what is gated in every cell")
    serve: Serve = Field(default=Serve(), description="what both arms' servers get for this row")
    start_timeout_s: int = Field(default=900, gt=0, description="longest wait for a server to be ready, seconds")
    stall_timeout_s: int = Field(default=300, gt=0, description="longest silence of a starting server, seconds")
    leg_timeout_s: int = Field(default=600, gt=0, description="longest leg, seconds")


Row = alternatives("kind", serving=Serving)
