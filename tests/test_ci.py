"""What a CI gets of a verdict: JUnit XML, a comment of limited size, a status."""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from tests.builders import measured

from pinproof import ci

CAUSE = {"subject": "serving", "reason": "regression", "owner": "target", "needs": "the next pin"}
OPEN = {"subject": "identity of oracle", "reason": "identity-differs", "owner": "input", "needs": "a < b & \x1b c"}


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measured(tmp_path_factory.mktemp("held")).verdict()


def cases(text: str) -> dict[str, list[str]]:
    """What each test case of a report says: failure, error."""
    root = ET.fromstring(text)
    return {
        case.get("name"): [child.tag for child in case if child.tag != "system-out"] for case in root.iter("testcase")
    }


def counts(text: str) -> dict[str, str]:
    return {name: value for name, value in ET.fromstring(text).attrib.items() if name != "name"}


def test_a_status_for_every_verdict() -> None:
    assert ci.STATUS == {"HOLD": 0, "REVERT": 10, "UNDECIDED": 20}


def test_a_status_of_an_earlier_call_is_not_asked_for_now(tmp_path: Path) -> None:
    file = tmp_path / "gate.status"
    assert ci.asked_for(file, 0) == 0
    file.write_text("10\n")
    begun = file.stat().st_mtime
    assert (ci.asked_for(file, begun), ci.asked_for(file, begun + 1)) == (10, 0)


def test_one_test_case_a_gate_and_a_row(held: dict[str, Any]) -> None:
    text = ci.junit(held)
    assert cases(text) == {"identity of oracle": [], "identity of previous": [], "serving": []}
    assert counts(text) == {"tests": "3", "failures": "0", "errors": "0", "skipped": "0"}


def test_gates_of_warm_ups_and_discharges_are_test_cases(held: dict[str, Any]) -> None:
    verdict = copy.deepcopy(held)
    gate = {"arm": "oracle", "callable": "warm_up", "passed": True, "reason": None, "text": ""}
    verdict["rows"]["serving"]["warmup"] = {"outcomes": {}, "gates": [gate]}
    verdict["discharges"] = [{"id": "floor"}]
    assert {"discharge floor", "serving: warm_up of oracle"} < cases(ci.junit(verdict)).keys()


def test_what_speaks_against_the_pin_is_a_failure_and_what_is_open_an_error(held: dict[str, Any]) -> None:
    verdict = {**held, "against": [CAUSE], "open": [OPEN, {**OPEN, "subject": "pin"}]}
    text = ci.junit(verdict)
    assert cases(text) == {
        "identity of oracle": ["error"],
        "identity of previous": [],
        "pin": ["error"],
        "serving": ["failure"],
    }
    assert counts(text) == {"tests": "4", "failures": "1", "errors": "2", "skipped": "0"}
    (failure,) = ET.fromstring(text).iter("failure")
    assert (failure.get("type"), failure.text) == ("regression", "the next pin")
    assert [error.text for error in ET.fromstring(text).iter("error")] == ["a < b & ? c"] * 2


def test_a_comment_says_the_answer_why_and_the_rows(held: dict[str, Any]) -> None:
    text = ci.comment({**held, "verdict": "REVERT", "against": [CAUSE]})
    lines = text.splitlines()
    assert lines[0] == "## REVERT: Does the advance 1.0 -> 1.1 hold?"
    assert lines[2] == "1 row: 1 PASS."
    assert "- **serving**: regression (target's failure). the next pin" in lines
    assert [line for line in lines if line.startswith("| serving")]


@pytest.mark.parametrize("causes", [0, 1, 2000])
@pytest.mark.parametrize("rows", [1, 1000])
def test_a_comment_is_never_longer_than_a_forge_takes(held: dict[str, Any], causes: int, rows: int) -> None:
    row = held["rows"]["serving"]
    names = [f"row-{number:04d}" for number in range(rows)]
    many = {name: {**row, "row": name, "outcome": "red" if name == names[-1] else "pass"} for name in names}
    text = ci.comment({**held, "rows": many, "against": [CAUSE] * causes})
    assert len(text) <= ci.COMMENT
    shown = [line.split()[1] for line in text.splitlines() if line.startswith("| row-")]
    assert shown[0] == names[-1]
    left = rows - len(shown)
    assert (f"… and {left} more rows" in text) == (left > 0)
    assert ("more causes" in text) == (causes == 2000)


def test_a_question_that_is_too_long_is_cut(held: dict[str, Any]) -> None:
    assert len(ci.comment({**held, "question": "why " * 20_000})) <= ci.COMMENT
