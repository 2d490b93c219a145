"""What a call of snakemake plans: only what changed, whatever was touched. Nothing here measures, but one test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.stubs.workflow import ORACLE, PREVIOUS, ROOT, Finished, Workplace

pytestmark = pytest.mark.workflow

JUDGE = {"decide_row": 1, "write_verdict": 1, "write_page": 1}
MEASURE = {"measure_row": 1, **JUDGE}
CASE = {"read_pin": 1, "run_preflight": 1, "gate_arm": 2, "read_device": 1, **MEASURE}
NOTHING: dict[str, int] = {}


@pytest.fixture
def whole(whole_run: tuple[Workplace, Finished]) -> Workplace:
    """The whole run itself, for plans that need no change in it."""
    return whole_run[0]


def test_a_second_call_has_nothing_to_do(whole: Workplace) -> None:
    assert whole.plan("verdict") == NOTHING


@pytest.mark.parametrize("words", [("--cores", "4"), ("--jobs", "3")])
def test_how_many_jobs_run_at_once_plans_nothing(whole: Workplace, words: tuple[str, ...]) -> None:
    assert whole.plan("verdict", *words) == NOTHING


def test_without_what_was_measured_only_the_row_is_measured(finished: Workplace) -> None:
    (folder,) = finished.measured
    shutil.rmtree(folder)
    assert finished.plan("verdict") == MEASURE


def test_without_the_row_s_result_it_is_decided_anew_and_not_measured(finished: Workplace) -> None:
    (finished.results / "stub" / "rows" / "serving.json").unlink()
    assert finished.plan("verdict") == JUDGE


def test_an_environment_that_is_gone_is_not_missed_until_a_row_is_measured(finished: Workplace) -> None:
    shutil.rmtree(_engine(finished, ORACLE) / "env")
    assert finished.plan("verdict") == NOTHING
    (folder,) = finished.measured
    shutil.rmtree(folder)
    assert finished.plan("verdict") == {"make_env": 1, "read_version": 1, "gate_arm": 1, **MEASURE}


def test_the_preflight_comes_before_any_wheel(fresh: Workplace) -> None:
    expected = {"read_pin": 1, "fetch_source": 2, "read_metadata": 2, "run_preflight": 1}
    assert replace(fresh, store=None).plan("preflight") == {**expected, "preflight": 1}


def test_another_checkout_finds_engines_and_checkpoints_in_the_store(fresh: Workplace) -> None:
    assert fresh.plan("verdict") == CASE


# changes of the case


def _set(*keys: str | int, value: Any) -> Any:
    def change(case: dict[str, Any]) -> None:
        at = case
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(_set("rows", 0, "metrics", 0, "tolerance", value=0.4), JUDGE, id="tolerance"),
        pytest.param(_set("rows", 0, "direction", value="two-sided"), JUDGE, id="direction"),
        pytest.param(_set("question", value="Why?"), {"write_verdict": 1, "write_page": 1}, id="question"),
        pytest.param(_set("case", value="another"), CASE, id="name"),
        pytest.param(_set("rows", 0, "recipe", "output_tokens", value=13), MEASURE, id="recipe"),
        pytest.param(
            _set("arms", "oracle", "compare", value={"torch_version": "release"}),
            {"run_preflight": 1, "gate_arm": 2, **JUDGE},
            id="how a pin is compared",
        ),
        pytest.param(_set("rows", 0, "leg_timeout_s", value=601), NOTHING, id="patience"),
    ],
)
def test_a_change_of_the_case_plans_what_depends_on_it(
    finished: Workplace, change: Any, expected: dict[str, int]
) -> None:
    finished.edit(change)
    assert finished.plan("verdict") == expected


def test_a_failed_row_is_measured_again_whatever_else_changed(finished: Workplace) -> None:
    (folder,) = finished.measured
    series = json.loads((folder / "series.json").read_text())
    (folder / "series.json").write_text(json.dumps({**series, "outcome": "failed"}))
    (folder / "attempts" / "000" / "failed.json").touch()
    assert finished.plan("verdict") == MEASURE
    finished.edit(_set("arms", "oracle", "compare", value={"torch_version": "release"}))
    assert finished.plan("verdict") == {"run_preflight": 1, "gate_arm": 2, **MEASURE}


def test_comments_and_the_order_of_keys_in_the_case_plan_nothing(finished: Workplace) -> None:
    case = yaml.safe_load(finished.case_file.read_text())
    finished.write(_reversed(case))
    finished.case_file.write_text("# a comment\n" + finished.case_file.read_text() + "# another\n")
    assert finished.plan("verdict") == NOTHING


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(one) for one in value] if isinstance(value, list) else value


def test_comments_in_a_lock_and_its_place_plan_nothing(finished: Workplace) -> None:
    lock = finished.folder / "another-lock.txt"
    lock.write_text("# another comment\n\n" + finished.material.lock.read_text())
    for arm in ("oracle", "previous"):
        finished.edit(_set("arms", arm, "engine", "locks", "index", value=str(lock)))
    assert finished.plan("verdict") == NOTHING


def test_another_wheel_plans_its_engine_and_its_row_and_no_engine_of_the_other_arm(finished: Workplace) -> None:
    finished.edit(_set("arms", "oracle", "engine", "version", value="1.2.0"))
    finished.edit(_set("arms", "oracle", "engine", "sha256", value="0" * 64))
    engine = ("fetch_source", "read_metadata", "make_wheel", "make_env", "read_version")
    assert finished.plan("verdict") == {**dict.fromkeys(engine, 1), "run_preflight": 1, "gate_arm": 2, **MEASURE}


def test_a_pin_that_was_gone_back_to_finds_its_engine_and_its_legs(finished: Workplace) -> None:
    before, (folder,) = finished.case_file.read_text(), finished.measured
    files = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    other = finished.material.arm(PREVIOUS)
    other["serve"]["env"]["STUB_FAULT"] = "exits-at-start"  # nothing to measure: this is not about legs
    finished.edit(_set("arms", "oracle", value=other))
    went = finished.run("verdict")
    assert (went.status, finished.verdict["arms"]["oracle"]["environment"]["vllm_runtime_version"]) == (0, "1.0.0+stub")
    assert (finished.verdict["verdict"], len(finished.measured)) == ("UNDECIDED", 2)
    finished.case_file.write_text(before)
    assert finished.plan("verdict") == {**JUDGE, "read_pin": 1, "run_preflight": 1, "gate_arm": 2}
    assert finished.run("verdict").status == 0
    assert finished.verdict["verdict"] == "HOLD"
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == files


# changes of the repository


@pytest.fixture
def checkout(finished: Workplace, tmp_path: Path) -> Workplace:
    """A copy of the repository as a clone of its own, in the place of the whole run."""
    root = tmp_path / "checkout"
    root.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("rules", "scripts", "config", "envs", "profiles"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    shutil.copy(ROOT / "Snakefile", root)
    return replace(finished, root=root)


def _git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def _sources(root: Path) -> list[Path]:
    folders = (root / name for name in ("rules", "scripts", "config", "envs", "profiles"))
    return [root / "Snakefile", *(file for folder in folders for file in folder.rglob("*") if file.is_file())]


def test_another_checkout_and_touched_files_plan_nothing(checkout: Workplace) -> None:
    for file in _sources(checkout.root):
        os.utime(file)
    os.utime(checkout.case_file)
    assert checkout.plan("verdict") == NOTHING


def test_comments_in_rules_and_scripts_and_a_branch_and_back_plan_nothing(checkout: Workplace) -> None:
    _git(checkout.root, "init", "-q", "-b", "one")
    _git(checkout.root, "add", ".")
    _git(checkout.root, "commit", "-q", "-m", "one")
    _git(checkout.root, "checkout", "-q", "-b", "two")
    for file in _sources(checkout.root):
        if file.suffix in (".py", ".smk", ".txt", ".yaml"):
            file.write_text(file.read_text() + "\n# a comment\n")
    assert checkout.plan("verdict") == NOTHING
    _git(checkout.root, "commit", "-q", "-a", "-m", "two")
    _git(checkout.root, "checkout", "-q", "one")
    assert checkout.plan("verdict") == NOTHING


def test_prose_around_a_pin_measures_nothing(finished: Workplace) -> None:
    pin = finished.folder / "pin.md"
    pin.write_text(finished.material.pin(ORACLE).read_text() + "\nMore words.\n")
    finished.edit(_set("arms", "oracle", "pin", value=str(pin)))
    assert finished.plan("verdict") == {"read_pin": 1, "run_preflight": 1, "gate_arm": 2, **JUDGE}


# a case that cannot be


@pytest.mark.parametrize(
    ("change", "key"),
    [
        pytest.param(_set("rows", 0, "tolerence", value=0.1), "rows[0].tolerence", id="unknown key"),
        pytest.param(_set("rows", 0, "numerator", value="ours"), "rows[0].numerator", id="no such arm"),
        pytest.param(
            _set("arms", "oracle", "engine", "locks", "index", value="none.txt"),
            "arms.oracle.engine.locks.index",
            id="no such lock",
        ),
    ],
)
def test_a_bad_case_is_refused_before_any_job_with_file_key_and_remedy(fresh: Workplace, change: Any, key: str) -> None:
    fresh.edit(change)
    call = fresh.run("verdict")
    assert call.status == 1
    assert f"{fresh.case_file}: {key}: " in call.output
    assert "remedy: correct the key in that file" in call.output
    assert "Traceback" not in call.output
    assert not fresh.results.exists()


def _engine(place: Workplace, version: str) -> Path:
    (folder,) = (path.parents[1] for path in place.engines.glob(f"*/source/*-{version}-*.whl"))
    return folder
