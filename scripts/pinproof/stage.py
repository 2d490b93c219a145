"""The stage of a rehearsal: a case with every engine, subject and device replaced by a double, and scaled down.

Everything else stays as the case says it: arms, pins, kinds of rows, recipes' shape, citations,
discharges. Two equal doubles are compared, so every ratio is 1; a fault changes the stage before it is set.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from pinproof import device, double, pin, records
from pinproof.case import Case

CASE = "rehearsal"  # what the rehearsed case is called: its results lie in that folder of the case's own
ENVIRONMENT = "environment.json"
TOLERANCE = 0.5
LOOKS, PAIRS, WIDEST = [3], 3, 4
PATIENCE_S = 120  # nothing of a double takes so long, on however busy a machine
# What the double has in the place of a timed callable.
SPAN = {"callable": "vllm.worker:Worker.compile_or_warm_up_model", "inside": "vllm.worker:Worker.compile"}
# A double's schedule, which it states: what a rehearsal records is this, however busy the machine is.
SPEED = {"STUB_CLOCK_MS": "500", "STUB_TTFT_MS": "20", "STUB_TPOT_MS": "3"}
CHECKPOINT = {
    **{"kind": "synthesised", "seed": 0, "hidden_size": 16, "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 16},
    **{"intermediate_size": 16, "positions": 2048},
}


@dataclass
class Arm:
    """One arm's double, and the bytes by which the case pins it; `sha256` None: those that it has."""

    identity: double.Identity
    sha256: str | None = None
    truncated: bool = False


@dataclass
class Stage:
    """What a rehearsal is made of, before it is written: a fault changes it."""

    case: dict[str, Any]
    arms: dict[str, Arm]
    pins: dict[str, str]  # pages with the arms' blocks
    pages: dict[str, str] = field(default_factory=dict)  # pages beside the case, by their place
    environment: dict[str, str] = field(default_factory=lambda: {device.SIMULATED_VARIABLE: "1"})

    @property
    def oracle(self) -> Arm:
        """The double of the pinned engine."""
        return self.arms["oracle"]

    @property
    def reference(self) -> str:
        """The first arm beside the oracle."""
        return next(name for name in self.arms if name != "oracle")

    def only(self, *rows: dict[str, Any]) -> None:
        """Put rows in the place of the case's own: the oracle against the reference, on the first subject."""
        common = {"numerator": "oracle", "denominator": self.reference, "direction": "two-sided"}
        subject = {"checkpoint": next(iter(self.case["checkpoints"]))}
        self.case["rows"] = [_row({**common, **({} if "of" in row else subject), **row}) for row in rows]

    def serve_env(self, arm: str, **variables: str) -> None:
        """Set variables of an arm's server; `reference` is the first arm beside the oracle."""
        self.case["arms"][self.reference if arm == "reference" else arm]["serve"]["env"].update(variables)

    def rows(self, *kinds: str) -> list[dict[str, Any]]:
        """The rows of these kinds."""
        return [row for row in self.case["rows"] if row["kind"] in kinds]


def of(case: Case, root: Path) -> Stage:
    """The stage of a case without a fault. `root` is what its pin files are relative to."""
    value = case.model_dump(exclude_defaults=True)
    arms = {name: Arm(_identity(case, root, name)) for name in case.arms}
    value |= {
        "case": CASE,
        "budgets": {"disk_gb": 0.1, "memory_gb": 0.1},
        "checkpoints": dict.fromkeys(case.checkpoints, CHECKPOINT),
        "decision": {**value.get("decision", {}), "looks": LOOKS, "noise_pairs": PAIRS},
        "rows": [_row(row) for row in value["rows"]],
    }
    _thin(value["rows"])
    value.pop("lease", None)
    value["device"] = _device(value["device"])
    for arm in value["arms"].values():
        arm["serve"] = {
            "args": _plain(arm, "args", []),
            "env": {**_plain(arm, "env", {}), **SPEED},
        }
    if case.previous_pin:
        value["previous_pin"] = str((root / case.previous_pin).resolve())
    if case.pages:
        value["pages"] = str((root / case.pages).resolve())
    return Stage(value, arms, pins={name: _page(case, root, name) for name in arms})


