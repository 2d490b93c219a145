"""The file that one process writes: its begin, its calls, and what went wrong."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import sys
import threading
import time

FORMAT = 1
LIMIT = 256  # calls of one callable in one process that are written one by one; later ones are summed up
SUM_EVERY_S = 1.0  # so much of the later calls may be lost when a process is killed
_TEXT = 500  # characters of an exception that are kept
_DEFERRED = ("generator", "coroutine", "async_generator")  # types of results whose work is still to come


def said(error: BaseException) -> str:
    """An exception in one line."""
    try:
        return f"{type(error).__name__}: {error}"[:_TEXT].rstrip()
    except Exception:  # an exception whose text cannot be made
        return type(error).__name__


class Call:
    """One call under way; without an id it is only summed up."""

    def __init__(self, target: str, generation: int, id: int | None) -> None:
        self.target, self.generation, self.id = target, generation, id


class Recorder:
    """Writes what one process does; follows a fork into a file of the child's own. Its methods never raise."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: int | None = None
        self._generation = 0  # of forks: a child does not end what its parent began
        self._ids = itertools.count(1)
        self._local = threading.local()
        self._calls: dict[str, int] = {}
        self._sums: dict[str, _Sum] = {}

    def open(self, loaded: float) -> None:
        """Begin the file; `loaded` is when the plugin came to this process."""
        try:
            self._open(loaded, forked=False)
            atexit.register(self._close)
            os.register_at_fork(after_in_child=self._after_fork)
        except Exception as error:
            self._give_up(error)

    def write(self, event: str, **values: object) -> None:
        """One whole line, or none ever again: half a line may only be the last one."""
        if self._file is None:
            return
        try:
            line = {"event": event, **values, "at": time.monotonic(), "wall": time.time()}
            data = json.dumps(line).encode() + b"\n"
            if os.write(self._file, data) != len(data):
                raise OSError("the disk took half a line")
        except Exception as error:
            self._give_up(error)

    def begin(self, target: str) -> Call | None:
        """A call begins. None when that could not be noted."""
        try:
            stack = self._local.__dict__.setdefault("stack", [])
            number = self._calls[target] = self._calls.get(target, 0) + 1
            call = Call(target, self._generation, next(self._ids) if number <= LIMIT else None)
            if call.id is None:
                self._sums.setdefault(target, _Sum()).enter()
            else:
                parent = next((one.id for one in reversed(stack) if one.id is not None), None)
                thread = threading.get_native_id()
                self.write("begin", id=call.id, parent=parent, name=target, thread=thread)
            stack.append(call)
            return call
        except Exception as error:
            self.write("problem", text=f"begin of {target}: {said(error)}")
            return None

    def end(self, call: Call | None, error: BaseException | None, result: object) -> None:
        """A call ends, in an exception or with a result."""
        if call is None or call.generation != self._generation:
            return
        try:
            stack = self._local.__dict__.get("stack", [])
            if call in stack:
                del stack[stack.index(call) :]
            exception = None if error is None else said(error)
            if call.id is not None:
                deferred = type(result).__name__ in _DEFERRED
                self.write("end", id=call.id, exception=exception, deferred=deferred)
            elif self._sums[call.target].leave(exception):
                self.write("more", name=call.target, **self._sums[call.target].values())
        except Exception as failure:
            self.write("problem", text=f"end of {call.target}: {said(failure)}")

    def _open(self, loaded: float, *, forked: bool) -> None:
        ticks, began = _began()
        self._file = _create(f"{self._folder}/{os.getpid()}-{ticks}")
        processes = sys.modules.get("multiprocessing.process")
        arguments = getattr(sys, "argv", None) or [""]
        self.write(
            "process",
            format=FORMAT,
            pid=os.getpid(),
            parent=os.getppid(),
            ticks=ticks,
            began=began,
            loaded=loaded,
            forked=forked,
            process=processes.current_process().name if processes else "MainProcess",
            program=arguments[0].rpartition("/")[2],
            marker=os.environ.get("PINPROOF_MARKER"),
            boot=_boot(),
        )

    def _after_fork(self) -> None:
        try:
            if self._file is None:
                return
            os.close(self._file)
            self._file = None
            self._generation += 1
            self._local = threading.local()
            self._calls, self._sums = {}, {}
            self._open(time.monotonic(), forked=True)
        except Exception as error:
            self._give_up(error)

    def _close(self) -> None:
        for target, one in list(self._sums.items()):
            self.write("more", name=target, **one.values())
        self.write("exit")

    def _give_up(self, error: BaseException) -> None:
        self._file = None
        with contextlib.suppress(Exception):
            sys.stderr.write(f"pinproof_spans: {said(error)}\n")


class _Sum:
    """Calls beyond the limit. Time in which at least one of them ran counts once, so recursion does not add up."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.first = self.last = self.entered = time.monotonic()
        self.calls = self.returned = self.raised = self.running = 0
        self.seconds = 0.0
        self.exception: str | None = None
        self.written: float | None = None

    def enter(self) -> None:
        with self.lock:
            if self.running == 0:
                self.entered = time.monotonic()
            self.running += 1
            self.calls += 1

    def leave(self, exception: str | None) -> bool:
        """Whether it is time to write a line."""
        with self.lock:
            now = self.last = time.monotonic()
            self.running -= 1
            if self.running == 0:
                self.seconds += now - self.entered
            self.returned += exception is None
            self.raised += exception is not None
            self.exception = exception or self.exception
            due = self.written is None or now - self.written >= SUM_EVERY_S
            if due:
                self.written = now
            return due

    def values(self) -> dict:
        return {
            "calls": self.calls,
            "returned": self.returned,
            "raised": self.raised,
            "exception": self.exception,
            "seconds": self.seconds,
            "begin": self.first,
            "end": self.last,
        }


def _create(stem: str) -> int:
    """A file that is new: a program that replaced itself (exec) has the pid and the start of the one before."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for end in ("", "-2", "-3"):
        try:
            return os.open(f"{stem}{end}.jsonl", flags, 0o600)
        except FileExistsError:
            continue
    raise FileExistsError(f"{stem}.jsonl")


def _began() -> tuple[int, float]:
    """When this process began: clock ticks since boot as /proc says, and seconds of the monotonic clock."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as stream:
        ticks = int(stream.read().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return ticks, time.monotonic() - age


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        return stream.read().strip()
