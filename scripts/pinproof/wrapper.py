"""A lease by a wrapper, such as `rc run -d gpu0 --`: it grants the device to the command that it runs.

A holder under the wrapper, with the legs run outside of it, would prove nothing: outside there is no
device, no limit of time, and nothing that ends when the lease does. So the script that touches the
device is run under the wrapper. The one that was called starts it detached (a session of its own,
adopted by init), reads its log back, and keeps a heartbeat on disk while the wrapper is there; the one
inside accepts the device only with that ticket in hand, and loses it when the heartbeat ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pinproof import processes, records
from pinproof.case import CommandLease
from pinproof.reasons import Reason, Refusal

TICKET = "PINPROOF_TICKET"  # in the environment of what runs under a wrapper: its ticket
DETACH = Path(__file__).parent / "children" / "detach.py"
PROGRAM = Path(__file__).parents[1] / "under_lease.py"
GRACE_S = 60.0  # what runs inside ends its servers first
BEAT_S, SILENCE_S = 2.0, 30.0
_POLL_S = 0.1
# What a script inside must know of the call outside; all else is the wrapper's to say.
_CARRIED = ("PINPROOF_", "PIP_FIND_LINKS", "UV_FIND_LINKS", "LANG", "LC_ALL")

Say = Callable[[str], None]


# outside


def run(lease: CommandLease, argv: Sequence[str], folder: Path, say: Say) -> int:
    """Run a command under the wrapper and follow it to its end; its exit status.

    `folder` takes the ticket, the heartbeat and the wrapper's log. Refusals: LEASE_REFUSED when the
    wrapper cannot be started or ends without having run the command, LEASE_LOST when it ends before
    the command has told its status.
    """
    ticket = _write_ticket(argv, folder.absolute())
    log = ticket.with_name("wrapper.log")
    marker = f"lease.{uuid.uuid4().hex[:8]}/.wrapper/1"
    try:
        _write_beat(ticket, 0, alive=True)  # before anything inside can look for it
        pid, begun = _detached([*lease.argv, sys.executable, str(PROGRAM), str(ticket)], log, marker)
        say(f"asked {lease.argv[0]} for the device (pid {pid}, detached); its log is {log}")
        return _follow(ticket, log, (pid, begun), say)
    finally:
        processes.end(marker, GRACE_S)


def _write_ticket(argv: Sequence[str], folder: Path) -> Path:
    environment = {name: value for name, value in os.environ.items() if name.startswith(_CARRIED)}
    body = {"nonce": uuid.uuid4().hex, "argv": list(argv), "cwd": str(Path.cwd()), "env": environment}
    path = folder / body["nonce"][:8] / "ticket.json"
    records.write(path, "ticket", body)
    return path


def _detached(argv: Sequence[str], log: Path, marker: str) -> tuple[int, int]:
    """Start the wrapper so that nothing of ours is its parent: its pid and when it started."""
    reading, writing = os.pipe()
    program = [sys.executable, "-I", str(DETACH), str(writing), *argv]
    environment = {name: value for name, value in os.environ.items() if name != TICKET}
    starter = processes.spawn(program, env=environment, cwd=Path.cwd(), log=log, marker=marker, pass_fds=(writing,))
    os.close(writing)
    starter.wait()
    with os.fdopen(reading) as stream:
        text = stream.read()
    pid = int(text) if text.isdigit() else 0
    begun = processes.started(pid) if pid else None
    if begun is None:
        raise Refusal(Reason.LEASE_REFUSED, f"{argv[0]} ended at once: {_tail(log)}", file=log)
    parent = processes.parent(pid)
    ours = {os.getpid(), *processes.session_of(os.getpid())}
    if parent != 1 and parent in ours:
        raise Refusal(Reason.LEASE_REFUSED, f"{argv[0]} (pid {pid}) is not detached: its parent is {parent}", file=log)
    records.write(
        log.with_name("wrapper.json"),
        "wrapper",
        {
            "pid": pid,
            "started": begun,
            "parent": parent,
            "boot": processes.boot_id(),
            "namespace": processes.pid_namespace(),
        },
    )
    return pid, begun


def _follow(ticket: Path, log: Path, wrapper: tuple[int, int], say: Say) -> int:
    nonce, told, beat, last = records.read(ticket, "ticket")["nonce"], 0, 0, 0.0
    pid, begun = wrapper
    while True:
        gone = processes.started(pid) != begun
        if time.monotonic() - last >= BEAT_S or gone:
            beat, last = beat + 1, time.monotonic()
            _write_beat(ticket, beat, alive=not gone)
        text = log.read_bytes()
        whole = len(text) if gone else text.rfind(b"\n") + 1
        for line in text[told:whole].decode(errors="replace").splitlines():
            say(f"| {line}")
        told = whole
        status = _status(ticket)
        if status is not None and nonce.encode() not in text:
            raise Refusal(Reason.LEASE_REFUSED, "the wrapper's log does not show what ran under it", file=log)
        if status is not None:
            return status
        if gone:
            ran = nonce.encode() in text
            words = "ended before the command did" if ran else "ended without having run the command"
            raise Refusal(
                Reason.LEASE_LOST if ran else Reason.LEASE_REFUSED, f"the wrapper {words}: {_tail(log)}", file=log
            )
        time.sleep(_POLL_S)


def _write_beat(ticket: Path, beat: int, *, alive: bool) -> None:
    records.write(ticket.with_name("heartbeat.json"), "heartbeat", {"beat": beat, "alive": alive})


def _status(ticket: Path) -> int | None:
    with contextlib.suppress(Refusal):
        return records.read(ticket.with_name("status.json"), "status")["status"]
    return None


def _tail(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    return repr(lines[-1][:300]) if lines else "its log is empty"


# inside


def enter(ticket: Path) -> tuple[list[str], dict[str, str]]:
    """What to run inside, and with which environment; says in the wrapper's log that it is there."""
    record = records.read(ticket, "ticket")
    print(f"under the lease: ticket {record['nonce']}", flush=True)
    os.chdir(record["cwd"])
    return record["argv"], {**os.environ, **record["env"], TICKET: str(ticket)}


