"""Builds of a case: from what it says of a source to the wheel in the store.

All that is made of one source under the same orders lies in one folder of the store, whatever is
installed beside the wheel: a new lock of an arm builds nothing again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock

from pinproof import build, buildlog, records, source, staging, wheel
from pinproof.build import BuildSpec
from pinproof.engines import BuiltEngine
from pinproof.layout import EnginePlace, Layout
from pinproof.reasons import Reason, Refusal
from pinproof.staging import Scan

Say = Callable[[str], None]
ENVIRONMENTS = "build-environments"


def take(places: Layout, place: EnginePlace, say: Say) -> dict[str, Any]:
    """Take a private tree of the source; return what is to be recorded of it.

    Refusals, each with what mends it: SOURCE_INVALID, SOURCE_SHALLOW, SOURCE_UNTAGGED, SOURCE_FOREIGN_TAG,
    SOURCE_DIRTY; SOURCE_MISSING for whatever the build would clone and cannot; WHEEL_DIGEST and those of
    `wheel.verify` for the wheel that binaries are to come from.
    """
    engine = place.arm.engine
    origin = places.root / engine.source
    _require_archive(engine, origin)
    place.build.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(place.build / ".source.lock", mode=0o666):
        if source.kind(origin) == "clone":
            found = source.facts(origin, revision=engine.commit)
            source.require_sound(found, origin, commit=engine.commit)
        say(f"taking {engine.source} at {engine.commit or engine.sha256}")
        tree = source.take(origin, place.build, revision=engine.commit or "HEAD")
        if origin.is_file():
            found = source.facts(tree, taken_from=origin)
            source.require_sound(found, origin, commit=engine.commit)
    scan = _scan(engine, tree)
    say(scan.said)
    staged = {name: places.root / folder for name, folder in engine.staged.items()}
    staging.require_staged(scan, staged, network=engine.network, without=engine.without)
    binaries = _binaries(places, engine)
    return {
        "facts": found.as_record(),
        "scan": scan.as_record(),
        "binaries": binaries and wheel.verify(binaries, sha256=engine.binaries.sha256).as_record(),
    }


def spec(places: Layout, place: EnginePlace) -> BuildSpec:
    """What the build is told; its tree is there once `take` was called."""
    engine = place.arm.engine
    return BuildSpec(
        tree=place.build / "tree",
        mode=engine.mode,
        target_device=engine.target_device,
        cache=places.store.absolute() / ENVIRONMENTS,
        env=engine.build_env,
        staged={name: places.root / folder for name, folder in engine.staged.items()},
        max_jobs=engine.max_jobs,
        nvcc_threads=engine.nvcc_threads,
        precompiled_wheel=_binaries(places, engine),
        lock=places.root / engine.build_lock if engine.build_lock else None,
        without=tuple(engine.without),
        network=engine.network,
    )


def metadata(places: Layout, place: EnginePlace, *, log: Path) -> dict[str, Any]:
    """What the wheel will say of itself; see `build.metadata`, also for refusals."""
    return build.metadata(spec(places, place), place.build.absolute() / "asked", log=log.absolute())


def make(places: Layout, place: EnginePlace, *, log: Path) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """The wheel in the engine's own folder, the record of its build, and what of it varies without meaning.

    It is built unless the store has it. Each engine has a copy, so that none can alter another's.

    Refusals: those of `build.wheel`.
    """
    engine = place.arm.engine
    about = buildlog.About(
        max_jobs=engine.max_jobs,
        nvcc_threads=engine.nvcc_threads,
        declared=_scan(engine, place.build / "tree").wanted,
        capability=getattr(places.case.device, "compute_capability", None),
    )
    kept = build.wheel(spec(places, place), place.build.absolute() / "wheel", log=log.absolute(), about=about)
    made = place.folder / "wheel" / kept.name
    with records.replacing(made) as temporary:
        shutil.copyfile(kept, temporary)
    body = build.built(kept.parent)
    how = body.pop(records.PROVENANCE, {})
    return made, {name: value for name, value in body.items() if name != "schema"}, how


def _scan(engine: BuiltEngine, tree: Path) -> Scan:
    scan = staging.scan(tree, staging.known(engine.target_device))
    return scan.uncompiled if engine.mode == "precompiled" else scan


def _binaries(places: Layout, engine: BuiltEngine) -> Path | None:
    return places.root / engine.binaries.file if engine.mode == "precompiled" else None


def _require_archive(engine: BuiltEngine, origin: Path) -> None:
    """Refuse a source archive of other bytes than the case states, and a clone stated by a digest."""
    kind = source.kind(origin)
    if (kind == "sdist") != (engine.commit is None):
        wants = "the sha256 of the archive" if kind == "sdist" else "the commit"
        raise Refusal(Reason.SOURCE_INVALID, f"a {kind}: the case must state {wants}", file=origin)
    if kind == "sdist" and origin.is_file() and (found := records.file_sha256(origin)) != engine.sha256:
        raise Refusal(Reason.SOURCE_INVALID, f"its sha256 is {found}, the case states {engine.sha256}", file=origin)
