"""Sampling: clocks, load and memory of the machine while a leg runs, and what they say about it.

A sampler reads twice a second in a thread of its own; every figure of a summary is computed from
all samples of its window. Shares are 0 to 1, of all cores together. What is not known is None: a
clock that cannot be read is not a clock that was held.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil

from pinproof import records
from pinproof.nvml import Nvml, throttle_names
from pinproof.reasons import Reason, Refusal

PERIOD_S = 0.5
BUSY = 0.05  # a sample is busy when the work uses at least this share of the device

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


Find = Callable[[], Collection[int]]  # pids


@dataclass(frozen=True)
class Sample:
    """One reading at `t` (seconds of `time.monotonic`, one clock for every process of a boot).

    The shares belong to the `seconds` before `t`; clocks, power, temperature and the throttle mask
    to `t` itself. `work` is the use of the device by what is measured: on a CPU the share of our
    processes (of everybody, where ours are not known), on a GPU its utilisation.
    """

    t: float
    seconds: float
    work: float | None = None
    cpu_busy: float | None = None
    cpu_others: float | None = None
    cpu_steal: float | None = None
    load1: float | None = None
    memory_available: int | None = None
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: int | None = None


class Distribution(NamedTuple):
    """Values of one kind. Medians do not see excursions, so both means and ends are kept."""

    n: int
    minimum: float
    median: float
    mean: float
    maximum: float

    @property
    def spread(self) -> float | None:
        """(maximum - minimum) / median; None when the median is 0."""
        return (self.maximum - self.minimum) / self.median if self.median else None


@dataclass(frozen=True)
class Summary:
    """A window of samples. `covered` is the share of the window that samples speak for; clocks,
    power and temperature are those of busy samples; shares are means over time."""

    seconds: float
    samples: int
    busy_samples: int
    busy_fraction: float | None
    covered: float
    longest_gap_s: float
    work: float | None
    cpu_busy: float | None
    cpu_others: float | None
    cpu_others_maximum: float | None
    cpu_steal: float | None
    load1: Distribution | None
    memory_available_minimum: int | None
    clock_mhz: Distribution | None
    memory_clock_mhz: Distribution | None
    power_w: Distribution | None
    temperature_c: Distribution | None
    throttle: Mapping[str, int] | None

    def as_record(self) -> dict[str, Any]:
        """The summary as JSON values."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def summary(samples: Iterable[Sample], start: float, end: float) -> Summary:
    """Summarise the samples whose middle lies between `start` and `end` (seconds, monotonic)."""
    window = sorted((s for s in samples if start <= s.t - s.seconds / 2 <= end), key=lambda sample: sample.t)
    busy = [sample for sample in window if sample.work is not None and sample.work >= BUSY]
    marks = [start, *(sample.t for sample in window), end]
    masks = [sample.throttle for sample in window if sample.throttle is not None]
    others = _known(window, "cpu_others")
    return Summary(
        seconds=end - start,
        samples=len(window),
        busy_samples=len(busy),
        busy_fraction=len(busy) / len(window) if window else None,
        covered=min(1.0, sum(sample.seconds for sample in window) / (end - start)) if end > start else 0.0,
        longest_gap_s=max(later - earlier for earlier, later in itertools.pairwise(marks)),
        work=_mean(window, "work"),
        cpu_busy=_mean(window, "cpu_busy"),
        cpu_others=_mean(window, "cpu_others"),
        cpu_others_maximum=max(others, default=None),
        cpu_steal=_mean(window, "cpu_steal"),
        load1=_distribution(window, "load1"),
        memory_available_minimum=min(_known(window, "memory_available"), default=None),
        clock_mhz=_distribution(busy, "clock_mhz"),
        memory_clock_mhz=_distribution(busy, "memory_clock_mhz"),
        power_w=_distribution(busy, "power_w"),
        temperature_c=_distribution(busy, "temperature_c"),
        throttle=dict(Counter(name for mask in masks for name in throttle_names(mask))) if masks else None,
    )


def save(path: Path, samples: Iterable[Sample]) -> None:
    """Write every sample, a JSON object a line."""
    records.write_text(path, "".join(records.canonical(asdict(sample)) + "\n" for sample in samples))


