"""What a server log says: its first real error, the kernels it compiled, the configuration it chose.

Pure functions over the text of a vLLM server log of any version (text format). A log is read line
by line with the process that wrote each line, because the processes of one engine write into each
other's tracebacks; progress bars are split at their carriage returns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pinproof import versionfile
from pinproof.reasons import Reason


@dataclass(frozen=True)
class Line:
    """One line of a log without its prefix; `number` counts from 1 as an editor does."""

    number: int
    process: str  # such as "EngineCore pid=42"; empty when the line names none
    level: str | None
    text: str


_LEVEL = (
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? (?:\[[^\]\n]+\]|[\w./]+:\d+\]) ?"
)
_PROCESS = r"\((?P<process>[A-Za-z][\w-]*(?: rank=\d+)?(?: pid=\d+)?)\) ?"
_PREFIX = re.compile(rf"(?:{_PROCESS}|\[(?P<rank>rank\d+)\]: ?)?(?:{_LEVEL})?")
_GLUED = re.compile(rf"(?<=[^\n])(?={_PROCESS}{_LEVEL})")  # a log line that began in the middle of a progress bar
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def lines(text: str) -> Iterator[Line]:
    """The lines of a log, without colours and prefixes."""
    for number, physical in enumerate(_COLOUR.sub("", text).split("\n"), 1):
        for segment in _GLUED.sub("\r", physical).split("\r"):
            prefix = _PREFIX.match(segment)
            process = prefix["process"] or prefix["rank"] or ""
            if segment.strip():
                yield Line(number, process, prefix["level"], segment[prefix.end() :].rstrip())


# the first error


@dataclass(frozen=True)
class Cause:
    """Why a server did not serve, as its log tells it."""

    reason: Reason
    kind: str
    line: str
    number: int | None  # the line of the log; None when the log holds no cause
    process: str = ""
    excerpt: tuple[str, ...] = ()  # the traceback, at most its last 40 lines
    during: str | None = None  # the warm-up step that was under way
    sure: bool = True  # False for an error that a server may well have lived through

    def __str__(self) -> str:
        step = f", during: {self.during}" if self.during else ""
        return f"{self.kind}: {self.line}{step}"

    def as_record(self) -> dict:
        """The cause as JSON values."""
        return {
            "reason": self.reason.code,
            "kind": self.kind,
            "line": self.line,
            "number": self.number,
            "process": self.process,
            "excerpt": list(self.excerpt),
            "during": self.during,
            "sure": self.sure,
        }


# what an error text means; the first that fits
_KINDS = tuple(
    (reason, kind, re.compile(pattern))
    for reason, kind, pattern in (
        (
            Reason.SERVER_MEMORY,
            "memory",
            r"(Free|Available) memory on .*less than desired|Error in memory profiling|OutOfMemoryError|out of memory"
            r"|No available memory for the cache|Not enough memory for|larger than the available KV cache memory"
            r"|[Cc]annot allocate memory|Unable to allocate",
        ),
        (Reason.SERVER_FOREIGN, "port taken", r"[Aa]ddress already in use"),
        (
            Reason.SERVER_TIMEOUT,
            "slow start, limit of the engine hit",
            r"Timed out waiting for .*engine core|Did not receive response from front-end process"
            r"|VLLM_ENGINE_READY_TIMEOUT_S|[Hh]andshake.*timed? ?out",
        ),
        (
            Reason.SERVER_KILLED,
            "stopped from outside",
            r"^KeyboardInterrupt|received signal=SIG(TERM|INT)|API server: shutdown triggered",
        ),
        (
            Reason.SERVER_KILLED,
            "killed",
            r"(^|\d +)Killed\b|Out of memory: Kill|exit ?code: -(9|15)\b|signal 9\b|SIGKILL",
        ),
        (
            Reason.TOOLCHAIN_MISMATCH,
            "local toolkit too old for this device",
            r"No supported CUDA architectures found|FlashInfer requires GPUs with sm",
        ),
        # The engine's own modules are the engine's; any other is for the arm's lock to bring.
        (Reason.MODULE_MISSING, "module missing", r"No module named '(?!vllm\b)"),
        (Reason.SERVER_EXITED, "weights do not fit this engine", r"There is no module or parameter named"),
        (Reason.SERVER_EXITED, "arguments not accepted", r"error: (unrecognized arguments|argument |the following)"),
        (
            Reason.SERVER_EXITED,
            "a kernel does not compile",
            r"cutlass|cute\b|CuTe|tilelang|triton\.compiler|CompilationError|[Ii]nternal compiler error|\bICE\b"
            r"|nvcc|ptxas",
        ),
        (
            Reason.SERVER_EXITED,
            "crash",
            r"Segmentation fault|Segfault|Fatal Python error|core dumped|CUDA error|illegal memory access"
            r"|^terminate called",
        ),
        (Reason.SERVER_EXITED, "error", r""),
    )
)

# what follows from an error elsewhere and is never the cause
_AFTERMATH = re.compile(
    r"root cause|[Ss]ee stack trace|Failed (core|frontend) proc|EngineDeadError|CancelledError|^SystemExit"
    r"|core engine proc\(s\)"
)
_INTERRUPT = re.compile(r"^KeyboardInterrupt")
# an error that tells less than any other one would
_WEAK = re.compile(r"^(\w+\.)*(CalledProcessError|BrokenPipeError|ConnectionResetError|EOFError|StopIteration)\b")
# one line that is an error without a traceback
_ALONE = re.compile(
    r"^Killed$|^\S*: line \d+: +\d+ Killed\b|Out of memory: Kill|exit ?code: -\d+\)|^\w[\w.-]*: error: "
    r"|[Aa]ddress already in use|Segmentation fault|Segfault encountered|Fatal Python error|^terminate called"
    r"|core dumped|less than desired GPU memory utilization|[Ii]nternal compiler error"
)
_STOPPED = re.compile(r"received signal=SIG(?:TERM|INT)|API server: shutdown triggered")
_WAITING = re.compile(r"Waiting for \d+ local, \d+ remote core engine proc\(s\)")
_DEAD = re.compile(
    r"(EngineCore|WorkerProc) failed to start|EngineCore encountered a fatal error|EngineCore hit an exception"
    r"|died unexpectedly|Engine core initialization failed|Failed (core|frontend) proc|^Process [\w-]+:$"
)
_QUIET = ("DEBUG", "INFO", "WARNING")
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(:|$)")
_HANDLING = "During handling of the above exception"
_CAUSED = "The above exception was the direct cause"
_STEP = re.compile(r"^(Warming up |JIT kernel warmup starting|Capturing |Compiling |Loading JIT ops)")
_STEPS_OVER = re.compile(r"Warming up done|warmup finished|init engine .* took|Application startup complete")


@dataclass
class _Block:
    """A traceback, or a chain of them, as one process writes it."""

    level: str | None
    ignored: bool
    excerpt: list[str] = field(default_factory=list)
    exceptions: list[tuple[bool, Line]] = field(default_factory=list)  # (came while handling the one before, line)
    inside: bool = True  # between the header and the exception line
    linked: bool = False  # a line said that another traceback follows
    handling: bool = False

    def pick(self) -> Line | None:
        """The exception that tells most: the root of a "direct cause" chain, the last of a "during handling" one."""
        chosen = None
        for handling, line in self.exceptions:
            useless = chosen is None or bool(_AFTERMATH.search(chosen.text) or _WEAK.match(chosen.text))
            if useless or (handling and not _AFTERMATH.search(line.text) and not _INTERRUPT.search(line.text)):
                chosen = line
        return chosen


@dataclass(frozen=True)
class _Candidate:
    line: Line
    excerpt: tuple[str, ...]
    weak: bool


def first_error(text: str) -> Cause | None:
    """The first real error of a log, or None; never one of the lines that only follow from it.

    A log of a server that was stopped on request ends in a cause of the kind "stopped from outside".
    """
    candidates = sorted(_candidates(text), key=lambda candidate: (candidate.weak, candidate.line.number))
    if not candidates:
        return None
    best = candidates[0]
    reason, kind = _meaning(best.line.text)
    return Cause(
        reason=reason,
        kind=kind,
        line=best.line.text.strip(),
        number=best.line.number,
        process=best.line.process,
        excerpt=best.excerpt[-40:],
        during=_step_before(text, best.line.number) if reason is Reason.SERVER_EXITED else None,
        sure=not best.weak,
    )


def exit_cause(text: str, status: int | None) -> Cause:
    """The cause of a server's end: its first error, or else what its exit status tells.

    `status` is a `Popen.returncode`: negative for a signal. None: the process did not end.
    """
    cause = first_error(text)
    if cause is not None and cause.sure:
        return cause
    children = [int(code) for tail in re.findall(r"Failed core proc\(s\): \{([^}]*)\}", text) for code in _CODES(tail)]
    told = [("child exit status", code) for code in children if code] + [("exit status", status)]
    words, code = told[0]
    vanished = re.search(r"(exited|died) unexpectedly", text) is not None
    note = "an engine process ended without a word, as one that is killed for memory does; " if vanished else ""
    line = f"no cause in the log; {note}{words} {'unknown' if code is None else code}"
    if vanished or code in (-9, 137):  # a crash would have left a word: servers run with PYTHONFAULTHANDLER
        return Cause(Reason.SERVER_KILLED, "killed", line, None)
    if code in (-15, -2, -1, 143, 130):
        return Cause(Reason.SERVER_KILLED, "stopped from outside", line, None)
    return cause or Cause(Reason.SERVER_EXITED, "no cause", line, None)


def stuck(text: str) -> Cause | None:
    """The cause that a start can no more succeed, though processes may wait on; None while it may.

    An engine process has said that it died, or nothing but waiting lines follow the first error.
    """
    cause = first_error(text)
    if cause is None or any(_DEAD.search(line.text) for line in lines(text)):
        return cause
    rest = [line.text for line in lines(text) if line.number > cause.number]
    return cause if cause.sure and rest and all(_WAITING.search(one) for one in rest) else None


def is_waiting(text: str) -> bool:
    """Whether a piece of log is nothing but an engine's "Waiting for … to start" lines: no progress."""
    return all(_WAITING.search(line.text) for line in lines(text))


