"""What became of a warm-up: only a compile that was seen to return has succeeded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.spanfiles import File, read

from pinproof import warmup
from pinproof.claims import Span as Named
from pinproof.reasons import Reason, Refusal
from pinproof.warmup import Life, Outcome, Warmed

ROUTER = "vllm.model_executor.warmup.kernel_warmup:_warmup_ll_bf16_router_gemm"
COMPILE = "vllm.model_executor.kernels.linear.cute_dsl.ll_bf16:LLBf16Gemm.compile"
CUTEDSL = "vllm.model_executor.warmup.cutedsl_warmup:cutedsl_warmup"
NAMED = {
    "load": Named(name="load", callable="m:load"),
    "router": Named(name="router", callable=ROUTER, inside=COMPILE),
    "cutedsl": Named(name="cutedsl", callable=CUTEDSL),
}
THRMMA = "AttributeError: module 'cutlass.cute.core' has no attribute 'ThrMma'"


def judged(
    folder: Path, name: str = "load", *, log: str = "", ready: float | None = 100.0, refusal: Refusal | None = None
) -> Warmed:
    folder.mkdir(exist_ok=True)
    return warmup.judge([NAMED[name]], Life(read(folder), log, ready, refusal))[name]


def compiled(file: File, *, inner: str | None = "returned", exception: str | None = None, begin: float = 10) -> File:
    """A router warm-up in whose middle the compile call returned, raised, or is missing."""
    file.wrapped(ROUTER, COMPILE)
    outer = file.begin(begin, ROUTER)
    if inner is not None:
        number = file.begin(begin + 1, COMPILE, parent=outer)
        file.end(begin + 19, number, None if inner == "returned" else inner)
    return file.end(begin + 20, outer, exception)


def log_line(text: str, file: str, pid: int = 7) -> str:
    return f"(Worker pid={pid}) INFO 12-01 04:00:06 [{file}:87] {text}\n"


# succeeded and skipped


def test_a_call_that_returned_has_succeeded_and_took_its_share_of_the_start(tmp_path: Path) -> None:
    File(tmp_path).wrapped("m:load").call(10, 30, "m:load")
    found = judged(tmp_path)
    assert (found.outcome, found.calls, found.seconds, found.share) == (Outcome.SUCCEEDED, 1, 20.0, 0.2)
    assert found.intervals == ((10.0, 30.0),)


def test_a_compile_has_succeeded_when_the_inner_call_was_seen_to_return(tmp_path: Path) -> None:
    compiled(File(tmp_path))
    assert judged(tmp_path, "router").outcome is Outcome.SUCCEEDED


def test_one_that_returned_without_its_inner_call_was_skipped(tmp_path: Path) -> None:
    compiled(File(tmp_path), inner=None)
    found = judged(tmp_path, "router")
    assert (found.outcome, found.calls, found.seconds) == (Outcome.SKIPPED, 1, 20.0)
    assert found.why == "returned in EngineCore pid=7 without its inner call having run"


def test_an_inner_call_outside_does_not_count(tmp_path: Path) -> None:
    compiled(File(tmp_path), inner=None).call(40, 50, COMPILE)
    assert judged(tmp_path, "router").outcome is Outcome.SKIPPED


def test_an_inner_call_of_another_process_does_not_count(tmp_path: Path) -> None:
    compiled(File(tmp_path, pid=7), inner=None)
    File(tmp_path, pid=8).wrapped(COMPILE).call(11, 12, COMPILE)
    assert judged(tmp_path, "router").outcome is Outcome.SKIPPED


def test_an_inner_call_may_run_on_a_thread_of_its_own(tmp_path: Path) -> None:
    file = File(tmp_path).wrapped(ROUTER, COMPILE)
    outer = file.begin(10, ROUTER)
    inner = file.begin(11, COMPILE, thread=2)
    file.end(12, inner).end(13, outer)
    assert judged(tmp_path, "router").outcome is Outcome.SUCCEEDED


def test_one_that_is_there_and_was_never_called_was_skipped(tmp_path: Path) -> None:
    File(tmp_path).wrapped("m:load")
    found = judged(tmp_path)
    assert (found.outcome, found.why, found.seconds, found.share) == (Outcome.SKIPPED, "never called", None, None)


def test_one_whose_module_was_not_imported_was_skipped(tmp_path: Path) -> None:
    File(tmp_path)
    assert judged(tmp_path).why == "never called: its module was not imported"


def test_one_whose_module_could_not_be_imported_was_skipped_and_says_why(tmp_path: Path) -> None:
    File(tmp_path).line("import-failed", 2, name="m:load", exception="ImportError: libcuda")
    found = judged(tmp_path)
    assert (found.outcome, found.why) == (
        Outcome.SKIPPED,
        "never called: the import of its module raised ImportError: libcuda",
    )


# absent


def test_a_name_that_this_version_does_not_have_is_absent(tmp_path: Path) -> None:
    File(tmp_path, pid=7).line("absent", 2, name="m:load", why="m has no load")
    File(tmp_path, pid=8)
    assert (judged(tmp_path).outcome, judged(tmp_path).why) == (Outcome.ABSENT, "m has no load")


def test_an_inner_call_that_this_version_does_not_have_confirms_nothing(tmp_path: Path) -> None:
    file = File(tmp_path).wrapped(ROUTER).line("absent", 2, name=COMPILE, why="ll_bf16 has no LLBf16Gemm.compile")
    file.call(10, 11, ROUTER)
    found = judged(tmp_path, "router")
    assert found.outcome is Outcome.UNKNOWN
    assert "its inner call cannot be confirmed: ll_bf16 has no LLBf16Gemm.compile" in found.why


# failed


def test_a_compile_that_raised_has_failed_with_what_it_raised(tmp_path: Path) -> None:
    compiled(File(tmp_path), inner=THRMMA, exception=THRMMA)
    found = judged(tmp_path, "router", ready=None)
    assert (found.outcome, found.exception, found.seconds, found.share) == (Outcome.FAILED, THRMMA, 20.0, None)


def test_an_inner_call_that_raised_has_failed_also_when_the_outer_one_hid_it(tmp_path: Path) -> None:
    compiled(File(tmp_path), inner=THRMMA)
    found = judged(tmp_path, "router")
    assert (found.outcome, found.exception) == (Outcome.FAILED, THRMMA)


def test_one_failure_among_many_calls_is_a_failure(tmp_path: Path) -> None:
    File(tmp_path).wrapped("m:load").call(1.7, 2, "m:load").call(3, 4, "m:load", "OSError: x").call(5, 6, "m:load")
    found = judged(tmp_path)
    assert (found.outcome, found.exception, found.calls) == (Outcome.FAILED, "OSError: x", 3)


def test_a_failure_beyond_the_calls_that_are_written_one_by_one_counts(tmp_path: Path) -> None:
    values = {"calls": 9, "returned": 8, "raised": 1, "exception": "OSError: x", "seconds": 2}
    File(tmp_path).wrapped("m:load").call(2, 3, "m:load").line(
        "more", 9, name="m:load", **values, begin=1004.0, end=1009.0
    )
    found = judged(tmp_path)
    assert (found.outcome, found.exception, found.calls, found.summed) == (Outcome.FAILED, "OSError: x", 10, 9)
    assert (found.seconds, found.share) == (3.0, None)  # when the nine ran is not known, so no share is


# a process that ended inside


CRASH = "Fatal Python error: Segmentation fault"


def died(folder: Path, pid: int = 7) -> None:
    File(folder, pid=pid).wrapped("m:load").begin(10, "m:load")


def test_a_worker_that_crashed_inside_has_failed(tmp_path: Path) -> None:
    died(tmp_path)
    refusal = Refusal(Reason.SERVER_EXITED, "ended with status 1 before it was ready")
    found = judged(tmp_path, log=CRASH + "\n", ready=None, refusal=refusal)
    assert (found.outcome, found.exception, found.seconds) == (Outcome.FAILED, CRASH, None)
    assert found.why == "EngineCore pid=7 ended inside: ended with status 1 before it was ready"


@pytest.mark.parametrize("reason", [Reason.SERVER_KILLED, Reason.SERVER_MEMORY, Reason.SERVER_TIMEOUT])
def test_a_worker_that_was_ended_inside_may_have_been_fine(tmp_path: Path, reason: Reason) -> None:
    died(tmp_path)
    found = judged(tmp_path, ready=None, refusal=Refusal(reason, "killed"))
    assert (found.outcome, found.exception) == (Outcome.UNKNOWN, None)


def test_a_call_that_ran_when_the_server_was_stopped_is_unknown(tmp_path: Path) -> None:
    died(tmp_path)
    found = judged(tmp_path)
    assert found.why == "EngineCore pid=7 ended inside: it had not returned when the server was stopped"
    assert found.outcome is Outcome.UNKNOWN


def test_the_first_error_of_another_process_does_not_speak_against_this_one(tmp_path: Path) -> None:
    died(tmp_path)
    log = "(Worker pid=8) ERROR 12-01 04:00:06 [a.py:1] Traceback (most recent call last):\n"
    log += "(Worker pid=8) ERROR 12-01 04:00:06 [a.py:1] ValueError: no such layer\n"
    found = judged(tmp_path, log=log, ready=None, refusal=Refusal(Reason.SERVER_EXITED, "ended with status 1"))
    assert found.outcome is Outcome.UNKNOWN
    assert "the first error is of Worker pid=8: ValueError: no such layer" in found.why


# several processes


def test_the_worst_process_speaks_for_all(tmp_path: Path) -> None:
    compiled(File(tmp_path, pid=8))
    compiled(File(tmp_path, pid=9), inner=None)
    assert judged(tmp_path, "router").outcome is Outcome.SKIPPED
    compiled(File(tmp_path, pid=10), inner=THRMMA, exception=THRMMA)
    assert judged(tmp_path, "router").outcome is Outcome.FAILED


def test_a_process_that_has_it_and_did_not_call_it_does_not_speak(tmp_path: Path) -> None:
    compiled(File(tmp_path, pid=8))
    File(tmp_path, pid=9, name="MainProcess").wrapped(ROUTER, COMPILE)
    assert judged(tmp_path, "router").outcome is Outcome.SUCCEEDED


def test_two_engines_that_warm_up_at_the_same_time_count_that_time_once(tmp_path: Path) -> None:
    compiled(File(tmp_path, pid=8), begin=10)
    compiled(File(tmp_path, pid=9), begin=15)
    found = judged(tmp_path, "router")
    assert (found.calls, found.processes, found.seconds, found.share) == (2, 2, 25.0, 0.25)


# what is not known


def test_without_the_plugin_nothing_is_known(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert (found.outcome, found.why) == (Outcome.UNKNOWN, "the span plugin was seen in no process")


def test_a_start_that_failed_before_does_not_make_it_skipped(tmp_path: Path) -> None:
    File(tmp_path).wrapped("m:load")
    assert judged(tmp_path, ready=None).why == "not called before the start failed"


def test_a_call_before_the_plugin_came_is_not_seen(tmp_path: Path) -> None:
    File(tmp_path).wrapped("m:load", late=True, of_class=True)
    assert judged(tmp_path).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{\n", "a span file is damaged: not JSON"),
        ('{"event"', "the span file of EngineCore pid=7 ends in half a line"),
        ('{"event": "problem", "text": "begin of m:f: x", "at": 1003, "wall": 9}\n', "problem: begin of m:f: x"),
        ('{"event": "unwrappable", "name": "m:load", "why": "a type", "at": 1003, "wall": 9}\n', "watched: a type"),
    ],
)
def test_what_was_not_written_whole_does_not_tell_that_nothing_was_called(tmp_path: Path, text: str, why: str) -> None:
    File(tmp_path, pid=8)
    File(tmp_path).raw(text)
    found = judged(tmp_path)
    assert found.outcome is Outcome.UNKNOWN
    assert why in found.why


@pytest.mark.parametrize(
    "words", ["pinproof_spans: OSError: No space left on device", "Failed to load plugin pinproof_spans"]
)
def test_a_plugin_that_failed_in_one_process_has_said_so_in_the_log(tmp_path: Path, words: str) -> None:
    File(tmp_path).wrapped("m:load")
    found = judged(tmp_path, log=f"(EngineCore pid=7) {words}\n")
    assert (found.outcome, found.why) == (Outcome.UNKNOWN, f"the span plugin had a problem: {words}")


def test_a_generator_has_not_done_its_work_when_it_returns(tmp_path: Path) -> None:
    File(tmp_path).wrapped("m:load").call(2, 3, "m:load", deferred=True)
    assert judged(tmp_path).outcome is Outcome.UNKNOWN


# spans and log


def test_spans_and_log_at_odds_are_both_told_and_neither_is_believed(tmp_path: Path) -> None:
    File(tmp_path).wrapped(CUTEDSL).call(10, 20, CUTEDSL)
    log = "Compiling CuTeDSL kernels:   0%|   | 0/4\rCompiling CuTeDSL kernels:  25%|█   | 1/4 [00:01<00:03]\n"
    found = judged(tmp_path, "cutedsl", log=log)
    assert found.outcome is Outcome.UNKNOWN
    assert found.disagreement == "spans say succeeded, the log says that its progress stopped at 1 of 4"
    assert found.seconds == 10.0


def test_a_bar_that_came_to_its_end_agrees(tmp_path: Path) -> None:
    File(tmp_path).wrapped(CUTEDSL).call(10, 20, CUTEDSL)
    log = "".join(f"Compiling CuTeDSL kernels:  25%|█   | {done}/4 [00:01<00:03]\r" for done in range(5))
    found = judged(tmp_path, "cutedsl", log=log)
    assert (found.outcome, found.disagreement) == (Outcome.SUCCEEDED, None)


def test_a_log_that_tells_of_a_call_which_the_spans_have_not_seen_is_at_odds(tmp_path: Path) -> None:
    File(tmp_path).wrapped(CUTEDSL)
    log = log_line("Warming up CuTeDSL compile_units=4 names=('a',).", "cutedsl_warmup.py")
    found = judged(tmp_path, "cutedsl", log=log)
    assert found.disagreement == "spans say never called, the log of pid 7 says that it began"


def test_a_beginning_in_the_log_agrees_with_a_call_that_returned_early(tmp_path: Path) -> None:
    compiled(File(tmp_path), inner=None)
    log = log_line("Warming up ll_bf16 router GEMM kernels for shapes: [(1, 2)].", "kernel_warmup.py")
    found = judged(tmp_path, "router", log=log)
    assert (found.outcome, found.disagreement) == (Outcome.SKIPPED, None)


def test_a_log_without_a_word_is_at_odds_with_nothing(tmp_path: Path) -> None:
    File(tmp_path).wrapped(CUTEDSL).call(10, 20, CUTEDSL)
    assert judged(tmp_path, "cutedsl", log="").disagreement is None


# the record


def test_its_record_is_what_a_leg_holds(tmp_path: Path) -> None:
    File(tmp_path).wrapped("m:load").call(10 + 1 / 3, 30, "m:load")
    record = judged(tmp_path).as_record()
    assert json.loads(json.dumps(record, allow_nan=False)) == {
        "callable": "m:load",
        "outcome": "succeeded",
        "why": "every call returned",
        "calls": 1,
        "processes": 1,
        "summed_calls": 0,
        "intervals": [[10.3333333, 30.0]],
        "seconds": 19.6666667,
        "share": 0.196666667,
        "exception": None,
        "disagreement": None,
    }


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_the_wall_clock_changes_no_seconds(tmp_path: Path, step: float) -> None:
    file = File(tmp_path).wrapped("m:load")
    number = file.begin(10, "m:load")
    file.step = step
    file.end(30, number)
    assert judged(tmp_path).seconds == 20.0
