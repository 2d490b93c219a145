"""A rehearsal that is killed at random, fifty times over: the verdict of the next call is an undisturbed one's.

The default case (or --case) is set on its stage once. Its workflow runs undisturbed first; then all that it made is
removed, and it is called again and again. Each call loses one process to SIGKILL at a moment drawn from the seed
(printed): snakemake, a script of a rule, a server or the client. After the last kill the workflow is called once
more, and its verdict must say what the first one said, provenance apart. A call that ends before its moment costs
nothing: its results are removed and it begins anew.

    python tests/bench/bench_rehearsal_kills.py [--seed N] [--kills N] [--case FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]

import psutil  # noqa: E402

from pinproof import case, records, rehearsal  # noqa: E402
from pinproof.layout import Layout  # noqa: E402

LATEST_S = 20.0  # a call is killed within so many seconds of its begin
# What lies in the rehearsal's folder and is made again; the stage itself stays.
STAGE = ("material", "machine")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--case", type=Path, default=ROOT / "config" / "config.yaml")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pinproof-kills-") as folder:
        drill = Drill(arguments.case, Path(folder), random.Random(arguments.seed))
        sys.exit(0 if drill.run(arguments.kills) else 1)


class Drill:
    """One rehearsed case, and whoever is killed in it."""

    def __init__(self, file: Path, folder: Path, draw: random.Random) -> None:
        self.draw = draw
        self.file = file.resolve()
        self.places = Layout(case.load(self.file), self.file, ROOT, folder / "results")
        self.here = rehearsal.folder(self.places)
        self.staged = rehearsal.prepare(self.places, None)

    def run(self, kills: int) -> bool:
        """Everything; whether nothing was lost."""
        first = self.call()
        assert first.wait() == 0, self.log.read_text()
        wanted = self.verdict()
        print(f"undisturbed: would say {wanted['would_say']}", flush=True)
        self.begin_anew()
        done, hit, anew, lost = 0, Counter(), 0, 0
        while done < kills:
            before = self.whole_pairs()
            victim = self.kill(self.draw.uniform(0, LATEST_S))
            if victim is None:
                anew += 1
                self.begin_anew()
                continue
            done += 1
            hit[victim] += 1
            after = self.whole_pairs()
            gone = [name for name in before if after.get(name) != before[name]]
            lost += len(gone)
            print(f"kill {done:2}: {victim:14} {len(after):3} legs; lost {gone or 'none'}", flush=True)
        self.unlock()
        begun = time.monotonic()
        status = self.call().wait()
        left = [process.pid for process in self.processes()]
        differing = sorted(differences(wanted, self.verdict())) if status == 0 else ["there is no verdict"]
        print(f"killed: {dict(hit)}; begun anew {anew} times; complete legs lost: {lost}")
        print(f"the clean call: status {status} in {time.monotonic() - begun:.0f} s; processes left: {left or 'none'}")
        print(f"the verdict differs from the undisturbed one in: {', '.join(differing) or 'nothing'}")
        return status == 0 and not (lost or left or differing)

    @property
    def log(self) -> Path:
        return self.here.parent / "call.log"

    def call(self, *words: str) -> subprocess.Popen[bytes]:
        """Call the rehearsed workflow, in a session of its own."""
        argv = [sys.executable, "-m", "snakemake", "-s", ROOT / "Snakefile", "--configfile", self.staged]
        argv += ["-d", self.here, "--cores", "2", *(words or ("verdict",))]
        environment = rehearsal.environment(self.here, os.environ)
        with open(self.log, "wb") as log:
            return subprocess.Popen(
                list(map(str, argv)), env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def unlock(self) -> None:
        """What a person does after snakemake itself was killed; nothing when it was not."""
        assert self.call("--unlock").wait() == 0, self.log.read_text()

    def begin_anew(self) -> None:
        """Remove all that was made; not the stage."""
        while list(self.processes()):  # what goes on without its snakemake
            time.sleep(0.1)
        for path in self.here.iterdir():
            if path.name not in STAGE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def kill(self, moment: float) -> str | None:
        """Call, and kill somebody after so many seconds: who it was, None when the call had ended before."""
        self.unlock()
        call = self.call()
        with contextlib.suppress(subprocess.TimeoutExpired):
            call.wait(moment)
            assert call.returncode == 0, self.log.read_text()
            return None
        while True:
            victims = sorted(self.processes(), key=lambda one: one.pid)
            if not victims:
                return None
            victim = self.draw.choice(victims)
            with contextlib.suppress(psutil.Error):
                name = words(victim)
                victim.send_signal(signal.SIGKILL)
                break
        call.wait()
        return name

    def processes(self) -> Iterator[psutil.Process]:
        """Every process of the rehearsal that is there."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("PINPROOF_MACHINE_FOLDER") == str(self.here / "machine")
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def verdict(self) -> dict[str, Any]:
        return records.read(self.here / "verdict.json", "verdict", rehearsed=True)

    def whole_pairs(self) -> dict[str, str]:
        """Digest of every leg whose pair is complete, by its place; the next call sets a lone one aside."""
        legs = {}
        for file in self.here.glob("rows/*/*/legs/s*.json"):
            if not file.name.endswith(".raw.json"):
                legs[str(file.relative_to(self.here))] = records.content_digest(json.loads(file.read_text()))
        pairs = Counter(name.rsplit("-", 2)[0] for name in legs)
        return {name: digest for name, digest in legs.items() if pairs[name.rsplit("-", 2)[0]] == 2}


def words(process: psutil.Process) -> str:
    """Who a process is."""
    if marker := process.environ().get("PINPROOF_MARKER"):
        return marker.split("/")[1]
    scripts = [Path(word).stem for word in process.cmdline() if word.endswith(".py")]
    return scripts[0] if scripts else "snakemake" if "snakemake" in process.cmdline() else process.name()


def differences(one: Any, other: Any, key: str = "") -> Iterator[str]:
    """Dotted keys at which two values differ, provenance apart."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {*one, *other} - {records.PROVENANCE}:
            yield from differences(one.get(name), other.get(name), f"{key}.{name}".lstrip("."))
    elif one != other:
        yield key


if __name__ == "__main__":
    main()
