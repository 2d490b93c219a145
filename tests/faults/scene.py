"""The scene of a fault: a case that was measured on stub engines, and what can be done to it.

The workflow is the real one, called as a user calls it; every call gets the machine folder of the
tests. A scene reads what a call came to from what it wrote and said, as a person would.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.faults.fault import Outcome
from tests.stubs.workflow import ORACLE, ROW, Call, Finished, Material, Workplace, until

INJECT = Path(__file__).parent / "inject"
CASE = "stub"  # what the case of the tests is called
_CODE = re.compile(r"\[([a-z-]+), (target|instrument|environment|input)\]")
_FAULTS = "faults"  # file that an arm's stub engine reads its misbehaviour from


@dataclass(frozen=True)
class Place(Workplace):
    """A workplace whose calls get more variables, such as a fault to be injected."""

    more: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        return super().environment() | self.more


@dataclass(frozen=True)
class End:
    """How a call ended: what it came to, and the first cause that it named."""

    outcome: str
    reason: str | None = None
    owner: str | None = None


class Scene:
    """One place, with a whole run in it."""

    def __init__(self, place: Workplace, stack: contextlib.ExitStack) -> None:
        self.place = Place(place.folder, place.material, place.root, place.store)
        self.on_leaving = stack.callback
        self.kept = self.legs()  # complete legs that no fault may take
        self.wanted: list[str] = []  # what the next call is asked for beside a verdict
        self.spoiled: set[str] = set()  # JSON files that the fault itself damaged, below the results

    # where things lie

    @property
    def material(self) -> Material:
        return self.place.material

    @property
    def results(self) -> Path:
        return self.place.results

    @property
    def case(self) -> Path:
        """The folder of the case's results."""
        return self.results / CASE

    @property
    def engine(self) -> Path:
        """The folder of the oracle's engine."""
        (found,) = {path.parents[1] for path in self.place.engines.glob(f"*/source/*-{ORACLE}-*.whl")}
        return found

    @property
    def measured(self) -> Path:
        """The folder of what the row measured."""
        return self.place.measured[-1]

    def files(self, pattern: str) -> list[Path]:
        """Files below the results."""
        return sorted(self.results.glob(pattern))

    def file(self, pattern: str) -> Path:
        """The first of these files; there must be one."""
        return self.files(pattern)[0]

    # what can be done

    def forget(self, *patterns: str) -> None:
        """Remove what a stage made, so that it is made again."""
        for path in [path for pattern in patterns for path in self.files(pattern)]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def unmeasure(self) -> None:
        """Remove what the row measured."""
        shutil.rmtree(self.measured)
        self.kept = {}

    def misbehave(self, arm: str, faults: str) -> None:
        """Let an arm's stub engine misbehave until `behave`; its case is changed once, so the row is measured anew."""
        file = self.place.folder / _FAULTS
        file.write_text(faults)

        def name(case: dict[str, Any]) -> None:
            case["arms"][arm]["serve"]["env"]["STUB_FAULT_FILE"] = str(file)

        self.place.edit(name)
        self.kept = {}

    def spoil(self, file: Path, data: bytes) -> None:
        """Put other bytes in the place of a file's."""
        file.write_bytes(data)
        self.spoiled.add(str(file.relative_to(self.results)))
        self.kept = {name: leg for name, leg in self.kept.items() if not _of(name, file)}

    def behave(self) -> None:
        """No stub engine misbehaves any more."""
        (self.place.folder / _FAULTS).unlink()

    def call(self, *words: str, **variables: str) -> Finished:
        """Call the workflow for a verdict, with more variables, and wait for its end."""
        return self.start(*words, **variables).wait()

    def start(self, *words: str, **variables: str) -> Call:
        """Call the workflow for a verdict, and do not wait."""
        self.place.more.clear()
        self.place.more.update(variables)
        call = self.place.start(*(words or ("verdict",)))
        self.place.more.clear()
        return call

    def inject(self, stage: str, fault: str, *words: str) -> Finished:
        """Call the workflow while the script of a stage suffers a fault of inject/sitecustomize.py."""
        return self.call(*words, **injected(stage, fault))

    def target(self, file: Path) -> str:
        """A file as a call asks for it: Snakemake does not miss a file behind which all is up to date."""
        return str(file.relative_to(self.place.folder))

    def measuring(self, *, legs: int = 2) -> Call:
        """A call that has measured so many legs more than there are."""
        before = set(self.place.legs) if self.place.measured else set()
        call = self.start()
        call.until(lambda: self.place.measured and len(set(self.place.legs) - before) >= legs)
        return call

    def process(self, arm: str) -> psutil.Process:
        """The first process of an arm's server, or of the client (`.client`), while a call measures."""
        found = [one for one, marker in running(self.material).items() if marker and marker.split("/")[1] == arm]
        return min(found, key=lambda one: one.create_time())

    def on_a_disk_of(self, folder: Path, size: str) -> None:
        """Put a folder, with what lies in it, on a file system of its own, of this size; as root."""
        kept = self.place.folder / f"{folder.name}.kept"  # not beside it, where it would be found
        folder.rename(kept)
        folder.mkdir()
        _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
        self.on_leaving(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
        shutil.copytree(kept, folder, symlinks=True, dirs_exist_ok=True)

    @staticmethod
    def remount(folder: Path, options: str) -> None:
        """Change a file system: its size, or whether it may be written."""
        _mount("-o", f"remount,{options}", str(folder))

    def bind_read_only(self, folder: Path) -> None:
        """Turn a folder read-only under those who work in it, as a file system with errors does; as root."""
        _mount("--bind", str(folder), str(folder))
        self.on_leaving(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
        self.remount(folder, "bind,ro")

    # what can be seen

    def end(self, call: Finished) -> End:
        """What a call came to."""
        if call.status != 0:
            named = _CODE.search(call.output.partition("refused: ")[2]) or _CODE.search(call.output)
            return End(Outcome.REFUSED, *named.groups()) if named else End(Outcome.STOPPED)
        verdict = self.place.verdict
        causes = [*verdict["against"], *verdict["open"]]
        causes += [objection for one in self.place.row["legs"]["invalid"] for objection in one["objections"]]
        first = causes[0] if causes else {"reason": None, "owner": None}
        return End(verdict["verdict"], first["reason"], first["owner"])

    def legs(self) -> dict[str, bytes]:
        """Legs whose pair is complete, by name."""
        legs = self.place.legs if self.place.measured else {}
        pairs = Counter(name.rsplit("-", 2)[0] for name in legs)
        return {name: leg for name, leg in legs.items() if pairs[name.rsplit("-", 2)[0]] == 2}

    def broken(self) -> list[str]:
        """JSON files under their final name that are not whole."""
        found = []
        for file in self.results.rglob("*.json"):
            if file.name.startswith(".") or {"site-packages", "damaged"} & set(file.parts):  # kept as evidence
                continue
            try:
                json.loads(file.read_text(), parse_constant=_refuse)
            except (ValueError, OSError):
                found.append(str(file.relative_to(self.results)))
        return found

    def left_over(self) -> list[str]:
        """Files that nothing reads: half-written ones under a temporary name."""
        found = [path for path in self.results.rglob(".*.*") if path.is_file() and "site-packages" not in path.parts]
        return sorted(str(path.relative_to(self.results)) for path in found if re.search(r"\.\w{8}$", path.name))


def injected(stage: str, fault: str) -> dict[str, str]:
    """The variables under which the script of a stage suffers a fault."""
    return {"PYTHONPATH": str(INJECT), "FAULT_STAGE": stage, "FAULT": fault}


def running(material: Material) -> dict[psutil.Process, str | None]:
    """Every process that calls of the tests started and that is there: its marker, None for the workflow's own."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            said = process.environ()
            ours = said.get("PINPROOF_MACHINE_FOLDER") == str(material.machine)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found[process] = said.get("PINPROOF_MARKER")
    return found


def markers(material: Material) -> list[str]:
    """Who is there, in words: the arm of a life, or the workflow's own."""
    found = Counter(marker.split("/")[1] if marker else "the workflow" for marker in running(material).values())
    return [f"{name} ({number})" if number > 1 else name for name, number in sorted(found.items())]


def gone(material: Material) -> None:
    """Wait until no process of the tests is there."""
    until(lambda: not running(material))


def _of(leg: str, file: Path) -> bool:
    """Whether a file belongs to a leg, or to the other one of its pair."""
    return file.name.rsplit("-", 2)[0] == leg.rsplit("-", 2)[0]


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def can_mount() -> bool:
    """Whether this account may mount a file system."""
    tried = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)
    return os.geteuid() == 0 and tried.returncode == 0


def replaced(file: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON file by its value, behind everyone's back; its schema and form stay."""
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False) + "\n")


def case_rows(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a case file."""
    return [row for row in case["rows"] if row["id"] == ROW]


def _refuse(name: str) -> None:
    raise ValueError(name)