def last_line(text: str) -> str:
    """The last line of a log that says something, without its prefix; empty when there is none."""
    return next((line.text.strip() for line in reversed(list(lines(text))) if line.text.strip()), "")


_CODES = re.compile(r"-?\d+(?=\s*(?:,|$))").findall


def _meaning(error: str) -> tuple[Reason, str]:
    return next((reason, kind) for reason, kind, pattern in _KINDS if pattern.search(error))


def _candidates(text: str) -> Iterator[_Candidate]:
    blocks: dict[str, _Block] = {}
    headings: dict[str, Line] = {}  # the ERROR line of a process, until it is known whether a traceback follows
    for line in lines(text):
        block = blocks.get(line.process)
        if block is not None and _continues(block, line):
            continue
        if block is not None:
            yield from _closed(blocks.pop(line.process))
        bare = line.text.strip()
        heading = headings.pop(line.process, None)
        if bare.endswith(_TRACEBACK):
            ignored = heading is not None and heading.text.startswith("Exception ignored")
            blocks[line.process] = _Block(line.level, ignored, [bare])
            continue
        if heading is not None and not heading.text.startswith("Exception ignored"):
            yield _Candidate(heading, (heading.text,), weak=True)
        if _STOPPED.search(bare):
            yield _Candidate(line, (bare,), weak=False)
        elif _ALONE.search(bare) and not _AFTERMATH.search(bare):
            yield _Candidate(line, (bare,), weak=line.level in _QUIET)
        elif bare.startswith("Exception ignored") or (
            line.level in ("ERROR", "CRITICAL") and not _AFTERMATH.search(bare) and not _DEAD.search(bare)
        ):
            headings[line.process] = line
    for heading in headings.values():
        if not heading.text.startswith("Exception ignored"):
            yield _Candidate(heading, (heading.text,), weak=True)
    for block in blocks.values():
        yield from _closed(block)


