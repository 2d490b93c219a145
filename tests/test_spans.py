"""Span files are read strictly: half a last line is legal, anything else that does not fit is damage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.builders import refusal_of
from tests.spanfiles import SPAWNED, File, read

from pinproof import spans
from pinproof.reasons import Reason
from pinproof.spans import Process, Spans


def only(found: Spans) -> Process:
    assert (found.damaged, found.foreign) == ((), ())
    (process,) = found.processes
    return process


def test_times_are_seconds_since_the_spawn_and_calls_are_in_order(tmp_path: Path) -> None:
    file = File(tmp_path, began=1.0).wrapped("m:load", "m:read")
    load = file.begin(2.0, "m:load")
    read_ = file.begin(2.5, "m:read", parent=load)
    file.end(3.0, read_).end(4.0, load, "ValueError: no").line("exit", 9.0)
    process = only(read(tmp_path))
    assert (process.name, process.began, process.loaded, process.last, process.exited) == (
        "EngineCore pid=7",
        1.0,
        1.5,
        9.0,
        True,
    )
    assert [(one.callable, one.parent, one.begin, one.end, one.exception, one.returned) for one in process.spans] == [
        ("m:load", None, 2.0, 4.0, "ValueError: no", False),
        ("m:read", load, 2.5, 3.0, None, True),
    ]
    assert process.top == process.spans[:1]


def test_two_engines_in_one_folder_are_two_processes(tmp_path: Path) -> None:
    File(tmp_path, pid=9, name="EngineCore_DP1", began=1.1).call(2, 3, "m:load")
    File(tmp_path, pid=8, name="EngineCore_DP0", began=1.0).call(2, 4, "m:load")
    found = read(tmp_path)
    assert [(one.name, one.spans[0].end) for one in found.processes] == [
        ("EngineCore_DP0 pid=8", 4.0),
        ("EngineCore_DP1 pid=9", 3.0),
    ]


def test_half_a_last_line_is_what_a_kill_leaves(tmp_path: Path) -> None:
    file = File(tmp_path)
    file.begin(2.0, "m:load")
    file.raw('{"event": "end", "id"')
    process = only(read(tmp_path))
    assert process.torn
    assert [one.callable for one in process.open] == ["m:load"]


def test_what_was_said_of_names_is_kept(tmp_path: Path) -> None:
    file = File(tmp_path).wrapped("m:late", late=True)
    file.line("absent", 2, name="m:gone", why="m has no gone").line("absent", 2, name="m:late", why="not yet")
    file.line("unwrappable", 2, name="m:C", why="a type").line(
        "import-failed", 2, name="x:f", exception="ImportError: x"
    )
    file.line("problem", 2, text="begin of m:f").line("ready", 2, cost=0.25).line("cost", 3, cost=0.5)
    process = only(read(tmp_path))
    assert process.absent == {"m:gone": "m has no gone"}  # what came to be wrapped is there
    assert (process.unwrappable, process.import_failed) == ({"m:C": "a type"}, {"x:f": "ImportError: x"})
    assert (process.problems, process.cost) == (("begin of m:f",), 0.75)
    assert not process.wrapped["m:late"].sure


def test_a_later_sum_holds_the_earlier_one(tmp_path: Path) -> None:
    file = File(tmp_path)
    for calls in (1, 9000):
        values = {"calls": calls, "returned": calls, "raised": 0, "exception": None, "seconds": 1}
        file.line("more", 5, name="m:step", **values, begin=SPAWNED + 2, end=SPAWNED + 5)
    (more,) = only(read(tmp_path)).more
    assert (more.calls, more.begin, more.end) == (9000, 2.0, 5.0)


# clocks


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_the_wall_clock_is_noticed_and_moves_no_span(tmp_path: Path, step: float) -> None:
    file = File(tmp_path)
    number = file.begin(2.0, "m:load")
    file.step = step
    file.end(3.0, number)
    process = only(read(tmp_path))
    assert [(one.at, round(one.seconds)) for one in process.steps] == [(3.0, step)]
    assert (process.spans[0].begin, process.spans[0].end) == (2.0, 3.0)


def test_a_wall_clock_that_is_drawn_slowly_makes_no_step(tmp_path: Path) -> None:
    file = File(tmp_path)
    for second in range(2, 30):
        file.step += 0.0005
        file.call(second, second + 0.5, "m:f")
    assert only(read(tmp_path)).steps == ()


def test_lines_of_two_threads_may_be_a_little_out_of_order(tmp_path: Path) -> None:
    file = File(tmp_path)
    first = file.begin(2.0, "m:f", thread=1)
    second = file.begin(1.9999, "m:g", thread=2)
    file.end(3.0, first).end(2.9999, second)
    process = only(read(tmp_path))
    assert [one.callable for one in process.spans] == ["m:g", "m:f"]
    assert process.steps == ()


# another life


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ({"marker": "small/startup/previous"}, "belongs to 'small/startup/previous'"),
        ({"marker": None}, "belongs to None"),
        ({"boot": "another"}, "was written in another boot"),
        ({"began": -60.0}, "its process began 60.0 s before the spawn"),
    ],
)
def test_a_process_of_another_life_is_set_aside(tmp_path: Path, head: dict, why: str) -> None:
    File(tmp_path, **head).call(2, 3, "m:load")
    found = read(tmp_path)
    assert (found.processes, found.damaged, found.foreign) == ((), (), (f"7-700.jsonl: {why}",))


def test_other_files_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("{")
    assert read(tmp_path).foreign == ("notes.txt: not the name of a span file",)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refusal = refusal_of(lambda: read(tmp_path / "gone"))
    assert (refusal.reason, refusal.file) == (Reason.RECORD_MISSING, str(tmp_path / "gone"))


def test_a_folder_without_files_is_a_plugin_that_was_not_loaded(tmp_path: Path) -> None:
    assert not read(tmp_path).loaded


# damage


BEGIN = {"event": "begin", "id": 1, "parent": None, "name": "m:f", "thread": 1, "at": SPAWNED + 2, "wall": 0.0}
END = {"event": "end", "id": 1, "exception": None, "deferred": False, "at": SPAWNED + 3, "wall": 1.0}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([""], "not JSON"),
        (["{"], "not JSON"),
        (["[" * 100_000], "not JSON"),
        (["7"], "not a JSON object"),
        (["{}"], "event is no text"),
        ([{**BEGIN, "event": "dance"}], "no such event: 'dance'"),
        ([{**BEGIN, "at": "now"}], "at is no number"),
        ([{**BEGIN, "at": True}], "at is no number"),
        ([{**BEGIN, "at": float("nan")}], "at is no number of seconds"),
        ([{**BEGIN, "at": float("inf")}], "at is no number of seconds"),
        ([{**BEGIN, "at": 10**400}], "at is no number of seconds"),
        ([{**BEGIN, "at": SPAWNED - 9}], "the monotonic clock went back by 10.5 s"),
        ([{**BEGIN, "id": "1"}], "id is no whole number"),
        ([{**BEGIN, "name": 7}], "name is no text"),
        ([{**BEGIN, "parent": 5}], "call 1 lies in call 5, which has not begun"),
        ([BEGIN, BEGIN], "call 1 begins twice"),
        ([END], "call 1 ends without a begin"),
        ([BEGIN, END, END], "call 1 ends twice"),
        ([BEGIN, {**END, "exception": 7}], "exception is no text nor null"),
        ([{**BEGIN, "event": "wrapped", "late": False, "of_class": 0}], "of_class is no flag"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(tmp_path: Path, lines: list, message: str) -> None:
    file = File(tmp_path)
    for line in lines:
        file.raw((line if isinstance(line, str) else json.dumps(line)) + "\n")
    whole = File(tmp_path, pid=8).call(2, 3, "m:f")
    found = read(tmp_path)
    (refusal,) = found.damaged
    assert (refusal.reason, refusal.message, refusal.key) == (Reason.RECORD_DAMAGED, message, f"line {len(lines) + 1}")
    assert [one.file for one in found.processes] == [whole.path.name]


@pytest.mark.parametrize("text", ["", '{"event": "pro'])
def test_a_process_without_a_whole_line_tells_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "7-700.jsonl").write_text(text)
    assert [one.message for one in read(tmp_path).damaged] == ["the process wrote no whole line"]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({"format": 2}, "does not begin with a process of format 1"),
        ({"process": None}, "process is no text"),
    ],
)
def test_a_head_that_does_not_fit_is_damage(tmp_path: Path, head: dict, message: str) -> None:
    File(tmp_path, **head)
    assert [one.message for one in read(tmp_path).damaged] == [message]


def test_a_file_of_another_pid_is_damage(tmp_path: Path) -> None:
    File(tmp_path).path.rename(tmp_path / "8-700.jsonl")
    assert [one.message for one in read(tmp_path).damaged] == ["names another pid than the file"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "not a plain file"),
        (lambda path: path.symlink_to("/etc/hostname"), "not a plain file"),
        (lambda path: path.mkdir(), "not a plain file"),
        (lambda path: path.write_bytes(b"\xff\n"), "not UTF-8 text"),
        (lambda path: path.open("wb").truncate(1 << 30), "1073741824 bytes are more than a span file has"),
    ],
)
def test_what_is_no_span_file_is_not_read(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "7-700.jsonl")
    assert [one.message for one in read(tmp_path).damaged] == [message]


def test_the_plugin_and_its_reader_speak_one_format() -> None:
    from pinproof_spans import recording

    assert recording.FORMAT == spans.FORMAT


def test_the_environment_names_each_callable_once(tmp_path: Path) -> None:
    env = spans.environment(tmp_path, ["m:f", "m:g", "m:f"])
    assert env == {"PINPROOF_SPANS": str(tmp_path), "PINPROOF_SPAN_NAMES": '["m:f", "m:g"]'}
