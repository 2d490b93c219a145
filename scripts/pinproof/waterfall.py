"""Waterfall: where the time from the spawn to a mark went, as far as spans tell.

The time line is cut wherever a named call begins or ends. A piece during which at least one runs,
in whichever process, is named after all that run; any other piece is `unlabelled`, and is booked to
nothing that stood before it. So the pieces follow each other without a gap, processes that overlap
are not counted twice, and named and unlabelled add up to the whole exactly: all of it is reckoned
in whole microseconds. Each process also has a lane of its own, cut in the same way from its begin on.

Only calls that lie in no other named call are on a line; the ones inside stand in the lane, with
their depth. A call that never ended reaches to the mark. Calls that were only summed up have no
place on a line and stand beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pinproof.decision import rounded
from pinproof.spans import Process, Spans

_US = 1_000_000


@dataclass(frozen=True)
class Piece:
    """A stretch of a line, in microseconds since the spawn; no labels: unlabelled."""

    begin: int
    end: int
    labels: tuple[str, ...]
    starting: tuple[str, ...] = ()  # processes that were up and had not come to the plugin yet

    @property
    def length(self) -> int:
        return self.end - self.begin

    def as_record(self) -> dict[str, Any]:
        """Seconds since the spawn."""
        record = {"begin": _seconds(self.begin), "seconds": _seconds(self.length), "labels": list(self.labels)}
        return {**record, "starting": list(self.starting)} if self.starting else record


@dataclass(frozen=True)
class Line:
    """A time line from `begin` to `end`, without gaps; microseconds since the spawn."""

    begin: int
    end: int
    pieces: tuple[Piece, ...]

    @property
    def named(self) -> int:
        return sum(piece.length for piece in self.pieces if piece.labels)

    @property
    def unlabelled(self) -> int:
        return sum(piece.length for piece in self.pieces if not piece.labels)

    def as_record(self) -> dict[str, Any]:
        return {
            "begin": _seconds(self.begin),
            "seconds": _seconds(self.end - self.begin),
            "named": _seconds(self.named),
            "unlabelled": _seconds(self.unlabelled),
            "pieces": [piece.as_record() for piece in self.pieces],
        }


@dataclass(frozen=True)
class Call:
    """A call in a lane: `depth` 0 lies in no other named call."""

    label: str
    depth: int
    begin: int
    end: int | None  # None: the process ended inside
    exception: str | None

    def as_record(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "depth": self.depth,
            "begin": _seconds(self.begin),
            "seconds": None if self.end is None else _seconds(self.end - self.begin),
            "exception": self.exception,
        }


@dataclass(frozen=True)
class Lane:
    """One process up to the mark."""

    process: str
    began: int
    loaded: int  # when the plugin came; what lies before has no spans
    cost: float  # seconds that the plugin took for itself
    line: Line
    calls: tuple[Call, ...]
    summed: tuple[tuple[str, int, float], ...]  # label, calls beyond the plugin's limit, their seconds

    def as_record(self) -> dict[str, Any]:
        return {
            "process": self.process,
            "began": _seconds(self.began),
            "loaded": _seconds(self.loaded),
            "plugin_seconds": rounded(self.cost),
            "line": self.line.as_record(),
            "calls": [call.as_record() for call in self.calls],
            "summed": [
                {"label": label, "calls": calls, "seconds": rounded(seconds)} for label, calls, seconds in self.summed
            ],
        }


@dataclass(frozen=True)
class Waterfall:
    """The time from the spawn to a mark."""

    line: Line
    lanes: tuple[Lane, ...]

    def as_record(self) -> dict[str, Any]:
        """JSON values, in seconds since the spawn."""
        return {"line": self.line.as_record(), "lanes": [lane.as_record() for lane in self.lanes]}


def of(found: Spans, end_s: float, labels: Mapping[str, Sequence[str]] | None = None) -> Waterfall:
    """The waterfall up to a mark, in seconds since the spawn. `labels` are the names of each callable in the case."""
    end = _us(end_s)
    lanes = tuple(_lane(process, end, labels or {}) for process in found.processes if max(0, _us(process.began)) < end)
    starting = [(max(0, lane.began), min(lane.loaded, end), lane.process) for lane in lanes]
    running = [
        (piece.begin, piece.end, label) for lane in lanes for piece in lane.line.pieces for label in piece.labels
    ]
    return Waterfall(Line(0, end, tuple(_pieces(0, end, running, starting))), lanes)


def _lane(process: Process, end: int, labels: Mapping[str, Sequence[str]]) -> Lane:
    def label(callable_name: str) -> str:
        return "/".join(labels.get(callable_name, ())) or callable_name

    began = max(0, _us(process.began))
    depths: dict[int, int] = {}
    calls, running = [], []
    for span in process.spans:  # in the order of their begin: the outer call comes first
        depths[span.id] = 0 if span.parent is None else depths[span.parent] + 1
        first = max(began, _us(span.begin))
        last = None if span.end is None else max(first, _us(span.end))
        if first >= end:
            continue
        calls.append(Call(label(span.callable), depths[span.id], first, last, span.exception))
        if span.parent is None:
            running.append((first, end if last is None else min(last, end), label(span.callable)))
    summed = tuple((label(one.callable), one.calls, one.seconds) for one in process.more if _us(one.begin) < end)
    line = Line(began, end, tuple(_pieces(began, end, running, ())))
    return Lane(process.name, began, max(began, _us(process.loaded)), process.cost, line, tuple(calls), summed)


_Stretch = tuple[int, int, str]


def _pieces(begin: int, end: int, running: Sequence[_Stretch], starting: Sequence[_Stretch]) -> Iterator[Piece]:
    """The line cut at every begin and end; pieces with the same words beside each other are one."""
    changes: dict[int, list[tuple[int, Counter[str], str]]] = {begin: [], end: []}
    labels: Counter[str] = Counter()
    up: Counter[str] = Counter()
    for counter, stretches in ((labels, running), (up, starting)):
        for first, last, words in stretches:
            if first < last:
                changes.setdefault(first, []).append((1, counter, words))
                changes.setdefault(last, []).append((-1, counter, words))
    held: Piece | None = None
    for first, last in pairwise(sorted(changes)):
        for step, counter, words in changes[first]:
            counter[words] += step
        piece = Piece(first, last, tuple(sorted(+labels)), tuple(sorted(+up)))
        if held is not None and (held.labels, held.starting) == (piece.labels, piece.starting):
            held = Piece(held.begin, last, held.labels, held.starting)
            continue
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held


def _us(seconds: float) -> int:
    return round(seconds * _US)


def _seconds(us: int) -> float | None:
    return rounded(us / _US)
