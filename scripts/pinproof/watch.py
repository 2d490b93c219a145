"""The stall watch of a leg: who stands still, told long before the leg's own limit.

A server answers /health, /version and /v1/models while its engine hangs, so none of these is a
witness. Progress is a token counted in /metrics, or a line of the log that is not about standing
still. The watch asks a few times in a stall's length, so that a leg of usual length is not asked at all.
"""

from __future__ import annotations

import re
import time

from pinproof import serverlog
from pinproof.reasons import Reason, Refusal
from pinproof.server import Server

LOOKS = 5  # in the length of a stall
COUNTERS = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")
# Lines that a server with a hung engine writes too: what is answered without it, and that nothing flows.
_IDLE = re.compile(r'"GET /\S* HTTP|Avg prompt throughput: 0\.0 tokens/s, Avg generation throughput: 0\.0 tokens/s')


class StallWatch:
    """Watches one server during one leg."""

    def __init__(self, server: Server, stall_s: float) -> None:
        """`stall_s`: seconds without progress that are a stall."""
        self._server = server
        self._stall_s = stall_s
        self._offset = server.log_offset()
        self._tokens: float | None = None
        self._progress = self._looked = time.monotonic()

    def check(self) -> None:
        """Refuse when the server has ended (with its cause), or when nothing has moved for the length of a stall.

        SERVER_STALLED when it has work, or does not say; CLIENT_STALLED when it says that it has none.
        """
        self._server.check_alive()
        now = time.monotonic()
        if now - self._looked < self._stall_s / LOOKS:
            return
        self._looked = now
        if self._moved():
            self._progress = now
        elif now - self._progress >= self._stall_s:
            self._refuse()

    def _moved(self) -> bool:
        counters = self._server.metrics()
        known = [] if counters is None else [counters.total(name) for name in COUNTERS]
        tokens = sum(value for value in known if value is not None) if known else None
        text = self._server.log_since(self._offset)
        whole = text[: text.rfind("\n") + 1]
        self._offset += len(whole.encode())
        moved = (tokens is not None and tokens != self._tokens) or progresses(whole)
        self._tokens = tokens
        return moved

    def _refuse(self) -> None:
        server, seconds = self._server, f"{self._stall_s:g} s"
        if server.pending() == 0:
            message = f"no request came to {server.marker} for {seconds}, and the leg is not over"
            raise Refusal(Reason.CLIENT_STALLED, message)
        last = serverlog.last_line(server.log_since(max(0, server.log_offset() - 4096)))
        message = f"{server.marker}: no token for {seconds}; the last line of its log: {last[:300]!r}"
        raise Refusal(Reason.SERVER_STALLED, message, file=server.spec.log)


def progresses(text: str) -> bool:
    """Whether whole lines of a log tell of work, and not only of a server that waits."""
    return any(line.strip() and not _IDLE.search(line) for line in text.splitlines())
