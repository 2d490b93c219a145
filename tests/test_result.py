"""The result of a row: what its legs say, under the plan that the case states now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builders import Results, add_leg, edit, measured, put, refusal_of

from pinproof import plan, records, result
from pinproof.legbook import FIRST, SECOND, LegId
from pinproof.reasons import Reason, Refusal

WIDER = {"rows[0].metrics[0].tolerance": 0.2}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """A row of one series that passes."""
    return measured(tmp_path)


def body(results: Results) -> dict[str, Any]:
    return result.of(results.places, "serving")


def damaged(results: Results) -> Refusal:
    return refusal_of(result.of, results.places, "serving")


def test_a_row_that_is_shown_to_be_inside_passes(results: Results) -> None:
    found = body(results)
    assert (found["outcome"], found["failure"]) == ("pass", None)
    assert found["question"] == ("Is oracle the same as previous, within the tolerance, in every cell and metric?")


def test_a_row_for_which_only_worse_counts_asks_so(tmp_path: Path) -> None:
    found = body(measured(tmp_path, {"rows[0].direction": "no-worse"}))
    assert found["question"].startswith("Is oracle not worse than previous, ")


def test_a_row_that_is_shown_to_be_outside_is_red(tmp_path: Path) -> None:
    assert body(measured(tmp_path, better=0.5))["outcome"] == "red"


def test_a_row_that_is_not_measured_to_the_end_is_no_pass(tmp_path: Path) -> None:
    results = Results(tmp_path).identities().plan().noise().reps(count=2).series()
    assert body(results)["outcome"] == "inconclusive"


def test_a_result_is_the_same_when_it_is_made_again(results: Results) -> None:
    assert records.canonical(body(results)) == records.canonical(body(results))


def test_the_absolutes_are_medians_of_the_reps_by_arm_with_their_unit(results: Results) -> None:
    assert body(results)["absolutes"]["c1"]["output_throughput"] == {
        "unit": "tok/s",
        "oracle": 100.0,
        "previous": 100.0,
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda leg: leg["metrics"].update(output_throughput=4000.0),
        lambda leg: leg["asked"].update(prompts=1),
        lambda leg: leg.update(valid=False),
        lambda leg: leg.pop("counters"),
    ],
    ids=["metrics", "asked", "valid", "a key"],
)
def test_a_leg_that_says_something_else_than_its_client_s_output_is_found(results: Results, change) -> None:
    path = results.book().path(LegId(FIRST, "rep", "c1", 0, 0, _first(results)), ".json")
    edit(path, change)
    refusal = refusal_of(lambda: body(results.series()))
    assert (refusal.reason, refusal.file) == (Reason.RECORD_DAMAGED, str(path))


def test_the_ratio_of_every_rep_is_kept_by_series(tmp_path: Path) -> None:
    results = measured(tmp_path, better=0.5).reps(better=0.25, series=SECOND).series()
    found = body(results)["reps"]["c1"]
    assert found["1"]["output_throughput"] == pytest.approx([0.499, 0.5, 0.501])
    assert found["2"]["output_throughput"] == pytest.approx([0.2495, 0.25, 0.2505])


# -- the plan ------------------------------------------------------------------------------------


def test_a_plan_that_was_kept_to_is_not_called_changed(results: Results) -> None:
    found = body(results)["plan"]
    assert found["measured_under"] == found["decided_under"]
    assert found["changed_after_data"] is False


def test_a_plan_changed_after_the_data_is_said_with_both_digests(results: Results) -> None:
    before = body(results)["plan"]["decided_under"]
    results.state(WIDER)
    place = results.places.row("serving")
    assert body(results)["plan"] == {
        "measured_under": before,
        "decided_under": plan.digest(results.places.case, place),
        "changed_after_data": True,
    }
    assert before != plan.digest(results.places.case, place)


def test_a_changed_plan_decides_anew_without_a_leg(tmp_path: Path) -> None:
    results = measured(tmp_path, better=0.85)
    assert body(results)["outcome"] == "red"
    results.state({"rows[0].metrics[0].tolerance": 0.5, "rows[0].metrics[1].tolerance": 0.5})
    found = body(results)
    assert (found["outcome"], found["plan"]["changed_after_data"]) == ("pass", True)


def test_an_attempt_that_failed_before_its_plan_does_not_know_whether_it_changed(tmp_path: Path) -> None:
    found = body(Results(tmp_path).identities().series(failure=Refusal(Reason.LEASE_LOST, "gone").as_record()))
    assert found["plan"]["measured_under"] is None
    assert found["plan"]["changed_after_data"] is None


# -- failures and invalid legs -------------------------------------------------------------------


def test_a_failed_row_says_why_and_keeps_what_was_measured(results: Results) -> None:
    failure = Refusal(Reason.SERVER_EXITED, "exit status 1", file="server.log").as_record()
    found = body(results.series(failure=failure))
    assert (found["outcome"], found["failure"]) == ("failed", failure)
    assert found["legs"]["count"] == 14
    assert found["decision"]["outcome"] == "pass"


def test_legs_that_do_not_count_are_kept_with_their_reasons(results: Results) -> None:
    which = LegId(FIRST, "rep", "c1", 3, 0, "oracle")
    add_leg(results.book(), which, valid=False)
    found = body(results.series())["legs"]
    assert found["count"] == 15
    assert [one["id"] for one in found["invalid"]] == [which.as_record()]
    assert found["invalid"][0]["objections"][0]["reason"] == "prefix-hits"


def test_the_versions_that_the_legs_were_taken_with_are_named_by_arm(results: Results) -> None:
    version = records.read(results.places.engine("oracle").version, "version")
    assert body(results)["measured"]["versions"]["oracle"] == [records.content_digest(version)]


# -- what was touched ----------------------------------------------------------------------------


def _first(results: Results) -> str:
    return plan.order(results.places.case, results.places.case.rows[0], 0)[0]


def _a_leg(results: Results, ending: str = ".json") -> Path:
    return results.book().path(LegId(FIRST, "rep", "c1", 0, 0, _first(results)), ending)


def test_a_leg_that_was_changed_is_found(results: Results) -> None:
    edit(_a_leg(results), lambda leg: leg["metrics"].update(median_tpot=1.0))
    assert damaged(results).reason is Reason.RECORD_DAMAGED


def test_a_leg_that_was_taken_away_is_found(results: Results) -> None:
    _a_leg(results).unlink()
    assert damaged(results).message == "the legs are not those that the series names"


def test_a_leg_that_was_put_in_is_found(results: Results) -> None:
    add_leg(results.book(), LegId(FIRST, "rep", "c1", 7, 0, "oracle"))
    assert damaged(results).reason is Reason.RECORD_DAMAGED


def test_a_client_s_output_that_was_changed_is_found(results: Results) -> None:
    edit(_a_leg(results, ".raw.json"), lambda raw: raw.update(output_throughput=1.0))
    assert damaged(results).reason is Reason.RECORD_DAMAGED
    assert damaged(results).file == str(_a_leg(results, ".raw.json"))


def test_a_client_s_output_that_was_taken_away_is_found(results: Results) -> None:
    _a_leg(results, ".raw.json").unlink()
    assert damaged(results).reason is Reason.RECORD_MISSING


def test_what_varies_without_meaning_may_change(results: Results) -> None:
    before = body(results)
    edit(_a_leg(results), lambda leg: leg["provenance"].update(seconds=99))
    assert body(results) == before


def test_without_a_series_there_is_no_result(results: Results) -> None:
    results.places.row("serving").series.unlink()
    assert damaged(results).reason is Reason.RECORD_MISSING


def test_a_record_of_another_stage_is_not_taken_for_a_series(results: Results) -> None:
    put(results.places.row("serving").series, "noise", {})
    assert damaged(results).reason is Reason.RECORD_FOREIGN
