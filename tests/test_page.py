"""verdict.md: the answer first, then why, then what to do, then the tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.builders import Results, add_leg, case_value, measured

from pinproof import markdown, page
from pinproof.legbook import FIRST, SECOND, LegId
from pinproof.reasons import Reason, Refusal

ROW = case_value()["rows"][0]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The verdict of a case in which everything is well. Not to be changed."""
    return measured(tmp_path_factory.mktemp("held")).verdict()


@pytest.fixture
def verdict(held: dict[str, Any]) -> dict[str, Any]:
    """A copy of it that a test may change, as a page would read it."""
    return json.loads(json.dumps(held, sort_keys=True))


def tables(text: str) -> list[list[list[str]]]:
    """The GitHub tables of a page, each a list of lines of cells; a line that is no line of its table is an error."""
    found = []
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.M):
        lines = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()]
        assert all(len(line) == len(lines[0]) for line in lines)
        assert all(re.fullmatch("-+", cell) for cell in lines[1])
        found.append([lines[0], *lines[2:]])
    return found


def table(text: str, head: str) -> list[list[str]]:
    return next(one for one in tables(text) if head in one[0])


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ .*", text, re.M)


# -- the answer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["HOLD", "REVERT", "UNDECIDED"])
def test_the_first_line_is_the_answer_to_the_question(verdict: dict[str, Any], answer: str) -> None:
    first, meaning = page.of({**verdict, "verdict": answer}).split("\n\n")[:2]
    assert first == f"# {answer}: Does the advance 1.0 -> 1.1 hold?"
    assert meaning.startswith(f"{answer} means: ")


def test_a_question_of_several_lines_stays_one_heading(verdict: dict[str, Any]) -> None:
    assert page.of({**verdict, "question": "Does it\n\nhold?\n"}).splitlines()[0] == "# HOLD: Does it hold?"


@pytest.mark.parametrize(("advance", "words"), [("candidate", "a candidate"), ("pinned", "the current pin")])
def test_the_page_says_which_pin_is_current(verdict: dict[str, Any], advance: str, words: str) -> None:
    assert f"The oracle is {words}.\n" in page.of({**verdict, "advance": advance})


def test_why_comes_before_what_to_do_and_the_tables(tmp_path: Path) -> None:
    results = Results(tmp_path).identities({"previous": "0.9"}).surroundings().plan().noise()
    results.reps(better=0.5).reps(better=0.5, series=SECOND).series().decide()
    text = page.of(results.verdict())
    assert [line for line in headings(text) if line.startswith("## ")] == [
        "## Against the pin",
        "## Open, and what would decide it",
        "## What to do",
        "## Rows",
        "## Identity",
        "## Where",
        "## Evidence",
    ]
    assert "- **serving**: regression (target's failure). " in text
    assert "- **identity of previous**: reference-identity (input's failure). " in text
    assert "## What to do\n\nDo not advance the pin to the oracle.\n" in text


def test_a_verdict_that_holds_has_nothing_against_it_and_nothing_open(verdict: dict[str, Any]) -> None:
    text = page.of(verdict)
    assert headings(text)[1] == "## What to do"
    assert "\nThe pin may advance to the oracle.\n" in text


def test_what_would_decide_it_stays_in_its_item_whatever_its_lines(verdict: dict[str, Any]) -> None:
    cause = {
        "subject": "serving",
        "reason": "env-failed",
        "owner": "environment",
        "needs": "uv ended:\n# no heading",
    }
    text = page.of({**verdict, "open": [cause]})
    assert "- **serving**: env-failed (environment's failure). uv ended:\n  # no heading\n" in text


# -- rows ----------------------------------------------------------------------------------------


def test_rows_that_did_not_pass_come_before_those_that_did(tmp_path: Path) -> None:
    rows = [{**ROW, "id": name} for name in ("a", "b", "c")]
    results = measured(tmp_path, {"rows": rows})
    results.series("b", failure=Refusal(Reason.LEASE_LOST, "gone").as_record()).decide("b")
    assert [line for line in headings(page.of(results.verdict())) if line.startswith("### ")][:3] == [
        "### b: FAILED",
        "### a: PASS",
        "### c: PASS",
    ]


def test_every_metric_of_every_cell_is_a_line_with_both_arms_and_the_claim(verdict: dict[str, Any]) -> None:
    heads, throughput, latency = table(page.of(verdict), "A/A sd")
    assert heads == [
        *("cell", "metric", "oracle", "previous", "baseline", "measured"),
        *("interval", "tolerance", "A/A sd", "reps", "outcome"),
    ]
    assert throughput[:6] == ["c1", "output throughput (tok/s)", "100", "100", "1.000", "1.000"]
    assert latency[:4] == ["c1", "median TPOT (ms)", "10", "10"]
    assert throughput[7:] == ["10 %", "1.15 %", "3", "PASS"]
    assert re.fullmatch(r"0\.9\d\d to 1\.0\d\d", throughput[6])


