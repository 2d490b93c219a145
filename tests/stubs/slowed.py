"""A brake for a real server: ASGI middleware that stretches every streamed answer in time.

Given to `vllm serve --middleware tests.stubs.slowed.Slowed`; SLOWED_BY is the share by which it is slower
(0.3: everything takes 1.3 times as long). It makes an engine slower by a known amount, to see that the
workflow calls it RED. A delay of each chunk would not: the engine goes on meanwhile, and the gaps between
chunks stay what they were. Nor would holding the engine's stream back: it then sends several tokens at once.
"""

from __future__ import annotations

import asyncio
import os


def due(begun: float, at: float, share: float) -> float:
    """When a chunk of moment `at` leaves, for a request that began at `begun`; seconds on one clock."""
    return begun + (at - begun) * (1 + share)


class Slowed:
    """Wraps an ASGI application; only bodies of streamed answers are stretched."""

    def __init__(self, app) -> None:
        self.app = app
        self.share = float(os.environ["SLOWED_BY"])

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        clock = asyncio.get_running_loop().time
        begun, waiting, streamed = clock(), asyncio.Queue(), False

        async def at_once(message) -> None:
            nonlocal streamed
            streamed = streamed or message.get("more_body", False)
            waiting.put_nowait((clock() if streamed else None, message))

        async def deliver() -> None:
            while True:
                at, message = await waiting.get()
                if at is not None:
                    await asyncio.sleep(due(begun, at, self.share) - clock())
                await send(message)
                if message["type"] == "http.response.body" and not message.get("more_body"):
                    return

        delivery = asyncio.create_task(deliver())
        try:
            await self.app(scope, receive, at_once)
            await delivery
        finally:
            delivery.cancel()
