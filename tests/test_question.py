"""A decision without an engine: a file in, an answer in words or figures out, every slip of the pen refused."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy import stats

import decide as program
from pinproof import question
from pinproof.decision import CellSeries, decide
from pinproof.equivalence import MetricPlan, NoiseBand, Plan
from pinproof.reasons import Reason, Refusal

ROOT = Path(__file__).parents[1]
DOCUMENT = (ROOT / "docs" / "decision.md").read_text(encoding="utf-8")
QUIET = {"sd": 0.002, "pairs": 8}
INSIDE, OUTSIDE, OPEN = [1.001, 1.0, 0.999], [0.9, 0.901, 0.899], [0.983, 0.989, 0.985]


def value(**changes: Any) -> dict[str, Any]:
    """A question of two metrics in one cell, both inside."""
    made = {
        "plan": {
            "metrics": [
                {"cell": "c1", "name": "throughput", "tolerance": 0.02},
                {"cell": "c1", "name": "tpot", "tolerance": 0.02},
            ]
        },
        "noise": {"c1": {"throughput": QUIET, "tpot": QUIET}},
        "first": {"c1": {"throughput": INSIDE, "tpot": INSIDE}},
    }
    return json.loads(json.dumps({**made, **changes}))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "reps.yaml"


def put(file: Path, content: Any) -> Path:
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def told(file: Path, content: Any) -> list[str]:
    """The lines of the answer."""
    return "\n".join(question.words(question.answer(question.read(put(file, content))))).splitlines()


def refused(file: Path, content: Any) -> list[str]:
    """The lines of the refusal, without the file's name and the remedy."""
    with pytest.raises(Refusal) as caught:
        question.answer(question.read(put(file, content)))
    assert caught.value.reason is Reason.CASE_INVALID
    *lines, remedy = str(caught.value).splitlines()
    assert remedy.startswith("  remedy: ")
    assert all(line.startswith(f"{file}: ") for line in lines)
    return [line.removeprefix(f"{file}: ") for line in lines]


# -- the answer ----------------------------------------------------------------------------------


def test_it_is_the_decision_of_the_rule(file: Path) -> None:
    metric = MetricPlan("c1", "throughput", 0.01, 0.973, 3)
    content = {
        "plan": {
            "metrics": [
                {"cell": "c1", "name": "throughput", "tolerance": 0.01, "baseline_ratio": 0.973, "baseline_reps": 3}
            ],
            "looks": [3, 5],
            "pass_budget": 0.1,
            "red_budget": 0.02,
            "max_invalid_share": 0.5,
        },
        "noise": {"c1": {"throughput": QUIET}},
        "first": {"c1": {"throughput": [0.971, 0.974, 0.9735]}},
        "invalid": {"c1": 1},
    }
    cells = {"c1": CellSeries({"throughput": [0.971, 0.974, 0.9735]}, {"throughput": NoiseBand(0.002, 8)}, 1)}
    expected = decide(Plan((metric,), (3, 5), 0.1, 0.02, 0.5), cells)
    assert question.answer(question.read(put(file, content))) == expected


@pytest.mark.parametrize(
    ("changes", "first_line"),
    [
        ({}, "PASS: every metric was shown to be inside its tolerance."),
        (
            {"first": {"c1": {"throughput": OUTSIDE, "tpot": INSIDE}}},
            "RED: shown to be outside the tolerance; unconfirmed-red: run a second series.",
        ),
        ({"first": {"c1": {"throughput": OPEN, "tpot": INSIDE}}}, "CONTINUE: not known yet; go on to 4 reps."),
        ({"first": None}, "CONTINUE: not known yet; go on to 3 reps."),
        (
            {"noise": {"c1": {"throughput": QUIET, "tpot": {"sd": 0.03, "pairs": 8}}}, "first": None},
            "INCONCLUSIVE: shown neither inside nor outside: too much noise for the tolerance.",
        ),
        (
            {"first": {"c1": {"throughput": [0.98, 1.01, 0.95] * 4, "tpot": INSIDE * 4}}},
            "INCONCLUSIVE: shown neither inside nor outside: too much noise for the reps planned.",
        ),
        (
            {"first": {"c1": {"throughput": [None, 1.0, 1.0], "tpot": INSIDE}}},
            "INCONCLUSIVE: shown neither inside nor outside; metric-missing: read the client's raw output.",
        ),
        (
            {"invalid": {"c1": 2}},
            "INCONCLUSIVE: shown neither inside nor outside; invalid-reps: remove the cause of the invalid reps.",
        ),
    ],
)
def test_the_answer_comes_first(file: Path, changes: dict[str, Any], first_line: str) -> None:
    assert told(file, value(**changes))[0] == first_line


