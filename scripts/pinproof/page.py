"""verdict.md: the answer first, then why, then what to do, then the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from pinproof import leg

NAMES = {"output_throughput": "output throughput", "median_tpot": "median TPOT", "median_ttft": "median TTFT"}
AGAIN = "Clear what is open and call the workflow again: only that is done anew."
TO_DO = {
    ("HOLD", "pinned"): "Keep the pin.",
    ("HOLD", "candidate"): "The pin may advance to the oracle.",
    ("REVERT", "pinned"): "Take the pin back.",
    ("REVERT", "candidate"): "Do not advance the pin to the oracle.",
    ("UNDECIDED", "pinned"): AGAIN,
    ("UNDECIDED", "candidate"): AGAIN,
}
MEANING = {
    "HOLD": "every gate passed and every row was shown to be inside its tolerance",
    "REVERT": "the pinned engine itself was shown to be at fault",
    "UNDECIDED": "neither was shown; what would decide it stands below",
}


def of(verdict: Mapping[str, Any]) -> str:
    """The page of a verdict record, Markdown that reads well as plain text."""
    parts = [
        f"# {verdict['verdict']}: {' '.join(verdict['question'].split())}",
        f"{verdict['verdict']} means: {MEANING[verdict['verdict']]}. The oracle is "
        f"{'a candidate' if verdict['advance'] == 'candidate' else 'the current pin'}.",
        *_why(verdict),
        "## Rows",
        *_rows(verdict),
        "## Identity",
        *_identity(verdict),
        "## Where",
        *_where(verdict),
        "## Evidence",
        _table(sorted(verdict["inputs"].items()), ["record", "content digest"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _why(verdict: Mapping[str, Any]) -> Iterator[str]:
    if verdict["against"]:
        yield "## Against the pin"
        yield _causes(verdict["against"])
    if verdict["open"]:
        yield "## Open, and what would decide it"
        yield _causes(verdict["open"])
    yield "## What to do"
    yield TO_DO[verdict["verdict"], verdict["advance"]]


def _causes(causes: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(
        _item(f"**{cause['subject']}**: {cause['reason']} ({cause['owner']}'s failure). {cause['needs']}")
        for cause in causes
    )


def _rows(verdict: Mapping[str, Any]) -> Iterator[str]:
    failed_first = sorted(verdict["rows"].values(), key=lambda row: (row["outcome"] == "pass", row["row"]))
    for row in failed_first:
        yield f"### {row['row']}: {row['outcome'].upper()}"
        yield row["question"]
        if row["failure"]:
            yield f"The last attempt failed: {row['failure']['message']} [{row['failure']['reason']}]"
        if row["plan"]["changed_after_data"]:
            plan = row["plan"]
            yield (
                f"**The plan was changed after the data.** Measured under {plan['measured_under']}, "
                f"decided under {plan['decided_under']}."
            )
        yield _metrics(row)
        if companions := _companions(row):
            yield companions
        if row["legs"]["invalid"]:
            yield _invalid(row["legs"])


def _metrics(row: Mapping[str, Any]) -> str:
    series = row["decision"]["second"] or row["decision"]["first"]
    arms = list(row["measured"]["key"]["engines"])
    lines = []
    for found in series["metrics"]:
        metric = found["metric"]
        absolute = row["absolutes"][metric["cell"]][metric["name"]]
        look = found["looks"][-1] if found["looks"] else None
        lines.append(
            [
                metric["cell"],
                f"{NAMES[metric['name']]} ({leg.UNITS[metric['name']]})",
                *(_number(absolute[arm]) for arm in arms),
                f"{metric['baseline_ratio']:.3f}",
                _number(look and metric["baseline_ratio"] * math.exp(look["estimate"]["mean"]), 3),
                _interval(look, metric),
                _percent(metric["tolerance"]),
                _noise(found),
                look["estimate"]["n"] if look else 0,
                found["outcome"].upper() + (f" ({found['reason']})" if found["reason"] else ""),
            ]
        )
    heads = ["cell", "metric", *arms, "baseline", "measured", "interval", "tolerance", "A/A sd", "reps", "outcome"]
    note = (
        "Ratios say times better: above 1, the numerator wins. Absolutes are medians over legs. The interval holds "
        "what a PASS at that look does not rule out."
    )
    return _table(lines, heads) + "\n\n" + note


def _interval(look: Mapping[str, Any] | None, metric: Mapping[str, Any]) -> str:
    if look is None:
        return "unknown"
    low, high = (_number(end and metric["baseline_ratio"] * end, 3) for end in look["interval"])
    return f"{low} to {high}"


def _noise(found: Mapping[str, Any]) -> str:
    return _percent(found["noise"]["sd"]) if found["noise"] else "unknown"


def _companions(row: Mapping[str, Any]) -> str:
    series = row["decision"]["second"] or row["decision"]["first"]
    return "\n".join(
        f"- {found['metric']['cell']}, {NAMES[found['metric']['name']]}: {found['companion']}"
        for found in series["metrics"]
        if found["companion"]
    )


def _invalid(legs: Mapping[str, Any]) -> str:
    lines = [
        _item(
            f"series {one['id']['series']}, {one['id']['phase']} {one['id']['index'] + 1}, {one['id']['cell']}, "
            f"{one['id']['arm']}: "
            + "; ".join(f"{found['message']} [{found['reason']}]" for found in one["objections"])
        )
        for one in legs["invalid"]
    ]
    return f"Of {legs['count']} legs these did not count:\n\n" + "\n".join(lines)


def _identity(verdict: Mapping[str, Any]) -> Iterator[str]:
    for name, arm in verdict["arms"].items():
        gate = arm["gate"]
        yield f"### {name}: {gate['outcome'].upper()} (mode {gate['build_mode']}, engine {arm['engine']})"
        lines = [
            [row["field"], row["declared"] or "-", row["measured"] or "unknown", row["api"] or "-", row["verdict"]]
            for row in gate["rows"]
        ]
        yield _table(lines, ["field", "declared", "read", "by", "verdict"])
        if remarks := [_item(f"{row['field']}: {row['text']}") for row in gate["rows"] if row["text"]]:
            yield "\n".join(remarks)
    yield "What else the environments report:"
    names = sorted({name for arm in verdict["arms"].values() for name in arm["environment"]})
    lines = [[name, *(arm["environment"].get(name) or "unknown" for arm in verdict["arms"].values())] for name in names]
    yield _table(lines, ["field", *verdict["arms"]])


def _where(verdict: Mapping[str, Any]) -> Iterator[str]:
    identity = verdict["device"]["identity"]
    yield _table([[key, value if value is not None else "unknown"] for key, value in identity.items()], ["device", ""])
    lines = [
        [name, found["kind"], _count(found["parameters"]), found["digest"]]
        for name, found in verdict["checkpoints"].items()
    ]
    yield _table(lines, ["checkpoint", "kind", "parameters", "digest"])


def _number(value: float | None, digits: int | None = None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.{digits}f}" if digits is not None else f"{value:.4g}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _item(text: str) -> str:
    """An item of a list; what has several lines stays inside it."""
    return "- " + text.strip().replace("\n", "\n  ")


def _table(lines: Sequence[Sequence[Any]], heads: Sequence[str]) -> str:
    cells = [[_cell(value) for value in line] for line in lines]
    return tabulate(cells, [_cell(head) for head in heads], tablefmt="github", disable_numparse=True)


def _cell(value: Any) -> str:
    """A text as a cell of a GitHub table: on one line, its pipes escaped."""
    return " ".join(str(value).split()).replace("|", "\\|")
