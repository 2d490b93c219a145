"""The log as second witness of warm-up steps: lines, and progress bars read at their carriage returns."""

from __future__ import annotations

import pytest

from pinproof.warmuplog import Seen, read

CUTEDSL = "vllm.model_executor.warmup.cutedsl_warmup:cutedsl_warmup"
ROUTER = "vllm.model_executor.warmup.kernel_warmup:_warmup_ll_bf16_router_gemm"
KERNELS = "vllm.model_executor.warmup.kernel_warmup:kernel_warmup"
RUNNER = "vllm.v1.worker.cpu_model_runner:CPUModelRunner.warming_up_model"


def line(text: str, file: str, process: str = "Worker pid=7", level: str = "INFO") -> str:
    return f"({process}) {level} 12-01 04:00:06 [{file}:87] {text}\n"


def bar(done: int, total: int = 12) -> str:
    return (
        f"Compiling CuTeDSL kernels: {100 * done // total:3d}%|{'█' * done:<12}| {done}/{total} [00:03<00:01,  1.9it/s]"
    )


def test_a_progress_bar_is_read_at_its_carriage_returns() -> None:
    text = "\r".join(bar(done) for done in range(13)) + "\n"
    assert read(text, CUTEDSL) == {None: Seen(begun=True, done=12, total=12)}


def test_a_bar_that_stopped_halfway_is_seen_to_have_stopped() -> None:
    assert read("\r".join(bar(done) for done in range(6)), CUTEDSL)[None].done == 5


def test_a_log_line_in_the_middle_of_a_bar_hides_neither() -> None:
    text = bar(3) + line("Warming up CuTeDSL compile_units=12 names=('a',).", "cutedsl_warmup.py") + "\r" + bar(12)
    assert read(text, CUTEDSL) == {7: Seen(begun=True), None: Seen(begun=True, done=12, total=12)}


def test_a_bar_of_something_else_says_nothing() -> None:
    assert (
        read("Loading safetensors checkpoint shards: 100% 1/1\nCapturing: 100%|███| 3/3 [00:01<00:00]", CUTEDSL) == {}
    )


def test_a_step_that_is_not_in_the_log_says_nothing() -> None:
    assert read(line("Starting to load model /m...", "cpu_model_runner.py"), ROUTER) == {}


def test_lines_belong_to_the_process_that_wrote_them() -> None:
    text = line("Warming up model for the compilation...", "cpu_model_runner.py", "Worker_TP0 pid=7")
    text += line("Warming up model for the compilation...", "cpu_model_runner.py", "Worker_TP1 pid=8")
    text += line("Warming up done.", "cpu_model_runner.py", "Worker_TP1 pid=8")
    assert read(text, RUNNER) == {7: Seen(begun=True), 8: Seen(begun=True, finished=True)}


def test_the_same_words_of_another_source_file_are_another_callable_s() -> None:
    text = line("Warming up done.", "model_runner.py")
    assert read(text, RUNNER) == {}
    assert read(text, "vllm.v1.worker.cpu.model_runner:CPUModelRunner.warming_up_model") == {7: Seen(finished=True)}


def test_an_empty_line_says_nothing() -> None:
    assert read(line("", "cpu_model_runner.py") + line("Warming up done.", "cpu_model_runner.py"), RUNNER) == {
        7: Seen(finished=True)
    }


def test_colours_hide_no_source_file() -> None:
    text = line("Warming up done.", "model_runner.py").replace("] ", "]\x1b[0m ")
    assert read(text, RUNNER) == {}


def test_a_function_may_be_named_where_it_is_bound_and_not_where_it_stands() -> None:
    text = line("Warming up CuTeDSL compile_units=4 names=('a',).", "cutedsl_warmup.py")
    assert read(text, "vllm.model_executor.warmup.kernel_warmup:cutedsl_warmup") == {7: Seen(begun=True)}


def test_a_line_without_its_source_counts() -> None:
    assert read("Warming up done.\n", RUNNER) == {None: Seen(finished=True)}


def test_a_failure_that_was_logged_is_kept_in_its_words() -> None:
    text = line("JIT kernel warmup failed after 3.10s.", "kernel_warmup.py", level="ERROR")
    assert read(text, KERNELS)[7].failed == "JIT kernel warmup failed after 3.10s."


@pytest.mark.parametrize("name", ["m:f", "m:Class.method", "vllm.worker:Worker.init_device"])
def test_of_most_callables_no_line_is_known(name: str) -> None:
    assert read(line("f finished", "m.py"), name) == {}
