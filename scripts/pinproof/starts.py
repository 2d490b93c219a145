"""Starts: what one server life says of its start, from marks, caches, spans and log.

A life's raw record is made while it runs (`lives`); everything else of its leg follows from that
record, the span files and the log, so that a verdict can reckon it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pinproof import caches, serverlog, spans, warmup, waterfall
from pinproof.case import ORACLE
from pinproof.claims import Startup
from pinproof.leg import Objection
from pinproof.reasons import Reason, Refusal

METRICS = {"first_health": "first_health_200", "first_completion": "first_completion"}
SPANS = ".spans"  # folder of a leg's span files
# What vLLM logs of its compiled graphs: a cache that was full may still not have been used.
_GRAPHS = {
    "loaded": re.compile(r"Directly load (the compiled graph|the \S+ graph|AOT compilation)"),
    "load_failed": re.compile(r"Compiling model again due to a load failure"),
    "compiled": re.compile(r"Compiling a graph for compile range|saved AOT compiled function"),
}


def leg(row: Startup, arm: str, raw: Mapping[str, Any], folder: Path, log: str) -> dict[str, Any]:
    """What a start's leg says; `folder` holds the span files of the life, and is not looked at without spans."""
    marks, refusal = raw["marks"], _refusal(raw["ended"])
    found = _spans(row, raw, folder, log, refusal)
    failed = [] if refusal is None else [Objection(refusal.reason, refusal.message)]
    objections = [*failed, *_unlike(row, raw)]
    return {
        "marks": marks,
        "metrics": {name: marks[mark] if refusal is None else None for name, mark in METRICS.items()},
        "caches": raw["caches"],
        "graphs": {
            name: sum(1 for line in serverlog.lines(log) if said.search(line.text)) for name, said in _GRAPHS.items()
        },
        **found,
        "valid": not objections,
        "objections": [one.as_record(of_the_pin=arm == ORACLE) for one in objections],
    }


def refuse_unlike(record: Mapping[str, Any], arm: str) -> None:
    """Refuse (STARTS_DIFFER) to go on when a life was cold that is to be warm: its pair would compare unlike starts."""
    for one in record["objections"]:
        if one["reason"] == Reason.STARTS_DIFFER.code:
            raise Refusal(Reason.STARTS_DIFFER, f"{arm}: {one['message']}")


def _spans(row: Startup, raw: Mapping[str, Any], folder: Path, log: str, refusal: Refusal | None) -> dict[str, Any]:
    """Outcomes and waterfall; null for a row that names no callables."""
    if not row.spans:
        return {"spans": None, "waterfall": None, "span_files": None}
    ready = raw["marks"]["first_health_200"]
    seen = spans.read(folder, marker=raw["marker"], spawned=raw["spawned"], boot=raw["boot"])
    judged = warmup.judge(row.spans, warmup.Life(seen, log, ready, refusal))
    labels: dict[str, list[str]] = {}
    for one in row.spans:
        labels.setdefault(one.callable, []).append(one.name)
    return {
        "spans": {name: one.as_record() for name, one in judged.items()},
        "waterfall": waterfall.of(seen, ready, labels).as_record() if ready else None,
        "span_files": {
            "read": [process.file for process in seen.processes],
            "damaged": [f"{Path(one.file).name}: {one.message}" for one in seen.damaged],
            "foreign": list(seen.foreign),
            "clock_steps": [
                {"process": process.name, "at": round(step.at, 3), "seconds": round(step.seconds, 3)}
                for process in seen.processes
                for step in process.steps
            ],
        },
    }


def _refusal(ended: Mapping[str, Any] | None) -> Refusal | None:
    return None if ended is None else Refusal(Reason.from_code(ended["reason"]), ended["message"])


def _unlike(row: Startup, raw: Mapping[str, Any]) -> list[Objection]:
    """Caches that were not what the row asks for; a life that fills them is not asked for anything."""
    if raw["fills"]:
        return []
    found = []
    for text in caches.differences(row.caches, raw["caches"]["before"], raw["caches"]["after"]):
        cold = text.startswith("a cold start")
        reason = Reason.STARTS_DIFFER if cold else Reason.CACHE_STATE
        message = f"{text}; a warm start is not compared with a cold one" if cold else text
        found.append(Objection(reason, message))
    return found
