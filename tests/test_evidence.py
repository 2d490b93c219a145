"""Evidence: a leg of a speculative row says no more than its client's output and its counters do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders import ASKED, raw_output
from tests.test_claims import parsed

from pinproof import evidence, leg, records, sidenotes
from pinproof.legbook import FIRST, Legbook, LegId, Phase
from pinproof.reasons import Refusal
from pinproof.speculation import Counts

ROW = parsed(("ngram.off_legs", 1), ("ngram.discard_first", 1)).row("ngram")
COUNTS = Counts(4, 12, 8, (4, 3, 1))


def put(book: Legbook, which: LegId, counts: Counts = COUNTS, **changes: Any) -> None:
    raw = raw_output(output_throughput=100.0 if which.phase != "off" else 50.0)
    output = book.path(which, ".raw.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(raw))
    metrics = leg.metrics(raw) | ({} if which.phase == "off" else counts.metrics)
    body = {
        "asked": vars(ASKED),
        "counters": {},
        "metrics": metrics,
        "speculation": counts.as_record(),
        "engine_says": {"speculative_config": "SpeculativeConfig(method='ngram')", "backends": ["Using STUB backend"]},
        "valid": True,
        "objections": [],
        "raw_sha256": records.file_sha256(output),
    }
    book.add(which, {**body, **changes}, {"boot_id": "boot"})


def which(phase: Phase = "rep", index: int = 0, arm: str = "oracle") -> LegId:
    return LegId(FIRST, phase, "c1", index, 0 if arm == "oracle" else 1, arm)


def told(book: Legbook) -> str:
    with pytest.raises(Refusal) as refused:
        evidence.check(ROW, book)
    return refused.value.message


@pytest.fixture
def book(tmp_path: Path) -> Legbook:
    return Legbook(tmp_path, ROW)


def test_a_leg_with_what_was_drafted_is_believed(book: Legbook) -> None:
    put(book, which())
    put(book, which("off"), Counts(None, None, None, ()))
    evidence.check(ROW, book)


def test_an_acceptance_that_the_counts_do_not_give_is_not(book: Legbook) -> None:
    put(book, which(), metrics={**leg.metrics(raw_output()), "acceptance_length": 4.0, "acceptance_rate": 1.0})
    assert told(book) == "its metrics are not those of its client's output"


def test_a_leg_that_counts_although_nothing_was_drafted_is_not(book: Legbook) -> None:
    put(book, which(), Counts(0, 0, 0, ()))
    assert told(book).startswith("it counts although speculation is declared (ngram) and not active")


def test_a_leg_without_speculation_that_counts_although_there_were_drafts_is_not(book: Legbook) -> None:
    put(book, which("off"))
    assert told(book) == "it counts although 4 drafts in a leg that is without speculation"


def test_a_leg_that_says_nothing_of_drafts_is_no_leg_of_such_a_row(book: Legbook) -> None:
    put(book, which(), speculation={})
    assert told(book) == "not a whole leg of this row"


# -- what stands beside --------------------------------------------------------------------------


def test_rates_by_position_and_speculation_over_none_stand_beside(book: Legbook) -> None:
    for index in (0, 1, 2):
        for arm in ("oracle", "previous"):
            put(book, which(index=index, arm=arm), Counts(10, 30, 30, (10, 10, 10)) if index == 0 else COUNTS)
    for arm in ("oracle", "previous"):
        put(book, which("off", arm=arm), Counts(None, None, None, ()))
    found = sidenotes.of(ROW, book)
    assert found["positions"]["c1"]["oracle"] == [1.0, 0.75, 0.25]  # the first pair is discarded
    assert found["over_off"]["c1"]["oracle"]["output_throughput"] == 2.0
    assert found["engines"]["oracle"]["backends"] == ["Using STUB backend"]


def test_without_such_legs_nothing_is_said_of_speculation_over_none(book: Legbook) -> None:
    put(book, which())
    found = sidenotes.of(ROW, book)
    assert found["over_off"]["c1"]["oracle"] == dict.fromkeys(sidenotes.OFF)
    assert found["positions"]["c1"]["previous"] is None


def test_discarded_pairs_are_kept_and_count_neither_way(book: Legbook) -> None:
    for index in (0, 1, 2):
        for arm in ("oracle", "previous"):
            put(book, which(index=index, arm=arm), valid=index != 0)
    assert [pair[0]["id"]["index"] for pair in book.discarded(FIRST, "rep", "c1")] == [0]
    assert [pair[0]["id"]["index"] for pair in book.valid(FIRST, "rep", "c1")] == [1, 2]
    assert book.invalid(FIRST, "rep", "c1") == 0


def test_a_life_that_fills_caches_is_no_half_of_a_pair(book: Legbook, tmp_path: Path) -> None:
    put(book, LegId(FIRST, "first", "c1", 0, 0, "oracle"))
    put(book, which(index=3))
    book.set_aside_interrupted(tmp_path / "aside")
    assert [one["id"]["phase"] for one in book.legs] == ["first"]
