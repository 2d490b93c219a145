"""Memory of the workflow's own processes while a case is rehearsed: snakemake, its shells, the scripts of the rules.

Engines and load clients are not the workflow's. What is shared between processes is counted once, in shares
(PSS of /proc/PID/smaps_rollup); a sample every tenth of a second. Exits with 1 when the most is above the limit.

With --rows N it is a case of so many rows, each a copy of the given case's first one: it is planned (a dry run of a
verdict), which is where Snakemake holds all of its jobs, and N results are judged in one process.

    python tests/bench/bench_memory.py [--case FILE] [--limit-mb N] [--rows N]
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
import yaml

ROOT = Path(__file__).parents[2]
JUDGE = ROOT / "tests" / "bench" / "bench_artifacts.py"
MB = 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", type=Path, default=ROOT / "config" / "config.yaml")
    parser.add_argument("--limit-mb", type=float, default=500)
    parser.add_argument("--rows", type=int)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pinproof-memory-") as name:
        folder, case, rows = Path(name), arguments.case.resolve(), arguments.rows
        if rows is None:
            found = [watch("rehearsal", folder, *snakemake(case, folder, "rehearsal"))]
        else:
            planned = snakemake(many(case, rows, folder), folder, "--dry-run", "verdict")
            found = [
                watch(f"plan of {rows} rows", folder, *planned),
                watch(f"verdict of {rows} rows", folder, sys.executable, str(JUDGE), "rows", str(rows)),
            ]
    sys.exit(0 if all(most <= arguments.limit_mb * MB for most in found) else 1)


def many(case: Path, rows: int, folder: Path) -> Path:
    """The file of a case whose first row is there so many times."""
    value = yaml.safe_load(case.read_text(encoding="utf-8"))
    first = value["rows"][0]
    value["rows"] = [{**first, "id": f"row-{number:04d}"} for number in range(rows)]
    file = folder / "case.yaml"
    file.write_text(yaml.safe_dump(value), encoding="utf-8")
    return file


def snakemake(case: Path, folder: Path, *words: str) -> list[str]:
    """A call of the workflow in a folder of its own."""
    argv = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "--configfile", str(case)]
    return [*argv, "-d", str(folder), "--cores", "2", *words]


def watch(what: str, folder: Path, *argv: str) -> float:
    """Run a program and tell the most bytes of the workflow's own processes at one time. It must end well."""
    most, whose, samples = 0.0, [], 0
    with open(folder / "call.log", "wb") as log:
        call = subprocess.Popen(argv, stdout=log, stderr=log)
        while call.poll() is None:
            found = dict(own(psutil.Process(call.pid)))
            total = sum(found.values())
            samples += 1
            if total > most:
                most, whose = total, [f"{name} {size / MB:.0f}" for name, size in sorted(found.items())]
            time.sleep(0.1)
    assert call.returncode == 0, (folder / "call.log").read_text(errors="replace")[-3000:]
    print(f"{what}: at most {most / MB:.0f} MB at one time ({samples} samples): {', '.join(whose)}", flush=True)
    return most


def own(call: psutil.Process) -> Iterator[tuple[str, float]]:
    """Name and memory of the workflow's own processes."""
    with contextlib.suppress(psutil.Error):
        for process in [call, *call.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                if "PINPROOF_MARKER" not in process.environ():
                    words = [Path(word).name for word in process.cmdline()]
                    name = next((word for word in words if word.endswith(".py")), "snakemake")
                    yield f"{name} ({process.pid})", float(process.memory_full_info().pss)


if __name__ == "__main__":
    main()
