"""A recorded layout: the places of a case in an archive, on a machine that never ran it.

What a machine adds to an identity (its Python, its processor, the checkpoints' files that it saw) was
recorded; all else is reckoned from the case and the locks again, so that a place is found only if the
identity in its name is the one that they lead to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinproof import records
from pinproof.case import Arm
from pinproof.engines import BuiltEngine
from pinproof.layout import Layout
from pinproof.reasons import Reason, Refusal
from pinproof.subjects import Synthesised

_PLACES = {"path", "cache", "revision"}  # of a checkpoint: where it lay is no part of what it is


@dataclass(frozen=True)
class Recorded(Layout):
    """All places of one archived case; `root` is the folder that the archive was unpacked in."""

    identities: Mapping[str, Any] = field(default_factory=dict)  # what `identities` below gives

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def machine(self) -> dict[str, str]:
        return dict(self.identities["machine"])

    @property
    def _spans(self) -> str:
        return self.identities["spans"]

    def build_key(self, arm_name: str) -> dict[str, Any]:
        """What was built of is not in an archive; what the case states of it must be what was recorded."""
        recorded = dict(self.identities["builds"][arm_name])
        stated = {name: recorded.get(name) for name in ("staged", "requirements")} | self.stated_build(arm_name)
        if records.canonical(stated) != records.canonical(recorded):
            message = f"arm {arm_name} was built of something else than the case states"
            raise Refusal(Reason.ARCHIVE_DIFFERS, message, key=f"arms.{arm_name}.engine")
        return recorded

    def _lock(self, arm_name: str, arm: Arm) -> Path:
        lock = self.root / self.identities["locks"][arm_name]
        if not (lock.is_file() and lock.resolve().is_relative_to(self.root.resolve())):
            raise Refusal(Reason.RECORD_MISSING, f"no lock of arm {arm_name}", file=lock)
        return lock

    def checkpoint_key(self, name: str) -> dict[str, Any]:
        declared, key = self.case.checkpoints[name], self.identities["checkpoints"][name]
        stated = super().checkpoint_key(name) if isinstance(declared, Synthesised) else declared.model_dump()
        for field_name, value in stated.items():
            if field_name not in _PLACES and records.canonical(key.get(field_name)) != records.canonical(value):
                message = f"checkpoint {name} is of another {field_name} than the case states"
                raise Refusal(Reason.ARCHIVE_DIFFERS, message, key=f"checkpoints.{name}")
        return dict(key)


def identities(places: Layout, locks: Mapping[str, str]) -> dict[str, Any]:
    """What a recorded layout of the same case needs; `locks` is where each arm's lock lies in the archive."""
    arms = places.case.arms.items()
    built = {name: places.build_key(name) for name, arm in arms if isinstance(arm.engine, BuiltEngine)}
    return {
        "machine": places.machine,
        "spans": places.engine(next(iter(places.case.arms))).key.get("spans"),
        "locks": dict(locks),
        "checkpoints": {name: places.checkpoint_key(name) for name in places.case.checkpoints},
        **({"builds": built} if built else {}),
    }
