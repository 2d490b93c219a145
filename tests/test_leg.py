"""A leg: what the load client wrote is read strictly, and nothing is trusted for exiting 0.

E1, E3, … are the numbers of public reports in field-notes, section B (e).
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.builders import ASKED, put_text, raw_output, refusal_of

from pinproof import client, leg, processes
from pinproof.reasons import Reason

AGREED = {"generation_tokens": 8.0, "prompt_tokens": 32.0, "requests_finished": 2.0, "prefix_cache_hits": 0.0}
UNKNOWN = dict.fromkeys(AGREED)


def objections(raw: dict[str, Any], asked: leg.Asked = ASKED, **counters: float | None) -> dict[Reason, str]:
    return {one.reason: one.message for one in leg.objections(raw, asked, {**UNKNOWN, **counters})}


def reasons(asked: leg.Asked = ASKED, **changes: Any) -> set[Reason]:
    """The reasons against a leg of which only this differs from one in which all is well."""
    return set(objections(raw_output(asked, **changes), asked))


def test_a_leg_in_which_all_is_well_counts() -> None:
    assert objections(raw_output(), **AGREED) == {}


# -- requests ------------------------------------------------------------------------------------


def test_e1_zeros_of_a_run_without_a_success_are_no_record_values() -> None:
    zeros = {"output_throughput": 0.0, "median_tpot_ms": 0.0, "median_ttft_ms": 0.0, "duration": 0.0}
    lost = {"completed": 0, "failed": 2, "output_lens": [0, 0], "total_output_tokens": 0, "errors": ["gone", "gone"]}
    raw = raw_output(**zeros, **lost)
    found = objections(raw)
    assert found[Reason.REQUESTS_FAILED] == "0 of 2 requests completed, 2 failed: 2 x 'gone'"
    assert Reason.METRIC_MISSING in found
    assert set(leg.metrics(raw).values()) == {None}


def test_e3_answers_without_tokens_do_not_count_although_every_request_completed() -> None:
    asked = leg.Asked(60, 8, 4)
    found = objections(raw_output(asked, output_lens=[0] * 60, total_output_tokens=0, output_throughput=0.0), asked)
    assert found[Reason.OUTPUT_SHORT] == "60 of 60 requests got not 4 tokens but 0"
    assert Reason.METRIC_MISSING in found
    assert Reason.REQUESTS_FAILED not in found


def test_e4_a_single_lost_request_is_enough() -> None:
    asked = leg.Asked(256, 8, 4)
    found = objections(raw_output(asked, completed=248, failed=8), asked)
    assert found == {Reason.REQUESTS_FAILED: "248 of 256 requests completed, 8 failed: no error text"}
    assert reasons(asked, completed=255, failed=1) == {Reason.REQUESTS_FAILED}


def test_e5_a_missing_failed_is_derived_and_said_so() -> None:
    asked = leg.Asked(50, 8, 4)
    raw = raw_output(asked, completed=47)
    del raw["failed"]
    (message,) = objections(raw, asked).values()
    assert message.startswith("47 of 50 requests completed, 3 failed (derived: the client does not say)")


def test_e5_a_missing_failed_is_no_objection_when_all_completed() -> None:
    raw = raw_output()
    del raw["failed"]
    assert objections(raw) == {}


@pytest.mark.parametrize("completed", [None, "2", True, 2.5])
def test_a_client_that_does_not_say_how_many_completed_shows_nothing(completed: Any) -> None:
    assert reasons(completed=completed) == {Reason.REQUESTS_MISSING}


def test_more_requests_than_asked_do_not_count_either() -> None:
    assert Reason.REQUESTS_FAILED in reasons(completed=3)
    assert Reason.REQUESTS_FAILED in reasons(failed=-1)


def test_e7_distinct_error_texts_are_listed_with_counts() -> None:
    asked = leg.Asked(4, 8, 4)
    text = "Never received a valid chunk to calculate TTFT"
    message = objections(raw_output(asked, completed=1, failed=3, errors=["", text, "reset", text]), asked)[
        Reason.REQUESTS_FAILED
    ]
    assert message == f"1 of 4 requests completed, 3 failed: 2 x '{text}', 1 x 'reset'"


def test_a_long_error_text_is_cut() -> None:
    assert len(objections(raw_output(completed=1, failed=1, errors=["x" * 5000]))[Reason.REQUESTS_FAILED]) < 300


@pytest.mark.parametrize("errors", [None, "text", [{"code": 500}], [None, 7]])
def test_errors_in_another_form_do_not_break_the_reading(errors: Any) -> None:
    assert Reason.REQUESTS_FAILED in reasons(completed=1, failed=1, errors=errors)


# -- lengths -------------------------------------------------------------------------------------


def test_e12_fewer_generated_tokens_than_asked_do_not_count() -> None:
    asked = leg.Asked(8, 8, 16)
    found = objections(raw_output(asked, output_lens=[8] * 8, total_output_tokens=64), asked)
    assert found == {Reason.OUTPUT_SHORT: "8 of 8 requests got not 16 tokens but 8"}


def test_one_short_answer_among_many_is_enough() -> None:
    asked = leg.Asked(3, 8, 4)
    assert reasons(asked, output_lens=[4, 3, 4], total_output_tokens=11) == {Reason.OUTPUT_SHORT}


def test_a_longer_answer_than_asked_does_not_count() -> None:
    assert reasons(output_lens=[4, 5], total_output_tokens=9) == {Reason.OUTPUT_SHORT}


def test_e13_prompts_of_other_lengths_than_those_of_the_corpus_do_not_count() -> None:
    asked = leg.Asked(5, 64, 4)
    found = objections(raw_output(asked, input_lens=[64, 66, 66, 64, 65]), asked)
    assert found == {Reason.INPUT_DIFFERS: "3 of 5 prompts have not 64 tokens but 65, 66"}


def test_e15_an_empty_prompt_does_not_count() -> None:
    assert reasons(leg.Asked(2, 1, 4), input_lens=[0, 0], total_input_tokens=0) == {Reason.INPUT_DIFFERS}


@pytest.mark.parametrize("key", ["input_lens", "output_lens"])
@pytest.mark.parametrize("counts", [None, [], 0, "44", [4, None], [8, "8"], [True, True], [8.0, 8.0]])
def test_without_whole_numbers_of_tokens_request_by_request_nothing_is_shown(key: str, counts: Any) -> None:
    assert Reason.REQUESTS_MISSING in reasons(**{key: counts})


@pytest.mark.parametrize("key", ["input_lens", "output_lens"])
def test_every_request_has_its_counts(key: str) -> None:
    asked = leg.Asked(3, 8, 8)
    found = objections(raw_output(asked, **{key: [8, 8], "total_output_tokens": None}), asked)
    assert " output token counts for 3 requests" in found[Reason.REQUESTS_MISSING]


def test_a_total_that_is_not_the_sum_of_the_requests_does_not_count() -> None:
    """The client's throughput is made from its total."""
    assert objections(raw_output(total_output_tokens=80)) == {
        Reason.METRICS_DISAGREE: "the client counts 80 generated tokens in all, 8 request by request"
    }


