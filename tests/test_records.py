"""Records: whole or not at all, no NaN, provenance outside the digest."""

import json
import os
import stat
from pathlib import Path

import pytest
from tests.builders import refusal_of

from pinproof import records
from pinproof.reasons import Reason


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "folder" / "thing.json"


def test_what_is_written_is_what_is_read(path: Path) -> None:
    written = records.write(path, "thing", {"b": 1.5, "a": None}, provenance={"pid": 7})
    assert written == records.read(path, "thing")
    assert written == {
        "schema": {"name": "pinproof/thing", "version": 1},
        "a": None,
        "b": 1.5,
        "provenance": {"pid": 7},
    }


def test_the_same_record_has_the_same_bytes_whatever_the_order_of_keys(path: Path) -> None:
    records.write(path, "thing", {"b": 1, "a": 2})
    first = path.read_bytes()
    records.write(path, "thing", {"a": 2, "b": 1})
    assert path.read_bytes() == first
    assert first.endswith(b"\n")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_never_written(path: Path, number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        records.write(path, "thing", {"a": number})
    assert not path.exists()


@pytest.mark.parametrize("key", ["schema", "provenance"])
def test_a_body_does_not_hold_what_the_record_adds(path: Path, key: str) -> None:
    with pytest.raises(ValueError, match=key):
        records.write(path, "thing", {key: 1})


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(path: Path) -> None:
    records.write_text(path, "old")
    with pytest.raises(RuntimeError), records.replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_a_written_file_has_the_rights_that_the_umask_leaves(path: Path) -> None:
    before = os.umask(0o027)
    try:
        records.write_text(path, "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_missing_record_is_refused_by_its_stage(path: Path) -> None:
    refusal = refusal_of(records.read, path, "thing")
    assert (refusal.reason, refusal.message, refusal.file) == (Reason.RECORD_MISSING, "no thing record", str(path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"schema": {"name": "pinproof/thing", "versi',
        "[1]",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": 1} {"a": 2}',
        "[" * 100_000,
        "\x00",
    ],
    ids=["empty", "torn", "list", "nan", "infinity", "overflow", "two objects", "deep", "nul"],
)
def test_a_damaged_record_is_refused(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert refusal_of(records.read, path, "thing").reason is Reason.RECORD_DAMAGED


def test_bytes_that_are_no_text_are_refused(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"a": "\xff"}')
    assert refusal_of(records.read, path, "thing").reason is Reason.RECORD_DAMAGED


def test_a_folder_in_the_place_of_a_record_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    assert refusal_of(records.read, path, "thing").reason is Reason.RECORD_DAMAGED


@pytest.mark.parametrize(("schema", "version"), [("other", 1), ("thing", 2)])
def test_a_record_of_another_schema_or_version_is_refused(path: Path, schema: str, version: int) -> None:
    records.write(path, schema, {}, version=version)
    refusal = refusal_of(records.read, path, "thing")
    assert refusal.reason is Reason.RECORD_FOREIGN
    assert f"'version': {version}" in refusal.message


def test_json_without_a_schema_is_refused(path: Path) -> None:
    records.write_text(path, json.dumps({"a": 1}))
    assert refusal_of(records.read, path, "thing").reason is Reason.RECORD_FOREIGN


def test_provenance_is_not_in_the_content_digest(path: Path) -> None:
    one = records.write(path, "thing", {"a": 1}, provenance={"pid": 7})
    other = records.write(path, "thing", {"a": 1}, provenance={"pid": 8})
    assert records.content_digest(one) == records.content_digest(other)
    assert records.content_digest(one) != records.content_digest({**one, "a": 2})


def test_a_record_can_be_digested_before_it_is_written(path: Path) -> None:
    written = records.write(path, "thing", {"a": 1.0})
    assert records.content_digest(records.headed("thing", {"a": 1.0})) == records.content_digest(written)


def test_a_digest_does_not_depend_on_the_order_of_keys_but_on_that_of_a_list() -> None:
    assert records.digest({"a": 1, "b": 2}) == records.digest({"b": 2, "a": 1})
    assert records.digest([1, 2]) != records.digest([2, 1])


def test_one_and_one_point_zero_are_two_values() -> None:
    assert records.canonical({"é": 1, "b": 1.0}) == '{"b":1.0,"é":1}'
