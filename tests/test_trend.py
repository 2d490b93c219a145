"""The trend: verdicts of several pins side by side."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import builders
from tests.builders import refusal_of
from tests.test_archive import archived

from pinproof import figures, records, trend
from pinproof.artifacts import Artifacts
from pinproof.reasons import Reason

CAUSE = {"subject": "serving", "reason": "regression", "owner": "target", "needs": "the next pin"}


@pytest.fixture(scope="module")
def verdict(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = builders.measured(tmp_path_factory.mktemp("made"), better=1.02)
    return json.loads(records.text("verdict", made.verdict(), provenance={"written": "2026-01-01T00:00:00Z"}))


def put(folder: Path, verdict: dict[str, Any], number: int, change: Callable[[dict], Any] = lambda one: None) -> Path:
    """A verdict of another pin, `number` months later."""
    one = copy.deepcopy(verdict)
    one["arms"]["oracle"]["environment"]["vllm_runtime_version"] = f"1.{number}"
    one["provenance"]["written"] = f"2026-{number:02d}-01T00:00:00Z"
    one["inputs"]["small/pin.json"] = f"{number:064d}"
    change(one)
    path = folder / "small" / "verdicts" / f"{number}.json"
    builders.put_text(path, json.dumps(one))
    return path


def reverted(one: dict[str, Any]) -> None:
    one.update(verdict="REVERT", against=[CAUSE])
    one["rows"]["serving"]["outcome"] = "red"
    one["rows"]["serving"]["decision"]["first"]["metrics"][0]["outcome"] = "red"


def test_pins_stand_side_by_side_the_oldest_first(verdict: dict[str, Any], tmp_path: Path) -> None:
    put(tmp_path, verdict, 3, reverted)
    put(tmp_path, verdict, 2)
    past = trend.read(trend.found([tmp_path]))
    assert [(one.name, one.verdict["verdict"]) for one in past] == [("1.2", "HOLD"), ("1.3", "REVERT")]
    text = trend.page(past)
    (pin,) = [line for line in text.splitlines() if line.startswith("| 1.2")]
    assert [cell.strip() for cell in pin.split("|")[1:-1]] == [
        "1.2",
        "2026-02-01T00:00:00Z",
        "HOLD",
        "small",
        "a CPU",
        "1 of 1",
    ]
    (row,) = [line for line in text.splitlines() if line.startswith("| the row")]
    assert row.split() == ["|", "the", "row", "|", "PASS", "|", "RED", "|"]
    (ratio,) = [line for line in text.splitlines() if line.startswith("| c1, output throughput")]
    assert ratio.count("1.020, sd ") == 2
    assert "- 1.3, **serving**: regression (target's failure)" in text


def test_a_verdict_that_is_there_twice_counts_once(verdict: dict[str, Any], tmp_path: Path) -> None:
    first = put(tmp_path, verdict, 2)
    builders.put_text(tmp_path / "small" / "verdict.json", first.read_text())
    assert len(trend.found([tmp_path])) == 2
    assert len(trend.read(trend.found([tmp_path]))) == 1


def test_what_differs_besides_is_in_a_pin_s_name(verdict: dict[str, Any], tmp_path: Path) -> None:
    def patched(one: dict[str, Any]) -> None:
        one["arms"]["oracle"]["environment"].update(vllm_runtime_version="1.2", torch_version="2.14.0")

    put(tmp_path, verdict, 2)
    put(tmp_path, verdict, 3, patched)
    assert [one.name for one in trend.read(trend.found([tmp_path]))] == ["2.13.0+cpu", "2.14.0"]


def test_pins_that_nothing_tells_apart_are_numbered(verdict: dict[str, Any], tmp_path: Path) -> None:
    for number in (2, 3):
        put(
            tmp_path, verdict, number, lambda one: one["arms"]["oracle"]["environment"].update(vllm_runtime_version="1")
        )
    assert [one.name for one in trend.read(trend.found([tmp_path]))] == ["1 (1)", "1 (2)"]


def test_a_row_that_a_pin_did_not_have_is_a_dash(verdict: dict[str, Any], tmp_path: Path) -> None:
    def without(one: dict[str, Any]) -> None:
        one["rows"]["other"] = one["rows"].pop("serving")

    put(tmp_path, verdict, 2)
    put(tmp_path, verdict, 3, without)
    past = trend.read(trend.found([tmp_path]))
    assert trend.keys(past) == [("small", "other"), ("small", "serving")]
    assert [one is None for one in trend.points(past, ("small", "serving"))["c1", "output_throughput"]] == [False, True]


def test_archives_are_read_as_they_are(verdict: dict[str, Any], tmp_path: Path) -> None:
    _, target = archived(tmp_path / "a")
    put(tmp_path / "b", verdict, 2)
    assert [one.verdict["verdict"] for one in trend.read(trend.found([target, tmp_path / "b"]))] == ["HOLD", "HOLD"]


def test_without_a_verdict_it_says_what_is_missing(tmp_path: Path) -> None:
    assert refusal_of(trend.read, trend.found([tmp_path])).reason is Reason.RECORD_MISSING


def test_a_file_that_is_no_verdict_is_named(verdict: dict[str, Any], tmp_path: Path) -> None:
    path = put(tmp_path, verdict, 2, lambda one: one.pop("rows"))
    assert refusal_of(trend.read, [path]).file == str(path)


def test_a_verdict_is_kept_when_the_next_pin_s_takes_its_place(tmp_path: Path) -> None:
    made = builders.measured(tmp_path)
    first = records.write(made.places.verdict, "verdict", made.verdict())
    kept = trend.keep(made.places, first)
    second = records.write(made.places.verdict, "verdict", {**made.verdict(), "question": "Another?"})
    assert trend.keep(made.places, second) != kept
    assert trend.keep(made.places, second) in Artifacts(made.places).verdicts.iterdir()
    assert json.loads(kept.read_text()) == first


def test_the_figure_has_a_panel_a_metric_and_a_filled_mark_for_who_held(
    verdict: dict[str, Any], tmp_path: Path
) -> None:
    put(tmp_path, verdict, 2)
    put(tmp_path, verdict, 3, reverted)
    past = trend.read(trend.found([tmp_path]))
    decided = trend.points(past, ("small", "serving"))
    figure = figures.trend({" ".join(where): each for where, each in decided.items()}, [one.name for one in past])
    assert len(figure.axes) == 2
    marks = [line for line in figure.axes[0].get_lines() if line.get_marker() == "o"]
    assert [mark.get_fillstyle() for mark in marks] == ["full", "none"]
    assert [round(float(mark.get_ydata()[0]), 2) for mark in marks] == [1.02, 1.02]
