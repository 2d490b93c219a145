"""Span files as the span plugin writes them, made by code; times are seconds since the spawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pinproof import spans

SPAWNED = 1000.0  # on the monotonic clock
WALL = 1_700_000_000.0  # the wall clock at the spawn
MARKER, BOOT = "small/startup/oracle", "boot"


class File:
    """The file of one process; each call appends lines."""

    def __init__(self, folder: Path, pid: int = 7, name: str = "EngineCore", began: float = 1.0, **head: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{pid}-{pid * 100}.jsonl"
        self.ids = 0
        self.step = 0.0  # of the wall clock
        values = {
            "format": spans.FORMAT,
            "pid": pid,
            "parent": 1,
            "ticks": pid * 100,
            "began": SPAWNED + began,
            "loaded": SPAWNED + began + 0.5,
            "forked": False,
            "process": name,
            "program": "vllm",
            "marker": MARKER,
            "boot": BOOT,
            **head,
        }
        self.line("process", began + 0.5, **values)

    def line(self, event: str, at: float, **values: Any) -> File:
        line = {"event": event, **values, "at": SPAWNED + at, "wall": WALL + at + self.step}
        return self.raw(json.dumps(line) + "\n")

    def raw(self, text: str) -> File:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(text)
        return self

    def begin(self, at: float, name: str, parent: int | None = None, thread: int = 1) -> int:
        self.ids += 1
        self.line("begin", at, id=self.ids, parent=parent, name=name, thread=thread)
        return self.ids

    def end(self, at: float, number: int, exception: str | None = None, deferred: bool = False) -> File:
        return self.line("end", at, id=number, exception=exception, deferred=deferred)

    def call(self, begin: float, end: float, name: str, exception: str | None = None, deferred: bool = False) -> File:
        """A call in which no other one lies."""
        return self.end(end, self.begin(begin, name), exception, deferred)

    def wrapped(self, *names: str, late: bool = False, of_class: bool = False) -> File:
        for name in names:
            self.line("wrapped", 1.6, name=name, late=late, of_class=of_class, rebound=[])
        return self


def read(folder: Path) -> spans.Spans:
    return spans.read(folder, marker=MARKER, spawned=SPAWNED, boot=BOOT)
