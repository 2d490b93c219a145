"""What the span plugin costs a start of a real server: pairs of starts with it and without it.

    python tests/bench/bench_spans.py [--case CASE.yaml] [--row ROW] [--arm ARM] [--pairs N]

Every start is one of the start-up row (warm caches, as a first start left them), until it has served its
first completion. In each pair one start records spans and one does not; the first of a pair takes turns.
Both have the plugin installed; without PINPROOF_SPANS it returns at once. Three figures:

- wall: seconds to the first completion. It varies by several per cent from start to start.
- processor: seconds of user and system time of the whole process tree at that mark.
- own: what the plugin says it took for itself in the process that took most, and in all, as a share of the wall.
  Calls are apart: with each comes the time of two written lines, reckoned from `line_seconds`.

Engine and checkpoint are those of the case, made before. Exit status 1: the plugin's own share, its calls
included, was 1 % or more in a start.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from pinproof import bench, case, layout, lives, processes, spans
from pinproof.caches import Cabinet
from pinproof.server import Server, ready
from pinproof_spans.recording import Recorder

ROOT = Path(__file__).parents[2]
GOAL = 0.01
LINES = 2000


@dataclass(frozen=True)
class Start:
    """One start: seconds."""

    wall: float
    processor: float
    own_worst: float = 0.0  # the plugin's own, in the process that took most
    own_all: float = 0.0  # in all processes
    calls: int = 0


class Starter:
    """Starts servers as the lives of a start-up row are started."""

    def __init__(self, places: layout.Layout, row: str, arm: str, folder: Path) -> None:
        self.places, self.arm, self.folder = places, arm, folder
        self.place = places.row(row)
        self.cabinet = Cabinet(folder / "caches")
        self.begun = 0

    def fill(self) -> None:
        """A first start, for what it leaves in the caches."""
        fresh = self.place.row.caches.model_copy(update={"compile": "fresh", "jit": "fresh"})
        self._start(fresh, recording=False)
        self.cabinet.keep()

    def start(self, *, recording: bool) -> Start:
        return self._start(self.place.row.caches, recording=recording)

    def _start(self, caches: case.Caches, *, recording: bool) -> Start:
        self.begun += 1
        folder = self.folder / f"spans-{self.begun}"
        folder.mkdir()
        self.cabinet.set(caches)
        checkpoint = self.places.subject(self.place.row.checkpoint)
        if not checkpoint.is_dir():
            raise SystemExit(f"there is no {checkpoint}: call the workflow on this case first")
        log = self.folder / f"{self.begun}.log"
        spec = bench.server_spec(self.places, self.place, self.arm, checkpoint, self.folder, log)
        more = self.cabinet.environment()
        more |= spans.environment(folder, lives.wrapped(self.place)) if recording else {}
        spec = dataclasses.replace(spec, env={**spec.env, **more})
        with Server.start(spec, f"bench-spans.{os.getpid()}/{self.begun}") as server:
            ready(server)
            processor = processor_seconds(server.marker)
        found = spans.read(folder, marker=server.marker, spawned=server.began, boot=processes.boot_id())
        if found.loaded != recording:
            raise SystemExit(f"start {self.begun}: the plugin was {'not ' * recording}loaded; see {log}")
        costs = [process.cost for process in found.processes] or [0.0]
        calls = sum(len(process.spans) for process in found.processes)
        return Start(server.marks.first_completion, processor, max(costs), sum(costs), calls)


def processor_seconds(marker: str) -> float:
    """User and system time of a process tree, with that of children which have ended and been waited for."""
    times = [process.cpu_times() for process in processes.members(marker)]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times)


def line_seconds() -> float:
    """Seconds that the plugin takes for one call: its begin and its end are written, each at once."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder)
        recorder.open(time.monotonic())
        begun = time.perf_counter()
        for _ in range(LINES):
            recorder.end(recorder.begin("module:call"), None, None)
        return (time.perf_counter() - begun) / LINES


def told(name: str, ratios: list[float]) -> str:
    low, high = min(ratios), max(ratios)
    return f"{name}: with / without {statistics.median(ratios):.4f} (from {low:.4f} to {high:.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", type=Path, default=ROOT / "config/config.yaml")
    parser.add_argument("--row", default="startup")
    parser.add_argument("--arm", default="oracle")
    parser.add_argument("--pairs", type=int, default=5)
    arguments = parser.parse_args()
    places = layout.Layout(case.load(arguments.case), arguments.case, ROOT)
    a_call = line_seconds()
    with tempfile.TemporaryDirectory(prefix="pinproof-spans-") as folder:
        starter = Starter(places, arguments.row, arguments.arm, Path(folder))
        starter.fill()
        pairs = []
        for number in range(arguments.pairs):
            order = (True, False) if number % 2 == 0 else (False, True)
            seen = {recording: starter.start(recording=recording) for recording in order}
            pairs.append((seen[True], seen[False]))
            print(f"pair {number + 1}: with {seen[True]}, without {seen[False]}", flush=True)
    print(told("wall", [with_.wall / without.wall for with_, without in pairs]))
    print(told("processor", [with_.processor / without.processor for with_, without in pairs]))
    shares = [(one.own_all + one.calls * a_call) / one.wall for one, _ in pairs]
    worst, calls = max(one.own_worst for one, _ in pairs), max(one.calls for one, _ in pairs)
    print(f"own: {worst:.4f} s in a process at most; {1e6 * a_call:.1f} us a call, {calls} calls at most")
    print(f"own share of a start, all processes added up: {max(shares):.3%} at most (goal {GOAL:.0%})")
    sys.exit(0 if max(shares) < GOAL else 1)


if __name__ == "__main__":
    main()
