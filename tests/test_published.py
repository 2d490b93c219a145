"""Published ratios as data: what each needs to be decidable, reckoned here a second time by other means."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy import stats

import decide as program
from pinproof import published
from pinproof.boundaries import Spending
from pinproof.decision import decide_metric
from pinproof.equivalence import MetricPlan, NoiseBand, Outcome, Plan
from pinproof.published import Needed, Needs, PublishedRatio, Tie
from pinproof.reasons import Reason, Refusal

FILE = Path(__file__).parents[1] / "docs" / "examples" / "headpin-rows.yaml"
RECORD = published.read(FILE)
ROWS = published.needed(RECORD)
QUIET, LIFE, WORST = 0.0003, 0.0029, 0.0185  # back to back; life to life, the least and the most
# Nominal p of a PASS at the looks, as shared/decision-rule.md prints them.
EVEN = {3: 0.01787, 4: 0.01193, 6: 0.01540, 8: 0.01649, 12: 0.02251}
LATE = {3: 0.00009, 4: 0.00066, 6: 0.00535, 8: 0.01463, 12: 0.04478}


def of(row: str, cell: str, metric: str, prompts: str | None = None) -> Needed:
    (found,) = (
        one
        for one in ROWS
        if (one.row, one.claim.cell, one.claim.metric, one.claim.prompts) == (row, cell, metric, prompts)
    )
    return found


def at(row: Needed, sd: float) -> Needs:
    (found,) = (one for one in row.needs if one.sd == sd)
    return found


def ratio(**fields: Any) -> PublishedRatio:
    return PublishedRatio(cell="c1", metric="x", **fields)


# -- the figures of the record -------------------------------------------------------------------


def test_every_published_ratio_is_there_as_it_was_printed() -> None:
    printed = {(one.row, one.claim.cell, one.claim.metric): one.claim.ratio for one in ROWS if one.claim.ratio}
    assert printed == {
        ("C1a-27b", "c1", "TPOT"): "0.976",
        ("C1a-27b", "c4", "TPOT"): "0.946",
        ("C1a-27b", "c1", "output throughput"): "0.973",
        ("C1a-27b", "c4", "output throughput"): "0.958",
        ("C1a-27b", "c1", "TTFT"): "0.944",
        ("C1a-27b", "c4", "median TTFT"): "0.982",
        ("C1a-35b", "c1", "TPOT"): "0.995",
        ("C1a-35b", "c4", "TPOT"): "0.946",
        ("C1a-35b", "c1", "output throughput"): "0.987",
        ("C1a-35b", "c4", "output throughput"): "0.944",
        ("C1a-35b", "c1", "TTFT"): "0.920",
        ("C1a-35b", "c4", "mean TTFT"): "0.849",
        ("C1a-bf16", "c4", "output throughput"): "0.963",
        ("C1a-bf16", "c4", "total throughput"): "0.918",
        ("C1a-bf16", "c4", "median ITL"): "1.008",
        ("C1a-bf16", "c4", "TPOT"): "0.980",
        ("C1a-bf16", "c4", "TTFT"): "0.881",
        ("C1a-bf16", "c4", "E2EL"): "0.974",
        ("C1a-startup", "cold start", "time to the first 200"): "5.46",
        ("C1b-dflash", "c1", "output throughput"): "1.003",
    }


@pytest.mark.parametrize(
    ("metric", "cell", "prompts", "expected"),
    [
        ("output throughput", "c1", "prose", 15.10 / 14.43),
        ("output throughput", "c1", "code", 15.72 / 15.13),
        ("output throughput", "c2", "prose", 28.9 / 28.4),
        ("output throughput", "c2", "code", 29.8 / 29.1),
        ("output throughput", "c4", "prose", 53.9 / 53.4),
        ("output throughput", "c4", "code", 57.2 / 56.3),
        ("output throughput", "c8", "prose", 100.5 / 99.7),
        ("output throughput", "c8", "code", 104.1 / 105.3),
        ("TPOT", "c1", "prose", 69.1 / 66.2),
        ("TPOT", "c1", "code", 65.3 / 62.95),
    ],
)
def test_where_no_ratio_was_printed_it_is_that_of_the_absolutes(
    metric: str, cell: str, prompts: str, expected: float
) -> None:
    assert of("C1b-mtp", cell, metric, prompts).claim.value == pytest.approx(expected)


def test_mtp_was_called_on_par_where_its_absolutes_differ_by_more_than_a_tie() -> None:
    on_par = [one for one in ROWS if one.claim.says == "on par"]
    assert [(one.claim.cell, one.tie) for one in on_par] == [
        (cell, Tie.OVER) for cell in ("c2", "c4", "c8") for _ in "pc"
    ]


@pytest.mark.parametrize(
    "row", [one for one in ROWS if one.claim.ratio and one.claim.ours], ids=lambda one: one.subject
)
def test_a_printed_ratio_is_that_of_the_absolutes_kept_beside_it(row: Needed) -> None:
    of_absolutes = row.claim.model_copy(update={"ratio": None})
    (low, high), (least, most) = row.claim.range, of_absolutes.range
    assert least < high
    assert low < most


def test_repetitions_are_known_where_the_record_says_so() -> None:
    known = {row.id: row.repetitions for row in RECORD.rows}
    unknown = dict.fromkeys(("C1a-bf16", "C1a-startup", "C1b-mtp"))
    assert known == {"C1a-27b": 3, "C1a-35b": 3, "C1b-dflash": 3, **unknown}


def test_every_figure_has_a_citation() -> None:
    citations = [*(row.cited for row in RECORD.rows), *(noise.cited for noise in RECORD.noise), RECORD.tie_band.cited]
    assert all(re.fullmatch(r"docs/benchmarks/[a-z-]+\.md(:[0-9-]+|, [a-z ]+)", one) for one in citations)


# -- what a ratio needs --------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda one: one.subject)
@pytest.mark.parametrize("sd", [QUIET, LIFE, WORST])
def test_the_least_tolerance_is_the_noise_with_the_baseline_s_part(row: Needed, sd: float) -> None:
    reps = row.repetitions or 1
    assert at(row, sd).least_tolerance == pytest.approx(sd * math.sqrt(1 + 12 / reps))
    assert row.most_noise == pytest.approx(row.tolerance / math.sqrt(1 + 12 / reps))
    assert (at(row, sd).spending is not None) == (sd <= row.most_noise)


@pytest.mark.parametrize("row", ROWS, ids=lambda one: one.subject)
@pytest.mark.parametrize("sd", [QUIET, LIFE, WORST])
def test_the_needs_of_a_tolerance_are_the_first_that_do(row: Needed, sd: float) -> None:
    """By trying all numbers of reps: a feasible row of 12 has a standard error of the tolerance / sqrt(12)."""
    found, base = at(row, sd), row.repetitions or 1

    def enough(reps: int, baseline_reps: int) -> bool:
        return sd * math.sqrt(1 / reps + 1 / baseline_reps) <= row.tolerance / math.sqrt(12)

    if enough(12, base):
        share = sd * math.sqrt(1 + 12 / base) / row.tolerance
        kind, table = (Spending.POCOCK, EVEN) if share <= 0.6 else (Spending.OBRIEN_FLEMING, LATE)
        error = {n: sd * math.sqrt(1 / n + 1 / base) for n in table}
        passes = [n for n, p in table.items() if stats.t.isf(p, 7 + n - 1) * error[n] < math.log1p(row.tolerance)]
        assert (found.spending, found.passes_at) == (kind, passes[0])
        assert (found.reps, found.baseline_reps, found.both) == (None, None, None)
        return
    tried = range(1, 2000)
    reps = next((n for n in tried if enough(n, base)), None)
    baseline_reps = next((n for n in tried if enough(12, n)), None)
    both = next(n for n in tried if enough(n, n))
    assert (found.spending, found.passes_at, found.reps, found.baseline_reps) == (None, None, reps, baseline_reps)
    assert found.both == (None if reps or baseline_reps else both)


@pytest.mark.parametrize(
    ("row", "sd", "least", "text"),
    [
        (("C1a-27b", "c1", "TPOT"), QUIET, 0.000671, "0.0671 %: 3 reps"),
        (("C1a-27b", "c1", "TPOT"), LIFE, 0.00648, "0.649 %: 4 reps"),
        (("C1a-27b", "c4", "TPOT"), QUIET, 0.000671, "0.0671 %: 3 reps *"),
        (("C1a-35b", "c1", "TTFT"), WORST, 0.0414, "4.14 %: 83 reps and a baseline of 83"),
        (("C1a-bf16", "c4", "E2EL"), LIFE, 0.01046, "1.05 %: a baseline of 2"),
        (("C1a-startup", "cold start", "time to the first 200"), WORST, 0.0667, "6.68 %: a baseline of 2 *"),
    ],
)
def test_needs_in_words(row: tuple[str, str, str], sd: float, least: float, text: str) -> None:
    found = at(of(*row), sd)
    assert found.least_tolerance == pytest.approx(least, rel=1e-3)
    assert published.in_words(found) == text


def test_a_tolerance_in_words_is_feasible_as_it_stands() -> None:
    for row in ROWS:
        for one in row.needs:
            told = float(published.in_words(one).split(" %")[0]) / 100
            assert one.least_tolerance <= told < 1.02 * one.least_tolerance


def test_more_reps_alone_are_told_where_they_do() -> None:
    record = RECORD.model_copy(
        update={"rows": [row.model_copy(update={"repetitions": 12}) for row in RECORD.rows if row.id == "C1a-27b"]}
    )
    noise = record.noise[1].model_copy(update={"sd": 0.0072})
    row, *_ = published.needed(record.model_copy(update={"noise": [noise]}))
    # 0.72 % of 12 reps and 12 of the baseline: 1.02 times a tolerance of 1 %, by either side.
    assert published.in_words(row.needs[0]) == "1.02 %: 13 reps, or a baseline of 13"


# -- the tie band --------------------------------------------------------------------------------


def test_the_margin_of_dflash_is_under_the_tie_band_and_no_other_is() -> None:
    assert [one.subject for one in ROWS if one.tie is Tie.UNDER] == ["C1b-dflash c1 output throughput"]
    assert [one.subject for one in ROWS if one.tie is Tie.AT] == ["C1a-35b c1 TPOT"]
    assert of("C1b-dflash", "c1", "output throughput").margin == pytest.approx(0.003)


@pytest.mark.parametrize(
    ("fields", "side"),
    [
        ({"ratio": "1.003"}, Tie.UNDER),
        ({"ratio": "1.004"}, Tie.UNDER),
        ({"ratio": "1.005"}, Tie.AT),
        ({"ratio": "1.006"}, Tie.OVER),
        ({"ratio": "0.997"}, Tie.UNDER),
        ({"ratio": "0.9949"}, Tie.OVER),
        ({"ratio": "0.9951"}, Tie.UNDER),
        ({"ratio": "1.0"}, Tie.AT),  # 0.95 to 1.05
        ({"ratio": "1.000"}, Tie.UNDER),
        ({"ours": "29.32", "oracle": "29.24", "better": "higher"}, Tie.UNDER),
        ({"ours": "29.3", "oracle": "29.2", "better": "higher"}, Tie.AT),
        ({"ours": "29.3", "oracle": "29.0", "better": "lower"}, Tie.OVER),
    ],
)
def test_a_margin_is_under_the_band_when_none_of_its_missing_digits_could_lift_it_over(
    fields: dict[str, Any], side: Tie
) -> None:
    assert published.tie(ratio(**fields), 0.005) is side


# -- the reps that were published ----------------------------------------------------------------

OURS, ORACLE = (29.42, 29.27, 29.32), (29.240, 29.247, 29.233)


def test_the_reps_of_dflash_do_not_decide_parity_within_the_tie_band() -> None:
    row = of("C1b-dflash", "c1", "output throughput")
    assert [(one.decision.metric.tolerance, one.sd, one.decision.outcome) for one in row.parity] == [
        (0.005, QUIET, Outcome.CONTINUE),
        (0.005, LIFE, Outcome.CONTINUE),
        (0.005, WORST, Outcome.INCONCLUSIVE),
        (0.01, QUIET, Outcome.CONTINUE),
        (0.01, LIFE, Outcome.PASS),
        (0.01, WORST, Outcome.INCONCLUSIVE),
    ]
    assert {one.decision.reason for one in row.parity if one.sd == WORST} == {Reason.INFEASIBLE}
    assert {one.decision.next_look for one in row.parity} == {4, None}


@pytest.mark.parametrize("tolerance", [0.005, 0.01])
@pytest.mark.parametrize("sd", [QUIET, LIFE])
def test_the_reps_of_dflash_say_what_a_t_test_says(tolerance: float, sd: float) -> None:
    row = of("C1b-dflash", "c1", "output throughput")
    (found,) = (one for one in row.parity if (one.decision.metric.tolerance, one.sd) == (tolerance, sd))
    logs = [math.log(ours / oracle) for ours, oracle in zip(OURS, ORACLE, strict=True)]
    own, df = stats.tvar(logs), 2
    if own <= sd**2:  # the reps may not be quieter than the band
        own, df = (7 * sd**2 + 2 * own) / 9, 9
    distance = (math.log1p(tolerance) - abs(sum(logs) / 3)) / math.sqrt(own / 3)
    (look,) = found.decision.looks
    assert look.pass_p == pytest.approx(stats.t.sf(distance, df))
    assert (found.decision.outcome is Outcome.PASS) == (stats.t.sf(distance, df) < EVEN[3])


def test_what_the_reps_of_dflash_say_does_not_hang_on_how_they_are_paired() -> None:
    for one in of("C1b-dflash", "c1", "output throughput").parity:
        metric = MetricPlan("c1", "x", one.decision.metric.tolerance, 1.0, None)
        for pairing in itertools.permutations(ORACLE):
            ratios = [ours / oracle for ours, oracle in zip(OURS, pairing, strict=True)]
            found = decide_metric(Plan((metric,)), metric, NoiseBand(one.sd, 8), ratios)
            assert found.outcome is one.decision.outcome
        assert one.other_pairings == (one.decision.outcome,)


def test_reps_that_do_hang_on_how_they_are_paired_are_told_so() -> None:
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    row = content["rows"][-1]
    row["claims"][0]["reps"] = {"numerator": [1.0, 1.01, 1.02], "denominator": [1.0, 1.01, 1.02], "better": "higher"}
    record = published.Record.model_validate({**content, "rows": [row]})
    text = "\n".join(published.words(record, published.needed(record)))
    assert "- tolerance 0.5 %, noise 0.03 %: PASS at 3 reps" in text
    assert "; paired otherwise: continue" in text


# -- the page and the program --------------------------------------------------------------------


def text() -> str:
    return "\n".join(published.words(RECORD, ROWS))


def test_what_is_a_tie_comes_first() -> None:
    assert text().splitlines()[:3] == [
        "30 published ratios, mudler/vllm.cpp on one GB10, published at vLLM 5559679229",
        "under the tie band of 0.5 %: C1b-dflash c1 output throughput, 1.003, a margin of 0.3 %",
        "at the tie band of 0.5 %: C1a-35b c1 TPOT, 0.995, a margin of 0.5 %",
    ]


def test_every_ratio_is_a_line_of_the_table() -> None:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text().splitlines() if line.startswith("|")]
    assert [line[0] for line in lines[2:]] == [one.row for one in ROWS]
    last = ["C1b-dflash", "c1", "output throughput", "1.003", "0.3 %", "under", "3", "1 %", "0.447 %"]
    assert lines[-1] == [*last, "0.0671 %: 3 reps", "0.649 %: 4 reps", "4.14 %: 83 reps and a baseline of 83"]
    assert "unknown" in lines[2 + 12]  # the first of the rows whose repetitions nobody kept
    assert lines[2 + 19][1:4] == ["c1 prose", "output throughput", "about 1.04: 1.046"]


def test_what_the_record_says_against_a_row_is_told() -> None:
    for row in RECORD.rows:
        assert f"- {row.id}: {row.remark}" in text().splitlines()


def test_the_program_prints_the_words_or_every_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["decide.py", "--published", str(FILE)])
    program.main()
    assert capsys.readouterr().out == text() + "\n"
    monkeypatch.setattr(sys, "argv", ["decide.py", "--published", "--json", str(FILE)])
    program.main()
    figures = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [one["row"] for one in figures] == [one.row for one in ROWS]
    assert figures[-1]["tie"] == "under"
    assert figures[0]["needs"][1] | {"spending": "obrien-fleming", "passes_at": 4} == figures[0]["needs"][1]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            'ratio: "0.976"',
            "ratio: 0.976",
            "rows[0].claims[0].ratio: must be a valid string (got 0.976, which YAML reads as",
        ),
        (
            'ratio: "0.976"',
            'ratio: "0,976"',
            "rows[0].claims[0].ratio: must be digits with one point at most, in quotes",
        ),
        ('ratio: "0.976"', "says: worse", "rows[0].claims[0]: a ratio is needed, or the absolutes ours and oracle"),
        ('ratio: "0.976"', 'ratio: "0.000"', "rows[0].claims[0]: figures are positive"),
        ('ours: "15.01", ', "", "rows[2].claims[0]: ours, oracle and better go together"),
        ("repetitions: 3", "repetitions: 0", "rows[0].repetitions: must be greater than 0 (got 0)"),
        ("    repetitions: null\n", "", "rows[2].repetitions: this key is required"),
        ("tolerance: 0.01", "tolerance: .nan", "tolerance: must be a finite number (got nan)"),
        ("pairs: 8", "pears: 8", "pears: unknown key; allowed are noise, pairs, rows, subject, tie_band, tolerance"),
        ("29.240, ", "", "rows[5].claims[0].reps: a rep is a leg of each arm: the numerator has 3, the denominator 2"),
    ],
)
def test_a_record_that_cannot_be_one_is_refused(tmp_path: Path, old: str, new: str, line: str) -> None:
    content = FILE.read_text(encoding="utf-8")
    assert old in content
    file = tmp_path / "rows.yaml"
    file.write_text(content.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(Refusal) as caught:
        published.read(file)
    assert str(caught.value).startswith(f"{file}: {line}")
