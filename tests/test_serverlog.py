"""A server log is read for its first real error, never for what only follows from it."""

from __future__ import annotations

import pytest

from pinproof.reasons import Reason
from pinproof.serverlog import (
    Cause,
    exit_cause,
    first_error,
    is_waiting,
    kernels_compiled,
    last_line,
    resolved_config,
    stuck,
)

AFTERMATH = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
WAITING = "Waiting for 1 local, 0 remote core engine proc(s) to start."


def line(text: str, process: str = "EngineCore", level: str = "INFO") -> str:
    """Lines as vLLM's formatter writes them, the whole prefix on each."""
    prefix = f"({process} pid=7) {level} 11-30 23:05:22 [some_file.py:12] "
    return "".join(f"{prefix}{one}\n" for one in text.split("\n"))


def trace(error: str) -> str:
    return f'Traceback (most recent call last):\n  File "/x/y.py", line 3, in load\n    raise error\n    ^^^^^\n{error}'


def failed(error: str, process: str = "Worker") -> str:
    return line("WorkerProc failed to start.\n" + trace(error), process, "ERROR")


def aftermath(processes: str = "{}") -> str:
    """How every failed start of vLLM ends, in the engine and in the front."""
    engine = "EngineCore failed to start.\n" + trace(
        "Exception: WorkerProc initialization failed. See stack trace for root cause."
    )
    return line(engine, "EngineCore", "ERROR") + "Process EngineCore:\n" + trace(AFTERMATH + processes) + "\n"


START = line("Starting to load model") + line("Warming up ll_bf16 router GEMM kernels for shapes: [(1, 2)].")


def found(text: str) -> Cause:
    cause = first_error(text)
    assert cause is not None
    return cause


# the first error


@pytest.mark.parametrize("processes", ["{}", "{'EngineCore_0': 1}"])
def test_the_workers_traceback_is_the_cause_not_what_follows(processes: str) -> None:
    cause = found(START + failed("ValueError: no such layer") + aftermath(processes))
    assert cause.line == "ValueError: no such layer"
    assert cause.process == "Worker pid=7"
    assert cause.reason is Reason.SERVER_EXITED
    assert cause.excerpt[-1] == "ValueError: no such layer"


def test_the_number_is_the_line_an_editor_shows() -> None:
    text = START + failed("ValueError: x")
    assert text.split("\n")[(found(text).number or 0) - 1].endswith("ValueError: x")


def test_a_log_without_a_cause_says_so_and_names_the_exit_status() -> None:
    cause = exit_cause(START + aftermath(), 1)
    assert (cause.reason, cause.line, cause.number) == (
        Reason.SERVER_EXITED,
        "no cause in the log; exit status 1",
        None,
    )
    assert first_error(START + aftermath()) is None


def test_the_exit_status_of_an_engine_process_in_the_aftermath_counts() -> None:
    cause = exit_cause(START + aftermath("{'EngineCore_0': -9}"), 1)
    assert (cause.reason, cause.line) == (Reason.SERVER_KILLED, "no cause in the log; child exit status -9")


def test_an_engine_that_vanished_without_a_word_was_killed() -> None:
    warning = line("[shutdown] MPClient: engine core exited unexpectedly; starting cleanup", "APIServer", "WARNING")
    dead = "AsyncLLM output_handler failed.\n" + trace(
        "vllm.EngineDeadError: EngineCore encountered an issue. See stack trace"
    )
    cause = exit_cause(warning + line(dead, "APIServer", "ERROR"), 0)
    assert (cause.reason, cause.kind) == (Reason.SERVER_KILLED, "killed")
    assert "an engine process ended without a word" in cause.line


@pytest.mark.parametrize(
    ("status", "kind"), [(-9, "killed"), (137, "killed"), (-15, "stopped from outside"), (143, "stopped from outside")]
)
def test_a_signal_without_an_error_in_the_log_came_from_outside(status: int, kind: str) -> None:
    cause = exit_cause(START, status)
    assert (cause.reason, cause.kind) == (Reason.SERVER_KILLED, kind)


def test_an_earlier_killed_line_is_the_cause() -> None:
    cause = exit_cause(START + "Killed\n" + aftermath(), 1)
    assert (cause.reason, cause.line) == (Reason.SERVER_KILLED, "Killed")


