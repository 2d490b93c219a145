"""The verdict: a pure function of records, and nothing that was touched gets through it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders import Results, case_value, edit, measured, refusal_of

from pinproof import decision, records
from pinproof import verdict as verdicts
from pinproof.legbook import FIRST, SECOND, LegId
from pinproof.reasons import Reason, Refusal

TWO_ROWS = {"rows": [case_value()["rows"][0], {**case_value()["rows"][0], "id": "again"}]}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Everything is well."""
    return measured(tmp_path)


def confirmed(tmp_path: Path) -> Results:
    """A RED that recurred in a second series."""
    return measured(tmp_path, better=0.5).reps(better=0.5, series=SECOND).series().decide()


def open_causes(verdict: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(cause["subject"], cause["reason"], cause["owner"]) for cause in verdict["open"]]


def test_hold_when_every_identity_and_every_row_passes(results: Results) -> None:
    verdict = results.verdict()
    assert (verdict["verdict"], verdict["against"], verdict["open"]) == ("HOLD", [], [])


def test_the_verdict_says_whether_the_oracle_is_the_current_pin(results: Results) -> None:
    assert results.verdict()["advance"] == "candidate"
    results.state({"advance": "pinned"})
    assert results.verdict()["advance"] == "pinned"


# -- rows ----------------------------------------------------------------------------------------


def test_revert_when_a_row_is_a_confirmed_red(tmp_path: Path) -> None:
    verdict = confirmed(tmp_path).verdict()
    assert verdict["verdict"] == "REVERT"
    assert [(cause["subject"], cause["reason"]) for cause in verdict["against"]] == [("serving", "regression")]


def test_a_red_of_one_series_is_undecided(tmp_path: Path) -> None:
    verdict = measured(tmp_path, better=0.5).verdict()
    assert verdict["verdict"] == "UNDECIDED"
    assert open_causes(verdict) == [("serving", "unconfirmed-red", "environment")]


def test_a_row_that_is_not_measured_to_the_end_is_undecided(tmp_path: Path) -> None:
    results = Results(tmp_path).identities().surroundings().plan().noise().reps(count=2).series().decide()
    verdict = results.verdict()
    assert (verdict["verdict"], verdict["open"][0]["needs"]) == ("UNDECIDED", "reps up to 3")


@pytest.mark.parametrize("reason", [Reason.SERVER_EXITED, Reason.SERVER_FOREIGN, Reason.CLIENT_FAILED])
def test_a_failed_row_is_undecided_with_its_reason_even_if_the_engine_failed(tmp_path: Path, reason: Reason) -> None:
    failure = Refusal(reason, "it ended").as_record()
    verdict = measured(tmp_path).series(failure=failure).decide().verdict()
    assert verdict["verdict"] == "UNDECIDED"
    assert open_causes(verdict) == [("serving", reason.code, str(reason.owner))]
    assert verdict["open"][0]["needs"] == f"it ended; {reason.remedy}"


def test_a_row_measured_with_another_reading_of_an_engine_is_undecided(results: Results) -> None:
    results.identities(change=lambda version: version["distributions"]["value"].append(["more", "1"]))
    verdict = results.verdict()
    assert open_causes(verdict) == [("serving", "record-foreign", "instrument")]
    assert verdict["verdict"] == "UNDECIDED"


def test_a_row_measured_on_another_device_is_undecided(results: Results) -> None:
    other = {"name": "another CPU"}
    edit(results.places.device, lambda device: device.update(identity=other, digest=records.digest(other)))
    assert open_causes(results.verdict()) == [("serving", "device-other", "environment")]


def test_a_device_that_is_not_the_one_of_its_digest_is_damage(results: Results) -> None:
    edit(results.places.device, lambda device: device["identity"].update(name="another CPU"))
    assert refusal_of(results.verdict).reason is Reason.RECORD_DAMAGED


def test_one_row_that_does_not_pass_is_enough(tmp_path: Path) -> None:
    results = measured(tmp_path, TWO_ROWS)
    assert results.verdict()["verdict"] == "HOLD"
    results.series("again", failure=Refusal(Reason.LEASE_LOST, "gone").as_record()).decide("again")
    assert open_causes(results.verdict()) == [("again", "lease-lost", "environment")]


# -- identities ----------------------------------------------------------------------------------


def with_identities(root: Path, read: dict[str, str]) -> dict[str, Any]:
    """The verdict when these arms report another version than their pin declares."""
    results = Results(root).identities(read).surroundings()
    return results.plan().noise().reps().series().decide().verdict()


