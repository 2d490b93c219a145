"""Preflight: what can be known without a device, a build or an install, cheapest first."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import psutil

from pinproof import citations, device, discharges, foresight, gate, pin, records, weights
from pinproof.finding import GB, Finding
from pinproof.layout import Layout
from pinproof.reasons import Reason, Refusal

COMPILERS = ("g++", "c++", "clang++")


def look(places: Layout) -> list[Finding]:
    """All findings of a case whose pin.json is there, and metadata.json of every engine whose source is."""
    found = [_disk(places), _memory(places), _compiler(), *_cores(places), *_identities(places)]
    found += foresight.of_builds(places)
    found += [Finding(*one) for one in weights.foreseen(places)]
    found += [*_published(places), *(Finding(*one) for one in discharges.foreseen(places))]
    return [*found, *_device(places)]


def body(findings: list[Finding]) -> dict[str, Any]:
    """The body of preflight.json."""
    blocked = any(found.state == "blocks" for found in findings)
    return {"outcome": "blocked" if blocked else "clear", "findings": [found.as_record() for found in findings]}


def require_clear(path: Path) -> None:
    """Refuse to go on from a preflight that found something in the way, with every such finding."""
    found = records.read(path, "preflight")["findings"]
    blocking = [one for one in found if one["state"] == "blocks"]
    if blocking:
        text = "\n".join(f"  {one['subject']}: {one['text']}\n    remedy: {one['remedy']}" for one in blocking)
        raise Refusal(Reason.from_code(blocking[0]["reason"]), f"preflight found what blocks:\n{text}", file=path)


def _disk(places: Layout) -> Finding:
    folder = places.store
    while not folder.exists():
        folder = folder.absolute().parent
    here = sum(1 for place in places.engines().values() if place.env_marker.exists())
    needed = places.case.budgets.disk_gb * (0.2 if here == len(places.engines()) else 1)
    free = shutil.disk_usage(folder).free / GB
    if free < needed:
        return Finding("disk", "blocks", f"{free:.1f} GB free, the case needs {needed:.1f} GB", Reason.DISK_SHORT)
    return Finding("disk", "ready", f"{free:.1f} GB free of {needed:.1f} GB needed")


def _memory(places: Layout) -> Finding:
    needed, free = places.case.budgets.memory_gb, psutil.virtual_memory().available / GB
    if free < needed:
        return Finding("memory", "blocks", f"{free:.1f} GB free, the case needs {needed:.1f} GB", Reason.MEMORY_SHORT)
    return Finding("memory", "ready", f"{free:.1f} GB free of {needed:.1f} GB needed")


def _compiler() -> Finding:
    """A start that compiles fails only after minutes; without a device of its own vLLM compiles for the CPU."""
    found = next((path for name in (os.environ.get("CXX"), *COMPILERS) if name and (path := shutil.which(name))), None)
    if found is None:
        return Finding("compiler", "blocks", f"none of {', '.join(COMPILERS)} is there", Reason.COMPILER_MISSING)
    return Finding("compiler", "ready", found)


def _cores(places: Layout) -> list[Finding]:
    """The cores that the case places processes on; they are named nowhere else before both servers are up."""
    placement = places.case.device.placement
    if placement is None:
        return []
    wanted, here = {*placement.front, *placement.engine}, os.sched_getaffinity(0)
    text = f"cores {sorted(wanted)} of {sorted(here)}"
    if wanted <= here:
        return [Finding("placement", "ready", text)]
    return [Finding("placement", "blocks", f"{text}: not all are there", Reason.DEVICE_OTHER)]


def _device(places: Layout) -> list[Finding]:
    """What a lease is needed for, hence last: the device, and whether its clock may be locked.

    A device that is not here blocks nothing: engines are made without it, and a lease leads to it.
    """
    declared = places.case.device
    named = declared.name or declared.kind
    try:
        device.require(declared.declared, device.identify(declared.kind, gpu=getattr(declared, "uuid", None)))
        found = [Finding("device", "ready", f"{named} is here")]
    except Refusal as refusal:
        text = f"{named} is not here ({refusal.message}): the first seconds of a lease check it"
        found = [Finding("device", "unknown", text, refusal.reason)]
    if declared.clocks and (mhz := declared.clocks.lock_mhz):
        text = f"whether the SM clock may be locked at {mhz} MHz is not known before the first seconds of a lease"
        found.append(Finding("clock lock", "unknown", text, Reason.DEVICE_PRIVILEGE))
    return found


def _published(places: Layout) -> list[Finding]:
    """Baselines: whether their figures are where the case says, and what their records lack."""
    case = places.case
    before = pin.read_pin(places.root / case.previous_pin) if case.previous_pin else None
    return [Finding(*one) for one in citations.foreseen(case, places.root, before)]


def _identities(places: Layout) -> list[Finding]:
    found = []
    for name, arm in places.case.arms.items():
        declared, mode = pin.read_pin(places.root / arm.pin), arm.engine.mode
        if places.has_origin(name):
            metadata = records.read(places.engine(name).metadata, "metadata")
            rows = gate.foresee(declared, metadata, arm.compare, mode)
        else:
            rows = gate.by_mode(declared, mode)
        for row in rows:
            subject = f"arm {name}, {row.field}"
            text = f"declared {row.declared}, metadata says {row.measured or 'nothing yet'} (mode {mode})"
            if row.reason is None:
                found.append(Finding(subject, "ready", text))
            else:
                found.append(Finding(subject, "blocks", f"{text}: {row.text}", row.reason))
    return found
