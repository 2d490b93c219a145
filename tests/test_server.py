"""A server life: ready means served by our own process tree; its end is proven."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from pinproof import processes, records, serverlog
from pinproof.processes import Interrupted, listener_owner, members
from pinproof.reasons import Reason, Refusal
from pinproof.server import Counters, Server, ServerSpec, ready

STUB = (sys.executable, "-S", str(Path(__file__).parent / "stubs" / "engine.py"))
RUN = f"test-{os.getpid()}"  # the machine may run other tests, and real runs
MARKER = f"{RUN}/oracle/1"

Spec = Callable[..., ServerSpec]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine folder for the test alone; every test leaves it without a life."""
    monkeypatch.setattr(processes, "MACHINE_FOLDER", tmp_path / "machine")
    yield
    left = set(processes._recorded())
    for marker in left:
        processes.end(marker, 0)
    assert left == set()


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """A stub engine with these faults."""

    def make(*faults: str, name: str = "server", args: tuple[str, ...] = (), **changes: object) -> ServerSpec:
        argv = (
            *STUB,
            "--port",
            "{port}",
            "--model",
            "subject",
            *args,
            *(p for one in faults for p in ("--fault", one)),
        )
        plain = ServerSpec(
            argv=argv,
            env={"PATH": "/usr/bin:/bin"},
            model_name="subject",
            log=tmp_path / f"{name}.log",
            start_timeout_s=60,
            stall_timeout_s=60,
            grace_s=5,
            fatal_grace_s=0.3,
        )
        return replace(plain, **changes)

    return make


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Callable[[int], subprocess.Popen]]:
    """Servers of somebody else, that answer on a port."""
    started: list[subprocess.Popen] = []

    def make(port: int) -> subprocess.Popen:
        out = (tmp_path / "stranger.log").open("wb")
        started.append(subprocess.Popen([*STUB, "--port", str(port), "--model", "subject"], stdout=out))
        until(lambda: listener_owner(port))
        return started[-1]

    yield make
    for process in started:
        process.kill()
        process.wait()


def until(condition: Callable[[], object], limit_s: float = 20) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def refused(spec: ServerSpec) -> tuple[Refusal, Server]:
    """Start a server that cannot become ready; it must be gone when it is refused."""
    with Server.start(spec, MARKER) as started:
        with pytest.raises(Refusal) as refusal:
            started.wait_ready()
        assert started.teardown is not None
        assert members(MARKER) == []
    return refusal.value, started


def complete(started: Server, tokens: int = 3) -> httpx.Response:
    body = {"model": "subject", "prompt": "hello", "max_tokens": tokens}
    return httpx.post(f"{started.base_url}/v1/completions", json=body, headers=started.headers, timeout=20)


# ready


def test_ready_means_served_and_has_its_marks_in_order(spec: Spec) -> None:
    with Server.start(spec(args=("--start-ms", "100")), MARKER) as started:
        marks = started.wait_ready()
        assert marks == started.marks
        assert marks.spawned is not None
        assert marks.first_health_200 is not None
        assert marks.first_completion is not None
        assert 0 < marks.spawned < marks.first_health_200 < marks.first_completion
        assert started.alive()
        assert started.addresses == ("127.0.0.1",)
        assert {one.pid for one in listener_owner(started.port)} <= {one.pid for one in members(MARKER)}
    assert started.teardown is not None
    assert (started.teardown.needed, started.teardown.termed) == ("TERM", (started.pid,))
    assert listener_owner(started.port) == []
    assert not started.alive()


def test_the_key_of_the_run_is_needed_and_shown_nowhere(spec: Spec) -> None:
    with Server.start(spec(), MARKER) as started:
        started.wait_ready()
        assert httpx.get(f"{started.base_url}/v1/models").status_code == 401
        assert httpx.get(f"{started.base_url}/v1/models", headers=started.headers).status_code == 200
        (process,) = members(MARKER)
        shown = [repr(started), " ".join(process.cmdline()), started.log_since(0)]
        shown += [path.read_text() for path in (processes.MACHINE_FOLDER / "lives").iterdir()]
        assert not any(started.api_key in text for text in shown)