def write(stage: Stage, sources: Path, folder: Path) -> Path:
    """Write wheels, locks, pages and the case into a folder, and return the case's file."""
    wheels = folder / "wheels"
    for name, arm in stage.arms.items():
        beside = double.companions(arm.identity, folder / "beside" / name)
        page, lock = folder / f"pin-{name}.md", folder / f"lock-{name}.txt"
        records.write_text(page, stage.pins[name])
        records.write_text(lock, double.lock(beside))
        made = double.build(sources, arm.identity, wheels / name)
        stage.case["arms"][name]["pin"] = str(page.resolve())
        stage.case["arms"][name]["engine"] = {
            "mode": "index",
            "distribution": "vllm",
            "version": arm.identity.distribution_version,
            "sha256": arm.sha256 or records.file_sha256(made),
            "locks": {"index": str(lock.resolve())},
        }
        if arm.truncated:
            made.write_bytes(made.read_bytes()[:1000])
    for place, text in stage.pages.items():
        records.write_text(folder / "pages" / place, text)
    if stage.pages:
        stage.case["pages"] = str((folder / "pages").resolve())
    records.write_text(folder / ENVIRONMENT, json.dumps(stage.environment))
    file = folder / "case.yaml"
    records.write_text(file, yaml.safe_dump(stage.case, sort_keys=False))
    return file


def _device(declared: dict[str, Any]) -> dict[str, Any]:
    """This machine's own processor, or a simulated GPU."""
    return {"kind": "cpu"} if declared["kind"] == "cpu" else {"kind": "simulated", "clocks": declared.get("clocks", {})}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the same shape that takes seconds."""
    scaled = {name: value for name, value in row.items() if name not in ("looks", "noise_pairs")}
    if row["kind"] == "warmup":
        return {**scaled, **({"change": {"tolerance_points": 50.0}} if row.get("change") else {})}
    scaled |= {"start_timeout_s": PATIENCE_S, "stall_timeout_s": PATIENCE_S}
    scaled["metrics"] = [_metric(metric) for metric in row["metrics"]]
    for name in {"discard_first", "off_legs"} & set(row):
        scaled[name] = min(row[name], 1)
    if "recipe" in row:
        recipe = {"input_tokens": 16, "output_tokens": 6, "warmup_prompts": 1}
        scaled |= {"recipe": recipe, "cells": _cells(row), "leg_timeout_s": PATIENCE_S}
    if "spans" in row:
        scaled["spans"] = [{"name": span["name"], **SPAN} for span in row["spans"]]
    if "caches" in row:  # not every file system lets go of what it holds, and the doubles' files are few
        scaled["caches"] = {**row["caches"], "page": "warm"}
    if "published" in row:
        scaled["published"] = {**row["published"], "absolutes": [], "remarks": []}
    return scaled


def _thin(rows: list[dict[str, Any]]) -> None:
    """Leave out what another row shows already: several cells, and servers of a kind that take turns."""
    loaded = [row for row in rows if "recipe" in row]
    for row in loaded[1:]:
        row["cells"] = row["cells"][:1]
    for kind in {row["kind"] for row in loaded}:
        for row in [row for row in loaded if row["kind"] == kind and row["residency"] == "exclusive"][1:]:
            row["residency"] = "shared"


def _cells(row: dict[str, Any]) -> list[dict[str, int]]:
    """The row's first cell, and its last where there are several, with the least prompts that fill them."""
    widths = dict.fromkeys(min(cell["concurrency"], WIDEST) for cell in (row["cells"][0], row["cells"][-1]))
    return [{"concurrency": width, "prompts": width} for width in widths]


def _metric(metric: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in metric.items() if name in ("name", "exact")}
    return kept if kept.get("exact") else {**kept, "tolerance": TOLERANCE}


def _plain(arm: dict[str, Any], name: str, default: Any) -> Any:
    return arm.get("serve", {}).get(name, default)


def _page(case: Case, root: Path, name: str) -> str:
    """The page with the arm's block, and its build mode that of the double, whose wheel is an index's."""
    declared = pin.read_pin(root / case.arms[name].pin)
    return pin.replaced(declared, {"build_mode": "index"}) if declared.build_mode else declared.text


def _identity(case: Case, root: Path, name: str) -> double.Identity:
    """What the arm's block declares, and versions that satisfy every floor which is argued with."""
    found = double.identity(dict(pin.parse_pin(_page(case, root, name)).fields))
    for one in case.discharges:
        if one.kind == "floor" and one.distribution not in found.others:
            found.others[one.distribution] = _satisfying(one)
    return found


def _satisfying(floor: Any) -> str:
    """A version that satisfies every floor, of those that the discharge names itself."""
    wanted = SpecifierSet(",".join(floor.floors))
    named = [each.version for each in floor.recorded] + [each.version for each in wanted]
    fitting = [Version(text) for text in named if wanted.contains(Version(text), prereleases=True)]
    return str(max(fitting, default=Version("0")))
