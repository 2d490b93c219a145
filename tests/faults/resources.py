"""Resource faults: disks, memory, descriptors, clocks and locks that fail those who need them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import filelock
from tests.faults.fault import Fault, Outcome
from tests.faults.scene import CASE, Scene
from tests.stubs.workflow import Finished, until

from pinproof.reasons import Owner, Reason

ROOMY = "256m"
HOUR_S = 3600
_MEMORY = Path("/sys/fs/cgroup/memory")  # of cgroups' first version


def _fill(folder: Path) -> None:
    """Write until the disk of a folder is full."""
    with open(folder / "filler", "wb") as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(1 << 16))
            stream.flush()


def _full_while_measuring(scene: Scene) -> Finished:
    scene.unmeasure()
    scene.on_a_disk_of(scene.case, ROOMY)
    call = scene.measuring()
    scene.remount(scene.case, f"size={_used(scene.case) + (1 << 16)}")
    _fill(scene.case)
    return call.wait()


def _used(folder: Path) -> int:
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def _roomy_again(scene: Scene) -> None:
    scene.remount(scene.case, f"size={ROOMY}")
    (scene.case / "filler").unlink()


def _full_store(scene: Scene) -> Finished:
    """The disk of the engines fills up while an environment is installed."""
    engine = scene.engine
    scene.on_a_disk_of(engine, ROOMY)
    scene.wanted = [scene.target(engine / "env" / "pinproof.json")]
    scene.forget(f"engines/{engine.name}/env")
    scene.remount(engine, f"size={_used(engine) + (1 << 15)}")
    return scene.call(*scene.wanted)


def _roomy_store(scene: Scene) -> None:
    scene.remount(scene.engine, f"size={ROOMY}")


def _read_only(scene: Scene) -> Finished:
    scene.on_a_disk_of(scene.case, ROOMY)
    scene.forget(f"{CASE}/rows/serving.json")
    scene.remount(scene.case, "ro")
    return scene.call()


def _read_only_while_measuring(scene: Scene) -> Finished:
    """A file system turns read-only in a series, as one with errors does."""
    scene.unmeasure()
    call = scene.measuring()
    scene.bind_read_only(scene.case)
    return call.wait()


def _writable(scene: Scene) -> None:
    scene.remount(scene.case, "rw")


def _writable_again(scene: Scene) -> None:
    scene.remount(scene.case, "bind,rw")


def killed_for_memory(scene: Scene) -> Finished:
    """The kernel kills the pinned engine's server for want of memory, in a leg."""
    scene.unmeasure()
    call = scene.measuring()
    server = scene.process("oracle")
    group = _MEMORY / f"pinproof-{server.pid}"
    group.mkdir()
    scene.on_leaving(lambda: _remove(group))
    (group / "memory.limit_in_bytes").write_text("4k")  # what it holds stays another group's: nothing new is granted
    (group / "cgroup.procs").write_text(str(server.pid))
    return call.wait()


def _remove(group: Path) -> None:
    until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def _no_descriptors(scene: Scene) -> Finished:
    """The script that measures may open no more files, from the middle of its legs on."""
    scene.unmeasure()
    call = scene.measuring()
    pid = call.script("measure_row").pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
    return call.wait()


def _injected(stage: str, fault: str, *patterns: str) -> Callable[[Scene], Finished]:
    def act(scene: Scene) -> Finished:
        scene.forget(*patterns)
        return scene.inject(stage, fault)

    return act


def _injected_measuring(fault: str) -> Callable[[Scene], Finished]:
    def act(scene: Scene) -> Finished:
        scene.unmeasure()
        return scene.inject("measure_row", fault)

    return act


def _clock_back(scene: Scene) -> Finished:
    """The wall clock goes back by an hour in a series: no time that is told may be negative."""
    call = _injected_measuring("clock_put_back")(scene)
    written = {json.loads(leg)["provenance"]["written"] for leg in scene.place.legs.values()}
    assert len({stamp[:13] for stamp in written}) > 1  # by the hour: the clock did go back
    for file in scene.measured.glob("**/*.json"):
        assert not re.search(r'"(seconds|held_s)": -', file.read_text()), file
    return call


def _results_of_before(scene: Scene) -> Finished:
    """The clock was an hour ahead when the case was measured: all results are of a time before their inputs."""
    for path in scene.case.rglob("*"):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            os.utime(path, (status.st_atime - HOUR_S, status.st_mtime - HOUR_S))
    legs = scene.place.legs
    call = scene.call()
    assert scene.place.legs == legs
    return call


