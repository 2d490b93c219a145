"""Outcomes of a warm-up row: seconds, shares, and the hard gate on what became of its callables."""

from __future__ import annotations

from typing import Any

import pytest
from tests.test_claims import parsed

from pinproof import outcomes
from pinproof.claims import Warmup
from pinproof.reasons import Reason

ROW = parsed(("warmup.change", {"tolerance_points": 5.0})).row("warmup")


def span(outcome: str, *intervals: tuple[float, float], **more: Any) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "intervals": [list(one) for one in intervals],
        "seconds": sum(end - begin for begin, end in intervals),
        "summed_calls": 0,
        "exception": None,
        "why": "said so",
        **more,
    }


def life(arm: str, spans: dict[str, Any] | None, start: float | None = 50.0) -> dict[str, Any]:
    return {"id": {"arm": arm}, "marks": {"first_health_200": start}, "spans": spans}


def gate(row: Warmup, *lives: dict[str, Any], arm: str = "oracle") -> outcomes.Gate:
    return next(one for one in outcomes.gates(row, outcomes.table(row, lives)) if one.arm == arm)


# -- the share -----------------------------------------------------------------------------------


def test_a_share_is_in_points_of_the_start() -> None:
    assert outcomes.share(life("oracle", {"load": span("succeeded", (10.0, 20.0))}), ["load"]) == 20.0


def test_calls_that_overlap_count_once_and_end_with_the_start() -> None:
    spans = {
        "load": span("succeeded", (10.0, 20.0), (12.0, 15.0)),  # two workers at once
        "warm-up": span("succeeded", (18.0, 25.0), (45.0, 60.0)),
    }
    assert outcomes.share(life("oracle", spans), ["load", "warm-up"]) == 2 * (25 - 10 + 50 - 45)


@pytest.mark.parametrize("outcome", ["skipped", "absent"])
def test_what_did_not_run_took_no_time(outcome: str) -> None:
    assert outcomes.share(life("oracle", {"load": span(outcome)}), ["load"]) == 0.0


@pytest.mark.parametrize(
    "record",
    [
        life("oracle", None),
        life("oracle", {}),
        life("oracle", {"load": span("unknown")}),
        life("oracle", {"load": span("succeeded", (1.0, 2.0), summed_calls=3)}),
        life("oracle", {"load": span("succeeded", (1.0, 2.0))}, start=None),
    ],
    ids=["not watched", "not named", "unknown", "some calls only summed up", "never ready"],
)
def test_a_share_that_is_not_known_is_unknown(record: dict[str, Any]) -> None:
    assert outcomes.share(record, ["load"]) is None


# -- the hard gate -------------------------------------------------------------------------------


def test_a_callable_that_succeeded_in_every_life_passes() -> None:
    lives = [life("oracle", {"load": span("succeeded", (1.0, 2.0))})] * 3
    found = gate(ROW, *lives)
    assert (found.passed, found.reason, found.text) == (True, None, "succeeded in 3")


@pytest.mark.parametrize(
    ("told", "passed", "reason"),
    [
        (["failed", "failed"], False, Reason.WARMUP_FAILED),
        (["failed"], None, Reason.WARMUP_UNCONFIRMED),
        (["failed", "failed", "succeeded"], None, Reason.WARMUP_UNCONFIRMED),
        (["skipped", "skipped"], None, Reason.WARMUP_DID_NOT_RUN),
        (["absent", "absent"], None, Reason.WARMUP_DID_NOT_RUN),
        (["succeeded", "skipped"], None, Reason.WARMUP_DID_NOT_RUN),
        (["succeeded", "unknown"], None, Reason.WARMUP_UNKNOWN),
        (["absent", "unknown"], None, Reason.WARMUP_UNKNOWN),
        ([], None, Reason.WARMUP_UNKNOWN),
    ],
)
def test_only_a_failure_that_recurs_and_never_went_well_fails(
    told: list[str], passed: bool | None, reason: Reason
) -> None:
    found = gate(ROW, *(life("oracle", {"load": span(outcome)}) for outcome in told))
    assert (found.passed, found.reason) == (passed, reason)


def test_a_failure_of_the_other_arm_is_a_wrong_input() -> None:
    lives = [life("previous", {"load": span("failed", exception="RuntimeError: no")})] * 2
    found = gate(ROW, *lives, arm="previous")
    assert (found.passed, found.reason) == (False, Reason.REFERENCE_FAILED)
    assert found.text == "failed in 2: RuntimeError: no"


def test_an_arm_that_the_row_does_not_judge_has_no_gate_and_is_still_told() -> None:
    row = parsed(("warmup.arms", ["oracle"])).row("warmup")
    table = outcomes.table(row, [life("previous", None)])
    assert [one.arm for one in outcomes.gates(row, table)] == ["oracle"]
    assert table["previous"]["load"]["lives"] == {"unknown": 1}
