"""A brake for a real server: ASGI middleware that delays every streamed chunk.

Given to `vllm serve --middleware tests.stubs.slowed.Slowed`; SLOWED_MS is the delay a chunk, milliseconds. It
makes an engine slower by a known amount, to see that the workflow calls it RED.
"""

from __future__ import annotations

import asyncio
import os


class Slowed:
    """Wraps an ASGI application; only bodies of streamed answers are delayed."""

    def __init__(self, app) -> None:
        self.app = app
        self.delay_s = float(os.environ["SLOWED_MS"]) / 1000

    async def __call__(self, scope, receive, send) -> None:
        async def later(message) -> None:
            if message["type"] == "http.response.body" and message.get("more_body"):
                await asyncio.sleep(self.delay_s)
            await send(message)

        await self.app(scope, receive, later if scope["type"] == "http" else send)