def _continues(block: _Block, line: Line) -> bool:
    """Take a line into a block if it belongs there; False when the block is over."""
    text = line.text
    indented = text.startswith((" ", "\t")) or not text.strip()
    if block.inside:
        if not indented and _EXCEPTION.match(text):
            block.exceptions.append((block.handling, line))
            block.inside = False
    elif text.startswith((_HANDLING, _CAUSED)):
        block.linked, block.handling = True, text.startswith(_HANDLING)
    elif text.startswith(_TRACEBACK):
        quoted = block.exceptions[-1][1].text.endswith(":")  # the error quotes the traceback of a child
        if not (block.linked or quoted):
            return False
        block.inside, block.handling, block.linked = True, block.handling if block.linked else True, False
    elif not indented:
        return False
    elif text.strip() and len(block.exceptions[-1][1].text) < 400:  # a message of several lines
        handling, last = block.exceptions[-1]
        joined = Line(last.number, last.process, last.level, f"{last.text} {text.strip()}")
        block.exceptions[-1] = (handling, joined)
    block.excerpt.append(text)
    return True


def _closed(block: _Block) -> Iterator[_Candidate]:
    line = block.pick()
    if line is None or _AFTERMATH.search(line.text):
        return
    weak = block.level in _QUIET or block.ignored or _WEAK.match(line.text) is not None
    yield _Candidate(line, tuple(block.excerpt), weak)