def test_revert_when_the_oracle_was_built_from_another_version_than_its_pin_declares() -> None:
    """Only a build can be another engine than its pin; the bytes of a released wheel are the case's own choice."""
    row = {"field": "vllm_runtime_version", "reason": "identity-mismatch"}
    gate = verdicts._identity_gate("oracle", {"outcome": "refused", "rows": [row]})
    pin = decision.decide_pin({}, [gate])
    assert (str(pin.verdict), pin.against[0].subject, str(pin.against[0].reason.owner)) == (
        "REVERT",
        "identity of oracle",
        "target",
    )


def test_a_released_wheel_that_contradicts_its_block_is_an_input_to_correct(tmp_path: Path) -> None:
    verdict = with_identities(tmp_path, {"oracle": "1.2"})
    assert (verdict["verdict"], verdict["against"]) == ("UNDECIDED", [])
    assert open_causes(verdict) == [("identity of oracle", "pin-disagrees", "input")]


def test_another_arm_that_is_not_what_its_pin_declares_never_speaks_against_the_pin(tmp_path: Path) -> None:
    verdict = with_identities(tmp_path, {"previous": "0.9"})
    assert (verdict["verdict"], verdict["against"]) == ("UNDECIDED", [])
    assert open_causes(verdict) == [("identity of previous", "reference-identity", "input")]


def test_a_difference_that_is_the_block_s_is_undecided(tmp_path: Path) -> None:
    """Same number, another flavour: our own build explains it."""
    verdict = with_identities(tmp_path, {"oracle": "1.1+cu130"})
    assert (verdict["verdict"], verdict["against"]) == ("UNDECIDED", [])
    assert open_causes(verdict) == [("identity of oracle", "pin-disagrees", "input")]


def test_an_identity_that_could_not_be_read_is_undecided(results: Results) -> None:
    unread = {"value": None, "api": "api", "error": "no such module"}
    results.identities(change=lambda version: version["fields"].update(vllm_runtime_version=unread))
    verdict = results.verdict()
    assert verdict["verdict"] == "UNDECIDED"
    assert ("identity of oracle", "identity-unknown", "instrument") in open_causes(verdict)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda version: version["module"].update(file="/elsewhere/vllm/__init__.py", equal=False), "import-foreign"),
        (lambda version: version["extensions"]["value"][0].update(size=None), "env-broken"),
        (lambda version: version["owners"]["value"].append({"name": "x", "version": "1", "place": "y"}), None),
    ],
    ids=["import", "environment", "owners"],
)
def test_another_version_that_our_installation_explains_does_not_speak_against_the_pin(
    tmp_path: Path, change: Callable[[dict], Any], reason: str | None
) -> None:
    results = Results(tmp_path).identities({"oracle": "1.2"}, change).surroundings()
    verdict = results.plan().noise().reps().series().decide().verdict()
    assert (verdict["verdict"], verdict["against"]) == ("UNDECIDED", [])
    assert verdict["open"][0]["reason"] == (reason or "identity-ambiguous")


def test_an_identity_fails_whatever_the_rows_say_and_both_are_told(tmp_path: Path) -> None:
    verdict = with_identities(tmp_path, {"oracle": "1.2", "previous": "0.9"})
    assert (verdict["verdict"], verdict["rows"]["serving"]["outcome"]) == ("UNDECIDED", "pass")
    assert open_causes(verdict) == [
        ("identity of oracle", "pin-disagrees", "input"),
        ("identity of previous", "reference-identity", "input"),
    ]


# -- the same records, the same bytes ------------------------------------------------------------


def test_a_verdict_is_the_same_to_the_byte_when_it_is_made_again(tmp_path: Path) -> None:
    for results in (measured(tmp_path / "pass"), confirmed(tmp_path / "red")):
        assert records.canonical(results.verdict()) == records.canonical(results.verdict())


def test_a_verdict_does_not_depend_on_the_order_of_rows_or_arms(tmp_path: Path) -> None:
    failure = Refusal(Reason.LEASE_LOST, "gone").as_record()
    results = measured(tmp_path, TWO_ROWS).identities({"oracle": "1.1+cu130", "previous": "0.9"})
    for row in ("serving", "again"):
        results.series(row, failure=failure).decide(row)
    one = results.verdict()
    assert len(one["open"]) == 4
    arms = case_value()["arms"]
    results.state({"rows": TWO_ROWS["rows"][::-1], "arms": {name: arms[name] for name in reversed(arms)}})
    assert records.canonical(results.verdict()) == records.canonical(one)


def test_what_varies_without_meaning_is_not_in_a_verdict(results: Results) -> None:
    before = records.canonical(results.verdict())
    for path in results.root.rglob("*.json"):
        if not path.name.endswith(".raw.json"):
            edit(path, lambda record: record.update(provenance={"pid": 99}))
    assert records.canonical(results.verdict()) == before
    assert "provenance" not in before