def inside() -> bool:
    """Whether this process says that it runs under a wrapper."""
    return TICKET in os.environ


def tell(status: int) -> None:
    """Tell the call outside how this one ended; nothing where there is none."""
    if inside():
        records.write(Path(os.environ[TICKET]).with_name("status.json"), "status", {"status": status})


class Ticket:
    """The proof that this process runs under a wrapper that is still there."""

    kind = "command"

    def __init__(self, path: Path, proof_env: str | None) -> None:
        self._path = path
        self._proof_env = proof_env
        self._beat: int | None = None
        self._seen = time.monotonic()

    @classmethod
    def of_this_process(cls, lease: CommandLease, environment: Mapping[str, str] = os.environ) -> Ticket:
        """The ticket in hand. Refusal LEASE_REFUSED: there is none, or the wrapper did not set its variable."""
        if not (path := environment.get(TICKET)):
            raise Refusal(Reason.LEASE_REFUSED, f"this process was not started under {lease.argv[0]}", key="lease")
        if lease.proof_env and not environment.get(lease.proof_env):
            message = f"{lease.argv[0]} did not set {lease.proof_env} for what it runs"
            raise Refusal(Reason.LEASE_REFUSED, message, key="lease.proof_env")
        ticket = cls(Path(path), lease.proof_env)
        ticket.check()
        return ticket

    def check(self) -> None:
        """Refuse (LEASE_LOST) when the wrapper is gone, or the call that watches it has been silent too long."""
        now = time.monotonic()
        try:
            record = records.read(self._path.with_name("heartbeat.json"), "heartbeat")
        except Refusal as refusal:
            raise Refusal(Reason.LEASE_LOST, f"no heartbeat of the wrapper: {refusal.message}") from None
        if not record["alive"] or self._wrapper_is_gone():
            raise Refusal(Reason.LEASE_LOST, "the wrapper that granted the device is gone", file=self._path)
        if record["beat"] != self._beat:
            self._beat, self._seen = record["beat"], now
        elif now - self._seen > SILENCE_S:
            message = f"no heartbeat of the wrapper for {now - self._seen:.0f} s: the call that watches it is gone"
            raise Refusal(Reason.LEASE_LOST, message, file=self._path)

    def _wrapper_is_gone(self) -> bool:
        """Whether its pid tells so; on another host or in another pid namespace only the heartbeat can."""
        here = {"boot": processes.boot_id(), "namespace": processes.pid_namespace()}
        wrapper = self._wrapper()
        if any(wrapper.get(name) != value for name, value in here.items()):
            return False
        return processes.started(wrapper["pid"]) != wrapper["started"]

    def _wrapper(self) -> dict[str, Any]:
        with contextlib.suppress(Refusal):
            return records.read(self._path.with_name("wrapper.json"), "wrapper")
        return {}

    def as_record(self) -> dict[str, Any]:
        """The proof as JSON values; the value of the wrapper's variable may be a secret and is left out."""
        wrapper = {name: value for name, value in self._wrapper().items() if name != "schema"}
        return {"ticket": str(self._path), "wrapper": wrapper, "proof_env": self._proof_env}
