"""The closed list of reasons, and how a refusal is told."""

import re

import pytest

from pinproof.reasons import Owner, Reason, Refusal


@pytest.mark.parametrize("reason", list(Reason), ids=lambda reason: reason.name)
def test_a_reason_has_a_code_like_its_name_an_owner_and_a_remedy(reason: Reason) -> None:
    assert reason.code == reason.name.lower().replace("_", "-")
    assert isinstance(reason.owner, Owner)
    assert re.fullmatch(r"\S.*[^\s.]", reason.remedy)


def test_every_code_is_used_once() -> None:
    assert len({reason.code for reason in Reason}) == len(list(Reason))


def test_a_code_leads_back_to_its_reason() -> None:
    assert all(Reason.from_code(reason.code) is reason for reason in Reason)
    with pytest.raises(KeyError):
        Reason.from_code("no-such-reason")


def test_a_regression_and_an_identity_are_the_target_s_the_rest_of_the_decision_is_not() -> None:
    assert Reason.REGRESSION.owner is Reason.IDENTITY_MISMATCH.owner is Owner.TARGET
    undecided = (Reason.NOISE, Reason.INFEASIBLE, Reason.SERIES_EFFECT, Reason.INVALID_REPS, Reason.UNCONFIRMED_RED)
    assert Owner.TARGET not in {reason.owner for reason in (*undecided, Reason.NOT_MEASURED, Reason.REFERENCE_IDENTITY)}


def test_a_refusal_says_file_key_message_and_remedy() -> None:
    refusal = Refusal(Reason.CASE_INVALID, "this key is required", file="case.yaml", key="rows[0].id")
    assert str(refusal) == (
        "case.yaml: rows[0].id: this key is required\n  remedy: correct the key in that file  [case-invalid, input]"
    )


def test_a_refusal_without_a_place_begins_with_its_message() -> None:
    assert str(Refusal(Reason.SURVIVORS, "pid 7")).startswith("pid 7\n  remedy: ")


def test_a_refusal_is_kept_as_json_values() -> None:
    assert Refusal(Reason.SURVIVORS, "pid 7", file="x").as_record() == {
        "reason": "survivors",
        "owner": "environment",
        "message": "pid 7",
        "file": "x",
        "key": None,
        "remedy": Reason.SURVIVORS.remedy,
    }
