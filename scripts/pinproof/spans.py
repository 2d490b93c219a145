"""Spans: what the span plugin wrote inside the processes of one server life.

Every process has a file of its own (scripts/pinproof_spans says what stands in it), and stays a
process here: two engines in one folder are never mixed. Files of another life are set aside by
marker, boot and time. The last line of a file may be half, for a process can be killed while it
writes; anything else that does not fit makes that one file damaged, and what is told of the life
incomplete. All times are seconds since the spawn, on the monotonic clock; steps of the wall clock,
which the times of a log would follow, are noticed.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinproof.reasons import Reason, Refusal

FORMAT = 1
STEP_S = 0.5  # a wall clock that moves by more against the monotonic one was set

_NAME = re.compile(r"[0-9]{1,10}-[0-9]{1,20}(-[23])?\.jsonl")
_LARGEST = 64 << 20  # bytes of a file that is read
_SPAWN_SLACK_S = 0.1  # /proc gives the begin of a process in clock ticks


@dataclass(frozen=True)
class Span:
    """One call of a named callable. `end` is None when the process ended inside."""

    callable: str
    id: int
    parent: int | None  # the named call that it was made in, on the same thread
    thread: int
    begin: float
    end: float | None = None
    exception: str | None = None
    deferred: bool = False  # it returned a generator or a coroutine: its work came later, unseen

    @property
    def returned(self) -> bool:
        return self.end is not None and self.exception is None


@dataclass(frozen=True)
class More:
    """The calls beyond the plugin's limit, summed up; up to a second of them may be missing after a kill."""

    callable: str
    calls: int  # begun
    returned: int
    raised: int
    exception: str | None
    seconds: float  # in which at least one of them ran
    begin: float
    end: float


@dataclass(frozen=True)
class Wrapped:
    """How a callable was wrapped."""

    late: bool  # after its module had been imported
    of_class: bool
    rebound: tuple[str, ...]  # modules that had bound it by then and were given the wrapper

    @property
    def sure(self) -> bool:
        """Whether every call is seen: one may have begun before a late wrapping, or a late function be bound apart."""
        return not self.late


@dataclass(frozen=True)
class Step:
    """A step of the wall clock, in seconds; positive: it was put forward."""

    at: float
    seconds: float


@dataclass(frozen=True)
class Process:
    """What one process of an engine did."""

    file: str
    pid: int
    parent: int
    name: str  # such as "EngineCore_DP0 pid=42", as the log calls it
    program: str
    forked: bool
    began: float
    loaded: float  # when the plugin came
    cost: float  # seconds that the plugin took for itself; calls apart
    last: float  # the last line
    spans: tuple[Span, ...] = ()  # in the order of their begin
    more: tuple[More, ...] = ()
    wrapped: Mapping[str, Wrapped] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)  # callable -> why
    unwrappable: Mapping[str, str] = field(default_factory=dict)
    import_failed: Mapping[str, str] = field(default_factory=dict)  # callable -> what its module raised
    problems: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    exited: bool = False  # it came to its end in good order
    torn: bool = False  # its last line is half

    @property
    def open(self) -> tuple[Span, ...]:
        """Calls that the process ended inside."""
        return tuple(span for span in self.spans if span.end is None)

    @property
    def top(self) -> tuple[Span, ...]:
        """Calls that were not made inside another named one."""
        return tuple(span for span in self.spans if span.parent is None)


@dataclass(frozen=True)
class Spans:
    """All processes of one life, in the order of their begin."""

    processes: tuple[Process, ...]
    damaged: tuple[Refusal, ...] = ()  # files that cannot be read: what they would say is unknown
    foreign: tuple[str, ...] = ()  # files of another life, and why

    @property
    def loaded(self) -> bool:
        """Whether the plugin was seen in any process."""
        return bool(self.processes)


def environment(folder: Path, callables: Iterable[str]) -> dict[str, str]:
    """The variables that switch the plugin on in a server; the folder must be there, and this life's alone."""
    names = json.dumps(list(dict.fromkeys(callables)))
    return {"PINPROOF_SPANS": str(folder.absolute()), "PINPROOF_SPAN_NAMES": names}


