"""The waterfall: named and unlabelled time add up to the start, whatever overlaps."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.spanfiles import File, read

from pinproof import waterfall
from pinproof.waterfall import Line, Waterfall

LABELS = {"m:load": ["load"], "m:warm": ["warm"]}


def fall(folder: Path, end: float) -> Waterfall:
    return waterfall.of(read(folder), end, LABELS)


def told(line: Line) -> list[tuple[float, float, str]]:
    return [(one.begin / 1e6, one.end / 1e6, "+".join(one.labels)) for one in line.pieces]


def is_whole(line: Line) -> bool:
    """Pieces follow each other from begin to end, and their sum is the whole, exactly."""
    cuts = [line.begin, *(one.end for one in line.pieces)]
    follow = all(one.begin == cut for one, cut in zip(line.pieces, cuts, strict=False)) and cuts[-1] == line.end
    return follow and line.named + line.unlabelled == line.end - line.begin


def test_what_lies_between_spans_is_unlabelled(tmp_path: Path) -> None:
    File(tmp_path, began=1).call(2, 3, "m:load").call(5, 6, "m:warm")
    line = fall(tmp_path, 8).line
    assert told(line) == [
        (0, 1, ""),
        (1, 1.5, ""),
        (1.5, 2, ""),
        (2, 3, "load"),
        (3, 5, ""),
        (5, 6, "warm"),
        (6, 8, ""),
    ]
    assert (line.named, line.unlabelled) == (2_000_000, 6_000_000)


def test_an_unlabelled_piece_says_which_process_had_not_come_to_the_plugin(tmp_path: Path) -> None:
    File(tmp_path, began=1)
    assert [one.starting for one in fall(tmp_path, 8).line.pieces] == [(), ("EngineCore pid=7",), ()]


def test_processes_that_overlap_are_not_counted_twice(tmp_path: Path) -> None:
    File(tmp_path, pid=8, name="EngineCore_DP0").call(2, 4, "m:load")
    File(tmp_path, pid=9, name="EngineCore_DP1").call(3, 5, "m:load").call(5, 6, "m:warm")
    found = fall(tmp_path, 8)
    assert [piece for piece in told(found.line) if piece[2]] == [(2, 5, "load"), (5, 6, "warm")]
    assert [lane.line.named for lane in found.lanes] == [2_000_000, 3_000_000]
    assert [lane.process for lane in found.lanes] == ["EngineCore_DP0 pid=8", "EngineCore_DP1 pid=9"]


def test_calls_in_calls_stand_in_the_lane_and_not_on_the_line(tmp_path: Path) -> None:
    file = File(tmp_path)
    outer = file.begin(2, "m:load")
    inner = file.begin(2.5, "m:warm", parent=outer)
    file.end(3, inner, "ValueError: no").end(4, outer)
    found = fall(tmp_path, 5)
    assert [(one.label, one.depth, one.begin, one.end, one.exception) for one in found.lanes[0].calls] == [
        ("load", 0, 2_000_000, 4_000_000, None),
        ("warm", 1, 2_500_000, 3_000_000, "ValueError: no"),
    ]
    assert [piece for piece in told(found.line) if piece[2]] == [(2, 4, "load")]


def test_spans_are_cut_at_the_mark_and_later_ones_left_out(tmp_path: Path) -> None:
    File(tmp_path).call(2, 9, "m:load").call(9, 10, "m:warm")
    found = fall(tmp_path, 5)
    assert told(found.line)[-1] == (2, 5, "load")
    assert [one.label for one in found.lanes[0].calls] == ["load"]


def test_a_call_that_never_ended_reaches_to_the_mark(tmp_path: Path) -> None:
    File(tmp_path).begin(2, "m:load")
    found = fall(tmp_path, 5)
    assert told(found.line)[-1] == (2, 5, "load")
    assert found.lanes[0].calls[0].end is None


def test_a_process_that_began_after_the_mark_has_no_lane(tmp_path: Path) -> None:
    File(tmp_path, began=9)
    found = fall(tmp_path, 5)
    assert (found.lanes, told(found.line)) == ((), [(0, 5, "")])


def test_without_spans_all_is_unlabelled(tmp_path: Path) -> None:
    line = fall(tmp_path, 182.41).line
    assert (line.named, line.unlabelled, is_whole(line)) == (0, 182_410_000, True)


def test_calls_that_were_summed_up_stand_beside_the_line(tmp_path: Path) -> None:
    values = {"calls": 9000, "returned": 9000, "raised": 0, "exception": None, "seconds": 1.5}
    File(tmp_path).line("more", 4, name="m:load", **values, begin=1002.0, end=1004.0)
    found = fall(tmp_path, 5)
    assert found.lanes[0].summed == (("load", 9000, 1.5),)
    assert found.line.named == 0


@pytest.mark.parametrize("seed", range(20))
def test_named_and_unlabelled_are_the_whole_whatever_the_spans_are(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    for pid in range(1, draw.randint(2, 4)):
        file = File(tmp_path, pid=pid, began=draw.uniform(0, 3))
        times = sorted(draw.uniform(4, 40) for _ in range(2 * draw.randint(0, 30)))
        for begin, end in zip(times[::2], times[1::2], strict=True):
            file.call(begin, end, draw.choice(list(LABELS)))
    found = fall(tmp_path, draw.uniform(2, 50))
    assert all(is_whole(line) for line in (found.line, *(lane.line for lane in found.lanes)))


def test_its_record_is_seconds_in_at_most_nine_digits(tmp_path: Path) -> None:
    File(tmp_path).call(2 + 1 / 3, 4, "m:load")
    record = fall(tmp_path, 5).as_record()
    json.dumps(record, allow_nan=False)
    named = [piece for piece in record["line"]["pieces"] if piece["labels"]]
    assert named == [{"begin": 2.333333, "seconds": 1.666667, "labels": ["load"]}]
    assert record["line"]["named"] + record["line"]["unlabelled"] == pytest.approx(record["line"]["seconds"], abs=1e-6)
