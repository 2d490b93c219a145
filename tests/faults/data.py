"""Data faults: artifacts that are cut, altered, of another time, machine, device or version, and indexes that lie."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.fault import Fault, Outcome
from tests.faults.scene import CASE, Scene, replaced
from tests.stubs.workflow import ROW, Finished

from pinproof import records
from pinproof.reasons import Owner, Reason

# Every kind of record -> where it lies below the results; E is the oracle's engine, M what the row measured.
PLACES = {
    "pin": f"{CASE}/pin.json",
    "preflight": f"{CASE}/preflight.json",
    "source": "E/source.json",
    "metadata": "E/metadata.json",
    "wheel": "E/wheel.json",
    "wheel file": "E/wheel/*.whl",
    "source file": "E/source/*.whl",
    "env": "E/env/pinproof.json",
    "version": "E/version.json",
    "gate": f"{CASE}/arms/oracle/gate.json",
    "checkpoint": "checkpoints/????????????????.json",
    "weights": "checkpoints/*/*.safetensors",
    "weights folder": "checkpoints/????????????????",
    "device": f"{CASE}/device.json",
    "plan": "M/plan.json",
    "noise": "M/noise.json",
    "leg": "M/legs/s1-rep-c2-01-0-*.json",
    "output": "M/legs/s1-rep-c2-01-0-*.raw.json",
    "told": "M/told.json",
    "series": "M/series.json",
    "lease": "M/attempts/000/series1/lease.json",
    "prompts": "M/corpus/s1-rep-c2-00.jsonl",
    "manifest": "M/corpus/corpus.json",
    "row": f"{CASE}/rows/{ROW}.json",
    "verdict": f"{CASE}/verdict.json",
    "page": f"{CASE}/verdict.md",
}
Act = Callable[[Scene], Finished]
_NOBODY = (None, None)
_DAMAGED = (Reason.RECORD_DAMAGED, Owner.INSTRUMENT)
_FOREIGN = (Reason.RECORD_FOREIGN, Owner.INSTRUMENT)


def pattern(scene: Scene, kind: str) -> str:
    """Where a kind of record lies in a scene."""
    measured = scene.measured.relative_to(scene.results).as_posix()
    return PLACES[kind].replace("E/", f"engines/{scene.engine.name}/").replace("M/", f"{measured}/")


def place(scene: Scene, kind: str) -> Path:
    """The file of a kind; the leg's record and not its output."""
    return next(file for file in scene.files(pattern(scene, kind)) if kind != "leg" or ".raw" not in file.name)


# what is done to a file's bytes


