"""Memory of the workflow's own processes while a case is rehearsed: snakemake, its shells, the scripts of the rules.

Engines and load clients are not the workflow's. What is shared between processes is counted once, in shares
(PSS of /proc/PID/smaps_rollup); a sample every tenth of a second. Exits with 1 when the most is above the limit.

    python tests/bench/bench_memory.py [--case FILE] [--limit-mb N] [--target rehearsal]
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]

MB = 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", type=Path, default=ROOT / "config" / "config.yaml")
    parser.add_argument("--target", default="rehearsal")
    parser.add_argument("--limit-mb", type=float, default=500)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pinproof-memory-") as folder:
        status, most, who, samples = watch(arguments.case.resolve(), arguments.target, Path(folder))
    print(f"{arguments.target} of {arguments.case}: status {status}, {samples} samples")
    print(f"the most at one time: {most / MB:.0f} MB, of {', '.join(who)}")
    sys.exit(0 if status == 0 and most <= arguments.limit_mb * MB else 1)


def watch(case: Path, target: str, folder: Path) -> tuple[int, float, list[str], int]:
    """Call the workflow: its status, the most bytes of its own processes at one time, whose, and the samples."""
    argv = [sys.executable, "-m", "snakemake", "-s", ROOT / "Snakefile", "--configfile", case, "-d", folder]
    argv += ["--cores", "2", target]
    most, whose, samples = 0.0, [], 0
    with open(folder / "call.log", "wb") as log:
        call = subprocess.Popen(list(map(str, argv)), stdout=log, stderr=log)
        while call.poll() is None:
            found = dict(own(psutil.Process(call.pid)))
            total = sum(found.values())
            samples += 1
            if total > most:
                most, whose = total, [f"{name} {size / MB:.0f}" for name, size in sorted(found.items())]
            time.sleep(0.1)
    if call.returncode:
        print((folder / "call.log").read_text(errors="replace")[-3000:], file=sys.stderr)
    return call.returncode, most, whose, samples


def own(call: psutil.Process) -> Iterator[tuple[str, float]]:
    """Name and memory of the workflow's own processes."""
    with contextlib.suppress(psutil.Error):
        for process in [call, *call.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                if "PINPROOF_MARKER" not in process.environ():
                    words = [Path(word).name for word in process.cmdline()[:4]]
                    name = next((word for word in words if word.endswith(".py")), words[-1] if words else "")
                    yield f"{name} ({process.pid})", float(process.memory_full_info().pss)


if __name__ == "__main__":
    main()