def test_a_worker_that_died_of_a_signal_was_killed() -> None:
    died = line("Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.", level="ERROR")
    assert found(START + died + aftermath()).reason is Reason.SERVER_KILLED


@pytest.mark.parametrize(
    ("error", "reason", "kind"),
    [
        (
            "ValueError: Free memory on device cuda:0 (3/9 GiB) on startup is less than desired GPU memory utilization",
            Reason.SERVER_MEMORY,
            "memory",
        ),
        (
            "ValueError: Available memory on node 0 (1/2 GiB) on startup is less than desired CPU memory utilization",
            Reason.SERVER_MEMORY,
            "memory",
        ),
        ("AssertionError: Error in memory profiling. Initial free memory 3 GiB", Reason.SERVER_MEMORY, "memory"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", Reason.SERVER_MEMORY, "memory"),
        ("OSError: [Errno 98] Address already in use", Reason.SERVER_FOREIGN, "port taken"),
        (
            "TimeoutError: Timed out waiting for engine core processes to start. Waited 600s",
            Reason.SERVER_TIMEOUT,
            "slow start, limit of the engine hit",
        ),
        (
            "RuntimeError: Did not receive response from front-end process within 5 minutes",
            Reason.SERVER_TIMEOUT,
            "slow start, limit of the engine hit",
        ),
        (
            "RuntimeError: FlashInfer requires GPUs with sm75 or higher",
            Reason.TOOLCHAIN_MISMATCH,
            "local toolkit too old for this device",
        ),
        ("ModuleNotFoundError: No module named 'torchvision'", Reason.MODULE_MISSING, "module missing"),
        ("ModuleNotFoundError: No module named 'vllm._C'", Reason.SERVER_EXITED, "error"),
        (
            "AttributeError: module 'cutlass.cute.core' has no attribute 'ThrMma'",
            Reason.SERVER_EXITED,
            "a kernel does not compile",
        ),
        (
            "ValueError: There is no module or parameter named 'layers.0.attention_conv' in DFlash2Qwen3Model",
            Reason.SERVER_EXITED,
            "weights do not fit this engine",
        ),
    ],
)
def test_what_an_error_means(error: str, reason: Reason, kind: str) -> None:
    cause = found(START + failed(error) + aftermath())
    assert (cause.reason, cause.kind, cause.line) == (reason, kind, error)


def test_an_error_in_warm_up_names_the_step() -> None:
    cause = found(START + failed("AttributeError: module 'cutlass.cute.core' has no attribute 'ThrMma'"))
    assert cause.during == "Warming up ll_bf16 router GEMM kernels for shapes: [(1, 2)]."
    served = START + line("init engine (profile, create kv cache, warmup model) took 4 s") + failed("ValueError: x")
    assert found(served).during is None


def test_the_ports_taken_line_of_uvicorn_counts() -> None:
    text = (
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use\n"
    )
    assert found(START + text).reason is Reason.SERVER_FOREIGN


def test_arguments_that_are_not_known_are_named() -> None:
    cause = found(
        "usage: vllm [-h] [-v]\n            {chat,serve}\nvllm: error: unrecognized arguments: --no-such-flag 3\n"
    )
    assert (cause.kind, cause.line) == (
        "arguments not accepted",
        "vllm: error: unrecognized arguments: --no-such-flag 3",
    )


@pytest.mark.parametrize(
    "end",
    [
        trace("KeyboardInterrupt: terminated") + "\n",
        line("[shutdown] API server: shutdown triggered", "APIServer")
        + line(trace("RuntimeError: cancelled"), level="ERROR"),
        line("[shutdown] EngineCore: trigger received signal=SIGTERM"),
    ],
)
def test_a_stop_from_outside_is_not_a_failure_of_the_server(end: str) -> None:
    cause = exit_cause(START + end, 0)
    assert (cause.reason, cause.kind) == (Reason.SERVER_KILLED, "stopped from outside")


def test_a_real_error_before_the_stop_stays_the_cause() -> None:
    text = START + failed("ValueError: x") + line("[shutdown] EngineCore: trigger received signal=SIGTERM")
    assert found(text).line == "ValueError: x"


def test_an_interrupt_while_tasks_are_cancelled_is_the_stop() -> None:
    text = (
        trace("asyncio.exceptions.CancelledError")
        + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    )
    assert found(START + text + trace("KeyboardInterrupt: terminated")).kind == "stopped from outside"


def test_the_root_of_a_direct_cause_is_the_cause() -> None:
    text = trace("KeyError: 'w1'") + "\n\nThe above exception was the direct cause of the following exception:\n\n"
    assert found(line(text + trace("RuntimeError: cannot load"), level="ERROR")).line == "KeyError: 'w1'"


def test_an_exception_raised_in_an_except_block_tells_more_than_the_one_caught() -> None:
    text = trace("StopIteration") + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    assert found(text + trace("importlib.metadata.PackageNotFoundError: vllm")).line.endswith(
        "PackageNotFoundError: vllm"
    )


def test_a_traceback_quoted_from_a_child_is_the_cause() -> None:
    called = trace("subprocess.CalledProcessError: Command '['x']' returned non-zero exit status 1.")
    link = "\n\nThe above exception was the direct cause of the following exception:\n\n"
    quoted = (
        trace("RuntimeError: Error raised in subprocess:") + "\n" + trace("ModuleNotFoundError: No module named 'x'")
    )
    assert found(line(called + link + quoted, "APIServer", "ERROR")).line == "ModuleNotFoundError: No module named 'x'"


def test_processes_that_write_into_each_others_tracebacks_are_told_apart() -> None:
    first, second = failed("ValueError: a", "Worker_0").split("\n"), failed("TypeError: b", "Worker_1").split("\n")
    woven = "\n".join(one for pair in zip(first, second, strict=True) for one in pair)
    assert found(woven).line == "ValueError: a"


def test_a_message_of_several_lines_is_kept_whole() -> None:
    error = "pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, no such model"
    assert found(trace(error)).line.endswith("for ModelConfig Value error, no such model")


def test_a_warning_with_a_traceback_is_not_the_cause_while_there_is_another() -> None:
    survived = line("cannot read the tree, retrying\n" + trace("ConnectionError: no route"), level="WARNING")
    assert found(survived + failed("ValueError: x")).line == "ValueError: x"
    assert not found(survived).sure
    assert exit_cause(survived, -9).reason is Reason.SERVER_KILLED


def test_an_error_line_alone_is_only_a_guess() -> None:
    cause = found(line("Error retrieving file list: offline", level="ERROR"))
    assert (cause.line, cause.sure) == ("Error retrieving file list: offline", False)


def test_progress_bars_hide_no_error() -> None:
    bar = "Loading:   0%|          | 0/4\rLoading:  50%|#####     | 2/4"
    assert found(bar + failed("ValueError: x") + "\rLoading: 100%|##########| 4/4\n").line == "ValueError: x"


def test_colours_and_the_older_prefixes_are_read() -> None:
    coloured = "\x1b[0;36m(EngineCore_DP0 pid=3)\x1b[0;0m "
    plain = "".join(f"{coloured}{one}\n" for one in trace("ValueError: x").split("\n"))
    old = "".join(f"ERROR 05-21 02:20:24 core.py:398] {one}\n" for one in trace("ValueError: y").split("\n"))
    ranked = "".join(f"[rank0]: {one}\n" for one in trace("ValueError: z").split("\n"))
    assert [found(text).line for text in (plain, old, ranked)] == ["ValueError: x", "ValueError: y", "ValueError: z"]


def test_a_healthy_log_holds_no_error() -> None:
    assert (
        first_error(
            START + "INFO:     Application startup complete.\n" + line("Found ulimit of 20000", level="WARNING")
        )
        is None
    )


# a start that can no more succeed


def test_waiting_lines_after_a_traceback_mean_that_the_start_is_stuck() -> None:
    text = line(trace("RuntimeError: Not enough memory for 24 blocks of KV cache"), "Worker", "ERROR")
    assert stuck(text) is None  # it may yet go on
    cause = stuck(text + line(WAITING, "APIServer", "DEBUG") * 3)
    assert cause is not None
    assert (cause.reason, cause.line) == (
        Reason.SERVER_MEMORY,
        "RuntimeError: Not enough memory for 24 blocks of KV cache",
    )


def test_an_engine_process_that_says_it_died_is_enough() -> None:
    assert stuck(failed("ValueError: x")) is not None


def test_an_error_that_the_start_lived_through_does_not_stop_it() -> None:
    assert stuck(line(trace("ValueError: tuning failed"), level="ERROR") + line("Capturing CUDA graphs")) is None


def test_waiting_lines_are_no_progress() -> None:
    assert is_waiting(line(WAITING, "APIServer", "DEBUG"))
    assert not is_waiting(line(WAITING) + line("Loading weights took 3 s"))


def test_the_last_line_is_the_last_that_says_something() -> None:
    assert last_line(line("Loading JIT ops") + "\n\n") == "Loading JIT ops"
    assert last_line("") == ""


# kernels


def test_every_form_of_a_compilation_while_serving_is_found_once() -> None:
    tail = "This causes a latency spike; consider extending warmup to cover this shape/config."
    text = (
        line(f"Triton kernel JIT compilation during inference: _zero_kv_kernel. {tail}", level="WARNING") * 2
        + line(f"Triton kernel JIT compilation during inference: _slot (key=[('*u64', 'D')]{{'debug': False}}). {tail}")
        + line(f"CuTeDSL JIT compilation during inference: FlashAttentionForwardSm100. {tail}", level="WARNING")
        + line(f"TileLang JIT compilation during inference: mhc_pre (cache_key=((1, 2),)). {tail}", level="WARNING")
        + "Autotuning kernel _fwd with config num_warps: 4\n"
    )
    kernels = ["Triton _zero_kv_kernel", "Triton _slot", "CuTeDSL FlashAttentionForwardSm100", "TileLang mhc_pre"]
    assert kernels_compiled(text) == [*kernels, "Triton autotune _fwd"]


def test_a_log_without_compilations_names_none() -> None:
    monitor = "Kernel JIT monitor activated; monitored JIT compilations during inference will use mode=warn."
    assert kernels_compiled(line(monitor) + line("JIT kernel warmup finished in 3.10s.")) == []


# the configuration


def test_the_engines_own_configuration_is_read() -> None:
    config = (
        "model='/m', speculative_config=None, dtype=torch.bfloat16, max_seq_len=256, enforce_eager=True, "
        "compilation_config={'mode': <CompilationMode.NONE: 0>, 'backend': 'inductor'}, seed=0, "
        "kernel_config=KernelConfig(names=['a, b'], n=1)"
    )
    text = (
        line("non-default args: {'model': '/m', 'max_model_len': 256, 'served_model_name': ['tiny']}", "APIServer")
        + line(f"Initializing a V1 LLM engine (v0.32.0) with config: {config}")
        + line("Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'TRITON_ATTN'].")
        + line("Using FLASHINFER MLA prefill backend.") * 2
        + line("GPU KV cache size: 1,234,567 tokens, Maximum concurrency for 256 tokens per request: 12x")
        + line("Using max model len 256")
    )
    resolved = resolved_config(text)
    assert (resolved.version, resolved.engine_text, resolved.engine_starts) == ("0.32.0", config, 1)
    assert resolved.engine["model"] == "/m"
    assert resolved.engine["max_seq_len"] == 256
    assert resolved.engine["speculative_config"] is None
    assert resolved.engine["dtype"] == "torch.bfloat16"
    assert resolved.engine["seed"] == 0
    assert resolved.engine["kernel_config"] == "KernelConfig(names=['a, b'], n=1)"
    assert resolved.arguments == {"model": "/m", "max_model_len": 256, "served_model_name": ["tiny"]}
    assert resolved.backends == (
        "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'TRITON_ATTN'].",
        "Using FLASHINFER MLA prefill backend.",
    )
    assert resolved.kv_cache_tokens == 1_234_567


def test_what_the_log_does_not_say_is_unknown() -> None:
    resolved = resolved_config("")
    assert (resolved.version, resolved.engine_text, resolved.arguments_text, resolved.kv_cache_tokens) == (None,) * 4
    assert (dict(resolved.engine), dict(resolved.arguments), resolved.backends) == ({}, {}, ())


def test_a_second_engine_start_in_one_log_is_counted() -> None:
    assert resolved_config(line("Initializing a V1 LLM engine (v1) with config: a=1") * 2).engine_starts == 2


def test_a_cause_can_be_written_down() -> None:
    record = found(failed("ValueError: x")).as_record()
    assert (record["reason"], record["line"], record["sure"]) == ("server-exited", "ValueError: x", True)
