"""Warm-up: what became of a named callable in one server life, and what share of the start it took.

- failed: a call raised, or its inner call did; or a process died inside, and the server's own failure says so
- unknown: what was written does not tell: no plugin, a damaged file, a start that did not finish, a call that
  was cut off from outside, an inner call that cannot be seen, spans and log at odds
- absent: this version has no such callable
- skipped: never called, or returned without its inner call having returned inside
- succeeded: every call returned; with an inner call: in every process that called it, one was seen to return
  inside

A process that dies inside a call leaves a begin without an end, whoever ended it. It is `failed`
only when the server did not become ready for a reason that is the target's, and the log's first
error is not another process's: a compile that crashed. When we stopped the server, when something
outside did, or when nobody knows, it is `unknown`: the callable may have been fine.

A log line is a second witness. Where it contradicts the spans, the outcome is `unknown` and both are
told; a line that is missing contradicts nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pinproof import outcomes, serverlog, warmuplog
from pinproof.claims import Span as Named
from pinproof.decision import rounded
from pinproof.reasons import Owner, Refusal
from pinproof.spans import More, Process, Span, Spans


class Outcome(StrEnum):
    """What became of a callable."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    ABSENT = "absent"
    UNKNOWN = "unknown"


# What the plugin says on standard error, and what vLLM says of it
_PLUGIN = re.compile(r"^pinproof_spans: |Failed to load plugin pinproof_spans")

# Of several processes the first of these speaks for all.
_WORST = (Outcome.FAILED, Outcome.UNKNOWN, Outcome.SKIPPED, Outcome.SUCCEEDED)


@dataclass(frozen=True)
class Warmed:
    """One named callable in one life; times in seconds since the spawn."""

    callable: str
    outcome: Outcome
    why: str
    calls: int
    processes: int  # that called it: of two engines both should have
    intervals: tuple[tuple[float, float], ...]  # of the calls that are known one by one, as far as they ended
    seconds: float | None  # calls that overlap count once; None when it was not seen
    share: float | None  # of the time to the mark, 0 to 1
    exception: str | None = None
    disagreement: str | None = None  # between spans and log
    summed: int = 0  # calls that have no interval: beyond the plugin's limit

    def as_record(self) -> dict[str, Any]:
        """JSON values, for a leg."""
        return {
            "callable": self.callable,
            "outcome": str(self.outcome),
            "why": self.why,
            "calls": self.calls,
            "processes": self.processes,
            "summed_calls": self.summed,
            "intervals": [[rounded(begin), rounded(end)] for begin, end in self.intervals],
            "seconds": self.seconds and rounded(self.seconds),
            "share": self.share and rounded(self.share),
            "exception": self.exception,
            "disagreement": self.disagreement,
        }


@dataclass(frozen=True)
class Life:
    """What is known of one server life, from all witnesses."""

    spans: Spans
    log: str
    ready_s: float | None  # the gated mark, seconds since the spawn; None: the start did not come so far
    refusal: Refusal | None = None  # why the server failed, if it did


def judge(named: Sequence[Named], life: Life) -> dict[str, Warmed]:
    """The outcome of every named callable, by its name in the case."""
    return {one.name: _one(one, life) for one in named}


def _one(named: Named, life: Life) -> Warmed:
    callers = [process for process in life.spans.processes if _calls(process, named.callable)]
    by_pid: dict[int, _Said] = {}
    for process in callers:  # two of one pid: a program that replaced itself
        said = _of_process(process, named, life)
        by_pid[process.pid] = _worst([said, by_pid.get(process.pid, said)])
    found = _worst(by_pid.values()) if by_pid else _uncalled(named.callable, life)
    found = _against_log(found, named, life, by_pid)
    return _timed(found, named, life, callers)


@dataclass(frozen=True)
class _Said:
    outcome: Outcome
    why: str
    exception: str | None = None
    disagreement: str | None = None


# -- no call was seen ----------------------------------------------------------------------------


def _uncalled(callable_name: str, life: Life) -> _Said:
    """Why no call was seen: only a start that was seen whole tells that there was none."""
    for outcome, why in _reasons(callable_name, life):
        if why is not None:
            return _Said(outcome, why)
    return _Said(Outcome.SKIPPED, "never called: its module was not imported")


