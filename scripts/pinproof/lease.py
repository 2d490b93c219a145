"""The lease: the exclusive right to a device, held across all the legs of a series.

Whatever claims the device, a kernel lock on a file of a local disk is held too, in one folder for the
whole machine: it ends with the process that holds it, however that ends, and is never broken by
anyone else, and two kinds of lease on one machine exclude each other by it. A record beside it says
who holds it and how far they are; that record informs and decides nothing.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, get_args

import filelock
import psutil

from pinproof import allocation, case, records, wrapper
from pinproof.processes import boot_id, machine_folder, pid_namespace, started
from pinproof.reasons import Reason, Refusal

_REMOTE = re.compile(
    r"nfs|cifs|smb|9p|afs|ceph|gluster|lustre|beegfs|gpfs|panfs|sshfs|davfs|fuse\.s3|virtiofs", re.IGNORECASE
)


Spending = Literal["caches", "server starts", "warm-up", "legs", "teardown"]


class Proof(Protocol):
    """What shows that the device was granted to us, where the kernel lock alone does not."""

    kind: str

    def check(self) -> None:
        """Refuse (LEASE_LOST) when it no longer is."""

    def as_record(self) -> dict:
        """The proof as JSON values."""


class Account:
    """What a lease was spent on, in seconds; times are seconds since the epoch."""

    def __init__(self) -> None:
        self.taken = time.time()
        self.released: float | None = None
        self._begun = time.monotonic()
        self._held_s = math.nan
        self._spent = dict.fromkeys(get_args(Spending), 0.0)

    @contextlib.contextmanager
    def spending(self, what: Spending) -> Iterator[None]:
        """Book the time inside; what stands inside another booking is booked once more."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._spent[what] += time.monotonic() - begun

    def close(self) -> None:
        """The lease is given back now."""
        self.released = time.time()
        self._held_s = time.monotonic() - self._begun

    def as_record(self) -> dict:
        """As JSON values. `useful`: the share of the time held that was server starts and legs; null while held."""
        held = None if self.released is None else self._held_s
        useful = held and (self._spent["server starts"] + self._spent["legs"]) / held
        spent = {what: round(seconds, 3) for what, seconds in self._spent.items()}
        times = {"taken": self.taken, "released": self.released, "held_s": held and round(held, 3)}
        return {**times, "spent_s": spent, "useful": useful and round(useful, 4)}


@dataclass(frozen=True)
class Who:
    """Whose work a lease is for."""

    case: str
    row: str


@dataclass(frozen=True)
class Holder:
    """Who holds a lease, as its record says. Times are seconds since the epoch."""

    pid: int
    process_started: int | None  # clock ticks since boot: tells a process from a later one of the same number
    boot: str
    namespace: str  # of pids
    host: str
    case: str
    row: str
    since: float
    progress: str
    updated: float

    @classmethod
    def me(cls, who: Who) -> Holder:
        """This process, from now on."""
        pid, now = os.getpid(), time.time()
        host = socket.gethostname()
        return cls(pid, started(pid), boot_id(), pid_namespace(), host, who.case, who.row, now, "", now)

    def alive(self) -> bool | None:
        """Whether that very process runs; None where its pid cannot be looked up (another pid namespace)."""
        if self.boot != boot_id():
            return False
        if self.namespace != pid_namespace():
            return None
        return self.process_started is not None and started(self.pid) == self.process_started

    def same_process(self, other: Holder) -> bool:
        """Whether both are one process."""
        return (self.pid, self.process_started, self.boot, self.namespace) == (
            other.pid,
            other.process_started,
            other.boot,
            other.namespace,
        )


@dataclass(frozen=True)
class Wait:
    """What a waiter can know. `holder` is None while the holder has not written its record."""

    waited_s: float
    holder: Holder | None
    alive: bool | None

    def __str__(self) -> str:
        if self.holder is None:
            return f"waited {self.waited_s:.0f} s for a holder that left no record"
        holder, now = self.holder, time.time()
        state = {True: "alive", False: "gone, something it started keeps the lock", None: "not visible from here"}
        progress = f", {now - holder.updated:.0f} s ago: {holder.progress}" if holder.progress else ""
        return (
            f"waited {self.waited_s:.0f} s; held by pid {holder.pid} on {holder.host} ({state[self.alive]}) for "
            f"{holder.case}/{holder.row}, since {now - holder.since:.0f} s{progress}"
        )


