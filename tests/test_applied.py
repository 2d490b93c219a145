"""What a server was told, against what its engine says of itself."""

from __future__ import annotations

import json

import pytest

from pinproof import applied
from pinproof.reasons import Reason, Refusal
from pinproof.serverlog import ResolvedConfig, resolved_config

CONFIG = (
    "model='/m', speculative_config=None, revision=None, dtype=torch.bfloat16, max_seq_len=2048, "
    "tensor_parallel_size=1, data_parallel_size=1, enforce_eager=False, enable_prefix_caching=True, seed=0"
)
ARGUMENTS = "{'max_num_seqs': 8, 'gpu_memory_utilization': 0.55, 'language_model_only': True}"


def said(config: str = CONFIG, *, starts: int = 1) -> ResolvedConfig:
    text = f"Initializing a V1 LLM engine (v1.1) with config: {config}"
    start = f"(EngineCore pid=2) INFO 12-01 04:31:48 [core.py:1] {text}\n"
    return resolved_config(
        f"(APIServer pid=1) INFO 12-01 04:31:04 [api_utils.py:1] non-default args: {ARGUMENTS}\n" + start * starts
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["--max-model-len", "2048"],
        ["--max_model_len=2048"],
        ["--max-model-len", "4096", "--max-model-len", "2048"],
        ["--max-model-len", "2k"],
        ["--dtype", "auto"],
        ["--dtype", "bfloat16", "-tp", "1"],
        ["--enable-prefix-caching", "--no-enforce-eager"],
        ["--max-num-seqs", "8", "--gpu-memory-utilization", "0.55", "--language-model-only"],
        ["--max-num-batched-tokens", "8192"],
        ["--kv-cache-dtype", "fp8", "--an-option-of-tomorrow", "7"],
    ],
    ids=" ".join,
)
def test_what_is_stated_as_told_or_not_stated_is_no_difference(argv: list[str]) -> None:
    applied.require(["vllm", "serve", "/m", *argv], said(), "oracle")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--max-model-len", "4096"], "--max-model-len is told as 4096, the engine says max_seq_len=2048"),
        (["--max-num-seqs=9"], "--max-num-seqs is told as 9, the engine says max_num_seqs=8"),
        (["--dtype", "half"], "--dtype is told as torch.float16, the engine says dtype=torch.bfloat16"),
        (["--no-enable-prefix-caching"], "--enable-prefix-caching is told as False, the engine says enable_prefix"),
        (["--enforce-eager"], "--enforce-eager is told as True, the engine says enforce_eager=False"),
        (["--revision", "abc"], "--revision is told as abc, the engine says revision=None"),
        (["-tp", "2"], "--tensor-parallel-size is told as 2, the engine says tensor_parallel_size=1"),
    ],
)
def test_an_option_that_was_not_taken_is_refused_with_both_values(argv: list[str], text: str) -> None:
    with pytest.raises(Refusal) as error:
        applied.require(argv, said(), "oracle")
    assert error.value.reason is Reason.CONFIG_NOT_APPLIED
    assert error.value.message.startswith(f"oracle: {text}")


def test_a_server_that_says_nothing_of_itself_is_not_refused() -> None:
    applied.require(["--max-model-len", "4096"], resolved_config("listening\n"), "ours")


def test_one_log_is_one_engine_start() -> None:
    with pytest.raises(Refusal) as error:
        applied.require([], said(starts=2), "oracle")
    assert error.value.reason is Reason.ENGINE_STARTS


def test_every_rank_of_data_parallelism_is_a_start() -> None:
    applied.require([], said(CONFIG.replace("data_parallel_size=1", "data_parallel_size=2"), starts=2), "oracle")


def test_what_the_engine_says_is_kept_and_unknown_is_null() -> None:
    kept = json.loads(json.dumps(applied.said(said())))
    assert kept["version"] == "1.1"
    assert kept["config"]["max_seq_len"] == 2048
    assert kept["config"]["enable_prefix_caching"] is True
    assert kept["config"]["quantization"] is None
    assert kept["arguments"]["max_num_seqs"] == 8
    assert kept["kv_cache_tokens"] is None
