"""The overview: one line a row, for a verdict of many rows."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.builders import measured

from pinproof import overview, page


@pytest.fixture(scope="module")
def verdict(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measured(tmp_path_factory.mktemp("held")).verdict()


def named(row: dict[str, Any], name: str, outcome: str = "pass") -> dict[str, Any]:
    return {**copy.deepcopy(row), "row": name, "outcome": outcome}


def test_failures_come_before_passes_the_worst_first(verdict: dict[str, Any]) -> None:
    row = verdict["rows"]["serving"]
    mixed = [named(row, "a"), named(row, "b", "inconclusive"), named(row, "c", "failed"), named(row, "d", "red")]
    assert [one["row"] for one in overview.ordered(mixed)] == ["d", "c", "b", "a"]
    assert overview.counts(mixed) == "4 rows: 1 RED, 1 FAILED, 1 INCONCLUSIVE, 1 PASS."


def test_a_line_tells_of_the_metric_that_is_furthest_from_its_baseline(verdict: dict[str, Any]) -> None:
    row = named(verdict["rows"]["serving"], "a")
    throughput, tpot = row["decision"]["first"]["metrics"]
    throughput["looks"][-1]["estimate"]["mean"], tpot["looks"][-1]["estimate"]["mean"] = 0.01, -0.02
    assert overview.line(row)[2] == "c1, median TPOT"
    throughput["outcome"] = "red"
    assert overview.line(row)[2] == "c1, output throughput"


def test_a_row_without_a_decision_has_a_line(verdict: dict[str, Any]) -> None:
    row = named(verdict["rows"]["serving"], "a", "failed") | {"decision": None, "failure": {"reason": "server-killed"}}
    assert overview.line(row) == ["a", "FAILED (server-killed)", *["-"] * 6]


def test_a_page_of_a_thousand_rows_begins_with_what_is_wrong_and_stays_short(verdict: dict[str, Any]) -> None:
    row = verdict["rows"]["serving"]
    names = {f"row-{number:04d}": "red" if number == 700 else "pass" for number in range(1000)}
    text = page.of({**verdict, "rows": {name: named(row, name, outcome) for name, outcome in names.items()}})
    lines = text.splitlines()
    assert "1000 rows: 1 RED, 999 PASS." in lines
    (red,) = [number for number, line in enumerate(lines) if line == "### row-0700: RED"]
    (passed,) = [number for number, line in enumerate(lines) if line == "### 999 rows: PASS"]
    assert red < passed < 100
    assert len([line for line in lines if line.startswith("| row-")]) == 999
    assert len(text) < 500_000  # more is not shown by a forge