def test_a_metric_says_what_was_tested_and_the_interval(file: Path) -> None:
    content = value(first={"c1": {"throughput": [0.993, 0.991, 0.992], "tpot": INSIDE}})
    _, head, tested, measured, noise, signs, *_ = told(file, content)
    assert head == "- c1 throughput: PASS after 3 reps"
    assert tested == (
        "  tested: whether the ratio is within 0.9804 to 1.0200, that is 1 (exact) with a tolerance of 2 %, two-sided"
    )
    logs = [math.log(ratio) for ratio in (0.993, 0.991, 0.992)]
    mean, own = sum(logs) / 3, stats.tvar(logs)
    half = stats.t.isf(0.0178687, 9) * math.sqrt((7 * 0.002**2 + 2 * own) / 9 / 3)
    low, high = math.exp(mean - half), math.exp(mean + half)
    assert measured == f"  measured: 0.9920 (-0.80 %), interval {low:.4f} to {high:.4f}: wholly inside"
    assert noise == (
        "  noise: A/A standard deviation 0.2 % of 8 pairs, 0.10 of the tolerance with the baseline's part: "
        "budgets spent evenly"
    )
    assert signs.startswith("  by signs alone: all 3 of 3 reps inside the margin")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"first": {"c1": {"throughput": OPEN, "tpot": INSIDE}}}, "would decide it, perhaps: 4 reps"),
        ({"noise": {"c1": {"throughput": {"sd": 0.03, "pairs": 8}}}}, "would decide it: about 2.3 times the prompts"),
        ({"noise": {"c1": {"throughput": None, "tpot": QUIET}}}, "would decide it: its A/A band"),
        ({"first": {"c1": {"tpot": INSIDE}}}, "would decide it: its reps, and its A/A band"),
        ({"first": {"c1": {"throughput": [1.0, None, 1.0], "tpot": INSIDE}}}, "would decide it: every rep's ratio"),
        ({"first": {"c1": {"throughput": [0.985, 1.01, 0.955] * 4, "tpot": INSIDE * 4}}}, "would decide it: about "),
    ],
)
def test_an_open_metric_says_what_would_decide_it(file: Path, changes: dict[str, Any], line: str) -> None:
    lines = told(file, value(**changes))
    mine = lines[1 : lines.index(next(one for one in lines if one.startswith("- c1 tpot")))]
    assert mine[-1].strip().startswith(line)


def test_what_passed_needs_nothing(file: Path) -> None:
    assert not [line for line in told(file, value()) if "would decide" in line]


def test_reps_after_the_look_that_decided_are_counted_and_not_looked_at(file: Path) -> None:
    content = value(first={"c1": {"throughput": [*INSIDE, 0.5], "tpot": [*INSIDE, 0.5]}})
    assert told(file, content)[1] == "- c1 throughput: PASS after 3 reps (of 4 given)"


def test_a_red_says_on_which_side_and_a_confirmed_one_that_it_is(file: Path) -> None:
    reds = {"c1": {"throughput": OUTSIDE, "tpot": INSIDE}}
    lines = told(file, value(first=reds, second=reds))
    assert re.fullmatch(r"RED: shown to be outside the tolerance, in a second series too \(p = .*\)\.", lines[0])
    assert [line for line in lines if line.endswith("series: RED")] == ["first series: RED", "second series: RED"]
    assert lines.count("- c1 throughput: RED, below the tolerance after 3 reps") == 2
    assert [line for line in lines if line.endswith(": wholly outside")]


