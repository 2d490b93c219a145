"""Where files lie: a digest changes with what changes the bytes, and with nothing else."""

import platform
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.builders import LOCK, case_value, places, put_text, refusal_of

from pinproof import layout
from pinproof.reasons import Reason, Refusal

OTHER_CHECKPOINT = {"checkpoints.tiny.seed": 1}


@pytest.fixture(autouse=True)
def _no_settings_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PINPROOF_TORCH", "PINPROOF_RESULTS", "PINPROOF_STORE", "PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)


def engine(root: Path, changes: dict[str, Any] | None = None) -> str:
    return places(root, changes).engine("oracle").folder.name


def measured(root: Path, changes: dict[str, Any] | None = None) -> str:
    return places(root, changes).row("serving").folder.name


# -- engines -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"arms.oracle.engine.version": "1.2"},
        {"arms.oracle.engine.sha256": "c" * 64},
        {"arms.oracle.engine.distribution": "vllm"},
        {"arms.oracle.engine.relabel": None},
        {"arms.oracle.engine.relabel.local": "cu130"},
        {"arms.oracle.engine.provided": {"torch": "2.11.0+cu130"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_engine_is_another_when_its_wheel_is(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert engine(tmp_path, changes) != engine(tmp_path)


def test_an_engine_is_another_when_a_start_is_timed_inside_it(tmp_path: Path) -> None:
    """Its environment then has the span plugin; one that was made without stays as it is."""
    start = {"id": "start", "kind": "startup", "checkpoint": "tiny", "numerator": "oracle", "denominator": "previous"}
    start |= {"direction": "no-worse", "caches": {"page": "warm", "compile": "fresh", "jit": "fresh"}}
    start |= {"metrics": [{"name": "first_health", "tolerance": 0.1}]}
    rows = case_value()["rows"]
    timed = start | {"spans": [{"name": "load", "callable": "vllm.engine:load"}]}
    assert engine(tmp_path, {"rows": [*rows, start]}) == engine(tmp_path)
    assert engine(tmp_path, {"rows": [*rows, timed]}) != engine(tmp_path)


def test_an_engine_is_another_when_its_lock_asks_for_something_else(tmp_path: Path) -> None:
    before = engine(tmp_path)
    put_text(tmp_path / "envs/1.1.txt", LOCK.replace("sha256:00", "sha256:02"))
    assert engine(tmp_path) != before


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\n\n" + LOCK,
        "\n".join(reversed(LOCK.splitlines())),
        LOCK.replace(" --hash", " \\\n    --hash").replace("==1 ", "==1   "),
        LOCK.replace("\n", "  # via vllm\n"),
        LOCK.replace("\n", "\r\n"),
    ],
    ids=["comment", "order", "layout", "via", "line ends"],
)
def test_comments_order_and_layout_of_a_lock_change_nothing(tmp_path: Path, text: str) -> None:
    before = engine(tmp_path)
    (tmp_path / "envs/1.1.txt").write_bytes(text.encode())
    assert engine(tmp_path) == before


def test_an_engine_is_another_under_another_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = engine(tmp_path)
    version = type("Version", (), {"major": 3, "minor": 99})
    monkeypatch.setattr(layout.sys, "version_info", version)
    assert engine(tmp_path) != before


def test_an_engine_is_another_on_another_kind_of_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = engine(tmp_path)
    monkeypatch.setattr(layout.platform, "machine", lambda: "aarch64")
    assert engine(tmp_path) != before


@pytest.mark.parametrize(
    "changes",
    [
        {"arms.oracle.serve.args": ["--x"]},
        {"arms.oracle.pin": "elsewhere.md"},
        {"arms.oracle.compare": {"torch_version": "release"}},
        {"rows[0].metrics[0].tolerance": 0.2},
        {"rows[0].cells[0].prompts": 3},
        {"case": "renamed"},
        {"budgets.disk_gb": 100},
        OTHER_CHECKPOINT,
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_engine_is_the_same_whatever_is_done_with_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert engine(tmp_path, changes) == engine(tmp_path)


@pytest.mark.parametrize("name", ["MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "UV_CONCURRENT_BUILDS", "TMPDIR"])
def test_job_counts_and_paths_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = engine(tmp_path), measured(tmp_path)
    monkeypatch.setenv(name, "7")
    assert (engine(tmp_path), measured(tmp_path)) == before


def test_an_engine_is_the_same_in_another_folder(tmp_path: Path) -> None:
    assert engine(tmp_path / "here") == engine(tmp_path / "there")


def test_the_order_of_keys_in_the_case_changes_nothing(tmp_path: Path) -> None:
    def reversed_keys(value: Any) -> Any:
        if isinstance(value, list):
            return [reversed_keys(one) for one in value]
        return {key: reversed_keys(value[key]) for key in reversed(value)} if isinstance(value, dict) else value

    one = places(tmp_path)
    value = reversed_keys(one.case.model_dump())
    other = layout.Layout(type(one.case).model_validate(value), one.case_file, one.root, one.results)
    assert list(other.case.arms) == ["previous", "oracle"]
    assert other.engine("oracle") == one.engine("oracle")
    assert other.row("serving").folder == one.row("serving").folder


def test_two_arms_of_one_engine_share_it(tmp_path: Path) -> None:
    same = places(tmp_path).case.arms["oracle"].engine.model_dump()
    found = places(tmp_path, {"arms.previous.engine": same})
    assert list(found.engines()) == [found.engine("oracle").folder.name]


def test_several_checkouts_share_engines_and_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINPROOF_STORE", str(tmp_path / "store"))
    found = places(tmp_path / "checkout")
    assert found.engine("oracle").folder.parent == tmp_path / "store/engines"
    assert found.checkpoint("tiny").parent == tmp_path / "store/checkpoints"
    assert found.verdict == tmp_path / "checkout/results/small/verdict.json"


# -- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"rows[0].serve.args": ["--max-num-seqs", "9"]},
        {"rows[0].serve.env": {"A": "1"}},
        {"arms.previous.serve.args": ["--x"]},
        {"arms.oracle.serve.env": {"A": "1"}},
        {"rows[0].recipe.input_tokens": 19},
        {"rows[0].recipe.warmup_prompts": 9},
        {"rows[0].cells[0].prompts": 9},
        {"rows[0].cells": [{"concurrency": 1, "prompts": 2}, {"concurrency": 4, "prompts": 8}]},
        {"arms.oracle.engine.sha256": "c" * 64},
        {"arms.previous.engine.version": "0.9"},
        {"device.name": "another CPU"},
        {"client": "previous"},
        OTHER_CHECKPOINT,
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_row_is_measured_anew_when_what_is_measured_changes(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert measured(tmp_path, changes) != measured(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"rows[0].metrics[0].tolerance": 0.2},
        {"rows[0].metrics": [{"name": "median_ttft", "tolerance": 0.1}]},
        {"rows[0].metrics[0].baseline": 1.0},
        {"rows[0].direction": "no-worse"},
        {"decision.looks": [3, 6, 12]},
        {"decision.red_budget": 0.02},
        {"question": "Another?"},
        {"advance": "pinned"},
        {"arms.oracle.compare": {"torch_version": "release"}},
        {"rows[0].start_timeout_s": 1},
        {"budgets.memory_gb": 100},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_row_is_not_measured_anew_when_only_the_judgement_changes(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert measured(tmp_path, changes) == measured(tmp_path)


def test_what_another_row_needs_does_not_move_a_row(tmp_path: Path) -> None:
    row = places(tmp_path).case.rows[0].model_dump()
    other = {**row, "id": "other", "serve": {"args": ["--x"], "env": {}}}
    found = places(tmp_path, {"rows": [other, row]})
    assert found.row("serving").folder.name == measured(tmp_path)
    assert [place.row.id for place in found.rows()] == ["other", "serving"]


def test_the_result_of_a_row_lies_beside_what_was_measured(tmp_path: Path) -> None:
    place = places(tmp_path).row("serving")
    assert place.result == tmp_path / "results/small/rows/serving.json"
    assert place.legs == tmp_path / "results/small/rows/serving" / measured(tmp_path) / "legs"


# -- which build of torch ------------------------------------------------------------------------


@pytest.fixture
def both(tmp_path: Path) -> dict[str, Any]:
    """A case whose oracle has a lock for either build of torch."""
    put_text(tmp_path / "envs/cpu.txt", "torch==2.13.0+cpu ; platform_machine == 'x86_64' \\\n    --hash=sha256:02\n")
    return {"arms.oracle.engine.locks": {"cpu": "envs/cpu.txt", "index": "envs/1.1.txt"}}


def torch_wheel(folder: Path, version: str = "2.13.0+cpu") -> Path:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    put_text(folder / f"torch-{version}-{tag}-{tag}-manylinux_2_28_{platform.machine()}.whl", "")
    return folder


@pytest.mark.parametrize("variable", ["PIP_FIND_LINKS", "UV_FIND_LINKS"])
@pytest.mark.parametrize("form", ["{}", "file://{}", "/no/such {}", "/no/such,{}", "https://example.org/wheels {}"])
def test_the_cpu_build_is_taken_where_a_find_links_folder_has_the_torch_of_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, both: dict[str, Any], variable: str, form: str
) -> None:
    monkeypatch.setenv(variable, form.format(torch_wheel(tmp_path / "wheels")))
    assert places(tmp_path, both).engine("oracle").lock == tmp_path / "envs/cpu.txt"


def test_without_such_a_folder_the_index_serves(tmp_path: Path, both: dict[str, Any]) -> None:
    assert places(tmp_path, both).engine("oracle").lock == tmp_path / "envs/1.1.txt"


@pytest.mark.parametrize("version", ["2.13.0", "2.12.0+cpu", "2.13.0+cu130"])
def test_another_torch_in_the_folder_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, both: dict[str, Any], version: str
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(torch_wheel(tmp_path / "wheels", version)))
    assert places(tmp_path, both).engine("oracle").lock == tmp_path / "envs/1.1.txt"


def test_the_other_build_of_torch_is_another_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, both: dict[str, Any]
) -> None:
    index = engine(tmp_path, both)
    monkeypatch.setenv("PINPROOF_TORCH", "cpu")
    assert engine(tmp_path, both) != index


def test_what_the_user_says_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, both: dict[str, Any]) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(torch_wheel(tmp_path / "wheels")))
    monkeypatch.setenv("PINPROOF_TORCH", "index")
    assert places(tmp_path, both).engine("oracle").lock == tmp_path / "envs/1.1.txt"


def test_a_build_that_the_case_has_no_lock_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINPROOF_TORCH", "rocm")
    refusal = refusal_of(places(tmp_path).engine, "oracle")
    assert (refusal.reason, refusal.key) == (Reason.CASE_INVALID, "arms.oracle.engine.locks")
    assert refusal.message == "PINPROOF_TORCH asks for the torch build 'rocm', but the locks are for: index"


def test_without_the_variable_the_refusal_does_not_name_it(tmp_path: Path) -> None:
    refusal = refusal_of(places(tmp_path, {"arms.oracle.engine.locks": {"cpu": "envs/1.1.txt"}}).engine, "oracle")
    assert refusal.message == (
        "this machine takes the torch build 'index' (no find-links folder has the CPU build of torch), "
        "but the locks are for: cpu"
    )


def test_a_lock_that_is_not_there_is_refused(tmp_path: Path) -> None:
    found = places(tmp_path)
    (tmp_path / "envs/1.1.txt").unlink()
    refusal = refusal_of(found.engine, "oracle")
    assert (refusal.key, refusal.message) == ("arms.oracle.engine.locks.index", "no such file: envs/1.1.txt")


# -- refusals in records -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("results/small/rows/serving/attempts/000/oracle.log", "results/small/rows/serving/attempts/000/oracle.log"),
        ("config/pin.md", "workflow/config/pin.md"),
        ("/dev/null", "/dev/null"),
        (None, None),
    ],
)
def test_a_refusal_in_a_record_names_its_file_as_on_any_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None, told: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    place = places(tmp_path)
    for given in {file, file and str((tmp_path / file).absolute())}:
        refused = place.refused(Refusal(Reason.SERVER_EXITED, "ended", file=given))
        assert (refused["file"], refused["reason"]) == (told, "server-exited")


def test_a_refused_file_of_a_store_elsewhere_is_named_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINPROOF_STORE", str(tmp_path / "shared"))
    refusal = Refusal(Reason.SERVER_EXITED, "ended", file=tmp_path / "shared/engines/a/env")
    assert places(tmp_path / "checkout").refused(refusal)["file"] == "store/engines/a/env"
