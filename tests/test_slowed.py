"""The brake that the benchmark of decisions puts on a real engine (tests/stubs/slowed.py)."""

from __future__ import annotations

import asyncio

import pytest
from tests.stubs import slowed

CHUNKS = [{"type": "http.response.start", "status": 200, "headers": []}] + [
    {"type": "http.response.body", "body": b"%d" % number, "more_body": number < 3} for number in range(4)
]


def test_a_chunk_leaves_later_by_the_share_of_its_own_time() -> None:
    assert slowed.due(10.0, 10.5, 0.3) == pytest.approx(10.65)
    assert slowed.due(10.0, 10.5, 0.0) == 10.5


@pytest.mark.parametrize("share", ["0", "0.4"])
def test_the_engine_is_not_held_back_and_no_chunk_is_lost_or_out_of_order(
    share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is held back sends several tokens in one chunk, and so makes up for the delay."""
    monkeypatch.setenv("SLOWED_BY", share)
    sent, at_the_end_of_the_engine = [], []

    async def engine(scope, receive, send) -> None:
        for chunk in CHUNKS:
            await send(chunk)
        at_the_end_of_the_engine.append(len(sent))

    async def client(message) -> None:
        sent.append(message)

    asyncio.run(slowed.Slowed(engine)({"type": "http"}, None, client))
    assert at_the_end_of_the_engine == [0]
    assert sent == CHUNKS


def test_a_failure_of_the_engine_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOWED_BY", "0.4")

    async def engine(scope, receive, send) -> None:
        raise RuntimeError("the engine failed")

    with pytest.raises(RuntimeError, match="the engine failed"):
        asyncio.run(slowed.Slowed(engine)({"type": "http"}, None, None))
