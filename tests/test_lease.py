"""The lease of a device: a kernel lock that nobody breaks, and a record that says who holds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import filelock
import psutil
import pytest

from pinproof import lease, processes, records
from pinproof.lease import Holder, Wait, Who, device_lock, held, look, read_holder
from pinproof.processes import Interrupted, terminating
from pinproof.reasons import Reason, Refusal

SCRIPTS = Path(__file__).parents[1] / "scripts"
ME = Who("case", "row")

Mount = namedtuple("Mount", "mountpoint fstype")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "gpu.lock"


@pytest.fixture
def other(path: Path) -> Iterator[Callable[[], subprocess.Popen]]:
    """Other processes that hold the lease until they are ended."""
    started: list[subprocess.Popen] = []

    def make() -> subprocess.Popen:
        code = (
            "import time\nfrom pathlib import Path\nfrom pinproof.lease import Who, held\n"
            f"with held(Path({str(path)!r}), Who('their-case', 'their-row')) as lease:\n"
            "    lease.progress('leg 3 of 8')\n    print('held', flush=True)\n    time.sleep(600)\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
        process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate()


def refused(path: Path, **options: object) -> Refusal:
    with pytest.raises(Refusal) as refusal, held(path, ME, **{"poll_s": 0.01, "timeout_s": 0.05, **options}):
        pass
    return refusal.value


# holding


def test_the_holder_is_on_record_while_it_holds_and_not_after(path: Path) -> None:
    with held(path, ME) as mine:
        mine.progress("leg 1 of 8")
        holder = read_holder(path)
        assert holder is not None
        assert (holder.pid, holder.case, holder.row, holder.progress) == (os.getpid(), "case", "row", "leg 1 of 8")
        assert holder.updated >= holder.since
        assert holder.alive() is True
        assert mine.as_record()["holder"] == asdict(holder)
        mine.check()
    assert read_holder(path) is None
    with held(path, ME):
        pass


def test_a_failure_inside_frees_it(path: Path) -> None:
    with pytest.raises(RuntimeError), held(path, ME):
        raise RuntimeError
    with held(path, ME):
        pass


def test_a_device_has_one_lock_for_the_machine_whatever_home_and_tmpdir_say(monkeypatch: pytest.MonkeyPatch) -> None:
    one = device_lock("GPU-1/2 x")
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    monkeypatch.setenv("HOME", "/elsewhere")
    assert device_lock("GPU-1/2 x") == one == Path("/tmp/pinproof/locks/GPU-1_2_x.lock")
    assert one.parent.stat().st_mode & 0o777 == 0o777  # for every account of the machine


def test_every_account_may_take_the_lock(path: Path) -> None:
    with held(path, ME):
        assert path.stat().st_mode & 0o666 == 0o666


# waiting


def test_a_waiter_learns_who_holds_it_and_how_far_they_are(path: Path, other: Callable) -> None:
    holder = other()
    waits: list[Wait] = []
    refusal = refused(path, on_wait=waits.append)
    assert refusal.reason is Reason.LEASE_HELD
    for words in (f"pid {holder.pid}", "(alive)", "their-case/their-row", "leg 3 of 8"):
        assert words in refusal.message
    assert "kill" not in str(refusal)
    seen = waits[0].holder
    assert seen is not None
    assert (seen.pid, seen.progress, waits[0].alive) == (holder.pid, "leg 3 of 8", True)


def test_a_waiter_gets_it_when_the_holder_ends(path: Path, other: Callable) -> None:
    holder = other()
    with held(path, ME, lambda _wait: holder.terminate(), poll_s=0.01):
        mine = read_holder(path)
        assert mine is not None
        assert mine.pid == os.getpid()


def test_a_holder_that_is_killed_frees_it_by_itself(path: Path, other: Callable) -> None:
    holder = other()
    holder.kill()
    holder.wait()
    left = look(path)
    assert left.holder is not None  # its record is still there, and decides nothing
    assert left.alive is False
    with held(path, ME, timeout_s=5):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait(path: Path, other: Callable, number: signal.Signals) -> None:
    other()
    with pytest.raises(Interrupted), terminating(), held(path, ME, lambda _wait: signal.raise_signal(number)):
        pass


def test_a_second_lease_of_the_same_process_waits_too(path: Path) -> None:
    with held(path, ME):
        assert refused(path).reason is Reason.LEASE_HELD


def test_two_threads_never_hold_it_at_once(path: Path) -> None:
    inside: list[int] = []
    worst: list[int] = []

    def work() -> None:
        with held(path, ME, poll_s=0.002):
            inside.append(1)
            worst.append(len(inside))
            time.sleep(0.002)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worst == [1] * 6


# what the record is worth


def test_a_process_of_the_same_number_is_not_the_holder() -> None:
    me = Holder.me(ME)
    assert me.alive() is True
    assert replace(me, process_started=(me.process_started or 0) - 1).alive() is False
    assert replace(me, boot="an earlier one").alive() is False


def test_a_holder_in_another_pid_namespace_cannot_be_judged() -> None:
    holder = replace(Holder.me(ME), namespace="pid:[1]")
    assert holder.alive() is None
    assert "not visible from here" in str(Wait(3, holder, None))


def test_a_damaged_record_is_no_holder_and_no_obstacle(path: Path) -> None:
    path.parent.mkdir()
    path.with_name("gpu.lock.holder.json").write_text("{")
    assert read_holder(path) is None
    with held(path, ME):
        pass


def test_a_held_lock_without_a_record_is_still_held(path: Path) -> None:
    path.parent.mkdir()
    with filelock.FileLock(path):
        assert "left no record" in refused(path).message


# losing it


def test_a_lock_file_that_was_removed_means_that_the_lease_is_lost(path: Path) -> None:
    with held(path, ME) as mine:
        path.unlink()
        with pytest.raises(Refusal) as refusal:
            mine.check()
        assert refusal.value.reason is Reason.LEASE_LOST
        with held(path, ME, timeout_s=0):  # another one can take it now: that is why
            with pytest.raises(Refusal):
                mine.check()
            holder = read_holder(path)
        assert holder is not None


def test_another_holder_on_record_means_that_the_lease_is_lost(path: Path) -> None:
    with held(path, ME) as mine:
        body = asdict(replace(mine.holder, pid=1))
        records.write(path.with_name("gpu.lock.holder.json"), "lease", body)
        with pytest.raises(Refusal) as refusal:
            mine.check()
        assert refusal.value.reason is Reason.LEASE_LOST
    assert read_holder(path) is not None  # not ours to remove


# places


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "fuse.sshfs"])
def test_a_network_file_system_is_refused_by_name(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    mounts = [Mount("/", "ext4"), Mount(str(path.parents[1].resolve()), kind)]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)
    refusal = refused(path)
    assert refusal.reason is Reason.LOCK_PLACE
    assert f"({kind})" in refusal.message


def test_a_local_disk_below_or_above_a_network_one_is_local(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near = str(path.parents[1].resolve())
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [Mount("/", "nfs4"), Mount(near, "xfs")])
    assert lease.network_file_system(path) is None
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [Mount("/", "ext4"), Mount(near + "-other", "nfs")])
    assert lease.network_file_system(path) is None


def test_a_place_that_cannot_be_locked_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(*_args: object, **_options: object) -> None:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(filelock.FileLock, "acquire", stale)
    refusal = refused(path)
    assert (refusal.reason, "Stale file handle" in refusal.message) == (Reason.LOCK_PLACE, True)


def test_the_machine_folder_is_one_constant() -> None:
    assert Path("/tmp/pinproof") == processes.MACHINE_FOLDER
