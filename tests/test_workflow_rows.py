"""A case with every kind of row on stub engines: serving, start-up, warm-up and speculative."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.stubs.workflow import PATIENCE_S, Finished, Material, Workplace

pytestmark = pytest.mark.workflow

WIDE = 0.9
ARMS = {"numerator": "oracle", "denominator": "previous"}
PATIENCE = {"start_timeout_s": PATIENCE_S, "stall_timeout_s": PATIENCE_S}
STARTUP = {
    "id": "startup",
    "kind": "startup",
    "checkpoint": "tiny",
    **ARMS,
    "direction": "no-worse",
    "caches": {"page": "warm", "compile": "warm", "jit": "warm"},
    "metrics": [{"name": name, "tolerance": WIDE} for name in ("first_health", "first_completion")],
    "spans": [
        {"name": "load", "callable": "vllm.worker:Worker.load_model"},
        {
            "name": "warm-up",
            "callable": "vllm.worker:Worker.compile_or_warm_up_model",
            "inside": "vllm.worker:Worker.compile",
        },
    ],
    **PATIENCE,
}
WARMUP = {
    "id": "warmup",
    "kind": "warmup",
    "of": "startup",
    **ARMS,
    "direction": "no-worse",
    "callables": ["warm-up"],
    "change": {"tolerance_points": 60.0},
}
SPECULATIVE = {
    "id": "ngram",
    "kind": "speculative",
    "checkpoint": "tiny",
    **ARMS,
    "residency": "shared",
    "direction": "no-worse",
    "config": {"method": "ngram", "num_speculative_tokens": 3},
    "off_legs": 1,
    "discard_first": 1,
    "recipe": {"input_tokens": 16, "output_tokens": 12, "warmup_prompts": 1},
    "cells": [{"concurrency": 2, "prompts": 2}],
    "metrics": [
        {"name": "output_throughput", "tolerance": WIDE},
        {"name": "acceptance_length", "exact": True},
        {"name": "acceptance_rate", "tolerance": 0.05},
    ],
    **PATIENCE,
}


def case(material: Material, *rows: dict[str, Any]) -> dict[str, Any]:
    value = material.case()
    for arm in value["arms"].values():
        arm["serve"]["env"]["STUB_START_MS"] = "300"  # more than what a busy machine adds to a start by chance
    return {**value, "case": "stub", "decision": {"looks": [3, 4], "noise_pairs": 3}, "rows": list(rows)}


@pytest.fixture(scope="module")
def run(material: Material, tmp_path_factory: pytest.TempPathFactory) -> tuple[Workplace, Finished]:
    """A place where the whole case ran from nothing. Not to be changed."""
    value = case(material, material.case()["rows"][0], STARTUP, WARMUP, SPECULATIVE)
    place = Workplace(tmp_path_factory.mktemp("rows"), material).write(value)
    for name in ("ngram", "startup"):  # a call each: all that a loaded machine can do within a test's patience
        place.run(f"results/stub/rows/{name}.json")
    return place, place.run("verdict")


@pytest.fixture
def place(run: tuple[Workplace, Finished], tmp_path: Path) -> Workplace:
    """A copy of it."""
    whole, call = run
    assert call.status == 0, call.output
    return whole.copy(tmp_path / "place")


def legs(place: Workplace, row: str) -> list[dict[str, Any]]:
    files = (place.results / "stub" / "rows" / row).glob("*/legs/s*.json")
    return [json.loads(file.read_text()) for file in sorted(files) if not file.name.endswith(".raw.json")]


def row(place: Workplace, name: str) -> dict[str, Any]:
    return json.loads((place.results / "stub" / "rows" / f"{name}.json").read_text())


def fault(place: Workplace, arm: str, faults: str) -> None:
    def change(value: dict[str, Any]) -> None:
        value["arms"][arm]["serve"]["env"]["STUB_FAULT"] = faults

    place.edit(change)


def only(place: Workplace, *names: str) -> None:
    """Leave the case with these rows."""
    place.edit(lambda value: value.update(rows=[one for one in value["rows"] if one["id"] in names]))


def test_four_kinds_of_rows_end_in_one_verdict(run: tuple[Workplace, Finished]) -> None:
    place, call = run
    assert call.status == 0, call.output
    verdict = place.verdict
    outcomes = {name: found["outcome"] for name, found in verdict["rows"].items()}
    started = outcomes.pop("startup")
    assert outcomes == dict.fromkeys(("serving", "warmup", "ngram"), "pass")
    # A stub starts within a second, which is as long as a busy machine makes it; nothing else may be open.
    assert (started, verdict["verdict"]) in (("pass", "HOLD"), ("inconclusive", "UNDECIDED"))
    assert [(one["subject"], one["reason"]) for one in verdict["open"]] in ([], [("startup", "noise")])
    assert verdict["against"] == []


def test_a_second_call_has_nothing_to_do(run: tuple[Workplace, Finished]) -> None:
    assert run[0].plan("verdict") == {}


# -- start-up and warm-up ------------------------------------------------------------------------


def test_a_start_is_one_life_a_leg_and_first_lives_fill_the_caches(run: tuple[Workplace, Finished]) -> None:
    found = legs(run[0], "startup")
    phases = [leg["id"]["phase"] for leg in found]
    assert (phases.count("first"), phases.count("noise")) == (2, 6)
    assert phases.count("rep") in (6, 8)
    assert all(leg["valid"] for leg in found)
    assert len({leg["provenance"]["life"] for leg in found}) == len(found)


def test_every_warm_start_finds_the_same_bytes(run: tuple[Workplace, Finished]) -> None:
    found = legs(run[0], "startup")
    assert {leg["caches"]["before"]["compile"]["files"] for leg in found if leg["id"]["phase"] == "first"} == {0}
    for arm in ("oracle", "previous"):
        warm = [leg for leg in found if leg["id"]["phase"] != "first" and leg["id"]["arm"] == arm]
        assert len({leg["caches"]["before"]["compile"]["digest"] for leg in warm}) == 1
        assert {leg["caches"]["before"]["compile"]["files"] for leg in warm} == {1}


def test_named_and_unlabelled_time_add_up_to_the_start(run: tuple[Workplace, Finished]) -> None:
    for leg in legs(run[0], "startup"):
        line = leg["waterfall"]["line"]
        assert line["named"] + line["unlabelled"] == pytest.approx(leg["marks"]["first_health_200"], rel=0.01)
        assert sum(piece["seconds"] for piece in line["pieces"]) == pytest.approx(line["seconds"])


def test_a_warm_up_row_has_no_lives_of_its_own(run: tuple[Workplace, Finished]) -> None:
    place, _ = run
    assert not (place.results / "stub" / "rows" / "warmup").exists()
    found = row(place, "warmup")
    lives = [leg for leg in legs(place, "startup") if leg["id"]["arm"] == "oracle"]
    assert found["warmup"]["outcomes"]["oracle"]["warm-up"]["lives"] == {"succeeded": len(lives)}
    assert [gate["passed"] for gate in found["warmup"]["gates"]] == [True, True]
    assert found["decision"]["first"]["metrics"][0]["metric"]["scale"] == "linear"


def test_other_callables_of_the_same_lives_are_judged_without_a_life(place: Workplace) -> None:
    def another(value: dict[str, Any]) -> None:
        value["rows"][2]["callables"] = ["load", "warm-up"]

    place.edit(another)
    assert place.plan("verdict") == {"decide_row": 1, "write_verdict": 1, "write_page": 1}
    call = place.run("verdict")
    assert call.status == 0, call.output
    assert list(row(place, "warmup")["warmup"]["outcomes"]["oracle"]) == ["load", "warm-up"]
    assert row(place, "warmup")["plan"]["changed_after_data"] is True


def test_a_warm_up_row_that_is_added_after_the_lives_is_decided_and_said_to_be_late(place: Workplace) -> None:
    place.edit(lambda value: value["rows"].append({**WARMUP, "id": "later", "callables": ["load"]}))
    assert place.plan("verdict") == {"decide_row": 1, "write_verdict": 1, "write_page": 1}
    call = place.run("verdict")
    assert call.status == 0, call.output
    assert (row(place, "later")["outcome"], row(place, "later")["plan"]["changed_after_data"]) == ("pass", True)
    assert "The plan was changed after the data.** Measured under the plans of other rows" in call.output


def test_a_cold_start_is_not_compared_with_a_warm_one(place: Workplace) -> None:
    only(place, "startup", "warmup")
    fault(place, "oracle", "keeps-no-cache")
    call = place.run("verdict")
    assert call.status == 0, call.output
    assert place.verdict["verdict"] == "UNDECIDED"
    causes = {cause["subject"]: cause for cause in place.verdict["open"]}
    assert causes["startup"]["reason"] == "starts-differ"
    assert "a warm start is not compared with a cold one" in causes["startup"]["needs"]


def test_a_warm_up_that_raises_in_two_lives_of_the_oracle_takes_the_pin_back(place: Workplace) -> None:
    only(place, "startup", "warmup")
    fault(place, "oracle", "compile-raises")
    call = place.run("verdict")
    assert call.status == 0, call.output
    assert place.verdict["verdict"] == "REVERT"
    (cause,) = place.verdict["against"]
    assert (cause["subject"], cause["reason"]) == ("warmup: warm-up of oracle", "warmup-failed")
    assert row(place, "warmup")["warmup"]["outcomes"]["oracle"]["warm-up"]["lives"] == {"failed": 2}
    assert row(place, "startup")["failure"]["reason"] == "server-exited"


def test_a_warm_up_that_raises_on_the_other_arm_speaks_not_against_the_pin(place: Workplace) -> None:
    only(place, "startup", "warmup")
    fault(place, "previous", "compile-raises")
    assert place.run("verdict").status == 0
    assert place.verdict["verdict"] == "UNDECIDED"
    assert {cause["reason"] for cause in place.verdict["open"]} >= {"reference-failed"}


def test_a_warm_up_without_its_inner_compile_is_skipped_and_no_pass(place: Workplace) -> None:
    only(place, "startup", "warmup")

    def cold(value: dict[str, Any]) -> None:
        value["rows"][0]["caches"]["compile"] = "fresh"

    place.edit(cold)
    fault(place, "oracle", "compile-is-skipped")
    assert place.run("verdict").status == 0
    (cause,) = [cause for cause in place.verdict["open"] if cause["subject"].endswith("of oracle")]
    assert cause["reason"] == "warmup-did-not-run"


# -- speculation ---------------------------------------------------------------------------------


def test_a_speculative_leg_holds_what_was_drafted_and_accepted(run: tuple[Workplace, Finished]) -> None:
    place, _ = run
    reps = [leg for leg in legs(place, "ngram") if leg["id"]["phase"] == "rep"]
    assert {leg["metrics"]["acceptance_length"] for leg in reps} == {3.0}
    assert {tuple(leg["speculation"]["rates_by_position"]) for leg in reps} == {(1.0, 1.0, 0.0)}
    assert reps[0]["engine_says"]["speculative_config"].startswith("SpeculativeConfig(method='ngram'")
    assert reps[0]["engine_says"]["backends"] == ["Using STUB attention backend out of potential backends: ['STUB']."]


def test_legs_without_speculation_stand_beside_and_the_first_pairs_are_discarded(
    run: tuple[Workplace, Finished],
) -> None:
    place, _ = run
    phases = [leg["id"]["phase"] for leg in legs(place, "ngram")]
    assert {phase: phases.count(phase) for phase in phases} == {"noise": 8, "rep": 8, "off": 2}
    found = row(place, "ngram")
    assert [one["id"]["index"] for one in found["legs"]["discarded"]] == [0, 0, 0, 0]
    assert 0.9 < found["beside"]["over_off"]["c2"]["oracle"]["output_throughput"] < 1.1
    assert found["decision"]["first"]["metrics"][1]["companion"] == "equal on both arms in 3 of 3 reps"


@pytest.mark.parametrize(
    ("faults", "words"), [("does-not-speculate", "says speculative_config=None"), ("drafts-nothing", "drafted nothing")]
)
def test_a_speculation_that_is_declared_and_not_active_is_a_failure(place: Workplace, faults: str, words: str) -> None:
    only(place, "ngram")
    fault(place, "oracle", faults)
    assert place.run("verdict").status == 0
    assert place.verdict["verdict"] == "UNDECIDED"
    assert row(place, "ngram")["outcome"] != "pass"
    assert words in json.dumps(row(place, "ngram"))


def test_an_acceptance_that_must_be_equal_and_is_not_is_red(place: Workplace) -> None:
    only(place, "ngram")
    place.edit(lambda value: value["rows"][0].update(metrics=[{"name": "acceptance_length", "exact": True}]))
    fault(place, "oracle", "accepts-fewer")
    assert place.run("verdict").status == 0
    assert place.verdict["verdict"] == "REVERT"


def test_the_page_shows_every_kind(run: tuple[Workplace, Finished]) -> None:
    page = (run[0].results / "stub" / "verdict.md").read_text()
    for words in (
        "spawn to first /health 200 (s)",
        "Where the middle start of oracle went: ",
        "| succeeded in ",
        "warm-up's share of start-up (points)",
        "acceptance length (tokens)",
        "Discarded, as the row's recipe says",
        "Beside the decision: acceptance by position",
    ):
        assert words in page