def _reasons(callable_name: str, life: Life) -> Iterator[tuple[Outcome, str | None]]:
    """What may stand behind a missing call, the first that holds; a text of None does not hold."""
    processes = life.spans.processes
    wrapped = [one.wrapped[callable_name] for one in processes if callable_name in one.wrapped]
    unsure = any(not one.sure for one in wrapped)
    yield Outcome.UNKNOWN, None if processes else "the span plugin was seen in no process"
    if not wrapped:
        why = _first(one.unwrappable.get(callable_name) for one in processes)
        yield Outcome.UNKNOWN, why and f"cannot be watched: {why}"
        yield Outcome.ABSENT, _first(one.absent.get(callable_name) for one in processes)
    yield Outcome.UNKNOWN, _first(f"a span file is damaged: {one.message}" for one in life.spans.damaged)
    yield Outcome.UNKNOWN, _first(f"the span file of {one.name} ends in half a line" for one in processes if one.torn)
    yield Outcome.UNKNOWN, _first(f"the span plugin had a problem: {text}" for text in _problems(life))
    yield Outcome.UNKNOWN, "not called before the start failed" if life.ready_s is None else None
    yield Outcome.UNKNOWN, "its module had been imported before the plugin: a call may be unseen" if unsure else None
    yield Outcome.SKIPPED, "never called" if wrapped else None
    why = _first(one.import_failed.get(callable_name) for one in processes)
    yield Outcome.SKIPPED, why and f"never called: the import of its module raised {why}"


def _problems(life: Life) -> Iterator[str]:
    """What the span plugin could not do: in its files, or in the log when it could not write them."""
    for process in life.spans.processes:
        yield from process.problems
    for line in serverlog.lines(life.log):
        if _PLUGIN.search(line.text):
            yield line.text


# -- calls were seen -----------------------------------------------------------------------------


def _of_process(process: Process, named: Named, life: Life) -> _Said:
    """What became of the callable in one process that called it."""
    spans, more = _spans(process, named.callable), _more(process, named.callable)
    inner = [
        one
        for one in (_spans(process, named.inside) if named.inside else ())
        if any(_holds(outer, one) for outer in spans)
    ]
    for word, found in (("raised", spans), ("its inner call raised", inner)):
        if raised := _first(one.exception for one in found):
            return _Said(Outcome.FAILED, f"{word} in {process.name}", raised)
    if more is not None and more.raised:
        return _Said(Outcome.FAILED, f"raised in {process.name}", more.exception)
    if any(one.end is None for one in spans) or (more is not None and more.calls > more.returned):
        return _cut_off(process, life)
    if any(one.deferred for one in spans):
        return _Said(Outcome.UNKNOWN, f"returned in {process.name} before its work was done: a generator or coroutine")
    if named.inside is None:
        return _Said(Outcome.SUCCEEDED, "every call returned")
    return _by_inner(process, named.inside, inner, life)


def _by_inner(process: Process, inner_name: str, inner: Sequence[Span], life: Life) -> _Said:
    """The outcome of a callable that returned, by what was seen of its inner call."""
    if any(one.returned and not one.deferred for one in inner):
        return _Said(Outcome.SUCCEEDED, "every call returned, and its inner call was seen to return inside")
    unseen = _uncalled(inner_name, life)
    if inner:
        why = "it did not return, or before its work was done"
    elif _more(process, inner_name) is not None:
        why = "it was called more often than is written one by one"
    elif unseen.outcome in (Outcome.UNKNOWN, Outcome.ABSENT):
        why = unseen.why
    else:
        return _Said(Outcome.SKIPPED, f"returned in {process.name} without its inner call having run")
    return _Said(Outcome.UNKNOWN, f"returned in {process.name}, and its inner call cannot be confirmed: {why}")