# -- figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 0, 0.0, -0.3, math.nan, math.inf, "12", True, [1]])
@pytest.mark.parametrize("name", list(leg.METRICS))
def test_e16_a_figure_that_is_no_positive_number_is_unknown_and_the_leg_does_not_count(name: str, value: Any) -> None:
    raw = raw_output(**{leg.METRICS[name]: value})
    assert leg.metrics(raw)[name] is None
    assert objections(raw) == {Reason.METRIC_MISSING: f"no positive number for {name}"}


def test_figures_that_are_only_reported_are_unknown_and_no_objection() -> None:
    raw = raw_output(p99_ttft_ms=math.nan)
    assert leg.reported(raw)["p99_ttft_ms"] is None
    assert leg.reported(raw)["p99_tpot_ms"] is None
    assert leg.reported(raw)["duration"] == 1.0
    assert objections(raw) == {}


def test_e10_and_e11_peaks_gate_nothing() -> None:
    """Concurrency above the asked one, and a peak below the mean, are how the client counts."""
    assert reasons(max_concurrency=2, max_concurrent_requests=8, max_output_tokens_per_s=1.0) == set()


# -- the server as a witness ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "value", "reason"),
    [
        ("generation_tokens", 9.0, Reason.METRICS_DISAGREE),
        ("generation_tokens", 0.0, Reason.METRICS_DISAGREE),
        ("requests_finished", 3.0, Reason.METRICS_DISAGREE),
        ("prompt_tokens", 34.0, Reason.INPUT_DIFFERS),
        ("prefix_cache_hits", 1.0, Reason.PREFIX_HITS),
    ],
)
def test_a_server_that_counted_something_else_is_an_objection(counter: str, value: float, reason: Reason) -> None:
    assert set(objections(raw_output(), **{**AGREED, counter: value})) == {reason}


