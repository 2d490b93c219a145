"""What a server was told and what its engine says of itself: told and not taken is no measurement.

A closed list of options whose value the engine's log states plainly. What a log does not state is
unknown, and never held against the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pinproof.reasons import Reason, Refusal
from pinproof.serverlog import ResolvedConfig

Read = Callable[[str], Any]  # the value of an option as the log would state it; None: it cannot be told


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]+", text) else None


def _share(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]*\.?[0-9]+", text) else None


def _dtype(text: str) -> str | None:
    name = {"half": "float16", "float": "float32"}.get(text, text)
    return None if name == "auto" else f"torch.{name}"


@dataclass(frozen=True)
class Option:
    """An option, its other names, and the key that states it: of the engine's configuration, or of its arguments."""

    names: tuple[str, ...]
    key: str
    read: Read | None = None  # None: a switch, with a --no- form
    of_arguments: bool = False


OPTIONS = (
    Option(("--max-model-len",), "max_seq_len", _whole),
    Option(("--dtype",), "dtype", _dtype),
    Option(("--enable-prefix-caching",), "enable_prefix_caching"),
    Option(("--enforce-eager",), "enforce_eager"),
    Option(("--enable-chunked-prefill",), "enable_chunked_prefill"),
    Option(("--revision",), "revision", str),
    Option(("--tokenizer-revision",), "tokenizer_revision", str),
    Option(("--seed",), "seed", _whole),
    Option(("--tensor-parallel-size", "-tp"), "tensor_parallel_size", _whole),
    Option(("--pipeline-parallel-size", "-pp"), "pipeline_parallel_size", _whole),
    Option(("--data-parallel-size", "-dp"), "data_parallel_size", _whole),
    Option(("--max-num-seqs",), "max_num_seqs", _whole, of_arguments=True),
    Option(("--max-num-batched-tokens",), "max_num_batched_tokens", _whole, of_arguments=True),
    Option(("--gpu-memory-utilization",), "gpu_memory_utilization", _share, of_arguments=True),
    Option(("--language-model-only",), "language_model_only", of_arguments=True),
)
# What is kept of every life, told or not: two arms may differ in a default, and a number then has a cause.
KEPT = (
    *("max_seq_len", "dtype", "enable_prefix_caching", "enable_chunked_prefill", "enforce_eager", "seed"),
    *("kv_cache_dtype", "quantization", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    *("revision", "tokenizer_revision", "load_format"),
)


def told(argv: Sequence[str]) -> Iterator[tuple[Option, Any]]:
    """Options of the list that a command line gives, with the value that the log would state; the last one counts."""
    for option in OPTIONS:
        values = [value for name, value in _given(argv) if name in option.names or _is_off(option, name)]
        if values and values[-1] is not None:
            yield option, values[-1]


def differences(argv: Sequence[str], resolved: ResolvedConfig) -> list[str]:
    """What was told and is stated otherwise, in words."""
    found = []
    for option, asked in told(argv):
        stated = resolved.arguments if option.of_arguments else resolved.engine
        if option.key in stated and stated[option.key] != asked:
            found.append(f"{option.names[0]} is told as {asked}, the engine says {option.key}={stated[option.key]}")
    return found


def require(argv: Sequence[str], resolved: ResolvedConfig, arm: str) -> None:
    """Refuse a server whose engine says that it does otherwise (CONFIG_NOT_APPLIED), or that started twice.

    Reason of the second: ENGINE_STARTS. With data parallelism every rank is a start.
    """
    if found := differences(argv, resolved):
        raise Refusal(Reason.CONFIG_NOT_APPLIED, f"{arm}: {'; '.join(found)}")
    ranks = resolved.engine.get("data_parallel_size", 1)
    if isinstance(ranks, int) and resolved.engine_starts > max(1, ranks):
        raise Refusal(Reason.ENGINE_STARTS, f"{arm}: {resolved.engine_starts} engine starts in one server log")


def said(resolved: ResolvedConfig) -> dict[str, Any]:
    """What the engine says of itself, for a leg; null where it does not say."""
    speculative = resolved.engine.get("speculative_config")
    return {
        "version": resolved.version,
        "config": {key: _plain(resolved.engine.get(key)) for key in KEPT},
        "arguments": {one.key: _plain(resolved.arguments.get(one.key)) for one in OPTIONS if one.of_arguments},
        "speculative_config": None if speculative is None else str(speculative),
        "backends": list(resolved.backends),
        "kv_cache_tokens": resolved.kv_cache_tokens,
    }


def _given(argv: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Options by name with hyphens, each with its value as the log would state it."""
    for word, following in pairwise([*argv, ""]):
        name, sign, value = word.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        for option in OPTIONS:
            if name in option.names:
                yield name, True if option.read is None else option.read(value if sign else following)
            elif _is_off(option, name):
                yield name, False


def _is_off(option: Option, name: str) -> bool:
    return option.read is None and name == f"--no-{option.names[0].removeprefix('--')}"


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