def test_the_interval_of_a_red_is_the_one_that_lies_outside(file: Path) -> None:
    _, _, _, measured, *_ = told(file, value(first={"c1": {"throughput": OUTSIDE, "tpot": INSIDE}}))
    logs = [math.log(ratio) for ratio in OUTSIDE]
    mean, own = sum(logs) / 3, stats.tvar(logs)
    half = stats.t.isf(0.0035737, 9) * math.sqrt((7 * 0.002**2 + 2 * own) / 9 / 3)
    low, high = math.exp(mean - half), math.exp(mean + half)
    assert measured == f"  measured: 0.9000 (-10.00 %), interval {low:.4f} to {high:.4f}: wholly outside"


def test_a_red_that_does_not_recur_is_told_with_both_series(file: Path) -> None:
    series = [{"c1": {"throughput": ratios, "tpot": INSIDE}} for ratios in (OUTSIDE, INSIDE)]
    lines = told(file, value(first=series[0], second=series[1]))
    assert lines[0].startswith("INCONCLUSIVE: shown neither inside nor outside; series-effect: ")
    assert [line for line in lines if "series: " in line] == ["first series: RED", "second series: PASS"]


def test_a_hopeless_metric_says_that_it_was_stopped(file: Path) -> None:
    content = value(first={"c1": {"throughput": [0.98, 1.1, 0.87, 1.0], "tpot": [*INSIDE, 1.0]}})
    assert "- c1 throughput: INCONCLUSIVE after 3 reps (of 4 given), stopped as hopeless (noise)" in told(file, content)


def test_no_worse_is_told_with_the_one_bound_that_counts(file: Path) -> None:
    content = value()
    content["plan"]["metrics"][0] |= {"direction": "no-worse", "baseline_ratio": 1.5, "baseline_reps": 3}
    content["first"]["c1"]["throughput"] = [2.0, 2.0, 2.0]
    assert told(file, content)[:3] == [
        "PASS: every metric was shown to be inside its tolerance.",
        "- c1 throughput: PASS after 3 reps",
        "  tested: whether the ratio is at least 1.4706, that is 1.5 (of 3 reps) with a tolerance of 2 %, no-worse",
    ]


def test_figures_beyond_all_measure_are_told_and_not_crashed_on(file: Path) -> None:
    content = value()
    content["plan"]["metrics"][0] |= {"baseline_ratio": 1e-300, "baseline_reps": 3}
    content["first"]["c1"]["throughput"] = [1e300, 1e-300, 1e308]
    assert told(file, content)


# -- ways to say it ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "expected"), [("higher", [1.01, None, 0.98]), ("lower", [1 / 1.01, None, 1 / 0.98])]
)
def test_reps_may_be_the_legs_of_both_arms(file: Path, better: str, expected: list[float | None]) -> None:
    legs = {"numerator": [10.1, None, 9.8], "denominator": [10, 10, 10], "better": better}
    made = question.read(put(file, value(first={"c1": {"throughput": legs, "tpot": INSIDE}})))
    found = made.first["c1"].ratios["throughput"]
    assert [one is None for one in found] == [one is None for one in expected]
    assert found[0] == pytest.approx(expected[0])
    assert found[2] == pytest.approx(expected[2])


def test_a_band_may_be_the_ratios_of_its_pairs(file: Path) -> None:
    pairs = [1.001, 0.998, 1.003, 0.999]
    made = question.read(put(file, value(noise={"c1": {"throughput": pairs, "tpot": [1.0, None, 1.0]}})))
    assert made.first["c1"].noise == {"throughput": NoiseBand.from_ratios(pairs), "tpot": None}


def test_a_question_may_be_json(file: Path) -> None:
    file.write_text(json.dumps(value()), encoding="utf-8")
    assert question.answer(question.read(file)).outcome == "pass"


def test_a_metric_that_nobody_measured_does_not_pass(file: Path) -> None:
    lines = told(file, value(first={"c1": {"throughput": INSIDE}}))
    assert lines[0].startswith("INCONCLUSIVE: shown neither inside nor outside; not-measured")


# -- refusals ------------------------------------------------------------------------------------