def _cut_off(process: Process, life: Life) -> _Said:
    """A call that never ended. Who ended the process decides whose failure that is."""
    inside = f"{process.name} ended inside"
    if life.refusal is None:
        return _Said(Outcome.UNKNOWN, f"{inside}: it had not returned when the server was stopped")
    end = life.refusal.message
    if life.refusal.reason.owner is not Owner.TARGET:
        return _Said(Outcome.UNKNOWN, f"{inside}, and that may not be its own doing: {end}")
    cause = serverlog.first_error(life.log)
    told = re.search(r"\bpid=(\d+)$", cause.process) if cause is not None else None
    if told and int(told[1]) != process.pid:
        return _Said(Outcome.UNKNOWN, f"{inside}, but the first error is of {cause.process}: {cause.line}")
    return _Said(Outcome.FAILED, f"{inside}: {end}", cause.line if cause is not None else end)


def _worst(found: Iterable[_Said]) -> _Said:
    return min(found, key=lambda one: _WORST.index(one.outcome))


# -- the second witness --------------------------------------------------------------------------


def _against_log(found: _Said, named: Named, life: Life, by_pid: Mapping[int, _Said]) -> _Said:
    """What the spans say, unless the log says something else: then both, and no outcome."""
    for pid, seen in warmuplog.read(life.log, named.callable).items():
        said = found if pid is None else by_pid.get(pid, found)
        called = bool(by_pid) if pid is None else pid in by_pid
        contradiction = _contradiction(said.outcome, seen) if called else _uncalled_contradiction(said.outcome, seen)
        if contradiction is not None:
            process = "the log" if pid is None else f"the log of pid {pid}"
            both = f"spans say {said.outcome if called else 'never called'}, {process} says {contradiction}"
            return replace(found, outcome=Outcome.UNKNOWN, why=f"{both}; spans: {found.why}", disagreement=both)
    return found


def _contradiction(outcome: Outcome, seen: warmuplog.Seen) -> str | None:
    """What the log says of a callable that was called and that cannot be, if the spans are right."""
    if seen.failed is not None and outcome in (Outcome.SUCCEEDED, Outcome.SKIPPED):
        return repr(seen.failed)
    if seen.finished and outcome is Outcome.FAILED:
        return "that it finished"
    if outcome is Outcome.SUCCEEDED and seen.total is not None and seen.done != seen.total:
        return f"that its progress stopped at {seen.done} of {seen.total}"
    if outcome is Outcome.SKIPPED and seen.done:
        return f"that {seen.done} of {seen.total} were compiled"
    return None


def _uncalled_contradiction(outcome: Outcome, seen: warmuplog.Seen) -> str | None:
    """The same of a callable that was not called."""
    if outcome is Outcome.UNKNOWN or seen == warmuplog.Seen():
        return None
    return repr(seen.failed) if seen.failed is not None else "that it " + ("finished" if seen.finished else "began")


# -- seconds -------------------------------------------------------------------------------------


def _timed(said: _Said, named: Named, life: Life, callers: Sequence[Process]) -> Warmed:
    spans = [span for process in callers for span in _spans(process, named.callable)]
    more = [one for process in callers if (one := _more(process, named.callable)) is not None]
    intervals = tuple(sorted((span.begin, span.end) for span in spans if span.end is not None))
    seconds = outcomes.covered(intervals, math.inf) + sum(one.seconds for one in more)
    seen = bool(intervals or more)
    share = outcomes.covered(intervals, life.ready_s) / life.ready_s if life.ready_s and seen and not more else None
    return Warmed(
        callable=named.callable,
        outcome=said.outcome,
        why=said.why,
        calls=len(spans) + sum(one.calls for one in more),
        processes=len(callers),
        intervals=intervals,
        seconds=seconds if seen else None,
        share=share,
        exception=said.exception,
        disagreement=said.disagreement,
        summed=sum(one.calls for one in more),
    )


def _calls(process: Process, callable_name: str) -> bool:
    return bool(_spans(process, callable_name)) or _more(process, callable_name) is not None


def _spans(process: Process, callable_name: str) -> list[Span]:
    return [span for span in process.spans if span.callable == callable_name]


def _more(process: Process, callable_name: str) -> More | None:
    return next((one for one in process.more if one.callable == callable_name), None)


def _holds(outer: Span, inner: Span) -> bool:
    """Whether a call lies within another one in time: the inner one may run on a thread of its own."""
    end = math.inf if outer.end is None else outer.end
    return outer.begin <= inner.begin and (math.inf if inner.end is None else inner.end) <= end


def _first(texts: Iterable[str | None]) -> str | None:
    return next((text for text in texts if text), None)
