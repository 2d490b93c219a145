"""Discharges: an argument holds while every witness is known and agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builders import FILE, Results, case_value, edit, put, put_text, refusal_of

from pinproof import case, discharges
from pinproof.discharges import State
from pinproof.reasons import Reason

FLOOR = {
    "id": "transformers-floor",
    "kind": "floor",
    "argument": "what was resolved satisfies both floors",
    "distribution": "transformers",
    "floors": [">=5.5.3", ">=5.10.4"],
    "recorded": [{"version": "5.14.1", "at": "5559679229"}],
}
INERT = {
    "id": "allreduce",
    "kind": "inert",
    "argument": "no row is on several devices",
    "flag": "VLLM_ALLREDUCE_USE_FLASHINFER",
    "options": ["--tensor-parallel-size", "-tp"],
    "resolved": "tensor_parallel_size",
    "value": "1",
    "default": "1",
}


def results(
    root: Path,
    stated: dict[str, Any],
    resolved: dict[str, str | None] | None = None,
    requires: list[str] | None = None,
    changes: dict[str, Any] | None = None,
) -> Results:
    """The small case with one discharge; `resolved` is the version of transformers in each arm's environment."""
    made = Results(root, {"discharges": [stated], **(changes or {})}).identities()
    for arm in made.places.case.arms:
        place = made.places.engine(arm)
        version = (resolved or {}).get(arm, "5.16.1")
        installed = [["vllm", "1.1"]] + ([["Transformers", version]] if version else [])
        edit(place.version, lambda record, found=installed: record["distributions"].update(value=found))
        put(place.metadata, "metadata", {"requires_dist": requires or []})
    return made


def judged(*arguments: Any, **words: Any) -> discharges.Judged:
    (found,) = discharges.judge(results(*arguments, **words).places)
    return found


def disagreeing(found: discharges.Judged) -> list[tuple[str, str | None]]:
    return [(one.subject, one.found) for one in found.witnesses if one.holds is not True]


# -- a floor -------------------------------------------------------------------------------------


def test_a_floor_holds_while_baseline_and_both_arms_satisfy_the_old_one_and_the_new(tmp_path: Path) -> None:
    found = judged(tmp_path, FLOOR)
    assert (found.state, found.reason) == (State.HOLDS, None)
    assert [(one.subject, one.found) for one in found.witnesses] == [
        ("transformers at 5559679229", "5.14.1"),
        ("transformers of oracle", "5.16.1"),
        ("transformers of previous", "5.16.1"),
    ]
    assert {one.wanted for one in found.witnesses} == {">=5.10.4,>=5.5.3"}


@pytest.mark.parametrize("arm", ["oracle", "previous"])
def test_a_floor_falls_with_one_arm_that_is_below_it(tmp_path: Path, arm: str) -> None:
    found = judged(tmp_path, FLOOR, {arm: "5.9.0"})
    assert (found.state, found.reason) == (State.FALLEN, Reason.DISCHARGE_FALLEN)
    assert disagreeing(found) == [(f"transformers of {arm}", "5.9.0")]


def test_a_floor_falls_with_the_version_that_the_baselines_were_measured_with(tmp_path: Path) -> None:
    stated = {**FLOOR, "recorded": [{"version": "5.5.4", "at": "5559679229"}]}
    assert disagreeing(judged(tmp_path, stated)) == [("transformers at 5559679229", "5.5.4")]


def test_versions_are_compared_as_numbers(tmp_path: Path) -> None:
    assert judged(tmp_path, {**FLOOR, "floors": [">=5.5.3"]}, {"oracle": "5.10.0"}).state is State.HOLDS


def test_a_version_that_is_not_known_keeps_the_argument_open(tmp_path: Path) -> None:
    found = judged(tmp_path, FLOOR, {"oracle": None})
    assert (found.state, found.reason) == (State.UNKNOWN, Reason.DISCHARGE_UNKNOWN)
    assert disagreeing(found) == [("transformers of oracle", None)]


def test_a_version_that_is_no_version_is_not_known(tmp_path: Path) -> None:
    assert judged(tmp_path, FLOOR, {"oracle": "main"}).state is State.UNKNOWN


def test_without_a_version_record_nothing_is_known(tmp_path: Path) -> None:
    made = results(tmp_path, FLOOR)
    made.places.engine("oracle").version.unlink()
    (found,) = discharges.judge(made.places)
    assert found.state is State.UNKNOWN


def test_the_wheels_own_metadata_has_a_say(tmp_path: Path) -> None:
    requires = [
        "transformers>=5.15; python_version > '3'",
        "torch==2",
        "not a requirement",
        'transformers>=9; extra=="x"',
    ]
    found = judged(tmp_path, {**FLOOR, "recorded": []}, {"previous": "5.14.1"}, requires)
    assert found.state is State.FALLEN
    assert disagreeing(found) == [("transformers of previous", "5.14.1")]


def test_an_argument_about_one_arm_asks_no_other(tmp_path: Path) -> None:
    assert judged(tmp_path, {**FLOOR, "arms": ["oracle"]}, {"previous": "1.0"}).state is State.HOLDS


# -- a flag without effect -----------------------------------------------------------------------


def serving(*arguments: str) -> dict[str, Any]:
    return {"rows[0].serve": {"args": list(arguments), "env": {}}}


