"""Process trees that are ours: started with a marker, found again, ended, and proven gone.

A life is one process tree, from spawn to proven gone. Its marker ("<run>/<arm>/<life>") stands in
the environment of every process of it, but an engine may wipe that: setproctitle writes a process
title over its own environment (vLLM's EngineCore and workers do). So a process belongs to a life
when any of these holds: its environment carries the marker; it is in the session that the spawn
made; its standard output or error is the life's log; its parent belongs; it belonged before. What a
later run needs for this, after a crash of ours, lies in a small record a life in `MACHINE_FOLDER`.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from pinproof import records
from pinproof.reasons import Reason, Refusal

MARKER = "PINPROOF_MARKER"
FOLDER = "PINPROOF_MACHINE_FOLDER"  # for tests alone: with two folders one machine has two leases of one device
# One for the machine, whatever TMPDIR or HOME say.
MACHINE_FOLDER = Path(os.environ.get(FOLDER, "/tmp/pinproof"))  # nosec B108 # links in its place are refused

_MARKER_FORM = re.compile(r"[\w.:+-]+(/[\w.:+-]+)*")
_POLL_S = 0.05


def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    """The pid namespace of this process; a pid means nothing in another one."""
    return str(Path("/proc/self/ns/pid").readlink())


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is none (or a zombie)."""
    row = _row(pid)
    return None if row is None else row.started


def parent(pid: int) -> int | None:
    """The pid of a process's parent; None when there is no such process."""
    row = _row(pid)
    return None if row is None else row.parent


def session_of(pid: int) -> set[int]:
    """Every process of the session that a process is in."""
    rows = _rows()
    return {other for other, row in rows.items() if pid in rows and row.session == rows[pid].session}


def machine_folder(name: str) -> Path:
    """A folder below `MACHINE_FOLDER` that every account of the machine may write.

    It is not sticky: a sticky one would keep one account from replacing another's stale files.
    Refusal: LOCK_PLACE.
    """
    for folder in (MACHINE_FOLDER, MACHINE_FOLDER / name):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o777)
        if folder.is_symlink() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise Refusal(Reason.LOCK_PLACE, "not a folder that this account may write", file=folder)
    return MACHINE_FOLDER / name


# starting


