"""The rehearsal of a case: its whole graph on doubles, in a folder of its own, within a minute.

It is a call of the same workflow on a case that was changed (`stage`). Every process of it is marked
as rehearsing, so its records are of another family: no stage of a measurement reads them, and its
verdict says REHEARSAL, whatever it would have said.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinproof import faults, layout, locks, records, stage
from pinproof.layout import Layout
from pinproof.reasons import Reason, Refusal

SOURCES = Path("tests/stubs")  # of the double, below the root of the repository
_CODE = re.compile(r"\[([a-z-]+), (?:target|instrument|environment|input)\]")
# What leads a package manager elsewhere.
_FOREIGN = ("UV_", "PIP_", "PINPROOF_", "VIRTUAL_ENV", "PYTHONPATH", "SNAKEMAKE_")


@dataclass(frozen=True)
class Outcome:
    """How a rehearsal ended: what a measured run would say (REFUSED before a verdict), and the causes named."""

    says: str
    reasons: tuple[str, ...]
    text: str
    seconds: float

    def is_that_of(self, fault: faults.Fault | None) -> bool:
        """Whether the fault ended as it must; without one, in a HOLD."""
        if fault is None:
            return self.says == faults.HOLD
        named = not fault.codes or bool(set(fault.codes) & set(self.reasons))
        return self.says == fault.says and named


def fault_of(name: str | None) -> faults.Fault | None:
    """The fault of this name. Refusal CASE_INVALID names those that there are."""
    if name is None:
        return None
    if name not in faults.FAULTS:
        raise Refusal(Reason.CASE_INVALID, f"no such fault: {name}; there are {', '.join(faults.FAULTS)}", key="fault")
    return faults.FAULTS[name]


def rehearse(places: Layout, fault: faults.Fault | None, cores: int, say: Callable[[str], None]) -> Outcome:
    """Rehearse the case and return how it ended; everything lies in `folder(places)`."""
    begun = time.time()
    if fault is not None:
        say(f"with the fault {fault.name}: {fault.what}")
    _call(places, prepare(places, fault), cores)
    return outcome(folder(places), begun)


def prepare(places: Layout, fault: faults.Fault | None) -> Path:
    """Set the stage in an empty folder, all but the store of engines, and return the file of the rehearsed case."""
    here = folder(places)
    for old in here.glob("*"):
        if old.name != "store":
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    (here / "machine").mkdir(parents=True)
    set_up = stage.of(places.case, places.root)
    if fault is not None:
        fault.change(set_up)
    return stage.write(set_up, places.root / SOURCES, here / "material")


def words(outcome: Outcome, fault: faults.Fault | None) -> str:
    """How it ended, for a terminal: what a measured run would have said, and whether that is right."""
    right = "as it must" if outcome.is_that_of(fault) else f"NOT as it must, which is {_expected(fault)}"
    return f"REHEARSAL: would say {outcome.says}, {right} ({outcome.seconds:.0f} s) {outcome.text}".rstrip()


def record(places: Layout, outcome: Outcome, fault: faults.Fault | None) -> None:
    """Write rehearsal.json. Refusal REHEARSAL_FAILED when it did not end as it must."""
    body = {
        "fault": fault and {"name": fault.name, "note": fault.note, "what": fault.what},
        "says": outcome.says,
        "reasons": list(outcome.reasons),
        "text": outcome.text,
        "as_it_must": outcome.is_that_of(fault),
    }
    path = folder(places) / "rehearsal.json"
    records.write(path, "rehearsal", body, provenance={"seconds": outcome.seconds})
    if not body["as_it_must"]:
        raise Refusal(Reason.REHEARSAL_FAILED, words(outcome, fault), file=path)


def _expected(fault: faults.Fault | None) -> str:
    if fault is None:
        return faults.HOLD
    return " for ".join([fault.says, *filter(None, [" or ".join(fault.codes)])])


def folder(places: Layout) -> Path:
    """Where everything of a rehearsal lies."""
    return (places.folder / stage.CASE).absolute()


def environment(here: Path, around: Mapping[str, str]) -> dict[str, str]:
    """The environment of the call: no index but its own wheels, no machine but a simulated one."""
    kept = {name: value for name, value in around.items() if not name.startswith(_FOREIGN)}
    wheels = sorted({str(file.parent) for file in (here / "material" / "wheels").rglob("*.whl")})
    return kept | {
        records.REHEARSAL_VARIABLE: "1",
        layout.RESULTS_VARIABLE: str(here.parent),
        layout.STORE_VARIABLE: str(here / "store"),
        locks.TORCH_BUILD_VARIABLE: "index",
        "PINPROOF_MACHINE_FOLDER": str(here / "machine"),
        **json.loads((here / "material" / stage.ENVIRONMENT).read_text(encoding="utf-8")),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": " ".join(wheels),
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "1",
    }


def _call(places: Layout, file: Path, cores: int) -> None:
    """Call the workflow; how it ended is read from what it left."""
    here = folder(places)
    words = ("-s", places.root / "Snakefile", "--configfile", file, "-d", here, "--cores", cores, "verdict")
    argv = [sys.executable, "-m", "snakemake", *map(str, words)]
    with subprocess.Popen(argv, env=environment(here, os.environ), stdin=subprocess.DEVNULL) as process:
        try:
            process.wait()
        except BaseException:
            process.terminate()
            raise


def outcome(here: Path, begun: float) -> Outcome:
    """How the rehearsal in this folder ended that began at `begun`, seconds since the epoch."""
    found, seconds = _verdict(here / "verdict.json"), time.time() - begun
    if found is None:
        text = _refusal(here, begun)
        return Outcome(faults.REFUSED, tuple(dict.fromkeys(_CODE.findall(text))), text, seconds)
    causes = [*found["against"], *found["open"]]
    invalid = [one["reason"] for row in found["rows"].values() for one in _objections(row)]
    named = tuple(dict.fromkeys([*(cause["reason"] for cause in causes), *invalid]))
    text = "; ".join(f"{cause['subject']}: {cause['reason']}" for cause in causes)
    return Outcome(found["would_say"], named, text, seconds)


def _verdict(path: Path) -> dict[str, Any] | None:
    """The verdict of the rehearsal, read as what it is."""
    try:
        return records.read(path, "verdict", rehearsed=True)
    except Refusal:
        return None


def _objections(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [objection for one in row["legs"]["invalid"] for objection in one["objections"]]


def _refusal(here: Path, begun: float) -> str:
    """What the stages that refused since then said, out of their logs."""
    said = []
    logs = [
        found for pattern in ("logs/*.log", "store/*/*.log", "store/*/*/logs/*.log") for found in here.glob(pattern)
    ]
    for log in sorted(logs):
        text = log.read_text(encoding="utf-8", errors="replace")
        if log.stat().st_mtime >= begun and (last := text.rpartition("refused: "))[1]:
            said.append("".join(last[1:]).strip())
    return "\n".join(said) or "it ended before a verdict, and no stage said why"
