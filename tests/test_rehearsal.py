"""The rehearsal: any case on doubles, faults on demand, and never to be taken for a measurement."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders import case_value, measured, refusal_of, small_case
from tests.stubs import rehearsed
from tests.stubs.workflow import ROOT, Material, Workplace

from pinproof import case, citations, faults, pin, records, rehearsal, stage, verdict
from pinproof.faults import FAULTS, Fault
from pinproof.layout import Layout
from pinproof.reasons import Owner, Reason

DOCUMENT = (ROOT / "docs" / "rehearsal.md").read_text(encoding="utf-8")
OWN_CASE = (ROOT / "docs" / "own-case.md").read_text(encoding="utf-8")
NOTES = re.compile(r"[1-9]\d?|[A-H]\d{1,2}")


# -- the stage -----------------------------------------------------------------------------------


def staged(root: Path, changes: dict[str, Any] | None = None) -> stage.Stage:
    for version in ("1.0", "1.1"):
        file = root / "pins" / f"{version}.md"
        file.parent.mkdir(exist_ok=True)
        block = f"vllm_runtime_version = {version}\nvllm_distribution_version = {version}+cpu\ntorch_version = 2.13.0\n"
        file.write_text(f"```parity-pin\nbuild_mode = index\n{block}```\n")
    return stage.of(small_case(changes), root)


def test_a_stage_keeps_arms_and_kinds_of_rows_and_scales_what_takes_time(tmp_path: Path) -> None:
    metric = {"name": "median_tpot", "tolerance": 0.01, "baseline": 0.976, "baseline_reps": 3}
    cells = [{"concurrency": width, "prompts": 100} for width in (1, 2, 8)]
    set_up = staged(tmp_path, {"rows[0].metrics": [metric], "rows[0].cells": cells})
    (row,) = set_up.case["rows"]
    assert (set_up.case["case"], list(set_up.arms)) == ("rehearsal", ["oracle", "previous"])
    assert (row["kind"], row["direction"], row["numerator"]) == ("serving", "two-sided", "oracle")
    assert row["metrics"] == [{"name": "median_tpot", "tolerance": stage.TOLERANCE}]
    assert row["cells"] == [{"concurrency": 1, "prompts": 1}, {"concurrency": 4, "prompts": 4}]
    assert set_up.case["decision"]["looks"] == stage.LOOKS


def test_a_double_reports_what_the_block_declares(tmp_path: Path) -> None:
    oracle = staged(tmp_path).oracle.identity
    assert (oracle.runtime_version, oracle.distribution_version, oracle.torch_version) == ("1.1", "1.1+cpu", "2.13.0")


def test_a_double_satisfies_every_floor_that_is_argued_with(tmp_path: Path) -> None:
    floor = {"id": "floor", "kind": "floor", "argument": "a", "distribution": "transformers"}
    floor |= {"floors": [">=5.5.3", ">=5.10.4"], "recorded": [{"version": "5.14.1", "at": "then"}]}
    assert staged(tmp_path, {"discharges": [floor]}).oracle.identity.others == {"transformers": "5.14.1"}


def test_a_lease_of_the_real_device_is_never_taken(tmp_path: Path) -> None:
    lease = {"kind": "command", "argv": ["rc", "run", "--"]}
    assert "lease" not in staged(tmp_path, {"lease": lease}).case


# -- never a measurement -------------------------------------------------------------------------


def test_records_of_a_rehearsal_are_refused_by_every_stage_of_a_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(records.REHEARSAL_VARIABLE, "1")
    found = measured(tmp_path)
    assert found.verdict()["would_say"] == "HOLD"
    monkeypatch.delenv(records.REHEARSAL_VARIABLE)
    assert refusal_of(verdict.of, found.places).reason is Reason.RECORD_FOREIGN
    assert refusal_of(records.read, found.places.row("serving").series, "series").reason is Reason.RECORD_FOREIGN


def test_records_of_a_measurement_are_refused_by_a_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(tmp_path)
    monkeypatch.setenv(records.REHEARSAL_VARIABLE, "1")
    assert refusal_of(verdict.of, found.places).reason is Reason.RECORD_FOREIGN


def test_a_verdict_of_a_rehearsal_never_says_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(records.REHEARSAL_VARIABLE, "1")
    found = measured(tmp_path).verdict()
    assert (found["verdict"], found["would_say"]) == ("REHEARSAL", "HOLD")


# -- the table of faults -------------------------------------------------------------------------


def test_there_are_many_faults_each_with_a_note_and_an_end() -> None:
    assert len(FAULTS) >= 25
    assert all(NOTES.fullmatch(fault.note) for fault in FAULTS.values())
    assert {fault.says for fault in FAULTS.values()} == {"HOLD", "REVERT", "UNDECIDED", "REFUSED"}


def test_only_a_failure_of_the_target_takes_a_pin_back() -> None:
    for fault in FAULTS.values():
        if fault.says == faults.REVERT:
            assert Reason.from_code(fault.codes[0]).owner is Owner.TARGET


def test_the_documentation_lists_every_fault_with_its_note_and_its_end() -> None:
    lines = re.findall(r"(?m)^\| `([\w-]+)` +\| (.+?) +\| (\S+) +\| (\w+)(?:: (.+?))? +\|$", DOCUMENT)
    told = [(name, what, note, says, reasons) for name, what, note, says, reasons in lines]
    assert told == [
        (one.name, one.what, one.note, one.says, " or ".join(f"`{code}`" for code in one.codes))
        for one in FAULTS.values()
    ]


def test_a_fault_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    refusal = refusal_of(rehearsal.fault_of, "wrong-sufix")
    assert "no such fault: wrong-sufix; there are wrong-suffix, shallow-clone" in refusal.message


@pytest.fixture(scope="module")
def rehearsed_case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A small case whose rehearsals share the engines that they make."""
    folder = tmp_path_factory.mktemp("rehearsals")
    value = Material(folder / "material").make().case()
    file = folder / "case.yaml"
    file.write_text(yaml.safe_dump(value))
    return Layout(case.load(file), file, ROOT, folder / "results")