def _hung_lock(scene: Scene) -> Finished:
    scene.unmeasure()
    call = scene.start(PYTHONPATH=str(Path(__file__).parent / "inject"), FAULT_STAGE="measure_row", FAULT="hung_lock")
    call.until(lambda: "the lock hangs" in call.output)
    return call.signal(signal.SIGINT)


def _lock_path(scene: Scene) -> Path:
    return scene.material.machine / "locks" / "cpu.lock"


def _held_lock(scene: Scene) -> Finished:
    """Somebody else holds the device, and lets it go when he was waited for."""
    scene.unmeasure()
    with filelock.FileLock(_lock_path(scene)):
        call = scene.start()
        call.until(lambda: "left no record" in call.output)
    return call.wait()


def _removed_lock(scene: Scene) -> Finished:
    """The lock file is removed while it is held, so that another could hold it too."""
    scene.unmeasure()
    call = scene.measuring()
    _lock_path(scene).unlink()
    return call.wait()


def _no_place_for_locks(scene: Scene) -> Finished:
    """The folder of the machine's locks is a link to somewhere else."""
    scene.unmeasure()
    locks = scene.material.machine / "locks"
    locks.rename(locks.with_name("locks.kept"))
    locks.symlink_to(locks.with_name("locks.kept"))
    return scene.call()


def _place_for_locks(scene: Scene) -> None:
    locks = scene.material.machine / "locks"
    locks.unlink()
    locks.with_name("locks.kept").rename(locks)


FAULTS = [
    Fault("disk-full-in-a-series", "the disk of the results fills up after two legs",
          _full_while_measuring, Outcome.REFUSED, Reason.DISK_SHORT, Owner.ENVIRONMENT, mend=_roomy_again, root=True),
    Fault("disk-full-in-an-installation", "the disk of the engines fills up while an environment is installed",
          _full_store, Outcome.REFUSED, Reason.DISK_SHORT, Owner.ENVIRONMENT, mend=_roomy_store, root=True),
    Fault("results-read-only", "the results' folder may not be written",
          _read_only, Outcome.STOPPED, mend=_writable, root=True),
    Fault("read-only-in-a-series", "the file system of the results turns read-only after two legs",
          _read_only_while_measuring, Outcome.REFUSED, Reason.FOLDER_UNWRITABLE, Owner.ENVIRONMENT,
          mend=_writable_again, root=True),
    Fault("server-out-of-memory", "the kernel kills the pinned engine's server for want of memory (cgroup)",
          killed_for_memory, Outcome.UNDECIDED, Reason.SERVER_KILLED, Owner.ENVIRONMENT, root=True),
    Fault("script-out-of-memory", "an allocation fails in the script that measures",
          _injected_measuring("no_memory"), Outcome.REFUSED, Reason.MEMORY_SHORT, Owner.ENVIRONMENT),
    Fault("verdict-out-of-memory", "an allocation fails in the script that writes the verdict",
          _injected("write_verdict", "no_memory", f"{CASE}/verdict.json"),
          Outcome.REFUSED, Reason.MEMORY_SHORT, Owner.ENVIRONMENT, quick=True),
    Fault("no-descriptors", "the script that measures may open no more files after two legs (rlimit)",
          _no_descriptors, Outcome.REFUSED, Reason.DESCRIPTORS_SHORT, Owner.ENVIRONMENT),
    Fault("clock-put-back", "the wall clock goes back by an hour in a series", _clock_back, Outcome.HOLD),
    Fault("results-of-the-future", "the wall clock was an hour ahead when the inputs were written",
          _results_of_before, Outcome.HOLD),
    Fault("slow-disk", "every flush to disk takes 0.2 s longer", _injected_measuring("slow_disk"), Outcome.HOLD),
    Fault("hung-lock", "the device's lock is neither given nor refused; then Ctrl-C", _hung_lock, Outcome.STOPPED),
    Fault("held-lock", "another process holds the device's lock for a while and leaves no record",
          _held_lock, Outcome.HOLD, says="a holder that left no record"),
    Fault("removed-lock", "the device's lock file is removed while it is held",
          _removed_lock, Outcome.UNDECIDED, Reason.LEASE_LOST, Owner.ENVIRONMENT),
    Fault("no-place-for-locks", "the folder of locks is a link to somewhere else",
          _no_place_for_locks, Outcome.UNDECIDED, Reason.LOCK_PLACE, Owner.ENVIRONMENT, mend=_place_for_locks),
]  # fmt: skip
