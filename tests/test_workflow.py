"""A whole case on stub engines, from nothing to a verdict; and what becomes of an engine that is worse, or fails."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from tests.stubs.workflow import ROW, Finished, Workplace

pytestmark = pytest.mark.workflow

MEASURE = {"measure_row": 1, "decide_row": 1, "write_verdict": 1, "write_page": 1}


@pytest.fixture
def whole(whole_run: tuple[Workplace, Finished]) -> Workplace:
    return whole_run[0]


@pytest.fixture
def said(whole_run: tuple[Workplace, Finished]) -> str:
    return whole_run[1].output


def test_one_call_leads_from_nothing_to_a_verdict(whole_run: tuple[Workplace, Finished]) -> None:
    whole, call = whole_run
    assert call.status == 0, call.output
    assert whole.verdict["verdict"] == "HOLD"
    page = (whole.results / "stub" / "verdict.md").read_text()
    assert page.startswith("# HOLD: Do two equal stub engines hold?")
    assert page in call.output  # a person need not look for it


def test_the_engines_are_what_their_pins_declare(whole: Workplace) -> None:
    arms = whole.verdict["arms"]
    read = {name: arm["environment"]["vllm_distribution_version"] for name, arm in arms.items()}
    assert read == {"oracle": "1.1.0+stub", "previous": "1.0.0+stub"}
    assert {arm["gate"]["outcome"] for arm in arms.values()} == {"pass"}


def test_every_leg_counts_and_is_measured_once(whole: Workplace) -> None:
    legs = [json.loads(record) for record in whole.legs.values()]
    phases = [(leg["id"]["series"], leg["id"]["phase"]) for leg in legs]
    assert {phase: phases.count(phase) for phase in phases} == {(1, "noise"): 6, (1, "rep"): 6}
    assert all(leg["valid"] for leg in legs)
    assert all(5 < leg["metrics"]["median_tpot"] < 30 for leg in legs)  # the stub's schedule: 6 ms
    assert len({leg["provenance"]["boot_id"] for leg in legs}) == 1


def test_nothing_secret_is_left_on_disk(whole: Workplace) -> None:
    files = [file for file in whole.folder.rglob("*") if file.is_file() and "env" not in file.parts]
    assert len(files) > 50
    assert [file for file in files if b"sk-" in file.read_bytes()] == []


def test_progress_says_stage_leg_and_time_left_without_a_terminal(said: str) -> None:
    assert re.search(r"(?m)^\[make env [0-9a-f]{16} \d+:\d\d\] installing lock.txt and vllm-1.1.0\+stub-", said)
    assert re.search(
        r"(?m)^\[measure row serving \d+:\d\d\] series 1: lease taken; starting oracle and previous$", said
    )
    leg = r"(?m)^\[measure row serving \d+:\d\d\] series 1: (A/A pair|rep) (\d) of 3, c2, (oracle|previous)(.*)$"
    legs = re.findall(leg, said)
    assert [(what, number) for what, number, _, _ in legs[::2]] == [
        *[("A/A pair", str(n)) for n in (1, 2, 3)],
        *[("rep", str(n)) for n in (1, 2, 3)],
    ]
    assert len(legs) == 12
    assert legs[0][3] == ""  # nothing is known yet
    assert all(re.fullmatch(r", about \d+ (s|min) to go", left) for *_, left in legs[1:])


def test_a_slower_oracle_is_red_in_two_series_and_reverts(finished: Workplace) -> None:
    def slower(case: dict[str, Any]) -> None:
        case["arms"]["oracle"]["serve"]["env"]["STUB_TPOT_MS"] = "15"
        case["rows"][0]["metrics"] = [{"name": "median_tpot", "tolerance": 0.2}]

    finished.edit(slower)
    call = finished.run("verdict")
    assert call.status == 0, call.output
    verdict = finished.verdict
    assert (verdict["verdict"], [one["reason"] for one in verdict["against"]]) == ("REVERT", ["regression"])
    assert finished.row["outcome"] == "red"
    assert finished.row["decision"]["confirmed"] is True
    lives: dict[int, set[str]] = {1: set(), 2: set()}
    for record in finished.legs.values():
        leg = json.loads(record)
        lives[leg["id"]["series"]].add(leg["provenance"]["life"])
    assert {series: len(of_series) for series, of_series in lives.items()} == {1: 2, 2: 2}
    assert lives[1].isdisjoint(lives[2])  # servers of its own
    assert finished.plan("verdict") == {}


def test_an_arm_that_dies_leaves_the_pin_undecided_and_the_next_call_goes_on(finished: Workplace) -> None:
    faults = finished.folder / "faults"
    faults.write_text("dies-mid-run=16")  # in the middle of the reps

    def mortal(case: dict[str, Any]) -> None:
        case["arms"]["previous"]["serve"]["env"]["STUB_FAULT_FILE"] = str(faults)

    finished.edit(mortal)
    call = finished.run("verdict")
    assert call.status == 0, call.output
    assert finished.verdict["verdict"] == "UNDECIDED"
    (cause,) = finished.verdict["open"]
    assert (cause["subject"], cause["reason"]) == (ROW, "reference-failed")
    assert finished.row["failure"]["owner"] == "input"  # the other arm died: that says nothing of the pin
    assert "(server-exited)" in finished.row["failure"]["message"]
    assert "RuntimeError: the stub was told to die" in finished.row["failure"]["message"]
    legs = finished.legs
    assert len(legs) > 6

    faults.unlink()
    assert finished.plan("verdict") == MEASURE
    call = finished.run("verdict")
    assert call.status == 0, call.output
    assert finished.verdict["verdict"] == "HOLD"
    assert legs.items() <= finished.legs.items()
    attempts = sorted((finished.measured[-1] / "attempts").iterdir())
    assert [(attempt / "failed.json").exists() for attempt in attempts] == [True, False]
    assert finished.plan("verdict") == {}


def test_an_arm_that_never_starts_is_a_result_and_not_an_error(finished: Workplace) -> None:
    def broken(case: dict[str, Any]) -> None:
        case["arms"]["oracle"]["serve"]["env"]["STUB_FAULT"] = "exits-at-start"

    finished.edit(broken)
    call = finished.run("verdict")
    assert call.status == 0, call.output
    (cause,) = finished.verdict["open"]
    assert (finished.verdict["verdict"], cause["reason"], cause["owner"]) == ("UNDECIDED", "server-exited", "target")
    assert "ValueError: the stub was told to fail" in finished.row["failure"]["message"]
    assert finished.legs == {}


def test_a_pin_that_the_metadata_contradicts_is_refused_before_a_wheel_is_made(fresh: Workplace) -> None:
    def another_pin(case: dict[str, Any]) -> None:
        case["arms"]["oracle"]["pin"] = case["arms"]["previous"]["pin"]

    place = replace(fresh, store=None)
    place.edit(another_pin)
    call = place.run("verdict")
    assert call.status == 1
    assert "preflight found what blocks" in call.output
    assert "arm oracle, vllm_runtime_version: declared 1.0.0+stub, metadata says 1.1.0+stub" in call.output
    assert "Traceback" not in call.output
    assert not list(place.engines.glob("*/wheel.json"))
    assert place.plan("preflight")["run_preflight"] == 1  # what blocked may have gone
