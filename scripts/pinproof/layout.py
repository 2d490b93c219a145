"""Where files lie, and the digests that are in their paths.

An engine lies under a digest of what its bytes depend on; what a row measured lies under a digest
of what was measured. Nothing that does not change the bytes (job counts, paths, comments, key
order) is in a digest, so nothing irrelevant rebuilds them, and an old pin finds its files again.
"""

from __future__ import annotations

import functools
import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinproof import checkpoint, hub, locks, records, source, spanwheel
from pinproof.case import Arm, Case
from pinproof.claims import Row, Speculative, Startup
from pinproof.engines import WITHOUT_TRACE, BuiltEngine
from pinproof.originals import AS_THEY_ARE, Originals
from pinproof.reasons import Reason, Refusal
from pinproof.subjects import Hub, Synthesised

DIGEST_LENGTH = 16
RESULTS_VARIABLE = "PINPROOF_RESULTS"
STORE_VARIABLE = "PINPROOF_STORE"

# Raised when the code that makes an artifact changes what the artifact contains.
RELABEL_FORMAT = 1
CHECKPOINT_FORMAT = 1
CORPUS_FORMAT = 1
LIFE_FORMAT = 1


@dataclass(frozen=True)
class EnginePlace:
    """One engine: its identity as plain values, and the folder that holds its files."""

    arm: Arm
    key: dict[str, Any]
    folder: Path
    lock: Path | None  # None while nobody has locked what a source needs
    build: Path | None = None  # where a wheel that is built here is kept, whatever its environment is

    @property
    def source(self) -> Path:
        return self.folder / "source.json"

    @property
    def metadata(self) -> Path:
        return self.folder / "metadata.json"

    @property
    def wheel(self) -> Path:
        return self.folder / "wheel.json"

    @property
    def has_wheel(self) -> bool:
        """Whether the wheel and the record that names it are there."""
        return self.wheel.exists() and any(self.folder.glob("wheel/*.whl"))

    @property
    def env(self) -> Path:
        return self.folder / "env"

    @property
    def env_marker(self) -> Path:
        """Written last: an environment without it is half-made."""
        return self.env / "pinproof.json"

    @property
    def version(self) -> Path:
        return self.folder / "version.json"

    @property
    def python(self) -> Path:
        return self.env / "bin" / "python"


@dataclass(frozen=True)
class RowPlace:
    """One row: what was measured (under its digest) and what was decided about it.

    A warm-up row is judged by the lives of a start-up row: `lives`, whose folder it has.
    """

    row: Row
    key: dict[str, Any]
    folder: Path
    result: Path
    lives: Row

    @property
    def plan(self) -> Path:
        return self.folder / ("plan.json" if self.row is self.lives else f"plan-{self.row.id}.json")

    @property
    def noise(self) -> Path:
        return self.folder / "noise.json"

    @property
    def series(self) -> Path:
        return self.folder / "series.json"

    @property
    def legs(self) -> Path:
        return self.folder / "legs"

    @property
    def attempts(self) -> Path:
        return self.folder / "attempts"