def read(folder: Path, *, marker: str, spawned: float, boot: str) -> Spans:
    """What the plugin wrote into a folder during one server life.

    `spawned` is the monotonic clock at the spawn. Refusal: RECORD_MISSING (no such folder). A file
    that is damaged or of another life is named in the answer.
    """
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise Refusal(Reason.RECORD_MISSING, f"no folder of span files: {error.strerror}", file=folder) from None
    processes, damaged, foreign = [], [], []
    for path in paths:
        try:
            process, why = _read(path, marker, spawned, boot)
        except Refusal as refusal:
            damaged.append(refusal)
            continue
        if process is None:
            foreign.append(f"{path.name}: {why}")
        else:
            processes.append(process)
    processes.sort(key=lambda one: (one.began, one.pid, one.loaded))
    return Spans(tuple(processes), tuple(damaged), tuple(foreign))


def _read(path: Path, marker: str, spawned: float, boot: str) -> tuple[Process | None, str]:
    if not _NAME.fullmatch(path.name):
        return None, "not the name of a span file"
    lines, torn = _lines(path)
    if not lines:
        raise _damaged(path, 1, "the process wrote no whole line")
    head = _Line(path, 1, lines[0])
    if head.text("event") != "process" or head.whole("format") != FORMAT:
        raise head.damaged(f"does not begin with a process of format {FORMAT}")
    if head.value.get("marker") != marker:
        return None, f"belongs to {head.value.get('marker')!r}"
    if head.value.get("boot") != boot:
        return None, "was written in another boot"
    if (began := head.number("began")) < spawned - _SPAWN_SLACK_S:
        return None, f"its process began {spawned - began:.1f} s before the spawn"
    if head.whole("pid") != int(path.name.partition("-")[0]):
        raise head.damaged("names another pid than the file")
    reading = _Reading(head, spawned)
    for number, line in enumerate(lines[1:], 2):
        reading.take(_Line(path, number, line))
    return reading.process(torn), ""