def test_a_flag_is_inert_while_every_row_has_the_setting_by_default(tmp_path: Path) -> None:
    found = judged(tmp_path, INERT)
    assert found.state is State.HOLDS
    assert [one.subject for one in found.witnesses] == [
        "tensor_parallel_size of oracle in serving, declared",
        "tensor_parallel_size of previous in serving, declared",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tensor-parallel-size", "2"),
        ("--tensor-parallel-size=2",),
        ("--tensor_parallel_size", "2"),
        ("-tp", "2"),
        ("-tp=1", "--tensor-parallel-size=2"),
    ],
)
def test_it_falls_the_moment_one_row_has_another(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    found = judged(tmp_path, INERT, changes=serving(*arguments))
    assert (found.state, found.reason) == (State.FALLEN, Reason.DISCHARGE_FALLEN)


def test_the_last_of_several_values_counts() -> None:
    assert discharges.declared(["-tp", "2", "--max-model-len", "8", "-tp=1"], ["-tp"], None) == "1"


@pytest.mark.parametrize("arguments", [("--config", "x.yaml"), ("-tp",)])
def test_a_setting_that_cannot_be_known_keeps_the_argument_open(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert judged(tmp_path, INERT, changes=serving(*arguments)).state is State.UNKNOWN


def test_an_unknown_default_keeps_the_argument_open(tmp_path: Path) -> None:
    assert judged(tmp_path, {**INERT, "default": None}).state is State.UNKNOWN
    assert judged(tmp_path, {**INERT, "default": None}, changes=serving("-tp", "1")).state is State.HOLDS


@pytest.mark.parametrize(("logged", "state"), [("1", State.HOLDS), ("2", State.FALLEN)])
def test_what_the_engine_logged_is_a_witness_too(tmp_path: Path, logged: str, state: State) -> None:
    made = results(tmp_path, INERT)
    line = "Initializing a V1 LLM engine (v1.1) with config: model='m', tensor_parallel_size={}, seed=0\n"
    attempt = made.places.row("serving").attempts / "000" / "series1"
    put_text(attempt / "server-oracle.log", f"(EngineCore pid=1) INFO 12-01 00:00:00 [core.py:1] {line.format(logged)}")
    (found,) = discharges.judge(made.places)
    assert found.state is state
    (seen,) = (one for one in found.witnesses if one.subject.endswith("logged by the engine"))
    assert (seen.subject, seen.found) == ("tensor_parallel_size of oracle in serving, logged by the engine", logged)


@pytest.mark.parametrize(
    ("arguments", "state", "reason"),
    [
        (("-tp", "1"), "ready", None),
        (("-tp", "2"), "blocks", Reason.DISCHARGE_FALLEN),
        (("--config", "x.yaml"), "unknown", Reason.DISCHARGE_UNKNOWN),
    ],
)
def test_a_preflight_tells_of_an_argument_before_anything_is_measured(
    tmp_path: Path, arguments: tuple[str, ...], state: str, reason: Reason | None
) -> None:
    (found,) = discharges.foreseen(results(tmp_path, INERT, changes=serving(*arguments)).places)
    assert (found[0], found[1], found[3]) == ("discharge allreduce", state, reason)


# -- the verdict ---------------------------------------------------------------------------------


def verdict(root: Path, version: str) -> dict[str, Any]:
    """The verdict on the small case, its oracle with this version of transformers."""

    def install(record: dict[str, Any]) -> None:
        record["distributions"]["value"].append(["transformers", version])

    made = Results(root, {"discharges": [{**FLOOR, "arms": ["oracle"]}]}).identities(change=install).surroundings()
    return made.plan().noise().reps().series().decide().arguments().verdict()


def test_a_pin_is_not_held_on_an_argument_that_has_fallen(tmp_path: Path) -> None:
    found = verdict(tmp_path, "5.9.0")
    assert found["verdict"] == "UNDECIDED"
    (cause,) = found["open"]
    assert (cause["subject"], cause["reason"], cause["owner"]) == (
        "discharge transformers-floor",
        "discharge-fallen",
        "input",
    )


def test_an_argument_that_holds_is_shown_and_changes_nothing(tmp_path: Path) -> None:
    found = verdict(tmp_path, "5.16.1")
    assert (found["verdict"], found["open"]) == ("HOLD", [])
    (shown,) = found["discharges"]
    assert (shown["id"], shown["state"]) == ("transformers-floor", "holds")


def test_two_arguments_of_one_name_or_about_no_arm_are_refused() -> None:
    lines = str(refusal_of(case.parse, case_value({"discharges": [FLOOR, {**FLOOR, "arms": ["ours"]}]}), FILE))
    assert "discharges: transformers-floor is there twice; each is allowed once" in lines
    assert "discharges[1].arms: no such arm: ours; arms are oracle, previous" in lines


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"floors": ["5.5.3 or more"]}, "floors[0]"),
        ({"recorded": [{"version": "new", "at": "x"}]}, "recorded[0].version"),
    ],
)
def test_a_floor_and_a_version_are_such(change: dict[str, Any], key: str) -> None:
    refusal = refusal_of(case.parse, case_value({"discharges": [{**FLOOR, **change}]}), FILE)
    assert refusal.key == f"discharges[0].{key}"