@dataclass(frozen=True)
class Layout:
    """All places of one case. `root` holds the repository's rules and locks."""

    case: Case
    case_file: Path
    root: Path
    results: Path = field(default_factory=lambda: Path(os.environ.get(RESULTS_VARIABLE, "results")))
    originals: Originals = AS_THEY_ARE

    @property
    def store(self) -> Path:
        """Root of engines and checkpoints; several checkouts may share one."""
        return Path(os.environ.get(STORE_VARIABLE, self.results))

    @property
    def folder(self) -> Path:
        return self.results / self.case.case

    def refused(self, refusal: Refusal) -> dict[str, Any]:
        """A refusal for a record, its file named as on any machine: below `results`, `store` or `workflow`."""
        found = refusal.as_record()
        for name, folder in {"results": self.results, "store": self.store, "workflow": self.root}.items():
            path = Path(found["file"] or "").absolute()
            if found["file"] and path.is_relative_to(folder.absolute()):
                return found | {"file": f"{name}/{path.relative_to(folder.absolute()).as_posix()}"}
        return found

    def pin_file(self, arm: str) -> str:
        """The arm's pin file as a rule names it."""
        return self.named(self.case.arms[arm].pin)

    def named(self, declared: str) -> str:
        """A file of the case as a rule names it: a checkout that was moved names it as before."""
        return declared if Path(declared).is_absolute() else os.path.relpath(self.root / declared)

    @property
    def pin(self) -> Path:
        return self.folder / "pin.json"

    @property
    def preflight(self) -> Path:
        return self.folder / "preflight.json"

    @property
    def citations(self) -> Path:
        return self.folder / "citations.json"

    @property
    def discharges(self) -> Path:
        return self.folder / "discharges.json"

    @property
    def correction(self) -> Path:
        return self.folder / "correction.patch"

    @property
    def revert(self) -> Path:
        return self.folder / "revert.patch"

    @property
    def bundle(self) -> Path:
        """The record of a bundle; its parts lie beside it."""
        return self.folder / "bundle" / "manifest.json"

    @property
    def device(self) -> Path:
        return self.folder / "device.json"

    @property
    def verdict(self) -> Path:
        return self.folder / "verdict.json"

    @property
    def page(self) -> Path:
        return self.folder / "verdict.md"

    def gate(self, arm: str) -> Path:
        return self.folder / "arms" / arm / "gate.json"

    def engine(self, arm_name: str) -> EnginePlace:
        """The engine of an arm, found once. Refusal CASE_INVALID when its lock is not there."""
        if arm_name not in self._engines:
            self._engines[arm_name] = self._engine(arm_name)
        return self._engines[arm_name]

    @functools.cached_property
    def _engines(self) -> dict[str, EnginePlace]:
        return {}

    def _engine(self, arm_name: str) -> EnginePlace:
        arm = self.case.arms[arm_name]
        lock = self._lock(arm_name, arm)
        engine = arm.engine
        key = {"mode": engine.mode, "requirements": locks.requirements_digest(lock) if lock else None, **self.machine}
        build = None
        if isinstance(engine, BuiltEngine):
            key["build"] = _short(self.build_key(arm_name))
            build = self.store / "builds" / key["build"]
        else:
            key |= {
                "sha256": engine.sha256,
                "relabel": engine.relabel.model_dump() if engine.relabel else None,
                "relabel_format": RELABEL_FORMAT if engine.relabel else None,
            }
        if engine.mode == "index":
            key |= {"distribution": engine.distribution, "version": engine.version}
        # Only where it is asked for: an environment that was made without is the same one as before.
        key |= {"provided": engine.provided} if engine.provided else {}
        key |= {"spans": self._spans} if self.has_spans else {}
        return EnginePlace(arm, key, self.store / "engines" / _short(key), lock, build)

    def build_key(self, arm_name: str) -> dict[str, Any]:
        """What a built wheel depends on, as far as it is known before anything is read or run.

        Its toolchain and what is in its build environment stand in the wheel's own record: they are no
        reason to build again what is there. Neither job counts nor places are part of it.
        """
        engine = self.case.arms[arm_name].engine
        lock = self.root / engine.build_lock if engine.build_lock else None
        return {
            **self.stated_build(arm_name),
            "staged": {name: source.identity(self.root / place) for name, place in engine.staged.items()},
            "requirements": locks.requirements_digest(lock) if lock and lock.is_file() else None,
        }

    def stated_build(self, arm_name: str) -> dict[str, Any]:
        """What the case itself states of it."""
        engine = self.case.arms[arm_name].engine
        return {
            "mode": engine.mode,
            "source": {"commit": engine.commit} if engine.commit else {"sha256": engine.sha256},
            "target_device": engine.target_device,
            "env": {name: value for name, value in engine.build_env.items() if name not in WITHOUT_TRACE},
            "without": sorted(engine.without),
            "binaries": engine.binaries.sha256 if engine.mode == "precompiled" else None,
            **self.machine,
        }

    @property
    def machine(self) -> dict[str, str]:
        """What the environments of engines are made for."""
        python = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"
        return {"python": python, "machine": platform.machine()}

    @functools.cached_property
    def _spans(self) -> str:
        """Digest of the span plugin's wheel; an engine is asked for many times in one call."""
        return spanwheel.sha256()

    @property
    def has_spans(self) -> bool:
        """Whether a start of this case is to be timed inside the engine, which needs the span plugin there."""
        return any(isinstance(row, Startup) and row.spans for row in self.case.rows)

    def has_origin(self, arm_name: str) -> bool:
        """Whether what an engine is made from can be had: it lies here, or an index serves it."""
        engine = self.case.arms[arm_name].engine
        named = {"index": None, "file": getattr(engine, "file", None)}.get(engine.mode, getattr(engine, "source", None))
        return named is None or (self.root / named).exists()

    def engines(self) -> dict[str, EnginePlace]:
        """Every engine of the case by the digest in its path; two arms may share one."""
        places = (self.engine(name) for name in self.case.arms)
        return {place.folder.name: place for place in places}

    def checkpoint_key(self, name: str) -> dict[str, Any]:
        """What a checkpoint's files depend on, as far as it is known without reading them."""
        declared = self.case.checkpoints[name]
        if isinstance(declared, Synthesised):
            return {"format": CHECKPOINT_FORMAT, **declared.model_dump()}
        key = {"format": CHECKPOINT_FORMAT, **declared.model_dump(exclude={"path", "cache", "revision"})}
        if isinstance(declared, Hub):
            try:
                return {**key, "commit": self.snapshot(declared).commit}
            except Refusal:  # it is told before anything is built
                return {**key, "commit": declared.revision}
        known = [file for file, one in declared.files.items() if one.sha256]
        return {**key, "seen": checkpoint.seen(self.root / declared.path, known)}

    def snapshot(self, declared: Hub) -> hub.Snapshot:
        """Where a hub's snapshot lies. Refusals: CHECKPOINT_MISSING, CHECKPOINT_MISMATCH."""
        return hub.find_snapshot(
            hub.cache_folder(declared.cache),
            declared.repository,
            declared.revision,
            tokenizer_revision=declared.tokenizer_revision,
        )

    def subject(self, name: str) -> Path:
        """The folder of a checkpoint's files, absolute. Refusals: those of `snapshot`."""
        declared = self.case.checkpoints[name]
        if isinstance(declared, Synthesised):
            return self.checkpoint(name).with_suffix("").absolute()
        if isinstance(declared, Hub):
            return self.snapshot(declared).folder.absolute()
        return (self.root / declared.path).absolute()

    @property
    def digests(self) -> Path:
        """Digests of checkpoints' files, remembered while the files are the same."""
        return self.store / "checkpoints" / "digests.json"

    def checkpoint(self, name: str) -> Path:
        """The checkpoint's record; the files that we make lie in the folder of the same name."""
        return self.store / "checkpoints" / f"{_short(self.checkpoint_key(name))}.json"

    def row(self, row_id: str) -> RowPlace:
        """The places of a row."""
        row = self.case.row(row_id)
        lives = self.case.lives(row)
        key = self._measured(lives)
        rows = self.folder / "rows"
        return RowPlace(row, key, rows / lives.id / _short(key), rows / f"{row.id}.json", lives)

    def _measured(self, row: Row) -> dict[str, Any]:
        """All that a row's legs depend on."""
        arms = sorted({row.numerator, row.denominator})
        common = {
            "kind": row.kind,
            "denominator": row.denominator,
            "engines": {arm: self.engine(arm).folder.name for arm in arms},
            "serve": {arm: self.case.arms[arm].serve.model_dump() for arm in arms},
            "row_serve": row.serve.model_dump(),
            "checkpoint": self.checkpoint(row.checkpoint).stem,
            "device": self.case.device.model_dump(),
        }
        if isinstance(row, Startup):
            spans = [span.model_dump() for span in row.spans]
            return {**common, "caches": row.caches.model_dump(), "spans": spans, "life_format": LIFE_FORMAT}
        if isinstance(row, Speculative):
            common |= {"config": row.config, "off_legs": row.off_legs, "noise_prompts": row.noise_prompts}
        return {
            **common,
            "client": self.engine(self.case.client).folder.name,
            "recipe": row.recipe.model_dump(),
            "cells": [cell.model_dump() for cell in row.cells],
            "residency": row.residency,
            "corpus_format": CORPUS_FORMAT,
        }

    def rows(self) -> list[RowPlace]:
        return [self.row(row.id) for row in self.case.rows]

    def _lock(self, arm_name: str, arm: Arm) -> Path | None:
        if not arm.engine.locks:
            return None
        build = locks.torch_build(self.root, arm.engine.locks)
        if build not in arm.engine.locks:
            allowed = ", ".join(sorted(arm.engine.locks))
            why = (
                f"{locks.TORCH_BUILD_VARIABLE} asks for the torch build {build!r}"
                if os.environ.get(locks.TORCH_BUILD_VARIABLE)
                else f"this machine takes the torch build {build!r} (no find-links folder has the CPU build of torch)"
            )
            raise Refusal(
                Reason.CASE_INVALID,
                f"{why}, but the locks are for: {allowed}",
                file=self.case_file,
                key=f"arms.{arm_name}.engine.locks",
            )
        lock = self.root / arm.engine.locks[build]
        if not lock.is_file():
            raise Refusal(
                Reason.CASE_INVALID,
                f"no such file: {arm.engine.locks[build]}",
                file=self.case_file,
                key=f"arms.{arm_name}.engine.locks.{build}",
            )
        return lock


def _short(key: dict[str, Any]) -> str:
    return records.digest(key)[:DIGEST_LENGTH]