PLACE = "plan.metrics[0]"
SHAPES: list[tuple[str, Any, str]] = [
    ("unknown", 1, "unknown: unknown key; allowed are first, invalid, noise, plan, second"),
    (
        "plan.look",
        [3],
        "plan.look: unknown key; allowed are looks, max_invalid_share, metrics, pass_budget, red_budget",
    ),
    (
        "plan.metrics.0.baseline",
        1.0,
        f"{PLACE}.baseline: unknown key; allowed are baseline_ratio, baseline_reps, cell, direction, name, tolerance",
    ),
    ("noise.c1.throughput.mean", 1, "noise.c1.throughput.mean: unknown key; allowed are pairs, sd"),
    ("plan.metrics.0.tolerance", "0.02", f"{PLACE}.tolerance: must be a valid number (got '0.02', which YAML reads as"),
    ("plan.metrics.0.tolerance", math.nan, f"{PLACE}.tolerance: must be a finite number (got nan)"),
    ("plan.metrics.0.tolerance", 0, f"{PLACE}.tolerance: must be greater than 0 (got 0)"),
    ("plan.metrics.0.tolerance", 2, f"{PLACE}.tolerance: must be less than 1 (got 2)"),
    ("plan.metrics.0.tolerance", True, f"{PLACE}.tolerance: must be a valid number (got True)"),
    (
        "plan.metrics.0.baseline_ratio",
        1.1,
        f"{PLACE}: a baseline_ratio needs baseline_reps: the reps behind it, or null",
    ),
    ("plan.metrics.0.baseline_reps", 0, f"{PLACE}.baseline_reps: must be greater than 0 (got 0)"),
    ("plan.metrics.0.baseline_reps", 1.5, f"{PLACE}.baseline_reps: must be a valid integer (got 1.5)"),
    ("plan.metrics.0.direction", "up", f"{PLACE}.direction: must be 'two-sided' or 'no-worse' (got 'up')"),
    ("plan.metrics.1.name", "throughput", "plan.metrics: c1 throughput is there twice; each is allowed once"),
    ("plan.metrics", [], "plan.metrics: must have at least 1 item (got an empty list)"),
    ("plan.looks", [3, 3], "plan.looks: looks must increase and start at 2 or more"),
    ("plan.looks", [1, 3], "plan.looks: looks must increase and start at 2 or more"),
    ("plan.red_budget", 0.5, "plan.red_budget: must be less than 0.5 (got 0.5)"),
    ("plan", None, "plan: must be a mapping of keys (got nothing)"),
    ("noise.c1.throughput", 0.002, "noise.c1.throughput: must be a list or a mapping of keys (got 0.002)"),
    ("noise.c1.throughput", [1.0], "noise.c1.throughput: must have at least 2 items (got a list)"),
    ("noise.c1.throughput.sd", -1, "noise.c1.throughput.sd: must be greater than or equal to 0 (got -1)"),
    ("noise.c1.throughput.pairs", 1, "noise.c1.throughput.pairs: must be greater than or equal to 2 (got 1)"),
    ("noise.c1.latency", QUIET, "noise.c1.latency: no such metric in the plan; those of c1 are throughput, tpot"),
    ("noise.c2", {"tpot": QUIET}, "noise.c2: no such cell in the plan; its cells are c1"),
    ("first.c1.throughput", [], "first.c1.throughput: must have at least 1 item (got an empty list)"),
    ("first.c1.throughput.1", math.nan, "first.c1.throughput[1]: must be a finite number (got nan)"),
    ("first.c1.throughput.1", math.inf, "first.c1.throughput[1]: must be a finite number (got inf)"),
    ("first.c1.throughput.1", 0, "first.c1.throughput[1]: must be greater than 0 (got 0)"),
    ("first.c1.throughput.1", "1.0", "first.c1.throughput[1]: must be a valid number (got '1.0', which YAML reads as"),
    ("first.c1.throughput", [1.0, 1.0], "first.c1: a rep gives every metric; null where one is not known (reps: "),
    ("first.c1.latency", INSIDE, "first.c1.latency: no such metric in the plan; those of c1 are throughput, tpot"),
    ("first.c3", {}, "first.c3: no such cell in the plan; its cells are c1"),
    ("first.c1", INSIDE, "first.c1: must be a mapping of keys (got a list)"),
    ("first.c1.throughput", {"ratios": INSIDE}, "first.c1.throughput.numerator: this key is required"),
    (
        "first.c1.throughput",
        {"numerator": [1], "denominator": [1, 1], "better": "lower"},
        "first.c1.throughput: a rep is a leg of each arm: the numerator has 1, the denominator 2",
    ),
    ("invalid", {"c1": -1}, "invalid.c1: must be greater than or equal to 0 (got -1)"),
    ("invalid", {"c9": 1}, "invalid.c9: no such cell in the plan; its cells are c1"),
]


