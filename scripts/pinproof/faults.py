"""Faults that a rehearsal can be asked for: what goes wrong, and what the workflow must make of it.

`note` names the entry of the field notes that a fault is taken from: a number is a failure of one
project's hand-made gate, a letter and number a public report.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from pinproof.device import SIMULATED_VARIABLE
from pinproof.reasons import Reason
from pinproof.stage import Stage

HOLD, REVERT, UNDECIDED, REFUSED = "HOLD", "REVERT", "UNDECIDED", "REFUSED"


@dataclass(frozen=True)
class Fault:
    """One fault: its name and note, what it is in words, how it changes the stage, and what must come of it.

    `says` is what a measured run would say; REFUSED when it ends before a verdict. `reason` is the
    cause that must be named, or those of which one must; None when there is none to name.
    """

    name: str
    note: str
    what: str
    change: Callable[[Stage], None]
    says: str
    reason: Reason | tuple[Reason, ...] | None

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the causes of which one must be named; empty when there is none to name."""
        reasons = self.reason if isinstance(self.reason, tuple) else (self.reason,) if self.reason else ()
        return tuple(reason.code for reason in reasons)


def _server(words: str, arm: str = "oracle", **patience: int) -> Callable[[Stage], None]:
    """A server that misbehaves as the double is told to."""

    def change(stage: Stage) -> None:
        stage.serve_env(arm, STUB_FAULT=words)
        for row in stage.case["rows"]:
            row.update({name: value for name, value in patience.items() if name in row})

    return change


def _speed(arm: str, **milliseconds: int) -> Callable[[Stage], None]:
    variables = {f"STUB_{name.upper()}_MS": str(value) for name, value in milliseconds.items()}
    return lambda stage: stage.serve_env(arm, **variables)


def _identity(**values: str) -> Callable[[Stage], None]:
    def change(stage: Stage) -> None:
        for name, value in values.items():
            setattr(stage.oracle.identity, name, value)

    return change


def _suffix(stage: Stage) -> None:
    """The build mode's suffix that the block declares is not there, or one that it does not declare is."""
    version = stage.oracle.identity.distribution_version
    other = version.removesuffix(".precompiled")
    if other == version:
        other = f"{version}{'.' if '+' in version else '+'}precompiled"
    stage.oracle.identity.distribution_version = other


def _shallow(stage: Stage) -> None:
    """A clone without its tags: setuptools-scm counts from nothing."""
    short = (stage.oracle.identity.commit or "1234567890")[:9]
    invented = f"0.1.dev1+g{short}"
    stage.oracle.identity.distribution_version = stage.oracle.identity.runtime_version = invented


def _file(name: str, text: str, arm: str = "oracle") -> Callable[[Stage], None]:
    return lambda stage: stage.arms[arm].identity.files.update({name: text})


def _torch_abi(stage: Stage) -> None:
    stage.oracle.identity.files |= {"vllm/_C.abi3.so": "a double", "vllm/_custom_ops.py": TORCH_ABI + OP_FAILS}


def _reference(stage: Stage) -> None:
    for name, arm in stage.arms.items():
        if name != "oracle":
            arm.identity.torch_version = "1.0.0"


def _budget(**budgets: float) -> Callable[[Stage], None]:
    def change(stage: Stage) -> None:
        _anew(stage)
        stage.case["budgets"].update(budgets)

    return change


def _anew(stage: Stage) -> None:
    """An engine that no earlier rehearsal has left in the store."""
    stage.oracle.identity.files["vllm/anew.py"] = f"# {secrets.token_hex(8)}\n"


def _digest(stage: Stage) -> None:
    stage.oracle.sha256 = "0" * 64


def _truncated(stage: Stage) -> None:
    _anew(stage)
    stage.oracle.truncated = True


def _other_device(stage: Stage) -> None:
    stage.case["device"]["name"] = "another device"


def _gpu(trouble: str) -> Callable[[Stage], None]:
    """A simulated GPU whose clocks are to be locked, in trouble."""

    def change(stage: Stage) -> None:
        stage.case["device"] = {"kind": "simulated", "clocks": {"lock_mhz": 2190}}
        stage.environment[SIMULATED_VARIABLE] = trouble

    return change


def _start(words: str) -> Callable[[Stage], None]:
    """Warm starts of an engine that misbehaves."""

    def change(stage: Stage) -> None:
        stage.only(STARTUP, WARMUP)
        stage.serve_env("oracle", STUB_FAULT=words)

    return change


def _slow_start(stage: Stage) -> None:
    stage.only(STARTUP)
    stage.serve_env("oracle", STUB_CLOCK_MS="2000")


def _drafts(words: str) -> Callable[[Stage], None]:
    """Speculative decoding by an engine that misbehaves."""

    def change(stage: Stage) -> None:
        stage.only(SPECULATIVE)
        stage.serve_env("oracle", STUB_FAULT=words)

    return change


