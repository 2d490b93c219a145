"""What a server log says of warm-up steps: the second witness beside the spans.

A step is known by what vLLM logs at its begin, its end and its failure. Progress bars (tqdm) are
read at their carriage returns; one is drawn by the first rank only, and some lines are logged once
for all processes, so that a missing line says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pinproof import serverlog


@dataclass(frozen=True)
class Seen:
    """What the log says of one step of one process; None: it does not say."""

    begun: bool | None = None
    finished: bool | None = None
    failed: str | None = None  # the line
    done: int | None = None  # of the progress bar
    total: int | None = None


@dataclass(frozen=True)
class _Step:
    begun: re.Pattern[str] | None = None
    finished: re.Pattern[str] | None = None
    failed: re.Pattern[str] | None = None
    bar: str | None = None  # what a progress bar is called
    shared: bool = False  # several classes log these words; a line counts for the one of its source file


# by the last part of a callable's name
_STEPS = {
    "_warmup_ll_bf16_router_gemm": _Step(begun=re.compile(r"^Warming up ll_bf16 router GEMM kernels")),
    "cutedsl_warmup": _Step(begun=re.compile(r"^Warming up CuTeDSL compile_units="), bar="Compiling CuTeDSL kernels"),
    "kernel_warmup": _Step(
        begun=re.compile(r"^JIT kernel warmup starting"), failed=re.compile(r"^JIT kernel warmup failed after")
    ),
    "warming_up_model": _Step(
        begun=re.compile(r"^Warming up model for the compilation"),
        finished=re.compile(r"^Warming up done"),
        shared=True,
    ),
    "load_model": _Step(begun=re.compile(r"^Starting to load model"), shared=True),
}
_SOURCE = re.compile(r"([\w.-]+\.py):\d+\]?(?: |\x1b\[[0-9;]*m)*$")  # what stands before the words of a line
_PID = re.compile(r"\bpid=(\d+)$")
_BAR = re.compile(r"^(?P<name>[^:]+):\s+\d+%\|[^|]*\|\s*(?P<done>\d+)/(?P<total>\d+)\b")


def read(text: str, callable_name: str) -> Mapping[int | None, Seen]:
    """What a log says of a callable's step, by pid; None is the pid of lines that name no process.

    Empty where the step has no line in the log, and for a callable that no line is known of.
    """
    module, _, name = callable_name.partition(":")
    step = _STEPS.get(name.rpartition(".")[2])
    if step is None:
        return {}
    found: dict[int | None, Seen] = {}
    physical = text.split("\n")
    for line in serverlog.lines(text):
        if not line.text:
            continue
        source = _SOURCE.search(physical[line.number - 1].partition(line.text)[0])
        if step.shared and source and source[1] != f"{module.rpartition('.')[2]}.py":
            continue
        pid = _PID.search(line.process)
        key = int(pid[1]) if pid else None
        seen = _with(found.get(key, Seen()), step, line.text)
        if seen != Seen():
            found[key] = seen
    return found


def _with(seen: Seen, step: _Step, text: str) -> Seen:
    if step.begun is not None and step.begun.search(text):
        return replace(seen, begun=True)
    if step.finished is not None and step.finished.search(text):
        return replace(seen, finished=True)
    if step.failed is not None and step.failed.search(text):
        return replace(seen, failed=text)
    bar = _BAR.match(text)
    if step.bar is not None and bar is not None and bar["name"].strip() == step.bar:
        return replace(seen, begun=True, done=int(bar["done"]), total=int(bar["total"]))
    return seen
