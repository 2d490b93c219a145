"""Discharges: arguments that something which moved cannot have moved a number, re-checked on what is recorded.

HOLDS only while every witness is known and agrees. One that disagrees makes it FALLEN, one that is
missing UNKNOWN; either keeps the pin from a HOLD, and neither ever speaks against the pin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from pinproof import records, serverlog
from pinproof.claims import Row, Warmup
from pinproof.decision import HardGate
from pinproof.layout import Layout
from pinproof.reasons import Reason, Refusal
from pinproof.scope import Floor, Inert

_LARGEST_LOG = 64 * 1024 * 1024  # bytes; a configuration stands at a log's beginning


class State(StrEnum):
    """What became of an argument."""

    HOLDS = "holds"
    FALLEN = "fallen"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Witness:
    """One thing that was looked at; `holds` is None when it is not known."""

    subject: str
    found: str | None
    wanted: str
    holds: bool | None

    def as_record(self) -> dict[str, Any]:
        """As JSON values."""
        return dict(vars(self))


@dataclass(frozen=True)
class Judged:
    """A discharge, and what its witnesses say."""

    id: str
    kind: str
    argument: str
    witnesses: tuple[Witness, ...]

    @property
    def state(self) -> State:
        """HOLDS, FALLEN or UNKNOWN; without a witness nothing is known."""
        answers = [one.holds for one in self.witnesses]
        if False in answers:
            return State.FALLEN
        return State.HOLDS if answers and None not in answers else State.UNKNOWN

    @property
    def reason(self) -> Reason | None:
        """Why the pin cannot be held with it; None when it holds."""
        reasons = {State.FALLEN: Reason.DISCHARGE_FALLEN, State.UNKNOWN: Reason.DISCHARGE_UNKNOWN}
        return reasons.get(self.state)

    def as_record(self) -> dict[str, Any]:
        """As JSON values."""
        witnesses = [one.as_record() for one in self.witnesses]
        return {
            "id": self.id,
            "kind": self.kind,
            "argument": self.argument,
            "state": str(self.state),
            "witnesses": witnesses,
        }


def judge(places: Layout) -> list[Judged]:
    """Every discharge of the case, on the records that are there now."""
    looks = {"floor": _floor, "inert": _inert}
    return [
        Judged(one.id, one.kind, one.argument, tuple(looks[one.kind](places, one))) for one in places.case.discharges
    ]


def body(judged: Iterable[Judged]) -> dict[str, Any]:
    """The body of discharges.json."""
    return {"discharges": [one.as_record() for one in judged]}


def from_record(record: Mapping[str, Any]) -> list[Judged]:
    """The discharges of discharges.json, to be judged again from their witnesses."""
    return [
        Judged(one["id"], one["kind"], one["argument"], tuple(Witness(**each) for each in one["witnesses"]))
        for one in record["discharges"]
    ]


def gates(judged: Iterable[Judged]) -> list[HardGate]:
    """The discharges as gates of the pin: one that does not hold leaves it undecided."""
    return [HardGate(f"discharge {one.id}", True if one.reason is None else None, one.reason) for one in judged]


def foreseen(places: Layout) -> Iterator[tuple[str, str, str, Reason | None]]:
    """What a preflight says of the discharges: subject, state (ready, blocks, unknown), text, reason."""
    states = {State.HOLDS: "ready", State.FALLEN: "blocks", State.UNKNOWN: "unknown"}
    for one in judge(places):
        against = [each for each in one.witnesses if each.holds is not True]
        text = "; ".join(f"{each.subject}: {each.found or 'not known yet'}, wanted {each.wanted}" for each in against)
        yield f"discharge {one.id}", states[one.state], text or "every witness agrees", one.reason


# -- a requirement whose floor moved -------------------------------------------------------------


def _floor(places: Layout, one: Floor) -> Iterator[Witness]:
    arms = _arms(places, one.arms)
    floors = list(dict.fromkeys([*one.floors, *(floor for arm in arms for floor in _own_floors(places, arm, one))]))
    wanted = SpecifierSet(",".join(floors))
    for recorded in one.recorded:
        yield _version(f"{one.distribution} at {recorded.at}", recorded.version, wanted)
    for arm in arms:
        yield _version(f"{one.distribution} of {arm}", _resolved(places, arm, one.distribution), wanted)


def _own_floors(places: Layout, arm: str, one: Floor) -> Iterator[str]:
    """What the metadata of the arm's own wheel asks of the distribution, where its markers hold here."""
    record = _record(places.engine(arm).metadata, "metadata")
    for text in (record or {}).get("requires_dist") or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if not _same(requirement.name, one.distribution) or not str(requirement.specifier):
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield str(requirement.specifier)


