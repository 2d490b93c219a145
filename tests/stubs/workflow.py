"""Running the workflow as a user does, on stub engines: a case, a folder, and calls of snakemake.

Every call runs in a folder of the test, with a machine folder of the tests, so that nothing here
meets a real measurement on the same machine: neither its lease nor its processes.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import yaml
from tests.stubs import wheel

from pinproof import records

ROOT = Path(__file__).parents[2]
ORACLE, PREVIOUS = "1.1.0", "1.0.0"
ROW = "serving"
PATIENCE_S = 90  # for whatever a test waits for; a loaded machine is slow


@dataclass(frozen=True)
class Material:
    """What cases are made of: the stub wheels, their locks and pins, and what all calls share."""

    folder: Path
    calls: list[Call] = field(default_factory=list, compare=False, repr=False)

    @property
    def wheels(self) -> Path:
        return self.folder / "wheels"

    @property
    def lock(self) -> Path:
        return self.folder / "lock.txt"

    @property
    def machine(self) -> Path:
        """The machine folder of these tests (locks and records of lives)."""
        return self.folder / "machine"

    def make(self) -> Material:
        """Write everything."""
        self.wheels.mkdir(parents=True)
        self.lock.write_text("# The stub engine requires nothing.\n")
        for version in (ORACLE, PREVIOUS):
            wheel.build(version, self.wheels)
            self.pin(version).write_text(_pin(version))
        return self

    def pin(self, version: str) -> Path:
        return self.folder / f"stub-{version}.md"

    def arm(self, version: str) -> dict[str, Any]:
        """An arm of a case."""
        (path,) = self.wheels.glob(f"*-{version}-*")
        return {
            "pin": str(self.pin(version)),
            "engine": {
                "mode": "index",
                "distribution": "stub-engine",
                "version": version,
                "sha256": records.file_sha256(path),
                "relabel": {"name": "vllm", "local": wheel.LOCAL},
                "locks": {"index": str(self.lock)},
            },
            "serve": {"env": {"STUB_TTFT_MS": "40", "STUB_TPOT_MS": "6"}},
        }

    def case(self) -> dict[str, Any]:
        """A small case: two equal engines, legs of a tenth of a second, tolerances that a loaded
        machine meets too: a HOLD at the first look."""
        checkpoint = {"seed": 0, "hidden_size": 16, "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 16}
        metrics = ("output_throughput", "median_tpot", "median_ttft")
        return {
            "case": "stub",
            "question": "Do two equal stub engines hold?",
            "advance": "candidate",
            "arms": {"oracle": self.arm(ORACLE), "previous": self.arm(PREVIOUS)},
            "checkpoints": {"tiny": {"kind": "synthesised", **checkpoint, "intermediate_size": 16, "positions": 2048}},
            "device": {"kind": "cpu"},
            "budgets": {"disk_gb": 0.1, "memory_gb": 0.1},
            "decision": {"looks": [3, 4], "noise_pairs": 3},
            "rows": [
                {
                    "id": ROW,
                    "kind": "serving",
                    "checkpoint": "tiny",
                    "numerator": "oracle",
                    "denominator": "previous",
                    "residency": "shared",
                    "direction": "no-worse",
                    "recipe": {"input_tokens": 16, "output_tokens": 12, "warmup_prompts": 1},
                    "cells": [{"concurrency": 2, "prompts": 2}],
                    "metrics": [{"name": name, "tolerance": 0.9} for name in metrics],
                    "serve": {"args": ["--max-model-len", "64"]},
                    "start_timeout_s": PATIENCE_S,
                    "stall_timeout_s": PATIENCE_S,
                }
            ],
        }

    def environment(self, **more: str) -> dict[str, str]:
        """What a call of snakemake gets: no index but the folder of stub wheels, no network."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_NO_INDEX": "1",
            "UV_NO_CONFIG": "1",
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": str(self.folder / "uv"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "PINPROOF_MACHINE_FOLDER": str(self.machine),
            **more,
        }


def _pin(version: str) -> str:
    reported = f"{version}+{wheel.LOCAL}"
    return f"""# The stub engine {version}

```parity-pin
build_mode = index
vllm_runtime_version = {reported}
vllm_distribution_version = {reported}
torch_version = {wheel.TORCH}
```
"""


@dataclass(frozen=True)
class Finished:
    """A call that ended."""

    status: int
    output: str
    seconds: float