def _lines(path: Path) -> tuple[list[str], bool]:
    """The whole lines of a file, and whether half a line follows."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise _damaged(path, 1, "not a plain file")
        if status.st_size > _LARGEST:
            raise _damaged(path, 1, f"{status.st_size} bytes are more than a span file has")
        text = path.read_bytes().decode()
    except OSError as error:
        raise _damaged(path, 1, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _damaged(path, 1, "not UTF-8 text") from None
    *lines, rest = text.split("\n")
    return lines, rest != ""


def _damaged(path: Path, number: int, message: str) -> Refusal:
    return Refusal(Reason.RECORD_DAMAGED, message, file=path, key=f"line {number}")


class _Line:
    """One line; every value is checked when it is taken."""

    def __init__(self, path: Path, line: int, text: str) -> None:
        self.path, self.line = path, line
        try:
            self.value = json.loads(text)
        except (ValueError, RecursionError):
            raise self.damaged("not JSON") from None
        if not isinstance(self.value, dict):
            raise self.damaged("not a JSON object")

    def damaged(self, message: str) -> Refusal:
        return _damaged(self.path, self.line, message)

    def _of(self, key: str, kinds: tuple[type, ...], words: str) -> Any:
        value = self.value.get(key)
        if type(value) not in kinds:
            raise self.damaged(f"{key} is no {words}")
        return value

    def text(self, key: str) -> str:
        return self._of(key, (str,), "text")

    def text_or_none(self, key: str) -> str | None:
        return self._of(key, (str, type(None)), "text nor null")

    def flag(self, key: str) -> bool:
        return self._of(key, (bool,), "flag")

    def whole(self, key: str) -> int:
        return self._of(key, (int,), "whole number")

    def whole_or_none(self, key: str) -> int | None:
        return self._of(key, (int, type(None)), "whole number nor null")

    def number(self, key: str) -> float:
        value = self._of(key, (int, float), "number")
        if not abs(value) < 1e15 or math.isnan(value):
            raise self.damaged(f"{key} is no number of seconds")
        return float(value)

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._of(key, (list,), "list")
        if not all(isinstance(value, str) for value in values):
            raise self.damaged(f"{key} is no list of texts")
        return tuple(values)


class _Reading:
    """Takes the lines of one process in order."""

    def __init__(self, head: _Line, spawned: float) -> None:
        self.head, self.spawned = head, spawned
        self.last, self.wall = head.number("at"), head.number("wall")
        self.cost = 0.0
        self.exited = False
        self.spans: dict[int, Span] = {}
        self.more: dict[str, More] = {}
        self.wrapped: dict[str, Wrapped] = {}
        self.said: dict[str, dict[str, str]] = {"absent": {}, "unwrappable": {}, "import-failed": {}}
        self.problems: list[str] = []
        self.steps: list[Step] = []

    def take(self, line: _Line) -> None:
        event = line.text("event")
        self._clock(line)
        if event in ("begin", "end", "more", "wrapped"):
            getattr(self, f"_{event}")(line)
        elif event in ("absent", "unwrappable"):
            self.said[event][line.text("name")] = line.text("why")
        elif event == "import-failed":
            self.said[event][line.text("name")] = line.text("exception")
        elif event == "problem":
            self.problems.append(line.text("text"))
        elif event in ("ready", "cost"):
            self.cost += line.number("cost")
        elif event == "exit":
            self.exited = True
        else:
            raise line.damaged(f"no such event: {event!r}")

    def since(self, seconds: float) -> float:
        return seconds - self.spawned

    def _clock(self, line: _Line) -> None:
        """Threads write side by side, so times may be a little out of order; they do not go back by a second."""
        at, wall = line.number("at"), line.number("wall")
        if at < self.last - 1:
            raise line.damaged(f"the monotonic clock went back by {self.last - at:.1f} s")
        step = (wall - self.wall) - (at - self.last)
        if abs(step) > STEP_S:
            self.steps.append(Step(self.since(at), step))
        self.last, self.wall = max(self.last, at), wall + max(0.0, self.last - at)

    def _begin(self, line: _Line) -> None:
        number, parent = line.whole("id"), line.whole_or_none("parent")
        if number in self.spans:
            raise line.damaged(f"call {number} begins twice")
        if parent is not None and parent not in self.spans:
            raise line.damaged(f"call {number} lies in call {parent}, which has not begun")
        begin = self.since(line.number("at"))
        self.spans[number] = Span(line.text("name"), number, parent, line.whole("thread"), begin)

    def _end(self, line: _Line) -> None:
        span = self.spans.get(line.whole("id"))
        if span is None or span.end is not None:
            raise line.damaged(f"call {line.whole('id')} ends {'without a begin' if span is None else 'twice'}")
        end = max(span.begin, self.since(line.number("at")))
        exception, deferred = line.text_or_none("exception"), line.flag("deferred")
        self.spans[span.id] = Span(
            span.callable, span.id, span.parent, span.thread, span.begin, end, exception, deferred
        )

    def _more(self, line: _Line) -> None:
        name = line.text("name")
        self.more[name] = More(  # a later line holds the earlier one
            name,
            line.whole("calls"),
            line.whole("returned"),
            line.whole("raised"),
            line.text_or_none("exception"),
            line.number("seconds"),
            self.since(line.number("begin")),
            self.since(line.number("end")),
        )

    def _wrapped(self, line: _Line) -> None:
        name = line.text("name")
        self.wrapped[name] = Wrapped(line.flag("late"), line.flag("of_class"), line.texts("rebound"))

    def process(self, torn: bool) -> Process:
        head = self.head
        absent = {name: why for name, why in self.said["absent"].items() if name not in self.wrapped}
        return Process(
            file=head.path.name,
            pid=head.whole("pid"),
            parent=head.whole("parent"),
            name=f"{head.text('process')} pid={head.whole('pid')}",
            program=head.text("program"),
            forked=head.flag("forked"),
            began=self.since(head.number("began")),
            loaded=self.since(head.number("loaded")),
            cost=self.cost,
            last=self.since(self.last),
            spans=_ordered(self.spans.values()),
            more=tuple(self.more.values()),
            wrapped=self.wrapped,
            absent=absent,
            unwrappable=self.said["unwrappable"],
            import_failed={name: why for name, why in self.said["import-failed"].items() if name not in self.wrapped},
            problems=tuple(self.problems),
            steps=tuple(self.steps),
            exited=self.exited,
            torn=torn,
        )


def _ordered(found: Iterable[Span]) -> tuple[Span, ...]:
    return tuple(sorted(found, key=lambda span: (span.begin, span.id)))