def _step_before(text: str, number: int) -> str | None:
    before = [line.text for line in lines(text) if line.number < number]
    if any(_STEPS_OVER.search(one) for one in before):
        return None
    return next((one for one in reversed(before) if _STEP.match(one)), None)


# kernels compiled while serving


_COMPILED = re.compile(r"(Triton|CuTeDSL|TileLang|\w+)(?: kernel)? JIT compilation during inference: ([^\s(]+)")
_TUNED = re.compile(r"^Autotuning kernel (\S+) with config|^Triton autotuning for function ([^\s,]+)")


def kernels_compiled(text: str) -> list[str]:
    """The kernels that were compiled or tuned while serving, such as "Triton _fwd_kernel"; each once.

    vLLM writes each of these lines once a process and kernel name (`--jit-monitor-verbose` writes
    all), so a kernel compiled in an earlier window may be compiled again in this one unseen.
    """
    found: dict[str, None] = {}
    for line in lines(text):
        if match := _COMPILED.search(line.text):
            found[f"{match[1]} {match[2].removesuffix('.')}"] = None
        elif match := _TUNED.search(line.text):
            found[f"Triton autotune {match[1] or match[2]}"] = None
    return list(found)


# the configuration that the engine chose


@dataclass(frozen=True)
class ResolvedConfig:
    """What the engine says of itself at its start; None and empty where the log does not say it."""

    version: str | None
    engine_text: str | None
    engine: Mapping[str, Any]  # values that are no plain literals stay text
    arguments_text: str | None
    arguments: Mapping[str, Any]
    backends: tuple[str, ...]  # the lines that name a selected backend, each once, in order
    kv_cache_tokens: int | None
    engine_starts: int  # more than one engine start in a log is one too many, data parallelism apart


_ENGINE = re.compile(r"^Initializing an? (?:V1 )?LLM engine \(v([^)]+)\) with config: (.*)$", re.DOTALL)
_ARGUMENTS = re.compile(r"^non-default args: (.*)$")
_BACKEND = re.compile(
    r"\bUsing (?!cache|max)[^,]*?\bbackend\b|\bUsing \S+ for MMEncoderAttention|[Aa]ttention backend\b|cudagraph_mode"
)
_KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")


def resolved_config(text: str) -> ResolvedConfig:
    """The engine's own account of its configuration."""
    version = engine_text = arguments_text = None
    backends: dict[str, None] = {}
    tokens = None
    starts = 0
    for line in lines(text):
        if match := _ENGINE.match(line.text):
            starts += 1
            if engine_text is None:
                version, engine_text = match[1], match[2]
        elif match := _ARGUMENTS.match(line.text):
            arguments_text = arguments_text or match[1]
        elif match := _KV_TOKENS.search(line.text):
            tokens = int(match[1].replace(",", "")) if tokens is None else tokens
        elif _BACKEND.search(line.text):
            backends[line.text] = None
    return ResolvedConfig(
        version=version,
        engine_text=engine_text,
        engine=_pairs(engine_text or ""),
        arguments_text=arguments_text,
        arguments=_literal_mapping(arguments_text or ""),
        backends=tuple(backends),
        kv_cache_tokens=tokens,
        engine_starts=starts,
    )


def _pairs(text: str) -> dict[str, Any]:
    """`a=1, b=Thing(c=2), d='x'` as a mapping; what is no plain literal stays text."""
    pairs = {}
    for part in _split_top(text):
        key, sign, value = part.strip().partition("=")
        if sign and key.isidentifier():
            pairs[key] = _literal(value)
    return pairs


def _split_top(text: str) -> Iterator[str]:
    depth, quote, begin = 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[at - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (TypeError, *versionfile.UNPARSABLE):  # a log holds whatever was written to it
        return text


def _literal_mapping(text: str) -> dict[str, Any]:
    value = _literal(text)
    return value if isinstance(value, dict) else {}
