"""What the scripts of the rules share: arguments, progress, and how a refusal is told."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock

from pinproof import case, layout, processes, records, shortages, wrapper
from pinproof.reasons import Refusal

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Task:
    """One run of one script: the case, the id it is for, its log."""

    layout: layout.Layout
    stage: str
    id: str
    log: Path
    begun: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Progress: one line to the terminal and to the log, with the time since the start."""
        minutes, seconds = divmod(int(time.monotonic() - self.begun), 60)
        line = f"[{self.stage}{' ' + self.id if self.id else ''} {minutes:d}:{seconds:02d}] {text}"
        print(line, file=sys.stderr, flush=True)
        with open(self.log, "a", encoding="utf-8") as stream:
            stream.write(line + "\n")


def options(**kinds: Callable[[str], Any]) -> argparse.Namespace:
    """A script's own options by name and type, each None where it is not given; `run` parses what is left."""
    parser = argparse.ArgumentParser(add_help=False)
    for name, kind in kinds.items():
        parser.add_argument(f"--{name}", type=kind)
    own, sys.argv[1:] = parser.parse_known_args()
    return own


def run(act: Callable[[Task], None], *, needs: str | None = None, on_device: bool = False) -> None:
    """Parse the arguments of a script, run `act`, and end the process with its exit status.

    `needs` names the one id that the stage is for: engine, arm, checkpoint or row. `on_device`: the
    stage touches the device, so where a wrapper grants it the script is run again, under the wrapper.
    A refusal is printed as it is, without a traceback, and the status is 1; 130 after an interruption.
    """
    status = _run(act, needs, on_device)
    wrapper.tell(status)
    sys.exit(status)


def _run(act: Callable[[Task], None], needs: str | None, on_device: bool) -> int:
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--case", type=Path, required=True, help="case file")
    parser.add_argument("--log", type=Path, required=True, help="log of this stage")
    if needs:
        parser.add_argument(f"--{needs}", dest="id", required=True, help=f"which {needs}")
    arguments = parser.parse_args()
    stage = Path(sys.argv[0]).stem.replace("_", " ")
    try:
        with processes.terminating():
            arguments.log.parent.mkdir(parents=True, exist_ok=True)
            places = layout.Layout(case.load(arguments.case), arguments.case, ROOT)
            task = Task(places, stage, getattr(arguments, "id", ""), arguments.log)
            if on_device and isinstance(places.case.lease, case.CommandLease) and not wrapper.inside():
                return wrapper.run(places.case.lease, _again(), places.folder / "leases", task.say)
            with _sole_maker(places, task.id) if needs == "engine" else contextlib.nullcontext():
                act(task)
    except Refusal as refusal:
        _tell(f"refused: {refusal}", arguments.log)
        return 1
    except KeyboardInterrupt:
        _tell("interrupted", arguments.log)
        return 130
    except (OSError, MemoryError) as error:
        if (short := shortages.refusal_of(error)) is None:
            raise
        _tell(f"refused: {short}", arguments.log)
        return 1
    return 0


def _again() -> list[str]:
    """The command line of this process."""
    return [sys.executable, str(Path(sys.argv[0]).resolve()), *sys.argv[1:]]


def _sole_maker(places: layout.Layout, engine: str) -> filelock.BaseFileLock:
    """One call at a time makes an engine's files: several checkouts may share the store."""
    folder = places.engines()[engine].folder
    folder.mkdir(parents=True, exist_ok=True)
    return filelock.FileLock(folder / ".lock", mode=0o666)


def _tell(text: str, log: Path) -> None:
    print(text, file=sys.stderr, flush=True)
    with contextlib.suppress(OSError), open(log, "a", encoding="utf-8") as stream:  # its disk may be what is short
        stream.write(text + "\n")


def provenance() -> dict:
    """What varies without meaning, for the record of a stage."""
    return {"written": records.written(), "pid": os.getpid()}
