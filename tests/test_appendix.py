"""The page's parts about what was published, argued away, and left out."""

from __future__ import annotations

from typing import Any

from pinproof import appendix

CITED = {"file": "docs/serving.md", "line": 66, "quote": "0.976x"}
RECORD = {
    "pin": "0.25.0",
    "device": None,
    "date": None,
    "cited": [CITED],
    "absolutes": [
        {"cell": "c1", "what": "prose", "metric": "median_tpot", "unit": None, "numerator": 66.2, "denominator": 69.1}
    ],
    "beside": [{"what": "c4 mean TTFT", "figure": "0.849x", "why": "medians are gated"}],
}
FOUND = {"row": "C1a", **CITED, "state": "moved", "found": [81], "text": "now on line 81"}
WITNESS = {"subject": "transformers of oracle", "found": "5.9.0", "wanted": ">=5.10.4", "holds": False}


def page(**parts: Any) -> str:
    return "\n\n".join(appendix.of({"baselines": {}, "discharges": [], "not_owed": [], **parts}))


def baselines(record: dict[str, Any] | None = RECORD, **changes: Any) -> str:
    found = {"published": record, "citations": [FOUND], "remarks": ["no absolutes are kept"], **changes}
    return page(baselines={"C1a": found})


def test_a_case_that_names_none_of_it_has_no_such_part() -> None:
    assert page() == ""


def test_a_baseline_says_pin_device_and_date_or_that_they_are_not_recorded() -> None:
    (line,) = (line for line in baselines().splitlines() if line.startswith("| C1a") and "0.25.0" in line)
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        *("C1a", "0.25.0", "not recorded", "not recorded", "docs/serving.md:66")
    ]


def test_absolutes_stand_with_their_unit_or_that_there_is_none() -> None:
    (line,) = (line for line in baselines().splitlines() if "66.2" in line)
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        *("C1a", "c1, prose", "median TPOT", "66.2", "69.1", "not recorded")
    ]


def test_a_citation_that_is_not_where_it_was_is_named_with_its_new_line() -> None:
    assert "- C1a: docs/serving.md:66, '0.976x': MOVED, now on line 81" in baselines()
    there = {**FOUND, "state": "there"}
    assert "Citations that are not" not in baselines(citations=[there])


def test_remarks_and_what_is_not_gated_are_shown() -> None:
    assert "- C1a: no absolutes are kept" in baselines()
    assert "medians are gated" in baselines()


def test_baselines_without_a_record_say_so() -> None:
    assert "nowhere" in baselines(None)


def test_a_discharge_says_whether_it_holds_and_who_disagrees() -> None:
    found = {"id": "floor", "argument": "both floors are satisfied", "state": "fallen", "witnesses": [WITNESS]}
    text = page(discharges=[found])
    assert "**floor: FALLEN.** both floors are satisfied" in text
    (line,) = (line for line in text.splitlines() if "5.9.0" in line)
    assert line.rstrip("| ").endswith("disagrees")


def test_what_is_not_known_is_printed_as_unknown() -> None:
    unknown = {**WITNESS, "found": None, "holds": None}
    text = page(discharges=[{"id": "floor", "argument": "a", "state": "unknown", "witnesses": [unknown]}])
    assert text.splitlines()[-1].count("unknown") == 2


def test_what_is_not_owed_is_listed_so_that_silence_is_not_a_pass() -> None:
    text = page(not_owed=[{"what": "the token-exact gate", "why": "it is checked\nelsewhere"}])
    assert "says nothing about what follows" in text
    assert "- **the token-exact gate**: it is checked\n  elsewhere" in text
