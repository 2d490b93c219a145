"""Who is up: both servers of a series together, or one at a time, each life with a number of its own.

It also says whose failure a server's end is: only the pinned engine can fail as the target. What the
arm that it is compared with does wrong is a wrong input, and never speaks against the pin.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

from pinproof import processes
from pinproof.case import ORACLE
from pinproof.lease import Lease
from pinproof.reasons import Owner, Reason, Refusal
from pinproof.server import Progress, Server, ready, stop_all


class Residents:
    """The server lives of a series.

    `start` spawns life n of an arm and does not wait; `prepare`, which must be set before the first
    life, waits until lives have served and warms them up.
    """

    def __init__(self, start: Callable[[str, int], Server], lease: Lease, *, together: bool) -> None:
        self.together = together
        self._lease = lease
        self.up: dict[str, Server] = {}
        self.prepare: Callable[[Mapping[str, Server]], None] = lambda _: None
        self._start = start
        self._lives: Counter[str] = Counter()

    def take(self, arm: str) -> Server:
        """The server of an arm. Where lives are not shared, another arm's is ended before this one's begins."""
        if arm not in self.up:
            self.end()
            self.bring((arm,))
        return self.up[arm]

    def bring(self, arms: Sequence[str]) -> None:
        """Begin a life of each of these arms at once."""
        begun = {}
        with processes.shielded():  # no life may begin that is not in `up`
            for arm in arms:
                self._lives[arm] += 1
                with blaming({}, arm):
                    self.up[arm] = begun[arm] = self._start(arm, self._lives[arm])
        self.prepare(begun)

    def end(self) -> None:
        """End all that is up, at the same time. Refusal: SERVER_SURVIVED."""
        with processes.shielded(), self._lease.spending("teardown"):
            servers, self.up = list(self.up.values()), {}
            stop_all(servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.end()
        except Refusal as refusal:
            if error is None:
                raise
            error.add_note(str(refusal))  # the first failure stays the failure


def wait_ready(servers: Mapping[str, Server], progress: Progress | None = None) -> None:
    """Wait until all of these have served; a refusal is told as the failure of whose it is."""
    with blaming(servers):
        ready(*servers.values(), progress=progress)


@contextlib.contextmanager
def blaming(servers: Mapping[str, Server], arm: str | None = None) -> Iterator[None]:
    """Tell a refusal inside as the failure of the arm whose server it is about."""
    try:
        yield
    except Refusal as refusal:
        failed = [name for name, server in servers.items() if server.refusal is refusal]
        arm = arm or (failed[0] if failed else next(iter(servers)) if len(servers) == 1 else None)
        told = speaking(refusal, arm)
        if told is refusal:
            raise
        raise told from refusal


def speaking(refusal: Refusal, arm: str | None) -> Refusal:
    """The refusal as it is, or as the failure of an arm that is not the pin."""
    if arm in (None, ORACLE) or refusal.reason.owner is not Owner.TARGET:
        return refusal
    message = f"{arm}, which is not the pin: {refusal.message} ({refusal.reason.code})"
    told = Refusal(Reason.REFERENCE_FAILED, message, file=refusal.file, key=refusal.key)
    for note in getattr(refusal, "__notes__", ()):
        told.add_note(note)
    return told