@dataclass(frozen=True)
class Workplace:
    """A folder in which snakemake is called, and the case that it is called for."""

    folder: Path
    material: Material
    root: Path = ROOT  # the repository that is run
    store: Path | None = None  # engines and checkpoints of another workplace

    @property
    def case_file(self) -> Path:
        return self.folder / "case.yaml"

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def engines(self) -> Path:
        return (self.store or self.results) / "engines"

    @property
    def verdict(self) -> dict[str, Any]:
        return json.loads((self.results / "stub" / "verdict.json").read_text())

    @property
    def row(self) -> dict[str, Any]:
        return json.loads((self.results / "stub" / "rows" / f"{ROW}.json").read_text())

    @property
    def measured(self) -> list[Path]:
        """The folders of what the row measured, the newest last."""
        folders = (self.results / "stub" / "rows" / ROW).glob("*")
        return sorted(folders, key=lambda folder: folder.stat().st_mtime_ns)

    @property
    def legs(self) -> dict[str, bytes]:
        """Every leg's record in the newest of these folders, by name."""
        files = (file for folder in self.measured[-1:] for file in folder.glob("legs/s*.json"))
        return {file.name: file.read_bytes() for file in files if not file.name.endswith(".raw.json")}

    def write(self, case: Mapping[str, Any]) -> Workplace:
        """Write the case file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.case_file.write_text(yaml.safe_dump(dict(case), sort_keys=False))
        return self

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the case file by its value."""
        value = yaml.safe_load(self.case_file.read_text())
        before = copy.deepcopy(value)
        change(value)
        assert value != before
        self.write(value)

    def copy(self, folder: Path) -> Workplace:
        """The same place once more, with all that was made there, as old as it is here."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return replace(self, folder=folder)

    def argv(self, *words: str) -> list[str]:
        places = ["-s", str(self.root / "Snakefile"), "--configfile", str(self.case_file), "-d", str(self.folder)]
        return [*places, "--cores", "1", *words]

    def environment(self) -> dict[str, str]:
        return self.material.environment(**({"PINPROOF_STORE": str(self.store)} if self.store else {}))

    def start(self, *words: str) -> Call:
        """Call snakemake, in a process group of its own as a shell does."""
        call = Call(self.argv(*words), self.folder, self.environment())
        self.material.calls.append(call)
        return call

    def run(self, *words: str) -> Finished:
        """Call snakemake and wait for its end."""
        return self.start(*words).wait()

    def plan(self, *words: str) -> Counter[str]:
        """The rules that a call would run, and how many jobs of each: what a dry run says."""
        finished = self.run("--dry-run", *words)
        assert finished.status == 0, finished.output
        return planned(finished.output)


class Starter:
    """The process that starts the calls; see starter.py."""

    def __init__(self) -> None:
        program = [sys.executable, str(Path(__file__).parent / "starter.py")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PINPROOF", "PYTHON"))}
        self._process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def start(self, **request: object) -> int:
        """Start a call and return its pid."""
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


_starter = functools.cache(Starter)


class Call:
    """A call of snakemake that runs; its output is not a terminal."""

    def __init__(self, argv: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.log = folder / f"call-{sum(1 for _ in folder.glob('call-*.log')):02d}.log"
        self._begun = time.monotonic()
        self.pid = _starter().start(argv=argv, cwd=str(folder), env=environment, log=str(self.log))

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        with contextlib.suppress(FileNotFoundError):
            return int(self.log.with_suffix(".status").read_text())
        return None

    def wait(self) -> Finished:
        """Wait for the end."""
        until(lambda: self.status is not None)
        return Finished(self.status, self.output, time.monotonic() - self._begun)

    def kill(self) -> None:
        """End a call that a failed test has left behind, and the scripts that it runs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if self.status is None:
                for process in [*psutil.Process(self.pid).children(recursive=True), psutil.Process(self.pid)]:
                    process.kill()

    def until(self, happened: Callable[[], object]) -> None:
        """Wait for something while the call runs."""
        until(lambda: happened() or self.status is not None)
        assert self.status is None, self.output

    def signal(self, number: signal.Signals) -> Finished:
        """Send a signal to the whole process group, as a terminal does, and wait for the end."""
        os.killpg(self.pid, number)
        return self.wait()

    def script(self, name: str) -> psutil.Process:
        """The process of a rule's script."""
        tree = psutil.Process(self.pid).children(recursive=True)
        (found,) = [one for one in tree if len(one.cmdline()) > 1 and one.cmdline()[1].endswith(f"/{name}.py")]
        return found


def until(happened: Callable[[], object]) -> None:
    """Wait until it holds."""
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def planned(output: str) -> Counter[str]:
    """Jobs by rule, out of what a dry run prints; its two accounts of them must agree."""
    blocks = Counter(re.findall(r"(?m)^(?:local)?rule (\w+):$", output))
    table = re.search(r"(?m)^job +count\n-+ +-+\n((?:\w+ +\d+\n)+)", output)
    stats = {name: int(count) for name, count in re.findall(r"(\w+) +(\d+)\n", table[1])} if table else {}
    assert stats.pop("total", 0) == sum(blocks.values()), output
    assert stats == blocks, output
    assert blocks or "Nothing to be done" in output, output
    return Counter({name: count for name, count in blocks.items() if name != "verdict"})


def marked(material: Material) -> dict[int, str]:
    """The processes that calls of these tests started and that are still there: marker by pid."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            if environment.get("PINPROOF_MACHINE_FOLDER") == str(material.machine):
                found[process.pid] = environment.get("PINPROOF_MARKER")
    return {pid: marker for pid, marker in found.items() if marker}