def test_a_rehearsal_alone_takes_the_times_that_a_double_states(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    stating = spec(args=("--start-ms", "100", "--ttft-ms", "20"))
    stating = replace(stating, env={**stating.env, "STUB_CLOCK_MS": "90000"})
    with Server.start(stating, MARKER) as measured:
        assert measured.wait_ready().first_completion < 60
    monkeypatch.setenv(records.REHEARSAL_VARIABLE, "1")
    with Server.start(stating, MARKER) as rehearsed:
        marks = rehearsed.wait_ready()
    assert (marks.first_health_200, marks.first_completion) == (90.1, 90.12)


def test_two_servers_that_start_at_once_both_get_true_marks(spec: Spec) -> None:
    slow, quick = spec(name="slow", args=("--start-ms", "1500")), spec(name="quick")
    with Server.start(slow, MARKER) as first, Server.start(quick, f"{RUN}/ours/1") as second:
        assert first.port != second.port
        assert first.api_key != second.api_key
        ready(first, second)
        assert first.marks.first_health_200 is not None
        assert second.marks.first_completion is not None
        assert second.marks.first_completion < first.marks.first_health_200


def test_the_first_of_several_that_fails_ends_the_wait(spec: Spec) -> None:
    hanging, failing = spec("never-listens", name="hanging"), spec("exits-silently", name="failing")
    with (
        Server.start(hanging, MARKER) as first,
        Server.start(failing, f"{RUN}/ours/1") as second,
        pytest.raises(Refusal, match=f"{RUN}/ours/1 ended"),
    ):
        ready(first, second)


def test_progress_is_told_with_the_last_line_of_the_log(spec: Spec) -> None:
    told: list[str] = []
    with Server.start(spec(args=("--start-ms", "1200")), MARKER) as started:
        started.wait_ready(told.append)
    assert any("starting" in line and "STUB attention backend" in line for line in told)


def test_a_proxy_of_the_machine_diverts_nothing(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Server.start(spec(), MARKER) as started:
        started.wait_ready()
        assert started.metrics() is not None


def test_a_listener_on_every_address_is_reported(spec: Spec) -> None:
    with Server.start(spec("any-address"), MARKER) as started:
        started.wait_ready()
        assert started.addresses == ("0.0.0.0",)


# ends early


def test_an_early_end_is_refused_with_the_first_error_of_the_log(spec: Spec) -> None:
    refusal, started = refused(spec("exits-at-start=3"))
    assert refusal.reason is Reason.SERVER_EXITED
    assert "ValueError: the stub was told to fail" in refusal.message
    assert "root cause" not in refusal.message
    assert refusal.file == str(started.spec.log)
    assert refusal.key is not None
    assert refusal.key.startswith("line ")


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ("exits-silently=3", Reason.SERVER_EXITED, "no cause in the log; exit status 3"),
        ("killed", Reason.SERVER_KILLED, "no cause in the log; exit status -9"),
        ("stopped", Reason.SERVER_KILLED, "stopped from outside"),
        ("out-of-memory", Reason.SERVER_MEMORY, "less than desired GPU memory utilization"),
    ],
)
def test_the_cause_of_an_early_end_decides_whose_failure_it_is(
    spec: Spec, fault: str, reason: Reason, words: str
) -> None:
    refusal, _ = refused(spec(fault))
    assert refusal.reason is reason
    assert words in refusal.message