def half(data: bytes) -> bytes:
    """The first half: an upload or a disk that ended early."""
    return data[: len(data) // 2]


def not_a_number(data: bytes) -> bytes:
    """A whole record with a value that is no number."""
    value = json.loads(data)
    return json.dumps(value | {"injected": float("nan")}).encode()


def empty(data: bytes) -> bytes:
    """Nothing, as a file has after a power cut."""
    return b""


def no_text(data: bytes) -> bytes:
    """Bytes that are no text."""
    return b"\xff\xfe\x00" + data


def of_a_rehearsal(data: bytes) -> bytes:
    """The record as a rehearsal would have written it."""
    return data.replace(b'"pinproof/', b'"pinproof-rehearsal/')


def of_another_version(data: bytes) -> bytes:
    """The record in a form of another version of the workflow."""
    value = json.loads(data)
    value["schema"]["version"] += 1
    return json.dumps(value).encode()


def flipped(data: bytes) -> bytes:
    """One bit in the middle is another."""
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# how it is done


def spoil(kind: str, change: Callable[[bytes], bytes], *forget: str, unmeasure: bool = False) -> Act:
    """Spoil a file, remove what is made of it, and call for the last of that; for a verdict when there is none."""

    def act(scene: Scene) -> Finished:
        file = place(scene, kind)
        scene.spoil(file, change(file.read_bytes()))
        if unmeasure:
            _without_last_pair(scene)
        scene.wanted = [scene.target(place(scene, one)) for one in forget[-1:]]
        scene.forget(*(pattern(scene, one) for one in forget))
        return scene.call(*scene.wanted)

    return act


def alter(kind: str, change: Callable[[Any], Any]) -> Act:
    """Let a record say something else, whole as it is, and call."""

    def act(scene: Scene) -> Finished:
        replaced(place(scene, kind), change)
        return scene.call()

    return act


def remove(*kinds: str) -> Callable[[Scene], None]:
    """What the remedy says: delete it, and the next call makes it anew."""
    return lambda scene: scene.forget(*(pattern(scene, kind) for kind in kinds))


def _without_last_pair(scene: Scene) -> None:
    """One rep is to be taken once more: the last one is gone, and so is what names it."""
    legs = scene.measured / "legs"
    for file in legs.glob("s1-rep-c2-02-*"):
        file.unlink()
    scene.kept = {name: leg for name, leg in scene.kept.items() if "-rep-c2-02-" not in name}
    scene.forget(pattern(scene, "series"), pattern(scene, "told"))


def _say_of_all_legs(**values: Any) -> Act:
    """Every leg says something else of where it was taken, and the series names the legs as they are now."""

    def act(scene: Scene) -> Finished:
        digests = {}
        for file in sorted(scene.measured.glob("legs/s*.json")):
            if not file.name.endswith(".raw.json"):
                replaced(file, lambda leg: leg.update(values))
                digests[file.stem] = records.content_digest(json.loads(file.read_text()))
        for kind in ("series", "told"):
            replaced(place(scene, kind), lambda record: record.update(legs=digests))
        scene.kept = {}
        return scene.call()

    return act


def _of_yesterday(scene: Scene) -> Finished:
    """A result that was decided under another tolerance stands under today's name."""
    before = place(scene, "row").read_bytes()
    _tolerance(scene, 0.8)
    assert scene.call().status == 0
    place(scene, "row").write_bytes(before)
    return scene.call()


def _tolerance(scene: Scene, tolerance: float) -> None:
    def change(case: dict[str, Any]) -> None:
        for metric in case["rows"][0]["metrics"]:
            metric["tolerance"] = tolerance

    scene.place.edit(change)


def _other_leg_under_its_name(scene: Scene) -> Finished:
    """A leg of the other arm stands under the name of one of ours."""
    (ours,) = scene.measured.glob("legs/s1-rep-c2-00-?-oracle.json")
    (other,) = scene.measured.glob("legs/s1-rep-c2-01-?-previous.json")
    scene.spoil(ours, other.read_bytes())
    return scene.call()


def _lost(kind: str) -> Act:
    """A file is gone."""

    def act(scene: Scene) -> Finished:
        file = place(scene, kind)
        scene.spoil(file, b"")
        file.unlink()
        return scene.call()

    return act


def _folder_in_its_place(scene: Scene) -> Finished:
    """A folder stands where the row's result should."""
    file = place(scene, "row")
    scene.spoil(file, b"")
    file.unlink()
    file.mkdir()
    return scene.call()


def _file_again(scene: Scene) -> None:
    place(scene, "row").rmdir()


def _machine_records(scene: Scene) -> Finished:
    """The machine's records of lives and of a lease's holder are half."""
    lives = scene.material.machine / "lives"
    (lives / f"{'0' * 32}.json").write_text('{"schema": {"na')
    (scene.material.machine / "locks" / "cpu.lock.holder.json").write_text('{"pid": ')
    scene.on_leaving((lives / f"{'0' * 32}.json").unlink)
    scene.unmeasure()
    return scene.call()


def _outcome(value: str) -> Callable[[Any], Any]:
    return lambda record: record.update(outcome=value)


def _first_leg_digest(record: Any) -> None:
    name = min(record["legs"])
    record["legs"][name] = "0" * 64


def _one_leg_less(record: Any) -> None:
    del record["legs"][min(record["legs"])]


def _other_name(record: Any) -> None:
    record["identity"]["name"] = "another processor"


def _other_machine(record: Any) -> None:
    _other_name(record)
    record["digest"] = records.digest(record["identity"])


def _other_runtime(record: Any) -> None:
    record["fields"]["vllm_runtime_version"]["value"] = "9.9.9"


def _better(record: Any) -> None:
    record["metrics"]["median_tpot"] = 0.001


FAULTS = [
    # half a file, of every kind
    *(
        Fault(f"half-{kind}", f"{PLACES[kind].split('/', 1)[1]} is cut in the middle", spoil(kind, half),
              Outcome.REFUSED, *_DAMAGED, mend=remove(kind), quick=kind == "row")
        for kind in ("pin", "source", "metadata", "version", "gate", "checkpoint", "device", "series", "row", "verdict")
    ),
    Fault("half-preflight", "preflight.json is cut in the middle, when all that it is about is done",
          spoil("preflight", half), Outcome.HOLD, *_NOBODY, mend=remove("preflight")),
    Fault("half-wheel-record", "wheel.json is cut in the middle, and its environment is to be made",
          spoil("wheel", half, "env"), Outcome.REFUSED, *_DAMAGED, mend=remove("wheel", "wheel file")),
    Fault("half-wheel", "the wheel is cut in the middle, and its environment is to be made",
          spoil("wheel file", half, "env"), Outcome.REFUSED, Reason.WHEEL_DIGEST, Owner.INPUT,
          mend=remove("wheel", "wheel file")),
    Fault("flipped-wheel", "one bit of the wheel is another, and its environment is to be made",
          spoil("wheel file", flipped, "env"), Outcome.REFUSED, Reason.WHEEL_DIGEST, Owner.INPUT,
          mend=remove("wheel", "wheel file")),
    Fault("flipped-source", "one bit of the fetched wheel is another, and the engine's wheel is to be made",
          spoil("source file", flipped, "wheel", "wheel file", "env"), Outcome.REFUSED, Reason.WHEEL_TRUNCATED,
          Owner.INPUT, mend=remove("source", "source file", "wheel file")),
    Fault("half-environment-marker", "the marker of an environment is cut in the middle, and a row is to be measured",
          spoil("env", half, unmeasure=True), Outcome.HOLD, mend=remove("env")),
    Fault("flipped-weights", "one bit of the weights is another, and a rep is to be taken",
          spoil("weights", flipped, unmeasure=True), Outcome.UNDECIDED, Reason.CHECKPOINT_MISMATCH, Owner.INPUT,
          mend=remove("checkpoint", "weights folder")),
    Fault("half-plan", "plan.json is cut in the middle, and a rep is to be taken",
          spoil("plan", half, unmeasure=True), Outcome.REFUSED, *_DAMAGED, mend=remove("plan")),
    Fault("half-noise", "noise.json is cut in the middle", spoil("noise", half), Outcome.HOLD, mend=remove("noise")),
    Fault("half-told", "what the last series told is cut in the middle", spoil("told", half), Outcome.HOLD,
          mend=remove("told")),
    Fault("half-leg", "a leg's record is cut in the middle", spoil("leg", half), Outcome.HOLD, says="damaged on disk"),
    Fault("half-output", "the client's output of a leg is cut in the middle", spoil("output", half), Outcome.HOLD,
          says="damaged on disk"),
    Fault("half-account", "the account of a lease is cut in the middle, and a rep is to be taken",
          spoil("lease", half, unmeasure=True), Outcome.REFUSED, *_DAMAGED, mend=remove("lease")),
    # not what a record is
    Fault("nan-row", "a row's result holds NaN", spoil("row", not_a_number), Outcome.REFUSED, *_DAMAGED,
          mend=remove("row")),
    Fault("nan-leg", "a leg's record holds NaN", spoil("leg", not_a_number), Outcome.HOLD, says="damaged on disk"),
    Fault("empty-gate", "a gate's record is empty", spoil("gate", empty), Outcome.REFUSED, *_DAMAGED,
          mend=remove("gate")),
    Fault("no-text-device", "the device's record is no text", spoil("device", no_text), Outcome.REFUSED, *_DAMAGED,
          mend=remove("device")),
    Fault("folder-for-a-row", "a folder stands in the place of a row's result", _folder_in_its_place,
          Outcome.REFUSED, *_DAMAGED, mend=_file_again),
    Fault("half-machine-records", "the machine's records of lives and holders are cut in the middle",
          _machine_records, Outcome.HOLD),
    # of another time, family, version, machine
    Fault("row-of-yesterday", "the result of an earlier call, under another tolerance, stands under today's name",
          _of_yesterday, Outcome.REFUSED, *_DAMAGED, mend=remove("row")),
    Fault("row-of-a-rehearsal", "a rehearsal's result stands under a measurement's name",
          spoil("row", of_a_rehearsal), Outcome.REFUSED, *_FOREIGN, mend=remove("row")),
    Fault("version-of-another-format", "version.json is of another version of the workflow",
          spoil("version", of_another_version), Outcome.REFUSED, *_FOREIGN, mend=remove("version")),
    Fault("leg-of-a-rehearsal", "a rehearsal's leg stands under a measurement's name",
          spoil("leg", of_a_rehearsal), Outcome.HOLD, says="damaged on disk"),
    Fault("leg-of-the-other-arm", "a leg of the other arm stands under the name of one of the pin's",
          _other_leg_under_its_name, Outcome.HOLD, says="damaged on disk"),
    Fault("legs-of-another-device", "all legs were taken on another device",
          _say_of_all_legs(device_digest="0" * 64), Outcome.UNDECIDED, Reason.DEVICE_OTHER, Owner.ENVIRONMENT,
          mend=Scene.unmeasure, voids="they are of another device"),
    Fault("legs-of-another-version", "all legs were taken of another reading of the versions",
          _say_of_all_legs(version_digest="0" * 64), Outcome.UNDECIDED, *_FOREIGN,
          mend=Scene.unmeasure, voids="they are of another version"),
    Fault("device-of-another-machine", "device.json is that of another machine", alter("device", _other_machine),
          Outcome.UNDECIDED, Reason.DEVICE_OTHER, Owner.ENVIRONMENT, mend=remove("device")),
    # records and indexes that lie
    Fault("lying-device", "device.json names another processor than its digest is of", alter("device", _other_name),
          Outcome.REFUSED, *_DAMAGED, mend=remove("device")),
    Fault("lying-series", "the series names a leg by another digest", alter("series", _first_leg_digest),
          Outcome.REFUSED, *_DAMAGED, mend=remove("series")),
    Fault("series-with-a-leg-less", "the series does not name a leg that is there", alter("series", _one_leg_less),
          Outcome.REFUSED, *_DAMAGED, mend=remove("series")),
    Fault("lying-leg", "a leg's record claims a metric that its output does not bear out", alter("leg", _better),
          Outcome.REFUSED, *_DAMAGED, mend=remove("leg")),
    Fault("lying-row", "a row's result says red, its legs do not", alter("row", _outcome("red")),
          Outcome.REFUSED, *_DAMAGED, mend=remove("row")),
    Fault("lying-gate", "a gate says that it failed, pin and version do not", alter("gate", _outcome("fail")),
          Outcome.REFUSED, *_DAMAGED, mend=remove("gate")),
    Fault("lying-version", "version.json claims a version that the engine has not", alter("version", _other_runtime),
          Outcome.UNDECIDED, Reason.PIN_DISAGREES, Owner.INPUT, mend=remove("version")),
    Fault("lying-wheel-record", "wheel.json names another digest, and the environment is to be made",
          spoil("wheel", lambda data: data.replace(b'"sha256": "', b'"sha256": "0'), "env"),
          Outcome.REFUSED, Reason.WHEEL_DIGEST, Owner.INPUT, mend=remove("wheel", "wheel file")),
    Fault("changed-corpus", "a prompt is another, and a rep is to be taken",
          spoil("prompts", flipped, unmeasure=True), Outcome.UNDECIDED, Reason.CORPUS_MISMATCH, Owner.INPUT,
          mend=lambda scene: scene.forget(f"{scene.measured.relative_to(scene.results)}/corpus")),
    Fault("lying-manifest", "the corpus' manifest describes other prompts, and a rep is to be taken",
          spoil("manifest", lambda data: data.replace(b'"seed": 0', b'"seed": 1'), unmeasure=True),
          Outcome.UNDECIDED, Reason.CORPUS_MISMATCH, Owner.INPUT,
          mend=lambda scene: scene.forget(f"{scene.measured.relative_to(scene.results)}/corpus")),
    # gone
    Fault("lost-leg", "a leg's record is gone", _lost("leg"), Outcome.HOLD),
    Fault("lost-output", "the client's output of a leg is gone", _lost("output"), Outcome.HOLD, says="damaged on disk"),
]  # fmt: skip