def load(path: Path) -> list[Sample]:
    """Read what `save` wrote. Refusals: RECORD_MISSING, RECORD_DAMAGED."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [Sample(**json.loads(line)) for line in lines]
    except FileNotFoundError:
        raise Refusal(Reason.RECORD_MISSING, "no samples", file=path) from None
    except (ValueError, TypeError) as error:
        raise Refusal(Reason.RECORD_DAMAGED, f"not whole samples: {error}", file=path) from None


class Sampler:
    """Reads a source every `period_s` seconds in a thread; use it as a context around a leg.

    A reading that fails is a gap, and its text is kept in `errors`. Ticks that come late are not
    made up for.
    """

    def __init__(self, read: Callable[[], Sample], period_s: float = PERIOD_S) -> None:
        self._read = read
        self._period = period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self.samples: list[Sample] = []
        self.errors: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def summary(self, start: float, end: float) -> Summary:
        """Summary of what was read so far."""
        return summary(list(self.samples), start, end)

    def _run(self) -> None:
        due = time.monotonic() + self._period
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            try:
                self.samples.append(self._read())
            except Exception as error:  # whatever it was, a sample is missing, not the leg
                self.errors[f"{type(error).__name__}: {error}"] += 1
            now = time.monotonic()
            due = due + self._period if due + self._period > now else now + self._period


class SimulatedSampler(Sampler):
    """Of a simulated device: reads it when it is asked, so often as must be, spread over the window.

    A rehearsal's legs are short, and a thread beside them would see as many as a busy machine lets it.
    """

    def __init__(self, read: Callable[[], Sample], number: int) -> None:
        super().__init__(read)
        self._number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is no thread to end."""

    def summary(self, start: float, end: float) -> Summary:
        """Summary of what is read now."""
        step = (end - start) / self._number
        read = [replace(self._read(), t=start + step * (at + 1), seconds=step) for at in range(self._number)]
        return summary(read, start, end)


class CpuSource:
    """Samples of this machine's processor.

    `ours` tells the pids of the processes that are ours now; this process always is. Without it
    nobody's share is known apart: `cpu_others` is None.
    """

    def __init__(self, ours: Find | None = None) -> None:
        self._find = ours
        self._ours: dict[int, tuple[int, float]] = {}  # pid: start tick, CPU seconds
        self._next_search = 0.0
        self._t = time.monotonic()
        self._machine = psutil.cpu_times()
        self._spent()

    def __call__(self) -> Sample:
        now, machine = time.monotonic(), psutil.cpu_times()
        busy, steal, total = cpu_share(self._machine, machine)
        ours = min(busy, self._spent() / total) if self._find else None
        sample = Sample(
            t=now,
            seconds=now - self._t,
            work=busy if ours is None else ours,
            cpu_busy=busy,
            cpu_others=None if ours is None else busy - ours,
            cpu_steal=steal,
            load1=os.getloadavg()[0],
            memory_available=psutil.virtual_memory().available,
            clock_mhz=cpu_mhz(),
        )
        self._t, self._machine = now, machine
        return sample

    def _spent(self) -> float:
        """CPU seconds that our processes used since the last call."""
        if self._find is None:
            return 0.0
        self._search()
        spent, alive = 0.0, {}
        for pid, (begun, before) in self._ours.items():
            if (stat := _stat(pid)) is not None and stat[0] == begun:
                spent += stat[1] - before
                alive[pid] = stat
        self._ours = alive
        return spent

    def _search(self) -> None:
        """Look for new processes of ours, every 5 s or less often where looking is slow."""
        begin = time.monotonic()
        if begin < self._next_search:
            return
        for pid in {os.getpid(), *self._find()} - set(self._ours):
            if stat := _stat(pid):
                began = (stat[0] + 1) * _TICK_S  # the kernel rounds it down to a tick
                young = began > time.clock_gettime(time.CLOCK_BOOTTIME) - (begin - self._t)
                self._ours[pid] = (stat[0], 0.0 if young else stat[1])
        now = time.monotonic()
        self._next_search = now + max(5.0, 500 * (now - begin))


class NvidiaSource:
    """Samples of an NVIDIA device, with the load of its host beside them."""

    def __init__(self, nvml: Nvml, number: int, ours: Find | None = None) -> None:
        self._nvml, self._number = nvml, number
        self._host = CpuSource(ours)

    def __call__(self) -> Sample:
        clocks = self._nvml.clocks(self._number)
        return replace(
            self._host(),
            work=clocks.utilisation,
            clock_mhz=clocks.sm_mhz,
            memory_clock_mhz=clocks.memory_mhz,
            power_w=clocks.power_w,
            temperature_c=clocks.temperature_c,
            throttle=clocks.throttle,
        )


class Load(NamedTuple):
    """Load that is not ours, over a short window.

    `others` comes from the machine's own count, so it also holds what another process namespace
    uses; `busiest` (pid, name, share) names those that can be seen. `runnable` counts threads that
    run or wait for a core at the end of the window.
    """

    others: float
    steal: float | None
    runnable: int | None
    busiest: tuple[tuple[int, str, float], ...]


