"""Starts: a leg follows from the record of its life, and one that does not is not believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests import spanfiles
from tests.test_claims import parsed

from pinproof import evidence, records, starts
from pinproof.legbook import FIRST, Legbook, LegId
from pinproof.reasons import Reason, Refusal

WATCHED = parsed().row("startup")
ROW = WATCHED.model_copy(update={"spans": []})
WHICH = LegId(FIRST, "rep", "start", 0, 0, "oracle")
FULL = {"files": 2, "bytes": 9, "digest": "d"}


def raw(**changes: Any) -> dict[str, Any]:
    """The record of a life in which all is well."""
    state = {"compile": FULL, "jit": FULL, "page": {"files": 1, "bytes": 1, "resident": 1.0}}
    return {
        "marks": {"spawned": 0.01, "first_health_200": 40.0, "first_completion": 41.0},
        "fills": False,
        "caches": {"before": state, "after": state},
        "ended": None,
        "marker": "case.startup.1/oracle/1",
        "spawned": 1000.0,
        "boot": "boot",
        **changes,
    }


def cold() -> dict[str, Any]:
    life = raw()
    nothing = {**life["caches"]["before"], "compile": {"files": 0, "bytes": 0, "digest": "e"}}
    return {**life, "caches": {"before": nothing, "after": life["caches"]["after"]}}


def failed(reason: Reason = Reason.SERVER_EXITED) -> dict[str, Any]:
    marks = {"spawned": 0.01, "first_health_200": None, "first_completion": None}
    return raw(marks=marks, ended=Refusal(reason, "it ended").as_record())


def leg(life: dict[str, Any], arm: str = "oracle") -> dict[str, Any]:
    return starts.leg(ROW, arm, life, Path("none"), "")


def test_a_start_s_metrics_are_its_marks() -> None:
    found = leg(raw())
    assert found["metrics"] == {"first_health": 40.0, "first_completion": 41.0}
    assert (found["valid"], found["objections"], found["spans"]) == (True, [], None)


def test_a_full_cache_that_was_not_used_is_told_by_the_log() -> None:
    said = (
        "(Worker pid=2) INFO 12-01 03:20:50 [backends.py:296] Directly load the compiled graph(s) for compile range 1\n"
        "(Worker pid=2) WARNING 12-01 03:20:53 [decorators.py:333] [backbone] Compiling model again due to a load "
        "failure from /x, reason: y\n"
        "(Worker pid=2) INFO 12-01 03:21:10 [decorators.py:743] [backbone] saved AOT compiled function to /x\n"
    )
    assert starts.leg(ROW, "oracle", raw(), Path("none"), said)["graphs"] == {
        "loaded": 1,
        "load_failed": 1,
        "compiled": 1,
    }


def test_a_life_that_failed_has_no_figures_and_is_kept_with_its_reason() -> None:
    found = leg(failed())
    assert found["metrics"] == {"first_health": None, "first_completion": None}
    assert found["objections"] == [{"reason": "server-exited", "owner": "target", "message": "it ended"}]


def test_a_failure_of_the_other_arm_is_an_input() -> None:
    assert leg(failed(), "previous")["objections"][0]["owner"] == "input"


def test_a_life_that_was_ready_and_then_failed_gives_no_figure_either() -> None:
    life = raw(ended=Refusal(Reason.REQUESTS_FAILED, "no token").as_record())
    assert leg(life)["metrics"]["first_health"] is None


def test_a_cold_start_where_a_warm_one_is_asked_for_is_refused_as_a_comparison() -> None:
    found = leg(cold())
    assert found["objections"][0]["reason"] == "starts-differ"
    with pytest.raises(Refusal) as refused:
        starts.refuse_unlike(found, "oracle")
    assert refused.value.reason is Reason.STARTS_DIFFER
    assert refused.value.message == (
        "oracle: a cold start: the compile cache held nothing and was to be warm; a warm start is not compared with a "
        "cold one"
    )


def test_a_first_life_may_be_cold() -> None:
    assert leg({**cold(), "fills": True})["valid"] is True


def test_named_and_unlabelled_seconds_of_a_leg_are_the_time_from_spawn_to_ready(tmp_path: Path) -> None:
    load, warm = WATCHED.spans[0].callable, WATCHED.spans[-1].callable
    spanfiles.File(tmp_path, pid=8, name="EngineCore_DP0").call(7.000001, 12.25, load).call(20, 31.5, warm)
    spanfiles.File(tmp_path, pid=9, name="EngineCore_DP1").call(9.5, 15.125, load).call(33, 47, warm)
    life = raw(marker=spanfiles.MARKER, boot=spanfiles.BOOT, spawned=spanfiles.SPAWNED)
    line = starts.leg(WATCHED, "oracle", life, tmp_path, "")["waterfall"]["line"]
    assert line["named"] == pytest.approx(8.124999 + 11.5 + 7)  # the last call is cut at the mark, 40 s
    assert line["named"] + line["unlabelled"] == pytest.approx(life["marks"]["first_health_200"], abs=1e-6)


def test_without_the_plugin_s_files_nothing_is_said_of_a_callable(tmp_path: Path) -> None:
    found = starts.leg(WATCHED, "oracle", raw(), tmp_path, "")
    assert found["spans"]["load"]["outcome"] == "unknown"
    assert found["waterfall"]["line"]["unlabelled"] == 40.0
    with pytest.raises(Refusal) as refused:
        starts.leg(WATCHED, "oracle", raw(), tmp_path / "none", "")
    assert refused.value.reason is Reason.RECORD_MISSING


# -- what is on disk -----------------------------------------------------------------------------


@pytest.fixture
def book(tmp_path: Path) -> Legbook:
    """A book of one leg that its files bear out."""
    made = Legbook(tmp_path, ROW)
    records.write(made.path(WHICH, ".raw.json"), "life", raw())
    made.path(WHICH, ".log").write_text("a log\n")
    digests = {
        "raw_sha256": records.file_sha256(made.path(WHICH, ".raw.json")),
        "log_sha256": records.file_sha256(made.path(WHICH, ".log")),
    }
    made.add(WHICH, {**leg(raw()), **digests}, {"boot_id": "boot"})
    return made


def changed(book: Legbook, **changes: Any) -> Legbook:
    file = book.path(WHICH, ".json")
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return Legbook(file.parent, ROW)


def told(book: Legbook) -> str:
    with pytest.raises(Refusal) as refused:
        evidence.check(ROW, book)
    assert refused.value.reason is Reason.RECORD_DAMAGED
    return refused.value.message


def test_a_leg_that_its_files_bear_out_is_believed(book: Legbook) -> None:
    evidence.check(ROW, book)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metrics": {"first_health": 30.0, "first_completion": 41.0}}, "its metrics are not what its files say"),
        ({"marks": {}}, "its marks are not what its files say"),
        ({"valid": False}, "its valid are not what its files say"),
        ({"log_sha256": "0"}, "its log is not the one that it was read from"),
        ({"raw_sha256": "0"}, "not the output that the leg was read from"),
    ],
)
def test_a_leg_that_its_files_contradict_is_not(book: Legbook, changes: dict[str, Any], words: str) -> None:
    assert told(changed(book, **changes)) == words


def test_a_cold_leg_that_says_it_counts_is_not_believed(book: Legbook) -> None:
    records.write(book.path(WHICH, ".raw.json"), "life", cold())
    forged = changed(book, raw_sha256=records.file_sha256(book.path(WHICH, ".raw.json")))
    assert told(forged) == "its caches, valid, objections are not what its files say"
