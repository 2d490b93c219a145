"""Figures: they show what the verdict rests on, without colour, and two builds are the same bytes."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from tests import builders

from pinproof import figures, report

SAMPLES = {
    "clock_mhz": {"minimum": 2900.0, "median": 3000.0, "maximum": 3100.0},
    "work": 0.5,
    "cpu_others": 0.02,
    "cpu_steal": None,
}
LINE = {
    "seconds": 30.0,
    "pieces": [
        {"begin": 0.0, "seconds": 10.0, "labels": []},
        {"begin": 10.0, "seconds": 15.0, "labels": ["warm-up"]},
        {"begin": 25.0, "seconds": 5.0, "labels": ["compile", "warm-up"]},
    ],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> builders.Results:
    results = builders.measured(tmp_path_factory.mktemp("made"))
    builders.put(results.places.verdict, "verdict", results.verdict())
    return results


@pytest.fixture
def row(made: builders.Results) -> dict[str, Any]:
    return copy.deepcopy(made.verdict()["rows"]["serving"])


def legs(made: builders.Results, samples: dict[str, Any] | None) -> list[dict[str, Any]]:
    found = copy.deepcopy(made.book().legs)
    return [{**one, "provenance": {"written": f"{number:03d}", "samples": samples}} for number, one in enumerate(found)]


def texts(figure: Figure, folder: Path) -> str:
    """What a person reads in a figure."""
    figures.save(figure, folder / "x.svg")
    return " | ".join(re.findall(r">([^<>]+)</text>", (folder / "x.svg").read_text()))


def test_reps_are_shown_with_baseline_tolerance_and_interval(row: dict[str, Any], tmp_path: Path) -> None:
    figure = figures.reps(row)
    assert len(figure.axes) == 2
    throughput = figure.axes[0]
    dashed, points = throughput.get_lines()[:2]
    assert set(dashed.get_ydata()) == {1.0}
    assert list(points.get_ydata()) == row["reps"]["c1"]["1"]["output_throughput"]
    field = throughput.patches[0].get_extents().transformed(throughput.transData.inverted())
    assert (round(field.y0, 3), round(field.y1, 3)) == (0.909, 1.1)
    told = texts(figure, tmp_path)
    for word in ("baseline", "tolerance", "interval at 3 reps", "reps of series 1", "c1, output throughput: PASS"):
        assert word in told


def test_what_must_only_be_no_worse_has_no_end_above(row: dict[str, Any]) -> None:
    for one in row["decision"]["first"]["metrics"]:
        one["metric"]["direction"] = "no-worse"
    axes = figures.reps(row).axes[0]
    field = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert round(field.y1, 6) >= round(axes.get_ylim()[1], 6)


def test_noise_is_shown_as_a_share_of_the_tolerance(row: dict[str, Any], tmp_path: Path) -> None:
    figure = figures.noise(row)
    found = row["decision"]["first"]["metrics"]
    assert [bar.get_width() for bar in figure.axes[0].patches] == [
        one["noise"]["sd"] / one["metric"]["tolerance"] for one in found
    ]
    assert "of 4 pairs, tolerance 0.1" in texts(figure, tmp_path)


def test_starts_of_both_arms_add_up_to_their_whole(tmp_path: Path) -> None:
    figure = figures.starts({"beside": {"oracle": {"line": LINE}, "previous": {"line": LINE}}})
    assert sum(bar.get_width() for bar in figure.axes[0].patches) == 60.0
    told = texts(figure, tmp_path)
    for word in ("oracle", "previous", "unlabelled", "warm-up", "compile + warm-up", "30.0 s"):
        assert word in told


def test_names_are_told_apart_without_colour() -> None:
    figure = figures.starts({"beside": {"oracle": {"line": LINE}}})
    assert len({bar.get_hatch() for bar in figure.axes[0].patches}) == 3
    assert {figures.INK, figures.GREY, figures.PALE} == {"black", "0.45", "0.85"}


def test_clock_and_load_are_shown_leg_by_leg_in_time(
    made: builders.Results, row: dict[str, Any], tmp_path: Path
) -> None:
    figure = figures.machine(row, legs(made, SAMPLES))
    above, below = figure.axes
    assert len(above.containers) == 2  # an arm each
    work, others = below.get_lines()
    assert (list(work.get_ydata()), list(others.get_ydata())) == ([0.5] * 14, [0.02] * 14)
    told = texts(figure, tmp_path)
    assert "by what is measured" in told
    assert "stolen" not in told  # unknown is not 0


def test_an_unknown_clock_is_told(made: builders.Results, row: dict[str, Any], tmp_path: Path) -> None:
    assert "no clock could be read" in texts(figures.machine(row, legs(made, SAMPLES | {"clock_mhz": None})), tmp_path)


def test_where_there_is_nothing_to_draw_it_says_so(made: builders.Results, row: dict[str, Any], tmp_path: Path) -> None:
    nothing = {**row, "decision": None, "beside": {"oracle": None}}
    assert "no rep was judged" in texts(figures.reps(nothing), tmp_path)
    assert "no A/A pair was measured" in texts(figures.noise(nothing), tmp_path)
    assert "no start was timed" in texts(figures.starts(nothing), tmp_path)
    assert "no leg was sampled" in texts(figures.machine(row, legs(made, None)), tmp_path)


def test_two_builds_are_the_same_bytes(made: builders.Results, tmp_path: Path) -> None:
    """In two processes, whose hash seeds differ."""
    program = "import sys; from tests import test_figures as it; it.build(sys.argv[1:])"
    found = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        words = [sys.executable, "-c", program, str(made.root), str(folder)]
        root = Path(__file__).parents[1]
        paths = f"{root}:{root / 'scripts'}"
        subprocess.run(words, env={"PYTHONHASHSEED": seed, "PYTHONPATH": paths, "HOME": str(folder)}, check=True)
        found.append({path.name: path.read_bytes() for path in folder.glob("*.svg")})
    assert found[0] == found[1]
    assert found[0].keys() == {f"serving-{kind}.svg" for kind in report.KINDS}
    assert not [name for name, data in found[0].items() if b"<dc:date>" in data]


def build(arguments: list[str]) -> None:
    """Draw the figures of results that are there, into a folder."""
    root, folder = map(Path, arguments)
    places = builders.places(root)
    for path in figures.draw(places):
        folder.mkdir(exist_ok=True)
        (folder / path.name).write_bytes(path.read_bytes())