def _version(subject: str, version: str | None, wanted: SpecifierSet) -> Witness:
    if version is None:
        return Witness(subject, None, str(wanted), None)
    try:
        return Witness(subject, version, str(wanted), wanted.contains(Version(version), prereleases=True))
    except InvalidVersion:
        return Witness(subject, version, str(wanted), None)


def _resolved(places: Layout, arm: str, distribution: str) -> str | None:
    record = _record(places.engine(arm).version, "version")
    installed = ((record or {}).get("distributions") or {}).get("value") or ()
    found = {version for name, version in installed if _same(name, distribution)}
    return found.pop() if len(found) == 1 else None  # none, or two of one name


def _same(name: str, other: str) -> bool:
    return canonicalize_name(name) == canonicalize_name(other)


# -- a flag that has no effect -------------------------------------------------------------------


def _inert(places: Layout, one: Inert) -> Iterator[Witness]:
    for row in places.case.rows:
        if isinstance(row, Warmup):
            continue  # judged by the lives of another row
        for arm in _arms(places, one.arms):
            if arm in (row.numerator, row.denominator):
                subject = f"{one.resolved} of {arm} in {row.id}"
                arguments = [*row.serve.args, *places.case.arms[arm].serve.args]
                yield _setting(f"{subject}, declared", declared(arguments, one.options, one.default), one.value)
                for value in _logged(places, row, arm, one.resolved):
                    yield _setting(f"{subject}, logged by the engine", value, one.value)


def declared(arguments: Sequence[str], options: Sequence[str], default: str | None) -> str | None:
    """The last value that a server's arguments give an option; the default without one.

    None when it cannot be known: an option without its value, or a file of arguments that was not read.
    """
    value, names = default, {_option(name) for name in options}
    for word, following in zip(arguments, [*arguments[1:], None], strict=True):
        name, equals, given = word.partition("=")
        if _option(name) == "--config":
            value = None
        elif _option(name) in names:
            value = given if equals else following
    return value


def _option(name: str) -> str:
    """An option as vLLM reads it: --tensor_parallel_size is --tensor-parallel-size."""
    return name.replace("_", "-") if name.startswith("--") else name


def _logged(places: Layout, row: Row, arm: str, setting: str) -> list[str]:
    """Every value of the setting that the engine logged in the lives of the row, each once."""
    found: dict[str, None] = {}
    for log in sorted(places.row(row.id).attempts.rglob("server-*.log")):
        if _whose(log.name, places.case.arms) != arm:
            continue
        with log.open("rb") as stream:
            text = stream.read(_LARGEST_LOG).decode(errors="replace")
        engine = serverlog.resolved_config(text).engine
        if setting in engine:
            found[str(engine[setting])] = None
    return list(found)


def _whose(name: str, arms: Iterable[str]) -> str | None:
    """The arm in a server log's name; of two that fit, the longer."""
    return max((arm for arm in arms if name.startswith(f"server-{arm}")), key=len, default=None)


def _setting(subject: str, found: str | None, wanted: str) -> Witness:
    return Witness(subject, found, wanted, None if found is None else found == wanted)


# -- small helpers -------------------------------------------------------------------------------


def _arms(places: Layout, names: Sequence[str] | None) -> list[str]:
    return [arm for arm in places.case.arms if names is None or arm in names]


def _record(path: Path, schema: str) -> dict[str, Any] | None:
    try:
        return records.read(path, schema)
    except Refusal:
        return None