def test_without_a_fault_all_rows_hold(rehearsed_case: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rehearsed.end(rehearsed_case, None, monkeypatch)
    assert (found.says, found.reasons) == ("HOLD", ()), found.text
    page = (rehearsal.folder(rehearsed_case) / "verdict.md").read_text()
    assert page.startswith("# REHEARSAL: Do two equal stub engines hold?")
    assert "a measured run would say: HOLD" in page


@pytest.mark.workflow
@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_every_fault_ends_as_it_must(rehearsed_case: Layout, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rehearsed.end(rehearsed_case, fault, monkeypatch)
    assert found.is_that_of(fault), (found.says, found.reasons, found.text)


@pytest.mark.workflow
def test_a_case_with_every_kind_of_row_on_a_gpu_is_rehearsed(
    tmp_path: Path, material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(yaml.safe_dump(rehearsed.every_kind(material)))
    places = Layout(case.load(file), file, ROOT, tmp_path / "results")
    found = rehearsed.end(places, None, monkeypatch)
    assert (found.says, found.reasons) == ("HOLD", ()), found.text
    assert starts_of(places) == {(0.53, 0.55, 0.01)}  # of every warm start: as stated, however busy this machine is


def starts_of(places: Layout) -> set[tuple[float, float, float]]:
    """Seconds to the first 200, to the first completion, and of the warm-up, in the warm starts of a rehearsal."""
    files = rehearsal.folder(places).glob("rows/rehearsed-start/*/legs/*.json")
    legs = [json.loads(file.read_text()) for file in files if not file.name.endswith(".raw.json")]
    warm = [one for one in legs if one["id"]["phase"] != "first"]
    marks = [(one["marks"]["first_health_200"], one["marks"]["first_completion"]) for one in warm]
    return {(*mark, one["spans"]["warm-up"]["seconds"]) for mark, one in zip(marks, warm, strict=True)}


@pytest.mark.workflow
def test_the_steps_taken_here_are_the_rules_that_a_verdict_needs(fresh: Workplace, rehearsed_case: Layout) -> None:
    planned = replace(fresh, store=None).plan("verdict")
    assert {name for name, _ in rehearsed.steps(rehearsed_case)} == set(planned)


# -- the whole workflow --------------------------------------------------------------------------


def written(folder: Path) -> Path:
    """The example of docs/own-case.md, as a person would write it; its paths made those of the folder."""
    for name, text in re.findall(r"(?ms)^```\w+ file=(\S+)\n(.*?)^```$", OWN_CASE):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            text.replace("pin: my-", f"pin: {folder}/my-").replace("pages: pages", f"pages: {folder}/pages")
        )
    return folder / "my-case.yaml"


def test_the_example_of_the_documentation_is_a_case(tmp_path: Path) -> None:
    stated = case.load(written(tmp_path))
    assert pin.read_pin(tmp_path / "my-pin.md").vllm_runtime_version == "0.32.0"
    assert [one.state for one in citations.check(stated, ROOT)] == [citations.State.THERE]


@pytest.mark.workflow
def test_the_example_of_the_documentation_is_rehearsed_by_one_call(tmp_path: Path, material: Material) -> None:
    place = Workplace(tmp_path, material)
    written(tmp_path).rename(place.case_file)
    call = place.run("rehearsal")
    assert call.status == 0, call.output
    assert "REHEARSAL: would say HOLD, as it must" in call.output
    found = json.loads((place.results / "mine" / "rehearsal" / "rehearsal.json").read_text())
    assert (found["says"], found["as_it_must"], found["fault"]) == ("HOLD", True, None)
    assert not (place.results / "mine" / "verdict.json").exists()
    assert not (place.results / "engines").exists()


@pytest.mark.workflow
def test_a_fault_is_asked_for_on_the_command_line(fresh: Workplace) -> None:
    call = fresh.run("rehearsal", "--config", "fault=wrong-suffix")
    assert call.status == 0, call.output
    assert "would say REFUSED, as it must" in call.output
    call = fresh.run("rehearsal", "--config", "fault=none")
    assert (call.status, "no such fault: none" in call.output) == (1, True)


def test_case_value_is_not_changed_by_a_stage(tmp_path: Path) -> None:
    before = case_value()
    staged(tmp_path)
    assert case_value() == before
