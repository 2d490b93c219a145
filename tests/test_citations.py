"""Citations: there, moved, ambiguous or gone, whatever the pages are; and what a record lacks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.builders import FILE, case_value, measured, refusal_of, small_case

from pinproof import case, citations, pin
from pinproof.citations import LARGEST, State
from pinproof.pin import Pin
from pinproof.reasons import Reason

PAGE = """# Serving

| Axis | c1 | c4 |
|---|---|---|
| **decode TPOT** | **0.976x** | - | **0.946x** |
| tput / TTFT | 0.973x / 0.944x | 0.958x / 0.982x |
| Another | 0.946x | 10.976x |
"""
QUOTE = "0.976x | - | 0.946x"
PIN = Pin("5559679229" + "0" * 30, "0.23.1", "0.23.1", "0.6.15")


def published(**changes: Any) -> dict[str, Any]:
    """The record behind the row's baselines, with nothing to say against it."""
    cited = [{"file": "docs/serving.md", "line": 5, "quote": QUOTE}]
    absolutes = [
        {"cell": "c1", "metric": "median_tpot", "unit": "ms", "numerator": 97.6, "denominator": 100.0},
    ]
    known = {"pin": "5559679229", "device": "NVIDIA GB10", "date": "2026-08", "cited": cited, "absolutes": absolutes}
    return {**known, **changes}


def with_record(record: dict[str, Any] | None, root: Path | None = None, **changes: Any) -> case.Case:
    metric = {"name": "median_tpot", "tolerance": 0.1, "baseline": 0.976, "baseline_reps": 3}
    device = {"kind": "cpu", "name": "NVIDIA GB10"}
    value = {"rows[0].metrics": [metric], "rows[0].published": record, "device": device, **changes}
    return small_case({**value, "pages": None if root is None else str(root)})


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "serving.md").write_text(PAGE, encoding="utf-8")
    return tmp_path


def checked(pages: Path | None, line: int = 5, quote: str = QUOTE, file: str = "docs/serving.md") -> tuple[State, Any]:
    stated = with_record(published(cited=[{"file": file, "line": line, "quote": quote}]), pages)
    (found,) = citations.check(stated, Path("/"))
    return found.state, found.text


# -- where a quote is ----------------------------------------------------------------------------


def test_a_quote_on_its_line_is_there_whatever_emphasis_and_blanks_surround_it(pages: Path) -> None:
    assert checked(pages) == (State.THERE, "")
    assert checked(pages, quote="decode  `TPOT`")[0] is State.THERE


def test_a_quote_on_one_other_line_has_moved_and_the_line_is_named(pages: Path) -> None:
    assert checked(pages, line=66) == (State.MOVED, "now on line 5")


def test_a_quote_that_is_on_several_other_lines_is_ambiguous(pages: Path) -> None:
    assert checked(pages, line=66, quote="0.946x") == (State.AMBIGUOUS, "not on its line, but on lines 5, 7")


def test_a_quote_on_no_line_is_gone(pages: Path) -> None:
    assert checked(pages, quote="0.977x") == (State.GONE, "no line of the page holds it")


@pytest.mark.parametrize("quote", ["0.976", "976x", "0.97", "0.946x | 10"])
def test_a_figure_is_found_as_a_whole_number_only(pages: Path, quote: str) -> None:
    (pages / "docs" / "serving.md").write_text("| 10.976 | 0.9761 | 0.946x | 10.976x |\n")
    assert checked(pages, quote=quote)[0] is State.GONE


def test_without_pages_nothing_is_known() -> None:
    assert checked(None) == (State.UNKNOWN, "the case names no folder of pages")


# -- pages of others -----------------------------------------------------------------------------


def test_a_page_that_is_not_there_or_is_no_file_is_gone(pages: Path) -> None:
    assert checked(pages, file="docs/none.md") == (State.GONE, "there is no such page")
    assert checked(pages, file="docs") == (State.GONE, "there is no such page")
    os.mkfifo(pages / "docs" / "pipe")
    assert checked(pages, file="docs/pipe") == (State.GONE, "there is no such page")
    assert checked(pages, file="docs/\0")[0] is State.GONE
    assert checked(pages, file="x" * 300)[0] is State.GONE


