"""Runs the stages of a rehearsal in this process, one after another: the scripts of the rules, without Snakemake.

A whole call of the workflow starts two dozen interpreters; here a fault costs what its legs take.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.stubs.workflow import Material

from pinproof import case, citations, cli, faults, processes, rehearsal
from pinproof.layout import Layout
from pinproof.reasons import Refusal


def every_kind(material: Material) -> dict[str, Any]:
    """A case with every kind of row, on a GPU."""
    value = material.case()
    (serving,) = value["rows"]
    common = {name: serving[name] for name in ("numerator", "denominator", "direction", "checkpoint")}
    claims = [{"name": "output_throughput", "tolerance": 0.01, "baseline": 0.976, "baseline_reps": 3}]
    start = {**faults.STARTUP, **common, "metrics": [{"name": "first_health", "tolerance": 0.05}]}
    start["spans"] = [{"name": "warm-up", "callable": "vllm.somewhere:warm_up"}]
    drafts = {**faults.SPECULATIVE, **common, "recipe": serving["recipe"], "metrics": claims, "off_legs": 2}
    warm_up = {**faults.WARMUP, **{name: common[name] for name in ("numerator", "denominator", "direction")}}
    value["rows"] = [{**serving, "residency": "exclusive", "discard_first": 1}, start, warm_up, drafts]
    value["device"] = {"kind": "nvidia", "name": "NVIDIA GB10", "clocks": {"lock_mhz": 2190}}
    return value


def end(places: Layout, fault: faults.Fault | None, monkeypatch: pytest.MonkeyPatch) -> rehearsal.Outcome:
    """How the case ends with this fault, its stages run in this process."""
    file, here = rehearsal.prepare(places, fault), rehearsal.folder(places)
    for name, value in rehearsal.environment(here, {}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes, "MACHINE_FOLDER", here / "machine")
    return run(file, here)


def steps(places: Layout) -> Iterator[tuple[str, str]]:
    """Every script of the way to a verdict, and the id that it is for, in an order that the rules allow."""
    engines, arms = list(places.engines()), list(places.case.arms)
    yield "read_pin", ""
    for name in ("fetch_source", "read_metadata"):
        yield from ((name, engine) for engine in engines)
    if citations.wanted(places.case):
        yield "check_citations", ""
    yield "run_preflight", ""
    for name in ("make_wheel", "make_env", "read_version"):
        yield from ((name, engine) for engine in engines)
    yield from (("gate_arm", arm) for arm in arms)
    yield from (("make_checkpoint", places.checkpoint(name).stem) for name in places.case.checkpoints)
    yield "read_device", ""
    yield from (("measure_row", row.id) for row in places.case.rows if places.case.lives(row) is row)
    yield from (("decide_row", row.id) for row in places.case.rows)
    if places.case.discharges:
        yield "check_discharges", ""
    yield from (("write_verdict", ""), ("write_page", ""))


def run(file: Path, here: Path) -> rehearsal.Outcome:
    """Run all steps, or until one refuses, and say how it ended. The environment is that of the rehearsal."""
    begun = time.time()
    places = Layout(case.load(file), file, cli.ROOT)
    for number, (name, id_) in enumerate(steps(places)):
        log = here / "logs" / f"{number:02d}-{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        made = _made(places, name, id_)
        if made is not None and made.exists():
            continue
        try:
            importlib.import_module(name).main(cli.Task(places, name, id_, log))
        except Refusal as refusal:
            log.write_text(f"refused: {refusal}")
            break
    return rehearsal.outcome(here, begun)


def _made(places: Layout, name: str, id_: str) -> Path | None:
    """What an earlier rehearsal has left in the store; None for what is made anew."""
    engine = places.engines().get(id_)
    files = {} if engine is None else {
        "fetch_source": engine.source, "read_metadata": engine.metadata, "make_wheel": engine.wheel,
        "make_env": engine.env_marker, "read_version": engine.version,
    }  # fmt: skip
    return files.get(name)