def spawn(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path, marker: str, pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start one life: no shell, a session of its own, the marker in its environment.

    `env` is the whole environment (nothing is inherited); standard output and error are appended
    to `log`, which must be this life's alone; standard input is empty. Refusal: ENV_BROKEN when
    the program cannot be started.
    """
    if not _MARKER_FORM.fullmatch(marker):
        raise ValueError(f"not a marker: {marker!r}")
    log = log.absolute()
    if rivals := [m for m, life in _lives.items() if m != marker and life.log == str(log)]:
        raise ValueError(f"{log} is the log of {rivals[0]}")
    log.parent.mkdir(parents=True, exist_ok=True)
    life = _Life(marker, str(log), os.getpid(), started(os.getpid()), boot_id(), pid_namespace())
    with shielded(), log.open("ab") as stream:
        _lives[marker] = life
        _remember(life)
        try:
            process = subprocess.Popen(
                list(argv),
                env={**env, MARKER: marker, FOLDER: str(MACHINE_FOLDER)},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )
        except OSError as error:
            _forget(marker)
            raise Refusal(Reason.ENV_BROKEN, f"cannot start {argv[0]}: {error.strerror}", file=argv[0]) from None
        life.session, life.session_started = process.pid, started(process.pid)
        _remember(life)
    return process


# finding


def members(marker: str) -> list[psutil.Process]:
    """Every live process of a life; zombies are not alive, and this process never belongs."""
    rows = _rows()
    found = []
    for pid in _belongings(rows, {marker}):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if started(pid) == rows[pid].started:  # not another process under the same number
                found.append(process)
    return found


@dataclass(frozen=True)
class Survivor:
    """A process of another run's life. `owner_alive`: whether the run that started it still is."""

    pid: int
    started: float  # seconds since the epoch
    command: str
    marker: str
    owner_alive: bool | None  # None: the run left no record, or lives in another pid namespace

    def as_record(self) -> dict:
        """The survivor as JSON values."""
        return asdict(self)


def survivors(run: str) -> list[Survivor]:
    """Every process that carries a marker of another run than `run`; nothing is ended.

    Records of lives that left no process behind are tidied away.
    """
    rows = _rows()
    owners = _belongings(rows, None)
    lives = _recorded()
    found = []
    for pid, marker in sorted(owners.items()):
        if marker.split("/")[0] == run:
            continue
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            life = lives.get(marker)
            alive = None if life is None or not life.here() else started(life.owner) == life.owner_started
            found.append(Survivor(pid, process.create_time(), " ".join(process.cmdline()), marker, alive))
    for marker, life in lives.items():
        owner_gone = life.here() and started(life.owner) != life.owner_started
        if marker not in owners.values() and (owner_gone or life.boot != boot_id()):
            _record_path(marker).unlink(missing_ok=True)
    return found


# ending


@dataclass(frozen=True)
class Teardown:
    """How a life ended: what was needed, how long it took, which processes it was."""

    marker: str
    needed: Literal["nothing", "TERM", "KILL"]
    seconds: float
    termed: tuple[int, ...]
    killed: tuple[int, ...]
    left: tuple[int, ...]  # processes that even KILL did not end

    @property
    def empty(self) -> bool:
        """Whether no process of the life is left."""
        return not self.left

    def as_record(self) -> dict:
        """The teardown as JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def end(marker: str, grace_s: float, *, kill_s: float = 10.0) -> Teardown:
    """End a life: TERM, a grace, KILL on exactly those still there, until none is.

    TERM goes to the top of the tree, which passes it down as it sees fit: a second TERM in the
    middle of a clean-up makes engines leak workers. A process whose parent went without taking
    it along gets a TERM of its own a little later; none ever gets two. Signals that reach us
    meanwhile are held back until the life is gone.
    """
    begin = time.monotonic()
    termed: dict[int, float] = {}
    orphaned: dict[int, float] = {}
    killed: set[int] = set()
    with shielded():
        while alive := members(marker):
            now = time.monotonic() - begin
            if now >= grace_s:
                break
            for process in _tops(alive):
                since = orphaned.setdefault(process.pid, now)
                if process.pid not in termed and (not termed or now - since >= min(2.0, grace_s / 4)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.terminate()
                    termed.setdefault(process.pid, now)
            time.sleep(_POLL_S)
        deadline = time.monotonic() + kill_s
        while alive and time.monotonic() < deadline:
            for process in alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
                    killed.add(process.pid)
            time.sleep(_POLL_S)
            alive = members(marker)
        if not alive:
            _forget(marker)
    return Teardown(
        marker=marker,
        needed="KILL" if killed else "TERM" if termed else "nothing",
        seconds=round(time.monotonic() - begin, 3),
        termed=tuple(sorted(termed)),
        killed=tuple(sorted(killed)),
        left=tuple(sorted(process.pid for process in alive)),
    )


def _tops(processes: list[psutil.Process]) -> list[psutil.Process]:
    pids = {process.pid for process in processes}
    tops = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.ppid() not in pids:
                tops.append(process)
    return tops


# signals


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to stop; what it started is ended on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def terminating() -> Iterator[None]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into `Interrupted`, so that every `finally` runs.

    Further ones are ignored until the block is left: a teardown under way is not aborted. A signal
    that was ignored before (nohup) stays ignored. Outside the main thread this does nothing.
    """
    fired = False

    def interrupt(number: int, _frame: object) -> None:
        nonlocal fired
        if not fired:
            fired = True
            raise Interrupted(number)

    with _handling(interrupt):
        yield


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Hold signals back until the block is left; the first of them is then delivered."""
    waiting: list[int] = []
    try:
        with _handling(lambda number, _frame: waiting.append(number)):
            yield
    finally:
        if waiting:
            signal.raise_signal(waiting[0])


@contextlib.contextmanager
def _handling(handler: Callable[[int, object], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _STOPPING}
    for number, earlier in before.items():
        if earlier is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)


# ports


@dataclass(frozen=True)
class Listener:
    """One listening TCP socket; `pid` is None when its owner cannot be seen."""

    pid: int | None
    address: str

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.address).is_loopback


def listener_owner(port: int) -> list[Listener]:
    """Who listens on a TCP port of this machine, and on which addresses."""
    return [
        Listener(entry.pid, entry.laddr.ip)
        for entry in psutil.net_connections("tcp")
        if entry.status == psutil.CONN_LISTEN and entry.laddr.port == port
    ]


def port_is_free(port: int) -> bool:
    """Whether nobody holds this port: bound and still loading, listening, or lingering after a close."""
    with socket.socket() as probe:  # without SO_REUSEADDR, which would look past one that is bound and loading
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return not listener_owner(port)


def free_port() -> int:
    """A port that is free now and was not handed out before by this process.

    It lies below the range from which the kernel takes ports for outgoing connections, so that
    none of those can take it in the minutes that a server loads before it binds.
    """
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = range(10_000, low) if low > 11_000 else range(61_000, 65_536)
    for _ in range(1000):
        port = random.choice(candidates)  # nosec B311 # a port, not a secret
        if port not in _handed_out and port_is_free(port):
            _handed_out.add(port)
            return port
    raise Refusal(Reason.SERVER_FOREIGN, f"no free port between {candidates.start} and {candidates.stop}")


_handed_out: set[int] = set()


# lives: what is known of them beyond their environment


@dataclass
class _Life:
    marker: str
    log: str
    owner: int
    owner_started: int | None
    boot: str
    namespace: str
    session: int | None = None
    session_started: int | None = None
    known: set[tuple[int, int]] = field(default_factory=set, compare=False)  # (pid, started)

    def here(self) -> bool:
        """Whether its pids mean what they say: the same boot, the same pid namespace."""
        return self.boot == boot_id() and self.namespace == pid_namespace()

    def claims(self, pid: int, row: _Row, rows: dict[int, _Row]) -> bool:
        if (pid, row.started) in self.known:
            return True
        if self.session is not None and row.session == self.session:
            leader = rows.get(self.session)  # a leader with another start: the number was given out anew
            return leader is None or leader.started == self.session_started
        return any(_target(Path(f"/proc/{pid}/fd/{stream}")) == self.log for stream in (1, 2))


_lives: dict[str, _Life] = {}  # started by this process and not yet gone


def _record_path(marker: str) -> Path:
    return machine_folder("lives") / f"{hashlib.sha256(marker.encode()).hexdigest()[:32]}.json"


def _remember(life: _Life) -> None:
    records.write(_record_path(life.marker), "life", {k: v for k, v in asdict(life).items() if k != "known"})


def _forget(marker: str) -> None:
    _lives.pop(marker, None)
    _record_path(marker).unlink(missing_ok=True)


def _recorded() -> dict[str, _Life]:
    lives = {}
    for path in sorted(machine_folder("lives").glob("*.json")):
        with contextlib.suppress(Refusal, TypeError, OSError):
            record = records.read(path, "life")
            del record["schema"]
            life = _Life(**record)
            lives[life.marker] = life
    return {**lives, **_lives}


def _belongings(rows: dict[int, _Row], wanted: set[str] | None) -> dict[int, str]:
    """pid -> marker of the life it belongs to; `wanted` limits the markers, None takes all."""
    known = dict(_lives) if wanted is not None and wanted <= set(_lives) else _recorded()  # threads end lives too
    lives = [life for life in known.values() if life.here() and (wanted is None or life.marker in wanted)]
    never = _self_and_ancestors(rows)
    owners: dict[int, str] = {}
    for pid, row in rows.items():
        if pid in never:
            continue
        marker = _marker_of(pid) or next((life.marker for life in lives if life.claims(pid, row, rows)), None)
        if marker is not None and wanted is not None and marker not in wanted:
            never.add(pid)  # a life of its own, even if its parent belongs to the wanted one
        elif marker is not None:
            owners[pid] = marker
    while new := [pid for pid, row in rows.items() if row.parent in owners and pid not in owners and pid not in never]:
        owners.update({pid: owners[rows[pid].parent] for pid in new})
    for life in lives:
        life.known |= {(pid, rows[pid].started) for pid, marker in owners.items() if marker == life.marker}
    return owners


def _marker_of(pid: int) -> str | None:
    """The marker in a process's environment; None when it says that it belongs to another machine folder."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    said = dict(entry.partition("=")[::2] for entry in reversed(entries))
    return said.get(MARKER) if said.get(FOLDER, str(MACHINE_FOLDER)) == str(MACHINE_FOLDER) else None


@dataclass(frozen=True)
class _Row:
    parent: int
    session: int
    started: int  # clock ticks since boot


def _row(pid: int) -> _Row | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, parent, _group, session, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else _Row(int(parent), int(session), int(rest[15]))


def _rows() -> dict[int, _Row]:
    rows = {int(name): _row(int(name)) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208 (names only)
    return {pid: row for pid, row in rows.items() if row is not None}


def _self_and_ancestors(rows: dict[int, _Row]) -> set[int]:
    pid, line = os.getpid(), set()
    while pid and pid not in line:
        line.add(pid)
        pid = rows[pid].parent if pid in rows else 0
    return line


def _target(link: Path) -> str | None:
    try:
        return str(link.readlink())
    except OSError:
        return None