def test_a_link_out_of_the_folder_is_not_followed(pages: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "page.md"
    outside.write_text(PAGE)
    (pages / "docs" / "link.md").symlink_to(outside)
    assert checked(pages, file="docs/link.md") == (
        State.GONE,
        "the page is a link that leads out of the folder of pages",
    )
    (pages / "docs" / "loop.md").symlink_to("loop.md")
    assert checked(pages, file="docs/loop.md")[0] is State.GONE


def test_bytes_that_are_no_text_and_line_ends_of_other_systems_are_read(pages: Path) -> None:
    file = pages / "docs" / "serving.md"
    file.write_bytes(b"\xff\xfe\x00\r\n" + PAGE.replace("\n", "\r\n").encode() + b"\x0c\x00")
    assert checked(pages, line=6) == (State.THERE, "")


def test_a_page_larger_than_any_is_not_read(pages: Path) -> None:
    with (pages / "docs" / "serving.md").open("r+b") as stream:
        stream.truncate(LARGEST + 1)
    assert checked(pages) == (State.GONE, f"the page is too large to be one ({LARGEST + 1} bytes)")


@pytest.mark.parametrize("file", ["../page.md", "/etc/passwd", "docs/../../page.md"])
def test_a_citation_names_a_page_inside_the_folder(file: str) -> None:
    record = published(cited=[{"file": file, "line": 5, "quote": QUOTE}])
    refusal = refusal_of(case.parse, case_value({"rows[0].published": record}), FILE)
    assert refusal.key == "rows[0].published.cited[0].file"


# -- what a record lacks -------------------------------------------------------------------------


def said(record: dict[str, Any] | None, **changes: Any) -> list[str]:
    found = citations.remarks(with_record(record, **changes), PIN)
    assert {one.row for one in found} <= {"serving"}
    return [one.text for one in found]


def test_a_record_with_all_that_it_needs_is_not_remarked_on() -> None:
    assert said(published()) == []
    assert said(published(pin="0.23.1")) == []
    assert said(published(pin=PIN.vllm_commit)) == []


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"cited": []}, "no page is cited"),
        ({"absolutes": []}, "no absolutes are kept: a ratio that moves cannot be split by arm"),
        ({"pin": None}, "the pin that the baselines were measured at is not recorded"),
        ({"pin": "0.25.0"}, "the baselines were measured at 0.25.0, not at the pin 5559679229"),
        ({"pin": "555967"}, "the baselines were measured at 555967, not at the pin 5559679229"),
        ({"device": None}, "the device of the baselines is not recorded"),
        ({"device": "Thor"}, "the baselines were measured on Thor, the case is about NVIDIA GB10"),
        ({"date": None}, "the date of the baselines is not recorded"),
        ({"remarks": ["two meanings of ready"]}, "two meanings of ready"),
    ],
)
def test_what_a_record_lacks_is_said(changes: dict[str, Any], remark: str) -> None:
    assert remark in said(published(**changes))


def test_a_figure_that_no_citation_holds_is_said() -> None:
    cited = [{"file": "docs/serving.md", "line": 5, "quote": "0.966x"}]
    assert said(published(cited=cited, absolutes=[]))[0] == "no citation holds the figure 0.976 (c1, median_tpot)"


def test_a_ratio_that_published_absolutes_give_is_held_by_them() -> None:
    assert said(published(cited=[])) == ["no page is cited"]


def test_an_absolute_without_a_unit_is_said() -> None:
    absolute = {**published()["absolutes"][0], "unit": None}
    assert said(published(absolutes=[absolute])) == ["no unit is published for c1, median_tpot: 97.6 and 100"]


def test_a_ratio_inside_the_tie_band_is_said() -> None:
    metric = {"name": "median_tpot", "tolerance": 0.1, "baseline": 1.003, "baseline_reps": 3}
    cited = [{"file": "docs/serving.md", "line": 5, "quote": "1.003x"}]
    found = said(published(cited=cited), **{"rows[0].metrics": [metric], "tie_band": 0.005})
    assert found == ["1.003 (c1, median_tpot) lies inside what is called a tie (0.5 %)"]


