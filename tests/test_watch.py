"""The stall watch of a leg: who stands still is told at once, and a server that works is left alone."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from pinproof import processes
from pinproof.reasons import Owner, Reason, Refusal
from pinproof.server import Server, ServerSpec
from pinproof.watch import StallWatch, progresses

STUB = (sys.executable, "-S", str(Path(__file__).parent / "stubs" / "engine.py"))
STALL_S = 0.5

Serve = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Stub engines with these faults, ready."""
    monkeypatch.setattr(processes, "MACHINE_FOLDER", tmp_path / "machine")
    started: list[Server] = []

    def make(*faults: str) -> Server:
        spec = ServerSpec(
            argv=(*STUB, "--port", "{port}", "--model", "subject", *(f"--fault={one}" for one in faults)),
            env={"PATH": "/usr/bin:/bin"},
            model_name="subject",
            log=tmp_path / "server.log",
            start_timeout_s=60,
            stall_timeout_s=60,
            grace_s=5,
        )
        started.append(Server.start(spec, f"test-{os.getpid()}/oracle/1"))
        started[-1].wait_ready()
        return started[-1]

    yield make
    for server in started:
        server.stop()


def ask(server: Server) -> None:
    """A request that nobody waits for the end of."""

    def post() -> None:
        body = {"model": "subject", "prompt": "hello", "max_tokens": 8, "stream": True}
        try:
            httpx.post(f"{server.base_url}/v1/completions", json=body, headers=server.headers, timeout=30)
        except httpx.HTTPError:
            return

    threading.Thread(target=post, daemon=True).start()


def watched(server: Server, limit_s: float = 20) -> Refusal:
    """What the watch says at last."""
    watch, end = StallWatch(server, STALL_S), time.monotonic() + limit_s
    with pytest.raises(Refusal) as refusal:
        while time.monotonic() < end:
            watch.check()
            time.sleep(0.02)
    return refusal.value


@pytest.mark.parametrize("faults", [("stalls",), ("stalls", "no-metrics")])
def test_a_server_that_has_work_and_gives_no_token_is_a_stall_of_the_server(
    serve: Serve, faults: tuple[str, ...]
) -> None:
    server = serve(*faults)
    ask(server)
    refusal = watched(server)
    assert refusal.reason is Reason.SERVER_STALLED
    assert "no token for 0.5 s" in refusal.message


def test_a_server_that_nobody_asks_is_a_stall_of_the_client_and_not_the_target_s(serve: Serve) -> None:
    refusal = watched(serve())
    assert refusal.reason is Reason.CLIENT_STALLED
    assert refusal.reason.owner is Owner.INSTRUMENT


def test_a_server_that_goes_on_is_left_alone(serve: Serve) -> None:
    server = serve()
    watch, end = StallWatch(server, STALL_S), time.monotonic() + 4 * STALL_S
    while time.monotonic() < end:
        httpx.post(
            f"{server.base_url}/v1/completions", json={"model": "subject", "prompt": "a"}, headers=server.headers
        )
        watch.check()


def test_a_server_that_ends_is_told_with_its_cause(serve: Serve) -> None:
    server = serve("dies-mid-run")
    ask(server)
    assert watched(server).reason is Reason.SERVER_EXITED


@pytest.mark.parametrize(
    ("line", "work"),
    [
        ('INFO:     127.0.0.1:50044 - "GET /metrics HTTP/1.1" 200 OK', False),
        ('INFO:     127.0.0.1:50044 - "GET /health HTTP/1.1" 200 OK', False),
        (
            "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 3 reqs",
            False,
        ),
        (
            "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.5 tokens/s, Running: 3 reqs",
            True,
        ),
        ('INFO:     127.0.0.1:50044 - "POST /v1/completions HTTP/1.1" 200 OK', True),
        ("", False),
    ],
)
def test_what_a_server_with_a_hung_engine_also_writes_is_no_progress(line: str, work: bool) -> None:
    assert progresses(line) is work
