"""Documents: the published schemas of what leaves the machine, used without our code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests import builders
from tests.builders import refusal_of

import write_schemas
from pinproof import documents, records
from pinproof.legbook import Legbook
from pinproof.reasons import Reason

SCHEMAS = Path(__file__).parents[1] / "config" / "schemas"


def validator(name: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> builders.Results:
    return builders.measured(tmp_path_factory.mktemp("made"))


@pytest.fixture
def verdict(made: builders.Results, tmp_path: Path) -> dict[str, Any]:
    return records.write(tmp_path / "verdict.json", "verdict", made.verdict(), provenance={"pid": 1})


def test_the_published_schemas_are_those_that_the_models_make(tmp_path: Path) -> None:
    """When this fails: make schemas."""
    write_schemas.write(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in SCHEMAS.iterdir()
    }


def test_a_verdict_is_one_by_the_published_schema_alone(verdict: dict[str, Any]) -> None:
    validator("verdict").validate(verdict)


def test_a_red_a_failed_and_an_undecided_verdict_are_too(tmp_path: Path) -> None:
    red = builders.measured(tmp_path / "red", better=0.5)
    red.reps(better=0.5, series=2).series().decide()
    lost = builders.Results(tmp_path / "lost").identities().surroundings()
    lost.series(failure={**refusal(), "file": None, "key": None}).decide()
    for results, word in ((red, "REVERT"), (lost, "UNDECIDED")):
        found = json.loads(records.text("verdict", results.verdict()))
        assert found["verdict"] == word
        validator("verdict").validate(found)


def refusal() -> dict[str, Any]:
    return {"reason": "server-killed", "owner": "environment", "message": "killed", "remedy": "find who"}


def test_rows_and_legs_are_by_the_published_schemas_alone(made: builders.Results) -> None:
    place = made.places.row("serving")
    validator("row").validate(records.read(place.result, "row"))
    for leg in Legbook(place.legs, place.row).legs:
        validator("leg").validate(leg)


def drop(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda value: value.pop(key)


WRONG = {
    "a verdict of no word": lambda value: value.update(verdict="GREEN"),
    "no inputs": drop("inputs"),
    "a digest that is none": lambda value: value["inputs"].update(x="abc"),
    "a count in words": lambda value: value["rows"]["serving"]["legs"].update(count="14"),
    "an outcome of no word": lambda value: value["rows"]["serving"].update(outcome="green"),
    "a cause without an owner": lambda value: value["open"].append({"subject": "x", "reason": "y", "needs": "z"}),
    "another version": lambda value: value["schema"].update(version=2),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_schema_and_models_refuse_the_same(verdict: dict[str, Any], wrong: str) -> None:
    documents.require("verdict", verdict, "verdict.json")
    WRONG[wrong](verdict)
    assert not validator("verdict").is_valid(verdict)
    found = refusal_of(documents.require, "verdict", verdict, "verdict.json")
    assert (found.reason, found.file) == (Reason.RECORD_DAMAGED, "verdict.json")


def test_the_first_wrong_key_is_named(verdict: dict[str, Any]) -> None:
    verdict["rows"]["serving"]["legs"]["count"] = "14"
    found = refusal_of(documents.require, "verdict", verdict, "verdict.json")
    assert found.key == "rows.serving.legs.count"


def test_more_keys_are_no_new_version(verdict: dict[str, Any]) -> None:
    verdict["more"] = {"x": 1}
    validator("verdict").validate(verdict)
    documents.require("verdict", verdict, "verdict.json")