def test_baselines_that_nobody_cites_are_said() -> None:
    assert said(None) == ["its baselines are not cited: nothing says where they come from"]


def test_a_case_with_nothing_published_has_nothing_to_check() -> None:
    assert not citations.wanted(small_case())
    assert citations.remarks(small_case(), None) == []


def test_a_figure_of_one_cell_is_gated_in_that_cell_alone() -> None:
    metric = {"name": "median_tpot", "tolerance": 0.1, "baselines": {"c4": 0.946}, "baseline_reps": 3}
    cells = [{"concurrency": 1, "prompts": 2}, {"concurrency": 4, "prompts": 4}]
    stated = with_record(published(), **{"rows[0].metrics": [metric], "rows[0].cells": cells})
    assert citations.baselines_of(stated.rows[0]) == {("c4", "median_tpot"): 0.946}


def test_numbers_are_read_as_people_write_them() -> None:
    assert citations.numbers("**5.46x** of 5,559 at v1.2.3, c4: 1e3 and -") == [5.46, 5559.0, 1000.0]


# -- before anything is measured -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "quote", "state", "reason"),
    [(5, QUOTE, "ready", None), (66, QUOTE, "unknown", None), (5, "0.977x", "blocks", Reason.CITATION_GONE)],
)
def test_a_preflight_tells_where_every_citation_is(
    pages: Path, line: int, quote: str, state: str, reason: Reason | None
) -> None:
    stated = with_record(published(cited=[{"file": "docs/serving.md", "line": line, "quote": quote}]), pages)
    (found, *_) = citations.foreseen(stated, Path("/"), PIN)
    assert (found[0], found[1], found[3]) == ("row serving, citation", state, reason)
    assert f"docs/serving.md:{line}, '{quote}': " in found[2]


def test_a_preflight_tells_what_a_record_lacks(pages: Path) -> None:
    found = list(citations.foreseen(with_record(published(absolutes=[]), pages), Path("/"), PIN))
    text = "no absolutes are kept: a ratio that moves cannot be split by arm"
    assert ("row serving, baseline", "unknown", text, None) in found


# -- the verdict ---------------------------------------------------------------------------------


def judged(root: Path, line: int, quote: str = QUOTE) -> dict[str, Any]:
    metric = {"name": "median_tpot", "tolerance": 0.1, "baseline": 1.0, "baseline_reps": 3}
    record = published(cited=[{"file": "docs/serving.md", "line": line, "quote": quote}], device="a CPU")
    return measured(root, {"pages": str(root), "rows[0].metrics": [metric], "rows[0].published": record}).verdict()


def test_a_citation_that_moved_is_told_and_the_row_stands(pages: Path) -> None:
    verdict = judged(pages, line=66)
    assert (verdict["verdict"], verdict["open"]) == ("HOLD", [])
    (found,) = verdict["baselines"]["serving"]["citations"]
    assert (found["state"], found["found"]) == ("moved", [5])


def test_a_row_whose_baseline_is_gone_is_not_judged_by_it(pages: Path) -> None:
    verdict = judged(pages, line=5, quote="0.977x")
    assert verdict["verdict"] == "UNDECIDED"
    (cause,) = verdict["open"]
    assert (cause["subject"], cause["reason"], cause["owner"]) == ("serving", "citation-gone", "input")
    assert "docs/serving.md:5, '0.977x': no line of the page holds it" in cause["needs"]


def test_the_pin_that_baselines_are_of_is_read_from_its_block(tmp_path: Path) -> None:
    block = pin.parse_pin(f"```parity-pin\nvllm_commit = {PIN.vllm_commit}\nvllm_runtime_version = 0.23.1\n"
                          "vllm_distribution_version = 0.23.1\n```\n")  # fmt: skip
    assert citations.body(with_record(published(), tmp_path), tmp_path, block)["remarks"] == []