def changed(key: str, new: Any) -> dict[str, Any]:
    content = value()
    *way, last = (int(part) if part.isdigit() else part for part in key.split("."))
    place: Any = content
    for part in way:
        place = place[part]
    place[last] = new
    return content


@pytest.mark.parametrize(("key", "new", "line"), SHAPES)
def test_what_cannot_be_is_refused_with_its_key_and_what_is_allowed(file: Path, key: str, new: Any, line: str) -> None:
    assert refused(file, changed(key, new))[0].startswith(line)


def test_all_that_is_wrong_is_told_at_once(file: Path) -> None:
    content = changed("plan.metrics.0.tolerance", 0)
    content["first"]["c1"]["tpot"][2] = math.nan
    content["fist"] = {}
    assert [line.split(": ")[0] for line in refused(file, content)] == [
        "plan.metrics[0].tolerance",
        "first.c1.tpot[2]",
        "fist",
    ]
    content = value(noise={"c2": {"tpot": QUIET}}, second={"c1": {"tpott": INSIDE}}, invalid={"c3": 1})
    assert [line.split(": ")[0] for line in refused(file, content)] == ["noise.c2", "second.c1.tpott", "invalid.c3"]


@pytest.mark.parametrize("first", [INSIDE, OPEN, [1.0, None, 1.0], None])
def test_nothing_but_a_red_is_asked_about_again(file: Path, first: list[float] | None) -> None:
    series = {"c1": {"throughput": INSIDE, "tpot": INSIDE}}
    content = value(first=first and {"c1": {"throughput": first, "tpot": INSIDE}}, second=series)
    (line,) = refused(file, content)
    assert line.startswith("second: a second series follows a RED only; the first is ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "(the whole file): must be a mapping of keys (got nothing)"),
        ("- 1", "(the whole file): must be a mapping of keys (got a list)"),
        ("a: [", "line 1: cannot be read as YAML: "),
        ("plan: 1\nplan: 2", "line 2: cannot be read as YAML: key 'plan' is given twice"),
        ("noise: {c1: {tpot: {sd: 1e-3, pairs: 8}}}", "plan: this key is required"),
        ("1: 2", "plan: this key is required"),
    ],
)
def test_a_file_that_is_no_question_is_refused(file: Path, text: str, line: str) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Refusal) as caught:
        question.read(file)
    assert str(caught.value).splitlines()[0].startswith(f"{file}: {line}")


def test_an_exponent_that_yaml_reads_as_text_is_told_how_to_be_written(file: Path) -> None:
    content = value()
    content["noise"]["c1"]["throughput"]["sd"] = "1e-3"
    (line,) = refused(file, content)
    assert line.endswith("write a plain number without quotes, such as 16 or 0.1 (not 1e-1))")


# -- the program ---------------------------------------------------------------------------------


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["decide.py", *arguments])
    program.main()


def test_the_example_of_the_document_says_what_the_document_says(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example, said = re.search(r"```yaml\n(.*?)```.*?```text\n(.*?)```", DOCUMENT, re.S).groups()
    file.write_text(example, encoding="utf-8")
    run(monkeypatch, str(file))
    assert capsys.readouterr().out == said


def test_json_is_the_whole_decision(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, str(put(file, value())), "--json")
    assert json.loads(capsys.readouterr().out) == question.answer(question.read(file)).as_record()


def test_a_refusal_ends_the_program_without_a_traceback(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    call = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "decide.py"), str(missing)], capture_output=True, text=True, check=False
    )
    assert (call.returncode, call.stdout) == (1, "")
    first, remedy = call.stderr.splitlines()
    assert first == f"refused: {missing}: no such file"
    assert remedy.startswith("  remedy: ")
