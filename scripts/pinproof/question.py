"""A decision without an engine: a file of reps and a plan in, a decision out.

It answers "what would these numbers have said?" by the very rule that judges a row. The file is YAML
or JSON; docs/decision.md shows one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pinproof import yamlfile
from pinproof.decision import CellSeries, MetricDecision, RowDecision, decide
from pinproof.equivalence import NoiseBand, Plan
from pinproof.reasons import Reason, Refusal

Ratios = dict[str, dict[str, list[float | None]]]  # cell -> metric -> one a valid rep, times better


@dataclass(frozen=True)
class Question:
    """What was planned and what was measured. `invalid` counts reps by cell that did not count."""

    plan: Plan
    noise: dict[str, dict[str, NoiseBand | None]]
    first: Ratios
    second: Ratios | None = None
    invalid: dict[str, int] = field(default_factory=dict)


def read(path: Path) -> Question:
    """Read a question. Refusal CASE_INVALID names the file, the key and what is wrong with it."""
    try:
        return TypeAdapter(Question).validate_python(yamlfile.read(path))
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in found["loc"])
        raise Refusal(Reason.CASE_INVALID, found["msg"], file=path, key=key) from None


def answer(question: Question) -> RowDecision:
    """Judge the numbers. Refusal CASE_INVALID for a second series after anything but a RED."""
    try:
        second = None if question.second is None else _cells(question, question.second)
        return decide(question.plan, _cells(question, question.first), second)
    except ValueError as error:
        raise Refusal(Reason.CASE_INVALID, str(error)) from None


def words(judged: RowDecision) -> Iterator[str]:
    """The decision in plain words, the answer first."""
    reason = f" ({judged.reason.code}: {judged.reason.remedy})" if judged.reason else ""
    yield f"{judged.outcome.upper()}{reason}"
    if judged.next_look:
        yield f"go on to {judged.next_look} reps"
    for metric in (judged.second or judged.first).metrics:
        yield f"- {_metric(metric)}"


def _cells(question: Question, ratios: Ratios) -> dict[str, CellSeries]:
    return {
        cell: CellSeries(metrics, question.noise.get(cell, {}), question.invalid.get(cell, 0))
        for cell, metrics in ratios.items()
    }


def _metric(found: MetricDecision) -> str:
    plan = found.metric
    text = f"{plan.cell} {plan.name}: {found.outcome.upper()}"
    if found.looks:
        look = found.looks[-1]
        low, high = (plan.baseline_ratio * end for end in look.interval)
        text += f" after {look.n} reps, interval {low:.4f} to {high:.4f} against {plan.baseline_ratio:g}"
    text += f", tolerance {plan.tolerance:.1%}"
    if found.companion:
        text += f"; {found.companion}"
    if found.needed:
        text += f"; would decide it: {found.needed.sentence}"
    return text