class Lease:
    """A lease that is held."""

    def __init__(self, path: Path, holder: Holder, proof: Proof | None = None) -> None:
        self.path = path
        self.holder = holder
        self.account = Account()
        self.spending = self.account.spending
        self._proof = proof
        self._inode = _inode(path)
        self.progress("")

    def progress(self, text: str) -> None:
        """Tell those who wait how far the work is. Cheap enough for every leg, not for every request."""
        self.holder = replace(self.holder, progress=text, updated=time.time())
        _write(self.path, self.holder)

    def check(self) -> None:
        """Refuse (LEASE_LOST) when the lock file was removed or replaced, so that another could hold it
        too, or when what granted the device no longer does."""
        holder = read_holder(self.path)
        if self._inode is None or _inode(self.path) != self._inode:
            raise Refusal(Reason.LEASE_LOST, "the lock file was removed or replaced while it was held", file=self.path)
        if holder is not None and not holder.same_process(self.holder):
            raise Refusal(Reason.LEASE_LOST, f"pid {holder.pid} on {holder.host} says that it holds it", file=self.path)
        if self._proof is not None:
            self._proof.check()

    def as_record(self) -> dict:
        """The lease as JSON values."""
        proof = self._proof
        granted = {"kind": "filelock"} if proof is None else {"kind": proof.kind, "proof": proof.as_record()}
        return {**granted, "path": str(self.path), "holder": asdict(self.holder), **self.account.as_record()}


@contextlib.contextmanager
def granted(
    declared: case.Lease, path: Path, who: Who, on_wait: Callable[[Wait], None] | None = None
) -> Iterator[Lease]:
    """Hold the lease that a case declares, with proof of it in hand; `path` is the device's lock file.

    Refusals: LEASE_REFUSED when there is no proof (it is looked for before anything is waited for),
    and those of `held`.
    """
    proof: Proof | None = None
    if isinstance(declared, case.CommandLease):
        proof = wrapper.Ticket.of_this_process(declared)
    elif isinstance(declared, case.SlurmLease):
        proof = allocation.Allocation.of_this_process()
    with held(path, who, on_wait, proof=proof) as lease:
        lease.check()
        yield lease


def device_lock(device: str) -> Path:
    """The lock file of a device (such as a GPU's uuid), the same one for every account and checkout of the machine."""
    return machine_folder("locks") / f"{re.sub(r'[^A-Za-z0-9.-]+', '_', device)}.lock"


@contextlib.contextmanager
def held(
    path: Path,
    who: Who,
    on_wait: Callable[[Wait], None] | None = None,
    *,
    poll_s: float = 1.0,
    timeout_s: float | None = None,
    proof: Proof | None = None,
) -> Iterator[Lease]:
    """Hold the lease of this lock file.

    While another holds it, `on_wait` is called every `poll_s`; a signal ends the wait, and so does
    `timeout_s` (Refusal LEASE_HELD, which names the holder). Refusal LOCK_PLACE: the file lies on
    a network file system, or in a folder that this account may not write.
    """
    _check_place(path)
    lock = filelock.FileLock(path, mode=0o666, thread_local=False, fallback_to_soft=False)
    begin = time.monotonic()
    while True:
        try:
            lock.acquire(timeout=0)
            break
        except filelock.Timeout:
            wait = look(path, time.monotonic() - begin)
        except OSError as error:
            raise Refusal(Reason.LOCK_PLACE, f"cannot be locked: {error.strerror or error}", file=path) from None
        if timeout_s is not None and wait.waited_s >= timeout_s:
            raise Refusal(Reason.LEASE_HELD, str(wait), file=path)
        if on_wait is not None:
            on_wait(wait)
        time.sleep(poll_s if timeout_s is None else min(poll_s, max(0.0, timeout_s - wait.waited_s)))
    me = Holder.me(who)
    try:
        lease = Lease(path, me, proof)
        try:
            yield lease
        finally:
            lease.account.close()
    finally:
        if (last := read_holder(path)) is not None and last.same_process(me):
            _record(path).unlink(missing_ok=True)
        lock.release()


def look(path: Path, waited_s: float = 0.0) -> Wait:
    """What can be known of a lease's holder without taking it."""
    holder = read_holder(path)
    return Wait(waited_s, holder, None if holder is None else holder.alive())


def read_holder(path: Path) -> Holder | None:
    """The record beside a lock file; None when there is none, or it is not a whole one."""
    with contextlib.suppress(Refusal, TypeError, OSError):
        record = records.read(_record(path), "lease")
        del record["schema"]
        return Holder(**record)
    return None


def network_file_system(path: Path) -> str | None:
    """The type of the network file system that a path lies on; None when it is local."""
    place = path.absolute().parent.resolve()
    mounts = [m for m in psutil.disk_partitions(all=True) if place.is_relative_to(m.mountpoint)]
    if not mounts:
        return None
    nearest = max(enumerate(mounts), key=lambda entry: (len(entry[1].mountpoint), entry[0]))[1]  # the later one hides
    return nearest.fstype if _REMOTE.search(nearest.fstype) else None


def _check_place(path: Path) -> None:
    if kind := network_file_system(path):
        words = f"the lock lies on a network file system ({kind}), where locks of other hosts may not be seen"
        raise Refusal(Reason.LOCK_PLACE, words, file=path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(Reason.LOCK_PLACE, f"cannot make the folder: {error.strerror}", file=path) from None


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.holder.json")


def _write(path: Path, holder: Holder) -> None:
    records.write(_record(path), "lease", asdict(holder))


def _inode(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None