def _gone(stage: Stage) -> None:
    stage.pages["page.md"] = "| c1 | 0.990x |\n"
    cited = [{"file": "page.md", "line": 1, "quote": "0.976x"}]
    published = {"pin": None, "device": None, "date": None, "cited": cited}
    stage.case["rows"][0]["published"] = published


def _fallen(stage: Stage) -> None:
    stage.case["discharges"] = [
        {
            **{"id": "rehearsed", "kind": "inert", "argument": "every row runs on one device", "flag": "A_FLAG"},
            **{"options": ["--tensor-parallel-size"], "resolved": "tensor_parallel_size", "value": "1", "default": "2"},
        }
    ]


def _floor(stage: Stage) -> None:
    stage.oracle.identity.others["transformers"] = "5.9.0"
    stage.case["discharges"] = [
        {
            **{"id": "rehearsed", "kind": "floor", "argument": "both floors are satisfied", "arms": ["oracle"]},
            **{"distribution": "transformers", "floors": [">=5.5.3", ">=5.10.4"]},
        }
    ]


def _narrow(stage: Stage) -> None:
    for row in stage.rows("serving", "speculative"):
        row["metrics"] = [{"name": "median_tpot", "tolerance": 0.0001}]


STARTUP = {
    **{"id": "rehearsed-start", "kind": "startup", "spans": [{"name": "warm-up"}]},
    **{"caches": {"page": "warm", "compile": "warm", "jit": "warm"}, "metrics": [{"name": "first_health"}]},
}
WARMUP = {"id": "rehearsed-warm-up", "kind": "warmup", "of": "rehearsed-start", "callables": ["warm-up"]}
SPECULATIVE = {
    **{"id": "rehearsed-drafts", "kind": "speculative", "residency": "shared", "recipe": {}},
    **{"config": {"method": "ngram", "num_speculative_tokens": 3}, "cells": [{"concurrency": 2, "prompts": 2}]},
    **{"metrics": [{"name": "output_throughput"}, {"name": "acceptance_length", "exact": True}]},
}
OP_FAILS = 'def rms_norm(out, x, weight, epsilon):\n    """A double of an op that computes nothing."""\n'
TORCH_ABI = (
    "import logging\n\nlogging.getLogger('vllm').warning(\"Failed to import from vllm._C with ImportError"
    "('undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE')\")\n"
)
FAULTS = {
    fault.name: fault
    for fault in (
        # identity, before a wheel is made
        Fault("wrong-suffix", "10", "the block carries a suffix of another build mode",
              _suffix, REFUSED, Reason.PIN_DISAGREES),
        Fault("shallow-clone", "12", "a clone without tags invents 0.1.dev1",
              _shallow, REFUSED, Reason.SOURCE_UNTAGGED),
        Fault("other-release", "1", "the rollback is served in the pin's place",
              _identity(distribution_version="0.25.0", runtime_version="0.25.0"), REFUSED,
              (Reason.IDENTITY_MISMATCH, Reason.PIN_DISAGREES)),
        Fault("wheel-truncated", "20", "a wheel whose upload was cut short",
              _truncated, REFUSED, Reason.WHEEL_UNAVAILABLE),
        Fault("wheel-of-other-bytes", "A13", "the address gives other bytes than were pinned",
              _digest, REFUSED, Reason.WHEEL_DIGEST),
        Fault("disk-full", "66", "less free disk than the case needs",
              _budget(disk_gb=1e9), REFUSED, Reason.DISK_SHORT),
        Fault("memory-short", "46", "less free memory than the case needs",
              _budget(memory_gb=1e9), REFUSED, Reason.MEMORY_SHORT),
        Fault("other-device", "42", "not the device of the baselines", _other_device, REFUSED, Reason.DEVICE_OTHER),
        # identity, as installed
        Fault("op-fails", "16", "an op of the wheel computes something else",
              _file("vllm/_custom_ops.py", OP_FAILS), REVERT, Reason.EXTENSION_FAILED),
        Fault("torch-abi", "C2", "extensions that were built for another torch",
              _torch_abi, UNDECIDED, Reason.TOOLCHAIN_MISMATCH),
        Fault("other-torch", "C3", "torch of another build than the block declares",
              _identity(torch_version="1.0.0"), UNDECIDED, Reason.PIN_DISAGREES),
        Fault("reference-is-another", "42", "the arm compared with is not what its block says",
              _reference, UNDECIDED, Reason.REFERENCE_IDENTITY),
        # the start of a server
        Fault("dead-server", "D1", "the engine fails while it starts",
              _server("exits-at-start"), UNDECIDED, Reason.SERVER_EXITED),
        Fault("silent-server", "D1", "the engine ends without a word",
              _server("exits-silently"), UNDECIDED, Reason.SERVER_EXITED),
        Fault("out-of-memory", "D12", "a neighbour holds the memory",
              _server("out-of-memory"), UNDECIDED, Reason.SERVER_MEMORY),
        Fault("killed-server", "47", "the kernel kills the server", _server("killed"), UNDECIDED, Reason.SERVER_KILLED),
        Fault("stopped-server", "D10", "someone stops the server", _server("stopped"), UNDECIDED, Reason.SERVER_KILLED),
        Fault("wrong-model", "E20", "the server serves another model than was asked for",
              _server("wrong-model"), UNDECIDED, Reason.CONFIG_NOT_APPLIED),
        Fault("hanging-start", "G7", "the start stands still at a lock",
              _server("never-listens", stall_timeout_s=3), UNDECIDED, Reason.SERVER_STALLED),
        Fault("hung-engine", "D3", "health says 200, no completion ends",
              _server("hung-post", stall_timeout_s=3), UNDECIDED, Reason.SERVER_STALLED),
        Fault("dead-reference", "B1", "the arm compared with does not start",
              _server("exits-at-start", "reference"), UNDECIDED, Reason.REFERENCE_FAILED),
        # legs
        Fault("short-outputs", "41", "fewer tokens than asked",
              _server("short-outputs"), UNDECIDED, Reason.OUTPUT_SHORT),
        Fault("other-input", "37", "the arms count other prompt tokens",
              _server("extra-prompt-tokens"), UNDECIDED, Reason.INPUT_DIFFERS),
        Fault("failed-requests", "35", "every second request fails",
              _server("error-500"), UNDECIDED, Reason.REQUESTS_FAILED),
        Fault("error-in-a-success", "E22", "an error in an answer of status 200",
              _server("error-200"), UNDECIDED, Reason.REQUESTS_FAILED),
        Fault("cut-streams", "E12", "streams that end half-way",
              _server("cut-stream"), UNDECIDED, Reason.REQUESTS_FAILED),
        Fault("dies-in-a-leg", "E3", "the engine dies in the middle of a leg",
              _server("dies-mid-run=3"), UNDECIDED, Reason.SERVER_EXITED),
        Fault("prefix-hits", "E12", "prompts are answered from the prefix cache",
              _server("prefix-hits"), UNDECIDED, Reason.INVALID_REPS),
        Fault("counts-disagree", "37", "client and server count different tokens",
              _server("miscounts"), UNDECIDED, Reason.INVALID_REPS),
        Fault("compiled-in-a-leg", "G9", "a kernel is compiled in a timed leg",
              _server("jit-line=3"), HOLD, Reason.COMPILED_IN_WINDOW),
        # starts and drafts
        Fault("warm-up-raises", "G2", "a kernel of the warm-up does not compile",
              _start("compile-raises"), REVERT, Reason.WARMUP_FAILED),
        Fault("warm-up-skipped", "64", "the warm-up returns and has compiled nothing",
              _start("compile-is-skipped"), UNDECIDED, Reason.WARMUP_DID_NOT_RUN),
        Fault("cold-start-for-a-warm-one", "40", "the engine keeps no cache from start to start",
              _start("keeps-no-cache"), UNDECIDED, Reason.STARTS_DIFFER),
        Fault("slow-start", "G12", "the pinned engine takes longer to start",
              _slow_start, REVERT, Reason.REGRESSION),
        Fault("not-speculating", "F7", "speculation is asked for and not active",
              _drafts("does-not-speculate"), UNDECIDED, Reason.CONFIG_NOT_APPLIED),
        Fault("drafting-nothing", "F6", "speculation is active and nothing is drafted",
              _drafts("drafts-nothing"), UNDECIDED, Reason.CONFIG_NOT_APPLIED),
        Fault("accepting-fewer", "F4", "fewer of the drafted tokens are accepted",
              _drafts("accepts-fewer"), REVERT, Reason.REGRESSION),
        # the device
        Fault("clock-lock-refused", "3", "no permission to lock the clocks",
              _gpu("refuses-clock-lock"), UNDECIDED, Reason.DEVICE_PRIVILEGE),
        Fault("throttled", "34", "the device is slowed by its heat",
              _gpu("throttled"), UNDECIDED, Reason.DEVICE_THROTTLED),
        Fault("wandering-clock", "26", "the SM clock jumps within a leg",
              _gpu("wandering-clock"), UNDECIDED, Reason.CLOCKS_MOVED),
        Fault("no-persistence", "32", "the driver is not in persistence mode",
              _gpu("no-persistence"), UNDECIDED, Reason.CLOCKS_MOVED),
        # numbers
        Fault("red-row", "25", "the pinned engine is slower",
              _speed("oracle", tpot=120, ttft=600), REVERT, Reason.REGRESSION),
        Fault("too-narrow-tolerance", "63", "a tolerance below the noise", _narrow, UNDECIDED, Reason.INFEASIBLE),
        # inputs
        Fault("citation-gone", "67", "the published figure is not on its page", _gone, UNDECIDED, Reason.CITATION_GONE),
        Fault("fallen-flag", "62", "a row has another setting than the argument says",
              _fallen, UNDECIDED, Reason.DISCHARGE_FALLEN),
        Fault("fallen-floor", "67", "what was resolved is below a floor", _floor, UNDECIDED, Reason.DISCHARGE_FALLEN),
    )
}  # fmt: skip
