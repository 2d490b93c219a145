"""Preflight: what blocks is found in seconds, with every finding and what would clear it."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.builders import Results, put, put_text, refusal_of

from pinproof import device, preflight
from pinproof.preflight import Finding
from pinproof.reasons import Reason, Refusal

Usage = namedtuple("Usage", "free")
Memory = namedtuple("Memory", "available total")
READY = Finding("disk", "ready", "enough")
NO_DISK = Finding("disk", "blocks", "1 GB free, the case needs 2 GB", Reason.DISK_SHORT)
NO_MEMORY = Finding("memory", "blocks", "1 GB free, the case needs 2 GB", Reason.MEMORY_SHORT)


@pytest.fixture(autouse=True)
def _enough(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch)


def have(monkeypatch: pytest.MonkeyPatch, disk_gb: float = 100, memory_gb: float = 100) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(disk_gb * 1e9))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(memory_gb * 1e9, 2**34))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """A case whose engines say of themselves what their pins declare."""
    made = Results(tmp_path)
    for name, arm in made.places.case.arms.items():
        block = f"vllm_runtime_version = {arm.engine.version}\nvllm_distribution_version = {arm.engine.version}+cpu\n"
        put_text(tmp_path / arm.pin, f"```parity-pin\nbuild_mode = index\n{block}```\n")
        metadata(made, name, arm.engine.version)
    return made


def metadata(results: Results, arm: str, version: str | None, distribution: str | None = None) -> None:
    body = {"version": distribution or f"{version}+cpu", "module_version": version, "commit": None}
    put(results.places.engine(arm).metadata, "metadata", body)


def blocking(results: Results) -> list[tuple[str, Reason | None]]:
    return [(found.subject, found.reason) for found in preflight.look(results.places) if found.state == "blocks"]


def test_a_case_that_can_begin_is_clear(results: Results) -> None:
    findings = preflight.look(results.places)
    assert {found.state for found in findings} == {"ready"}
    assert [found.subject for found in findings][:2] == ["disk", "memory"]
    assert preflight.body(findings)["outcome"] == "clear"


def test_too_little_disk_blocks(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, disk_gb=0.9)
    assert blocking(results) == [("disk", Reason.DISK_SHORT)]
    assert preflight.look(results.places)[0].text == "0.9 GB free, the case needs 1.0 GB"


def test_with_the_environments_made_a_fifth_of_the_disk_is_enough(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, disk_gb=0.3)
    oracle, previous = (results.places.engine(name) for name in ("oracle", "previous"))
    put(oracle.env_marker, "env", {})
    assert blocking(results) == [("disk", Reason.DISK_SHORT)]
    put(previous.env_marker, "env", {})
    assert blocking(results) == []


def test_too_little_memory_blocks(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, memory_gb=0.4)
    assert blocking(results) == [("memory", Reason.MEMORY_SHORT)]


def test_a_block_that_the_build_cannot_satisfy_blocks_with_what_was_declared_and_what_will_be(
    results: Results,
) -> None:
    metadata(results, "oracle", "1.2")
    found = [found for found in preflight.look(results.places) if found.state == "blocks"]
    assert [one.subject for one in found] == [
        "arm oracle, vllm_runtime_version",
        "arm oracle, vllm_distribution_version",
    ]
    assert found[0].text == "declared 1.1, metadata says 1.2 (mode index): newer than declared"


def test_what_the_metadata_does_not_tell_does_not_block(results: Results) -> None:
    metadata(results, "oracle", None, "1.1+cpu")
    assert blocking(results) == []
    assert "arm oracle, vllm_runtime_version" not in {found.subject for found in preflight.look(results.places)}


def test_without_its_records_a_preflight_is_refused(results: Results) -> None:
    results.places.engine("oracle").metadata.unlink()
    assert refusal_of(preflight.look, results.places).reason is Reason.RECORD_MISSING


def test_the_record_keeps_every_finding_with_reason_and_remedy() -> None:
    assert preflight.body([READY, NO_DISK]) == {
        "outcome": "blocked",
        "findings": [
            {"subject": "disk", "state": "ready", "text": "enough", "reason": None, "remedy": None},
            {
                "subject": "disk",
                "state": "blocks",
                "text": NO_DISK.text,
                "reason": "disk-short",
                "remedy": Reason.DISK_SHORT.remedy,
            },
        ],
    }


def required(path: Path, *findings: Finding) -> Any:
    put(path, "preflight", preflight.body(list(findings)))
    return preflight.require_clear(path)


def test_nothing_slow_begins_behind_a_blocked_preflight_and_all_that_blocks_is_told(tmp_path: Path) -> None:
    path = tmp_path / "preflight.json"
    refusal = refusal_of(required, path, READY, NO_DISK, NO_MEMORY)
    assert (refusal.reason, refusal.file) == (Reason.DISK_SHORT, str(path))
    for found in (NO_DISK, NO_MEMORY):
        assert f"  {found.subject}: {found.text}\n    remedy: {found.reason.remedy}" in refusal.message


def test_a_clear_preflight_lets_everything_begin(tmp_path: Path) -> None:
    assert required(tmp_path / "preflight.json", READY) is None


def test_a_finding_that_is_unknown_does_not_block(tmp_path: Path) -> None:
    assert required(tmp_path / "preflight.json", Finding("device", "unknown", "not read")) is None


def test_a_machine_without_a_compiler_is_told_before_anything_is_installed(
    results: Results, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    (found,) = (one for one in preflight.look(results.places) if one.subject == "compiler")
    assert (found.state, found.reason) == ("blocks", Reason.COMPILER_MISSING)


def test_cores_that_the_machine_has_not_are_told_before_any_server_starts(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.state({"device": {"kind": "cpu", "placement": {"front": [0], "engine": [1]}}})
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0})
    (found,) = (one for one in preflight.look(results.places) if one.subject == "placement")
    assert (found.state, found.reason) == ("blocks", Reason.DEVICE_OTHER)


def states(results: Results) -> dict[str, tuple[str, Reason | None]]:
    return {one.subject: (one.state, one.reason) for one in preflight.look(results.places)}


GB10 = {"kind": "nvidia", "name": "NVIDIA GB10", "clocks": {"lock_mhz": 2190}}


def test_on_a_machine_without_the_device_only_a_lease_is_left_to_ask_and_it_is_told_last(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.state({"device": GB10})
    monkeypatch.setattr(device, "connect", no_driver)
    *before, there, clock = preflight.look(results.places)
    assert {one.state for one in before} == {"ready"}
    assert (there.subject, there.state, there.reason) == ("device", "unknown", Reason.DEVICE_OTHER)
    assert there.text.startswith("NVIDIA GB10 is not here (asked for nvidia: no driver; there is: cpu ")
    assert (clock.subject, clock.state, clock.reason) == ("clock lock", "unknown", Reason.DEVICE_PRIVILEGE)
    assert preflight.body([*before, there, clock])["outcome"] == "clear"


def no_driver(kind: str) -> None:
    raise Refusal(Reason.DEVICE_OTHER, "no driver")


def test_another_device_than_the_declared_one_is_told(results: Results) -> None:
    results.state({"device": {"kind": "cpu", "name": "another processor"}})
    assert states(results)["device"] == ("unknown", Reason.DEVICE_OTHER)


def test_a_finding_in_words_says_what_would_clear_it() -> None:
    assert READY.words == "ready: disk: enough"
    assert NO_DISK.words == f"blocks: disk: {NO_DISK.text} (remedy: {Reason.DISK_SHORT.remedy})"