def test_a_verdict_names_every_record_it_was_made_from_by_digest(results: Results) -> None:
    places = results.places
    row, engine = places.row("serving"), places.engine("oracle")
    inputs = results.verdict()["inputs"]
    assert inputs[f"small/rows/serving/{row.folder.name}/series.json"] == records.content_digest(
        records.read(row.series, "series")
    )
    assert {
        "small/pin.json",
        "small/device.json",
        "small/arms/oracle/gate.json",
        "small/arms/previous/gate.json",
        f"engines/{engine.folder.name}/version.json",
        f"checkpoints/{places.checkpoint('tiny').name}",
        "small/rows/serving.json",
    } <= set(inputs)
    assert len(inputs) == 9


def test_a_verdict_does_not_say_where_its_store_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = measured(tmp_path / "one").verdict()
    monkeypatch.setenv("PINPROOF_STORE", str(tmp_path / "store"))
    other = measured(tmp_path / "other").verdict()
    assert records.canonical(other) == records.canonical(one)


# -- what was touched ----------------------------------------------------------------------------


def _leg(results: Results) -> Path:
    return results.book().path(LegId(FIRST, "noise", "c1", 0, 0, "previous"), ".json")


TOUCHED: dict[str, tuple[Callable[[Results], Path], Callable[[dict], Any]]] = {
    "a leg's figure": (_leg, lambda leg: leg["metrics"].update(median_tpot=1.0)),
    "a leg's validity": (_leg, lambda leg: leg.update(valid=False)),
    "a result's outcome": (lambda r: r.places.row("serving").result, lambda row: row.update(outcome="red")),
    "a result's tolerance": (
        lambda r: r.places.row("serving").result,
        lambda row: row["decision"]["first"]["metrics"][0]["metric"].update(tolerance=0.9),
    ),
    "a result's plan": (
        lambda r: r.places.row("serving").result,
        lambda row: row["plan"].update(changed_after_data=True),
    ),
    "a series' failure": (
        lambda r: r.places.row("serving").series,
        lambda series: series.update(failure={"reason": "lease-lost", "message": ""}),
    ),
    "a gate's outcome": (lambda r: r.places.gate("oracle"), lambda gate: gate.update(outcome="refused")),
    "a gate's row": (lambda r: r.places.gate("oracle"), lambda gate: gate["rows"][1].update(declared="9")),
    "a gate's engine": (lambda r: r.places.gate("oracle"), lambda gate: gate.update(engine="0" * 16)),
    "a gate's version": (lambda r: r.places.gate("oracle"), lambda gate: gate.update(version_digest="0")),
    "a version's field": (
        lambda r: r.places.engine("oracle").version,
        lambda version: version["fields"]["vllm_runtime_version"].update(value="9"),
    ),
    "a version's op": (lambda r: r.places.engine("previous").version, lambda version: version["op"].update(ok=False)),
    "a pin": (
        lambda r: r.places.pin,
        lambda pin: pin["arms"]["oracle"]["fields"].update(vllm_runtime_version="9"),
    ),
    "an arm of the pin": (lambda r: r.places.pin, lambda pin: pin["arms"].pop("previous")),
}


@pytest.mark.parametrize("name", list(TOUCHED))
def test_a_record_that_was_touched_is_found(results: Results, name: str) -> None:
    place, change = TOUCHED[name]
    edit(place(results), change)
    assert refusal_of(results.verdict).reason is Reason.RECORD_DAMAGED


def test_a_refused_gate_that_was_made_to_pass_is_found(tmp_path: Path) -> None:
    results = Results(tmp_path).identities({"oracle": "1.2"}).surroundings()
    results.plan().noise().reps().series().decide()

    def forge(gate: dict) -> None:
        gate["outcome"] = "pass"
        for row in gate["rows"]:
            row.update(reason=None)

    edit(results.places.gate("oracle"), forge)
    assert refusal_of(results.verdict).file == str(results.places.gate("oracle"))


@pytest.mark.parametrize("name", ["pin", "device", "gate", "version", "checkpoint", "result", "series"])
def test_without_one_of_its_records_there_is_no_verdict(results: Results, name: str) -> None:
    places = results.places
    path = {
        "pin": places.pin,
        "device": places.device,
        "gate": places.gate("previous"),
        "version": places.engine("previous").version,
        "checkpoint": places.checkpoint("tiny"),
        "result": places.row("serving").result,
        "series": places.row("serving").series,
    }[name]
    path.unlink()
    refusal = refusal_of(results.verdict)
    assert (refusal.reason, refusal.file) == (Reason.RECORD_MISSING, str(path))