def test_a_small_tolerance_is_not_rounded_away(verdict: dict[str, Any]) -> None:
    verdict["rows"]["serving"]["decision"]["first"]["metrics"][0]["metric"]["tolerance"] = 0.0025
    assert table(page.of(verdict), "A/A sd")[1][7] == "0.25 %"


def test_what_was_not_measured_is_printed_as_unknown(tmp_path: Path) -> None:
    results = Results(tmp_path).identities().surroundings().plan()
    results.series(failure=Refusal(Reason.SERVER_TIMEOUT, "not ready").as_record()).decide()
    text = page.of(results.verdict())
    assert table(text, "A/A sd")[1][2:] == [
        *("unknown", "unknown", "1.000", "unknown", "unknown"),
        *("10 %", "unknown", "0", "INCONCLUSIVE (not-measured)"),
    ]
    assert "The last attempt failed: not ready [server-timeout]" in text


def test_a_row_says_what_its_reps_show_in_plain_language(verdict: dict[str, Any]) -> None:
    assert "- c1, median TPOT: all 3 of 3 reps inside the margin: shows the median inside at 12.5 %" in page.of(verdict)


def test_a_changed_plan_is_shown_with_both_digests(tmp_path: Path) -> None:
    results = measured(tmp_path)
    results.state({"rows[0].metrics[0].tolerance": 0.2})
    verdict = results.decide().verdict()
    plan = verdict["rows"]["serving"]["plan"]
    assert (
        "**The plan was changed after the data.** "
        f"Measured under {plan['measured_under']}, decided under {plan['decided_under']}."
    ) in page.of(verdict)


def test_a_plan_that_was_kept_to_is_not_mentioned(verdict: dict[str, Any]) -> None:
    assert "changed after the data" not in page.of(verdict)


def test_legs_that_did_not_count_are_listed_with_their_reasons(tmp_path: Path) -> None:
    results = measured(tmp_path)
    add_leg(results.book(), LegId(FIRST, "rep", "c1", 3, 0, "oracle"), valid=False)
    text = page.of(results.series().decide().verdict())
    assert (
        "Of 15 legs these did not count:\n\n- series 1, rep 4, c1, oracle: 1 prompt token came from the cache" in text
    )
    assert "[prefix-hits]" in text


# -- identity and surroundings -------------------------------------------------------------------


def test_every_arm_shows_field_by_field_what_was_declared_and_read(verdict: dict[str, Any]) -> None:
    text = page.of(verdict)
    assert f"### oracle: PASS (mode index, engine {verdict['arms']['oracle']['engine']})" in headings(text)
    fields = {line[0]: line[1:5] for line in table(text, "declared")}
    assert fields["vllm_runtime_version"] == ["1.1", "1.1", "api of vllm_runtime_version", "equal"]
    assert fields["vllm_commit"] == ["-", "unknown", "-", "undeclared"]


def test_facts_of_the_device_that_are_not_known_are_printed_as_unknown(verdict: dict[str, Any]) -> None:
    assert ["microcode", "unknown"] in table(page.of(verdict), "device")


def test_parameters_that_are_not_known_are_printed_as_unknown(verdict: dict[str, Any]) -> None:
    assert table(page.of(verdict), "parameters")[1][2] == "1,234"
    verdict["checkpoints"]["tiny"]["parameters"] = None
    assert table(page.of(verdict), "parameters")[1][2] == "unknown"


def test_every_record_is_named_with_its_digest(verdict: dict[str, Any]) -> None:
    lines = table(page.of(verdict), "content digest")[1:]
    assert dict(lines) == verdict["inputs"]


# -- Markdown ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a|b", "a\nb", "|", "a \\| b", "| --- |\n| x |"])
def test_no_text_of_a_record_breaks_a_table(verdict: dict[str, Any], text: str) -> None:
    verdict["arms"]["oracle"]["gate"]["rows"][1].update(measured=text, text=text, api=text)
    verdict["arms"]["oracle"]["environment"]["torch_version"] = text
    verdict["device"]["identity"]["name"] = text
    found = tables(page.of(verdict))
    assert len(found) == 7
    assert ["name", markdown.cell(text)] in table(page.of(verdict), "device")


def test_a_page_has_no_empty_part_and_ends_with_a_line(verdict: dict[str, Any]) -> None:
    text = page.of(verdict)
    assert "\n\n\n" not in text
    assert text.endswith("|\n")


def test_a_page_is_the_same_when_it_is_made_again(verdict: dict[str, Any]) -> None:
    assert page.of(verdict) == page.of(json.loads(json.dumps(verdict, sort_keys=True)))
