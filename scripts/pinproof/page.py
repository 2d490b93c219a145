"""verdict.md: the answer first, then why, then what to do, then the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pinproof import appendix, overview, rowtables
from pinproof.markdown import item as _item
from pinproof.markdown import table as _table

MANY = 20  # rows that passed; more of them are told in one line each
AGAIN = "Clear what is open and call the workflow again: only that is done anew."
TO_DO = {
    ("HOLD", "pinned"): "Keep the pin.",
    ("HOLD", "candidate"): "The pin may advance to the oracle.",
    ("REVERT", "pinned"): "Take the pin back: `snakemake --cores 1 revert` writes the patch.",
    ("REVERT", "candidate"): "Do not advance the pin to the oracle.",
    ("UNDECIDED", "pinned"): AGAIN,
    ("UNDECIDED", "candidate"): AGAIN,
}
MEANING = {
    "HOLD": "every gate passed and every row was shown to be inside its tolerance",
    "REVERT": "the pinned engine itself was shown to be at fault",
    "UNDECIDED": "neither was shown; what would decide it stands below",
    "REHEARSAL": "doubles stood in for engines, subjects and device, and nothing was measured",
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
        *appendix.of(verdict),
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
    if "would_say" in verdict:
        yield f"Nothing was shown. With records like these a measured run would say: {verdict['would_say']}."
    else:
        yield TO_DO[verdict["verdict"], verdict["advance"]]


def _causes(causes: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(
        _item(f"**{cause['subject']}**: {cause['reason']} ({cause['owner']}'s failure). {cause['needs']}")
        for cause in causes
    )


def _rows(verdict: Mapping[str, Any]) -> Iterator[str]:
    ordered = overview.ordered(verdict["rows"].values())
    yield overview.counts(ordered)
    passed = [row for row in ordered if row["outcome"] == "pass"]
    short = passed if len(passed) > MANY else []
    for row in ordered[: len(ordered) - len(short)]:
        yield f"### {row['row']}: {row['outcome'].upper()}"
        yield row["question"]
        if row["failure"]:
            yield f"The last attempt failed: {row['failure']['message']} [{row['failure']['reason']}]"
        if row["plan"]["changed_after_data"]:
            plan = row["plan"]
            yield (
                f"**The plan was changed after the data.** Measured under "
                f"{plan['measured_under'] or 'the plans of other rows'}, decided under {plan['decided_under']}."
            )
        yield from rowtables.of(row)
    if short:
        yield f"### {len(short)} rows: PASS"
        yield "One line each, by the metric that is furthest from its baseline; all else is in `rows/ROW.json`."
        yield overview.of(short)


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
    yield from _clocks(verdict)
    lines = [
        [name, found["kind"], _count(found["parameters"]), found["digest"]]
        for name, found in verdict["checkpoints"].items()
    ]
    yield _table(lines, ["checkpoint", "kind", "parameters", "digest"])


def _clocks(verdict: Mapping[str, Any]) -> Iterator[str]:
    """What the device's clocks did while legs ran, where it has clock rules."""
    lines = [
        [
            f"{row['row']}, {arm}, {one['legs']} legs",
            "-".join(f"{mhz:.0f}" for mhz in dict.fromkeys(one["sm_mhz_median"] or ())) or "unknown",
            "unknown" if one["sm_mhz_spread"] is None else f"{one['sm_mhz_spread']:.1%}",
            one["busy_samples"],
            ", ".join(one["throttle"]) or "none",
            "unknown" if one["throttled_s"] is None else f"{one['throttled_s']:.3f} s",
        ]
        for row in verdict["rows"].values()
        for arm, one in row.get("clocks", {}).items()
    ]
    if lines:
        yield _locked(verdict)
        columns = ["row", "median SM clock, MHz", "largest spread", "fewest busy samples", "throttled by", "throttled"]
        yield _table(lines, columns)


def _locked(verdict: Mapping[str, Any]) -> str:
    devices = [row["measured"]["key"]["device"] for row in verdict["rows"].values()]
    if mhz := {one["clocks"]["lock_mhz"] for one in devices if one.get("clocks")} - {None}:
        return f"The SM clock was locked at {', '.join(map(str, sorted(mhz)))} MHz while engines were up."
    may = verdict["device"].get("may_lock_clocks")
    tried = "not permitted here" if may is False else "not known to be refused, and was not tried"
    return f"The device's clocks were left as they are: locking them is {tried}."


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