@pytest.mark.parametrize("faults", [("parent-exits",), ("parent-exits", "bare-child")])
def test_a_child_that_outlives_its_parent_is_named_and_ended(spec: Spec, faults: tuple[str, ...]) -> None:
    refusal, started = refused(spec(*faults))
    assert started.teardown is not None
    (child,) = started.teardown.termed
    assert f"processes that outlived it: [{child}]" in refusal.message
    assert refusal.reason is Reason.SERVER_TIMEOUT  # the engine's own limit, not a regression


def test_a_program_that_is_not_there_is_refused_at_once(spec: Spec) -> None:
    with pytest.raises(Refusal) as refusal:
        Server.start(spec(argv=("/no/such/engine", "--port", "{port}")), MARKER)
    assert refusal.value.reason is Reason.ENV_BROKEN


# never ready


def test_a_dead_engine_behind_a_waiting_front_is_refused_with_the_traceback(spec: Spec) -> None:
    refusal, _ = refused(spec("waits-after-traceback"))
    assert refusal.reason is Reason.SERVER_MEMORY
    assert "will not become ready" in refusal.message  # and not: was waited for to the limit
    assert "Not enough memory for 24 blocks of KV cache" in refusal.message


def test_a_start_without_progress_is_a_stall_and_names_the_last_line(spec: Spec) -> None:
    refusal, _ = refused(spec("never-listens", stall_timeout_s=2.5))
    assert refusal.reason is Reason.SERVER_STALLED
    assert "Using STUB attention backend" in refusal.message


def test_waiting_lines_are_no_progress(spec: Spec) -> None:
    refusal, _ = refused(spec("waits-after-traceback", stall_timeout_s=2.5, fatal_grace_s=60))
    assert "made no progress" in refusal.message
    assert refusal.reason is Reason.SERVER_MEMORY  # the traceback is still the cause


def test_a_start_that_takes_too_long_is_our_limit(spec: Spec) -> None:
    refusal, _ = refused(spec("never-listens", start_timeout_s=0.5))
    assert refusal.reason is Reason.SERVER_TIMEOUT


def test_a_server_that_is_healthy_but_never_answers_is_a_stall(spec: Spec) -> None:
    refusal, started = refused(spec("hung-post", stall_timeout_s=2.5))
    assert refusal.reason is Reason.SERVER_STALLED
    assert started.marks.first_health_200 is not None
    assert started.marks.first_completion is None


def test_a_server_of_another_model_is_refused(spec: Spec) -> None:
    refusal, _ = refused(spec("wrong-model"))
    assert refusal.reason is Reason.CONFIG_NOT_APPLIED
    assert "another-model" in refusal.message


@pytest.mark.parametrize("fault", ["error-500=1", "error-200=1"])
def test_a_first_completion_that_fails_is_refused(spec: Spec, fault: str) -> None:
    refusal, _ = refused(spec(fault))
    assert refusal.reason is Reason.REQUESTS_FAILED
    assert "the stub was told to fail" in refusal.message


# strangers


def test_a_port_that_is_taken_before_the_start_is_refused(spec: Spec, stranger: Callable) -> None:
    port = processes.free_port()
    other = stranger(port)
    with pytest.raises(Refusal) as refusal:
        Server.start(spec(port=port), MARKER)
    assert refusal.value.reason is Reason.SERVER_FOREIGN
    assert f"pid {other.pid}" in refusal.value.message
    assert members(MARKER) == []
    assert other.poll() is None


def test_a_stranger_that_answers_on_our_port_is_never_taken_for_ours(spec: Spec, stranger: Callable) -> None:
    with Server.start(spec("never-listens"), MARKER) as started:
        other = stranger(started.port)  # healthy, and even of our model's name
        with pytest.raises(Refusal) as refusal:
            started.wait_ready()
    assert refusal.value.reason is Reason.SERVER_FOREIGN
    assert f"pid {other.pid}" in refusal.value.message
    assert started.marks.first_health_200 is None
    assert other.poll() is None  # and it is not ours to end


# its end


