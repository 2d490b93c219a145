"""The workflow and its lease: who waits for whom, one server at a time, damaged legs, wrappers, random kills."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.stubs.workflow import Call, Workplace, marked

pytestmark = pytest.mark.workflow


def unmeasured(place: Workplace, change: Any = None) -> Workplace:
    """A place where all is done but the legs."""
    for folder in place.measured:
        shutil.rmtree(folder)
    if change is not None:
        place.edit(change)
    return place


def records(place: Workplace, phase: str, series: int = 1) -> list[dict[str, Any]]:
    legs = (json.loads(record) for record in place.legs.values())
    return [leg for leg in legs if (leg["id"]["series"], leg["id"]["phase"]) == (series, phase)]


def lives(legs: list[dict[str, Any]]) -> set[str]:
    return {leg["provenance"]["life"].split("/", 1)[1] for leg in legs}


# residency


def test_one_server_at_a_time_n_reps_cost_n_and_one_lives(finished: Workplace) -> None:
    def exclusive(case: dict[str, Any]) -> None:
        case["rows"][0]["residency"] = "exclusive"
        case["rows"][0]["cells"].append({"concurrency": 1, "prompts": 2})

    finished.edit(exclusive)
    call = finished.run("verdict")
    assert call.status == 0, call.output
    assert finished.verdict["verdict"] == "HOLD"
    noise, reps = records(finished, "noise"), records(finished, "rep")
    assert (len(noise), len(reps)) == (12, 12)  # 3 pairs in 2 cells
    assert len(lives(noise)) == len(lives(reps)) == 4
    for leg in noise:  # the legs of an A/A pair are of two lives: what differs from life to life is in the band
        other = next(one for one in noise if one["id"] == {**leg["id"], "position": 1 - leg["id"]["position"]})
        assert other["provenance"]["life"] != leg["provenance"]["life"]
    assert finished.plan("verdict") == {}


def test_a_second_series_of_single_servers_has_lives_of_its_own(finished: Workplace) -> None:
    def slower(case: dict[str, Any]) -> None:
        case["rows"][0]["residency"] = "exclusive"
        case["arms"]["oracle"]["serve"]["env"]["STUB_TPOT_MS"] = "15"
        case["rows"][0]["metrics"] = [{"name": "median_tpot", "tolerance": 0.2}]

    finished.edit(slower)
    call = finished.run("verdict")
    assert call.status == 0, call.output
    assert finished.verdict["verdict"] == "REVERT"
    assert [len({leg["provenance"]["life"] for leg in records(finished, "rep", series)}) for series in (1, 2)] == [4, 4]


def test_what_a_lease_was_spent_on_is_kept_with_the_series(whole_run: tuple[Workplace, Any]) -> None:
    series = json.loads((whole_run[0].measured[-1] / "series.json").read_text())
    (spent,) = series["provenance"]["leases"]
    assert (spent["series"], spent["kind"]) == ("000/series1", "filelock")
    assert spent["held_s"] >= sum(spent["spent_s"].values()) * 0.999
    assert spent["spent_s"].pop("caches") == 0  # only starts set caches
    assert all(seconds > 0 for seconds in spent["spent_s"].values())
    assert spent["released"] > spent["taken"]
    useful = (spent["spent_s"]["server starts"] + spent["spent_s"]["legs"]) / spent["held_s"]
    assert spent["useful"] == pytest.approx(useful, abs=1e-3)


# damage


@pytest.mark.parametrize("how", ["half", "gone", "other output"])
def test_a_leg_that_a_disk_fault_spoiled_is_taken_again_and_the_call_after_has_nothing_to_do(
    finished: Workplace, how: str
) -> None:
    before = finished.legs
    name = "s1-rep-c2-01-0"
    (record,) = (file for file in finished.measured[-1].glob(f"legs/{name}-*.json") if ".raw" not in file.name)
    if how == "half":
        record.write_text(record.read_text()[:50])
    elif how == "gone":
        record.unlink()
    else:
        record.with_suffix(".raw.json").write_text("{}")
    call = finished.run("verdict")
    assert call.status == 0, call.output
    assert finished.verdict["verdict"] == "HOLD"
    kept = {file: leg for file, leg in before.items() if not file.startswith("s1-rep-c2-01-")}
    assert kept.items() <= finished.legs.items()
    assert len(finished.legs) == len(before)
    aside = finished.measured[-1] / "attempts" / "001"
    if how != "gone":
        assert f"damaged on disk, taken again: {record.stem}" in call.output
        assert (aside / "damaged" / record.name).exists()
    assert len(list((aside / "interrupted").glob("*.raw.json"))) == 1  # its partner was no longer beside it in time
    assert finished.plan("verdict") == {}


# two workflows


def said(call: Call) -> str:
    """What a call has said so far; nothing before it has begun."""
    return call.output if call.log.exists() else ""


def test_a_second_workflow_waits_shows_the_holder_and_its_progress_then_runs(
    finished: Workplace, tmp_path: Path
) -> None:
    other = unmeasured(finished.copy(tmp_path / "other"))
    first = unmeasured(finished).start("verdict")
    first.until(lambda: "A/A pair" in said(first))
    second = other.start("verdict")
    second.until(lambda: "waiting for the device" in said(second))
    assert re.search(r"held by pid \d+ on \S+ \(alive\) for stub/serving, since \d+ s", second.output)
    assert re.search(r"series 1: (A/A pair|rep) \d of 3", second.output)
    assert not other.legs
    for call in (first, second):
        assert call.wait().status == 0, call.output
    assert [place.verdict["verdict"] for place in (finished, other)] == ["HOLD", "HOLD"]
    begun = min(json.loads(leg)["provenance"]["written"] for leg in other.legs.values())
    ended = max(json.loads(leg)["provenance"]["written"] for leg in finished.legs.values())
    assert begun >= ended


def test_a_holder_that_is_killed_frees_the_device_and_its_servers_are_found_first(
    finished: Workplace, tmp_path: Path
) -> None:
    other = unmeasured(finished.copy(tmp_path / "other"))
    first = unmeasured(finished).start("verdict")
    first.until(lambda: "A/A pair 2" in said(first))
    second = other.start("verdict")
    second.until(lambda: "waiting for the device" in said(second))
    first.script("measure_row").send_signal(signal.SIGKILL)
    assert first.wait().status == 1
    assert second.wait().status == 0, second.output
    assert other.verdict["verdict"] == "HOLD"
    assert second.output.count("an earlier run was killed and left") == 2
    assert second.output.index("ending it") < second.output.index("A/A pair 1")
    assert not marked(finished.material)


# a wrapper


def test_the_legs_run_under_the_wrapper_that_grants_the_device(finished: Workplace, tmp_path: Path) -> None:
    granted = tmp_path / "granted"
    grant = (
        "import os, subprocess, sys\n"
        f"open({str(granted)!r}, 'a').write(sys.argv[-1] + chr(10))\n"
        "sys.exit(subprocess.call(sys.argv[1:], env={**os.environ, 'GRANTED': 'gpu0'}))"
    )

    def wrapped(case: dict[str, Any]) -> None:
        case["lease"] = {"kind": "command", "argv": [sys.executable, "-c", grant], "proof_env": "GRANTED"}

    place = unmeasured(finished, wrapped)
    call = place.run("verdict")
    assert call.status == 0, call.output
    assert place.verdict["verdict"] == "HOLD"
    assert len(granted.read_text().splitlines()) == 1  # the device record was there
    assert "| [measure row serving" in call.output
    series = json.loads((place.measured[-1] / "series.json").read_text())
    (spent,) = series["provenance"]["leases"]
    assert (spent["kind"], spent["proof"]["wrapper"]["parent"]) == ("command", 1)
    assert not marked(place.material)


def test_outside_of_an_allocation_a_slurm_lease_is_refused_and_no_leg_is_run(finished: Workplace) -> None:
    place = unmeasured(finished, lambda case: case.update(lease={"kind": "slurm"}))
    call = place.run("verdict")
    assert call.status == 0, call.output
    (cause,) = place.verdict["open"]
    assert (place.verdict["verdict"], cause["reason"], cause["owner"]) == ("UNDECIDED", "lease-refused", "environment")
    assert place.legs == {}


# kills


@pytest.mark.parametrize("moment", [0.2, 0.5, 0.8])
def test_a_series_that_is_killed_leaves_nothing_and_the_next_call_ends_in_a_verdict(
    finished: Workplace, moment: float
) -> None:
    """A smaller set of tests/bench/bench_kills.py, at chosen legs instead of random moments."""
    place = unmeasured(finished)
    kill_at(place, round(12 * moment))
    before = place.legs
    call = place.run("verdict")
    assert call.status == 0, call.output
    assert place.verdict["verdict"] == "HOLD"
    assert not marked(place.material)
    assert_whole(place)
    assert sum(leg == before[name] for name, leg in place.legs.items() if name in before) >= len(before) - 1


def kill_at(place: Workplace, legs: int) -> None:
    """Kill what measures, when so many legs are there; its servers live on."""
    call = place.start("verdict")
    call.until(lambda: len(place.legs) >= legs)
    call.script("measure_row").send_signal(signal.SIGKILL)
    call.wait()


def assert_whole(place: Workplace) -> None:
    """Every leg that counts is whole: with the output that it was read from, and as series.json names it."""
    for record in place.legs.values():
        json.loads(record)
    series = json.loads((place.measured[-1] / "series.json").read_text())
    assert sorted(f"{name}.json" for name in series["legs"]) == sorted(place.legs)