def probe_load(window_s: float = 1.0, *, ours: Collection[int] = ()) -> Load:
    """Look for load of others during `window_s` seconds; `ours` are pids that do not count.

    This process is always ours.
    """
    mine = {os.getpid(), *ours}
    machine, processes = psutil.cpu_times(), _all_processes()
    time.sleep(window_s)
    machine_after, processes_after = psutil.cpu_times(), _all_processes()
    busy, steal, total = cpu_share(machine, machine_after)
    spent = {
        pid: (name, seconds - (processes[pid][2] if pid in processes and processes[pid][0] == begun else 0.0))
        for pid, (begun, name, seconds) in processes_after.items()
    }
    used = sum(seconds for pid, (_, seconds) in spent.items() if pid in mine)
    foreign = sorted(((seconds / total, pid, name) for pid, (name, seconds) in spent.items() if pid not in mine))
    return Load(
        others=max(0.0, busy - used / total),
        steal=steal,
        runnable=_runnable(),
        busiest=tuple((pid, name, round(share, 4)) for share, pid, name in foreign[:-6:-1] if share > 0.001),
    )


def require_quiet(load: Load, limit: float) -> None:
    """Refuse (DEVICE_BUSY) when others use more than `limit` of the machine (0 to 1)."""
    if load.others > limit:
        named = ", ".join(f"{name} (pid {pid}, {share:.0%})" for pid, name, share in load.busiest)
        seen = named or "none that can be seen"
        message = f"others use {load.others:.0%} of the machine, allowed are {limit:.0%}: {seen}"
        raise Refusal(Reason.DEVICE_BUSY, message)


def cpu_share(before: Any, after: Any) -> tuple[float, float | None, float]:
    """Busy share, stolen share and CPU seconds between two readings of `psutil.cpu_times()`.

    The stolen share (a hypervisor's) is None where the system does not count it; it is in neither
    the busy nor the idle time. CPU seconds are of all cores together and never 0.
    """
    spent = {name: getattr(after, name) - getattr(before, name) for name in after._fields}
    counted = {name: max(0.0, value) for name, value in spent.items() if not name.startswith("guest")}
    total = max(sum(counted.values()), _TICK_S)
    waiting = sum(counted.get(name, 0.0) for name in ("idle", "iowait", "steal"))
    steal = counted["steal"] / total if "steal" in counted else None
    return max(0.0, sum(counted.values()) - waiting) / total, steal, total


def cpu_mhz(root: Path = Path("/")) -> float | None:
    """Clock of the fastest of at most 16 cores, MHz; None where the kernel does not govern it.

    /proc/cpuinfo is not asked: in a virtual machine its figure never moves, and a constant would
    look like a perfectly held clock.
    """
    files = sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"))
    clocks = []
    for file in files[:: max(1, len(files) // 16)]:
        try:
            clocks.append(int(file.read_text()) / 1000)
        except (OSError, ValueError):
            continue
    return max(clocks, default=None)


def _stat(pid: int) -> tuple[int, float] | None:
    """Start (clock ticks after boot) and CPU seconds of a process; None when it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(words[19]), (int(words[11]) + int(words[12])) * _TICK_S


def _all_processes() -> dict[int, tuple[float, str, float]]:
    """Every process that can be seen: when it began, its name, its CPU seconds."""
    found = {}
    for process in psutil.process_iter(["name", "create_time", "cpu_times"]):
        if (times := process.info["cpu_times"]) is not None:
            name = process.info["name"] or "?"
            found[process.pid] = (process.info["create_time"], name, times.user + times.system)
    return found


def _runnable() -> int | None:
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
    except (OSError, ValueError, IndexError):
        return None


def _known(samples: Sequence[Sample], field: str) -> list[Any]:
    return [value for sample in samples if (value := getattr(sample, field)) is not None]


def _mean(samples: Sequence[Sample], field: str) -> float | None:
    """Mean over time: a sample weighs what it speaks for."""
    pairs = [(value, sample.seconds) for sample in samples if (value := getattr(sample, field)) is not None]
    total = sum(seconds for _, seconds in pairs)
    return sum(value * seconds for value, seconds in pairs) / total if total else None


def _distribution(samples: Sequence[Sample], field: str) -> Distribution | None:
    values = _known(samples, field)
    if not values:
        return None
    return Distribution(len(values), min(values), statistics.median(values), statistics.fmean(values), max(values))


def _plain(value: Any) -> Any:
    if isinstance(value, Distribution):
        return {**value._asdict(), "spread": value.spread}
    return dict(value) if isinstance(value, Mapping) else value