def test_a_server_that_ignores_term_is_killed_and_recorded_so(spec: Spec) -> None:
    with Server.start(spec("ignores-term", grace_s=0.3), MARKER) as started:
        started.wait_ready()
        teardown = started.stop()
        assert (teardown.needed, teardown.killed) == ("KILL", (started.pid,))
        assert started.stop() is teardown
    assert listener_owner(started.port) == []


@pytest.mark.parametrize("error", [RuntimeError("ours"), Interrupted(15)])
def test_whatever_happens_while_it_runs_it_is_torn_down(spec: Spec, error: BaseException) -> None:
    with pytest.raises(type(error)), Server.start(spec(), MARKER):
        raise error
    assert members(MARKER) == []


def test_a_signal_during_the_wait_ends_it(spec: Spec) -> None:
    def interrupt(_line: str) -> None:
        raise Interrupted(15)

    with pytest.raises(Interrupted), Server.start(spec("never-listens"), MARKER) as started:
        started.wait_ready(interrupt)
    assert members(MARKER) == []


def test_a_server_that_even_kill_does_not_end_is_refused_but_hides_no_earlier_failure(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = processes.end
    monkeypatch.setattr(processes, "end", lambda marker, grace_s: replace(end(marker, grace_s), left=(12345,)))
    with pytest.raises(Refusal) as refusal, Server.start(spec(name="one"), MARKER):
        pass
    assert refusal.value.reason is Reason.SERVER_SURVIVED
    with pytest.raises(RuntimeError) as error, Server.start(spec(name="two"), f"{RUN}/oracle/2"):
        raise RuntimeError
    assert "12345" in error.value.__notes__[0]


def test_a_server_that_dies_while_it_serves_is_refused_with_its_cause(spec: Spec) -> None:
    with Server.start(spec("dies-mid-run=1"), MARKER) as started:
        started.wait_ready()
        started.check_alive()
        with pytest.raises(httpx.HTTPError):
            complete(started)
        until(lambda: not started.alive())
        with pytest.raises(Refusal) as refusal:
            started.check_alive()
    assert refusal.value.reason is Reason.SERVER_EXITED
    assert "RuntimeError: the stub was told to die" in refusal.value.message


def test_a_server_that_we_stopped_is_not_alive(spec: Spec) -> None:
    with Server.start(spec(), MARKER) as started:
        started.wait_ready()
        started.stop()
        with pytest.raises(Refusal) as refusal:
            started.check_alive()
    assert refusal.value.reason is Reason.SERVER_KILLED


# windows


def test_the_log_of_a_window_holds_what_was_written_in_it(spec: Spec) -> None:
    with Server.start(spec("jit-line=2"), MARKER) as started:
        started.wait_ready()
        complete(started)
        before = started.log_offset()
        complete(started)
        assert serverlog.kernels_compiled(started.log_since(before)) == ["Triton _stub_kernel"]
        assert serverlog.kernels_compiled(started.log_since(0)[:before]) == []


def test_the_counters_of_a_window_are_a_difference(spec: Spec) -> None:
    with Server.start(spec("prefix-hits=2"), MARKER) as started:
        started.wait_ready()
        before = started.metrics()
        complete(started, tokens=3)
        after = started.metrics()
    assert before is not None
    assert after is not None
    window = after.since(before)
    assert window.total("vllm:prompt_tokens_total") == len("hello")
    assert window.total("vllm:generation_tokens_total") == 3
    assert window.total("vllm:prefix_cache_hits_total") == 2
    assert window.total("vllm:request_success_total") == 1
    assert window.total("vllm:request_success_total", finished_reason="length") == 1
    assert window.total("vllm:spec_decode_num_drafts_total") is None


def test_a_server_without_metrics_has_unknown_counters(spec: Spec) -> None:
    with Server.start(spec("no-metrics"), MARKER) as started:
        started.wait_ready()
        assert started.metrics() is None


def counters(*lines: str) -> Counters:
    return Counters.parse("# TYPE n_total counter\n" + "".join(f"{line}\n" for line in lines))


def test_counters_do_not_hang_on_the_order_of_labels_nor_count_times() -> None:
    one = counters(
        'n_total{engine="0",position="1"} 3', 'n_total{position="1",engine="1"} 4', 'n_created{engine="0"} 1.7e+09'
    )
    assert one.total("n_total", position="1") == 7
    assert one.total("n_created") is None
    assert one.as_record() == {'n_total{engine="0",position="1"}': 3, 'n_total{engine="1",position="1"}': 4}


def test_a_series_that_went_down_is_not_hidden_by_another_that_grew() -> None:
    before = counters('n_total{engine="0"} 100', 'n_total{engine="1"} 100')
    after = counters('n_total{engine="0"} 5', 'n_total{engine="1"} 300')
    with pytest.raises(Refusal) as refusal:
        after.since(before)
    assert refusal.value.reason is Reason.METRICS_DISAGREE
    assert 'engine="0"' in refusal.value.message


def test_a_series_that_is_new_counts_from_zero() -> None:
    assert counters('n_total{engine="0"} 5').since(counters()).total("n_total") == 5


def test_a_counter_without_a_declared_type_is_known_by_its_name() -> None:
    assert Counters.parse("n_total 3\ng 4\n").as_record() == {"n_total{}": 3}


# the stub itself, which other tests rely on


def stream(started: Server, **wish: object) -> list[dict | str]:
    """The events of a streamed completion; the last is "[DONE]" when the stream is whole."""
    body = {"model": "subject", "prompt": "hello", "stream": True, "stream_options": {"include_usage": True}, **wish}
    events: list[dict | str] = []
    url = f"{started.base_url}/v1/completions"
    with (
        contextlib.suppress(httpx.RemoteProtocolError),
        httpx.stream("POST", url, json=body, headers=started.headers, timeout=20) as answer,
    ):
        for line in answer.iter_lines():
            if line:
                data = line.removeprefix("data: ")
                events.append(data if data == "[DONE]" else json.loads(data))
    return events


def test_the_stub_streams_one_token_a_chunk_and_then_the_usage(spec: Spec) -> None:
    with Server.start(spec(args=("--eos-after", "2")), MARKER) as started:
        started.wait_ready()
        *tokens, usage, done = stream(started, max_tokens=4, ignore_eos=True)
        assert [event["choices"][0]["text"] for event in tokens] == ["a", "b", "c", "d"]
        assert [event["choices"][0]["finish_reason"] for event in tokens] == [None, None, None, "length"]
        assert usage["usage"] == {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
        assert done == "[DONE]"
        *tokens, _usage, _done = stream(started, max_tokens=4)
        assert [event["choices"][0]["finish_reason"] for event in tokens] == [None, "stop"]
        assert stream(started, max_tokens=2, prompt=[1, 2, 3])[-2]["usage"]["prompt_tokens"] == 3


def test_the_stub_spoils_streams_on_demand(spec: Spec) -> None:
    faults = ("short-outputs=2", "extra-prompt-tokens=3", "cut-stream=3", "empty-first-chunk")
    with Server.start(spec(*faults), MARKER) as started:
        started.wait_ready()
        empty, *tokens, usage, _done = stream(started, max_tokens=5)
        assert empty["choices"][0]["text"] == ""
        assert len(tokens) == usage["usage"]["completion_tokens"] == 3
        assert usage["usage"]["prompt_tokens"] == 8
        assert stream(started, max_tokens=8)[-1] != "[DONE]"


def test_the_stub_knows_its_faults() -> None:
    page = subprocess.run([*STUB, "--help"], capture_output=True, text=True, check=True).stdout
    assert "TEST DOUBLE" in page
    assert "waits-after-traceback" in page
    wrong = subprocess.run([*STUB, "--port", "1", "--fault", "no-such"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, "no such fault" in wrong.stderr) == (2, True)