def test_the_objection_names_both_counts() -> None:
    found = objections(raw_output(), **{**AGREED, "generation_tokens": 9.0})
    assert found[Reason.METRICS_DISAGREE] == "generation_tokens: the client counts 8, the server 9"


def test_a_server_without_counters_is_no_objection() -> None:
    assert objections(raw_output(), **UNKNOWN) == {}
    assert leg.objections(raw_output(), ASKED, {}) == []


def test_kernels_compiled_in_the_window_are_named_once_each() -> None:
    assert leg.compiled([]) == []
    (one,) = leg.compiled(["Triton b", "Triton a", "Triton b"])
    assert one.as_record() == {
        "reason": "compiled-in-window",
        "owner": "environment",
        "message": "compiled in the window: Triton a, Triton b",
    }


# -- the file ------------------------------------------------------------------------------------


def test_e16_bare_nan_in_the_file_is_read_as_unknown_and_never_written_again(tmp_path: Path) -> None:
    path = tmp_path / "leg.raw.json"
    put_text(path, json.dumps(raw_output(median_tpot_ms=math.nan, median_ttft_ms=-math.inf)))
    raw = leg.read_raw(path)
    assert (raw["median_tpot_ms"], raw["median_ttft_ms"]) == (None, None)
    assert json.dumps(leg.metrics(raw), allow_nan=False)


@pytest.mark.parametrize(
    "text",
    ["", '{"completed": 2', '{"completed": 2}\n{"completed": 3}\n', "[]", "2", "[" * 100_000],
    ids=["empty", "torn", "two objects (E17)", "list", "number", "deep"],
)
def test_a_file_that_is_not_one_whole_object_is_refused(tmp_path: Path, text: str) -> None:
    put_text(tmp_path / "raw.json", text)
    refusal = refusal_of(leg.read_raw, tmp_path / "raw.json")
    assert (refusal.reason, refusal.file) == (Reason.CLIENT_FAILED, str(tmp_path / "raw.json"))


def test_a_client_that_wrote_no_file_is_refused(tmp_path: Path) -> None:
    assert refusal_of(leg.read_raw, tmp_path / "raw.json").message == "the client wrote no result"


def test_e17_a_result_of_yesterday_is_not_read_as_today_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client answers that all went well, and wrote nothing."""
    silent = "import os, sys\nout = open(int(sys.argv[2]), 'w', buffering=1)\nprint('{\"import_s\": 0}', file=out)\n"
    silent += "for line in open(int(sys.argv[1])):\n    print('{\"ok\": true}', file=out)\n"
    put_text(tmp_path / "silent.py", silent)
    monkeypatch.setattr(client, "PROGRAM", tmp_path / "silent.py")
    monkeypatch.setattr(processes, "MACHINE_FOLDER", tmp_path / "machine")
    put_text(tmp_path / "leg.raw.json", json.dumps(raw_output()))
    load = client.Load("http://x", "key", "m", tmp_path, tmp_path / "c.jsonl", ASKED, 1, tmp_path / "leg.raw.json")
    with client.Client(Path(sys.executable), env={}, log=tmp_path / "log", marker="test-leg/client/1") as resident:
        resident.wait_ready()
        resident.run(load, timeout_s=30, check=lambda: None)
    assert refusal_of(leg.read_raw, load.result).message == "the client wrote no result"


def streams(ttft: float, gaps: list[float], *, odd: int, count: int = 4) -> dict:
    """`odd` of `count` streams whose first gap is 20 times their TTFT."""
    late = [20 * ttft, *gaps[1:]]
    asked = leg.Asked(count, 16, len(gaps) + 1)
    return {**raw_output(asked), "ttfts": [ttft] * count, "itls": [late] * odd + [gaps] * (count - odd)}


@pytest.mark.parametrize(("odd", "reasons"), [(0, []), (2, []), (3, [Reason.FIRST_CHUNK])])
def test_a_first_chunk_without_a_token_makes_no_ttft_when_most_streams_begin_so(
    odd: int, reasons: list[Reason]
) -> None:
    raw = streams(0.02, [0.004] * 9, odd=odd)
    assert [one.reason for one in leg.objections(raw, leg.Asked(4, 16, 10), {})] == reasons
