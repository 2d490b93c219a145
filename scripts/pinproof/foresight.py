"""Foresight: what can be said of a case's builds before any of them starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.version import Version

from pinproof import budget, locks, records
from pinproof.buildenv import Torch
from pinproof.engines import BuiltEngine, FileEngine
from pinproof.finding import Finding
from pinproof.layout import Layout
from pinproof.reasons import Reason, Refusal


def of_builds(places: Layout) -> Iterator[Finding]:
    """Whether every source, wheel and lock is there, and for a wheel to be built what the build needs."""
    for name, arm in places.case.arms.items():
        if isinstance(arm.engine, FileEngine) and not places.has_origin(name):
            yield Finding(f"arm {name}, wheel", "blocks", f"no such file: {arm.engine.file}", Reason.WHEEL_UNAVAILABLE)
        if isinstance(arm.engine, BuiltEngine):
            yield from _of_source(places, name, arm.engine)
            yield from _of_wheel(places, name, arm.engine)


def _of_source(places: Layout, name: str, engine: BuiltEngine) -> Iterator[Finding]:
    wanted = f"commit {engine.commit}" if engine.commit else f"sha256 {engine.sha256}"
    if places.has_origin(name):
        yield Finding(f"arm {name}, source", "ready", f"{engine.source}, {wanted}")
    else:
        text = f"{engine.source} ({wanted}) is not there: a clone, a git bundle made with --all, or a source archive"
        yield Finding(f"arm {name}, source", "blocks", text, Reason.SOURCE_MISSING)
    lacking = [
        f"{variable}={folder}" for variable, folder in engine.staged.items() if not (places.root / folder).is_dir()
    ]
    if lacking:
        yield Finding(f"arm {name}, staged", "blocks", f"not there: {', '.join(lacking)}", Reason.SOURCE_MISSING)
    if engine.build_lock and not (places.root / engine.build_lock).is_file():
        text = f"no such build lock: {engine.build_lock}"
        yield Finding(f"arm {name}, build lock", "blocks", text, Reason.CASE_INVALID)
    if not engine.locks:
        text = "the case names no lock of what the engine needs: metadata.json lists it once the source is there"
        yield Finding(f"arm {name}, lock", "blocks", text, Reason.CASE_INVALID)


def _of_wheel(places: Layout, name: str, engine: BuiltEngine) -> Iterator[Finding]:
    place = places.engine(name)
    subject = f"arm {name}, wheel"
    if place.has_wheel or any(place.build.glob("wheel/*.whl")):
        yield Finding(subject, "ready", f"built already, by mode {engine.mode}")
        return
    jobs = f"MAX_JOBS={engine.max_jobs}" if engine.max_jobs else "one job a core"
    yield Finding(subject, "ready", f"to be built by mode {engine.mode}, target {engine.target_device}, {jobs}")
    if engine.mode == "precompiled":
        return
    device, capability = places.case.device, getattr(places.case.device, "compute_capability", None)
    torch = _build_torch(places, name)
    looked = budget.look(
        budget.Needs(engine.disk_gb, engine.memory_per_job_gb, engine.budget_s),
        folder=places.store,
        target=engine.target_device if torch else "",  # the toolkit is held against a torch, which is not known yet
        max_jobs=engine.max_jobs,
        torch=torch,
        architectures=engine.architecture,
        capability=capability,
        device=device.name,
        runtime_torch=_torch_of(locks.requirements(place.lock)) if place.lock else None,
    )
    if engine.target_device == "cuda" and torch is None:
        looked.append(budget.architecture_list(engine.architecture, capability))
    for found in looked:
        yield Finding(f"arm {name}, {found.subject}", found.state, found.text, found.reason)


def _build_torch(places: Layout, name: str) -> Torch | None:
    """The torch of the build environment; None where there is none, or before the backend was asked."""
    try:
        installed = records.read(places.engine(name).metadata, "metadata")["build_env"]
    except Refusal:
        return None
    version = _torch_of(installed)
    if version is None:
        return None
    flavour = Version(version).local or ""
    return Torch(version, cuda=f"{flavour[2:-1]}.{flavour[-1]}" if flavour.startswith("cu") else None)


def _torch_of(requirements: Sequence[str]) -> str | None:
    found = next((line for line in requirements if line.startswith("torch==")), "")
    return found.removeprefix("torch==").split()[0] if found else None
