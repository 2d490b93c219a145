#!/usr/bin/env python3
"""A TEST DOUBLE of an OpenAI-compatible server that keeps an exact schedule. No model, no device, no meaning.

The first token of a request is due TTFT after the whole request was read, each further one TPOT
later; the schedule is absolute, so that a late token delays none after it. One token is one
character, as in the stub engine, which is for faults where this one is for time.

It tells how well it kept its own schedule: GET /schedule answers the times that it served, on its own
clock. So a difference to what a client reports is the client's, and the network's.

One thread reads requests and one sends tokens. The sender sleeps on the clock, not in a poll, which
would round to a millisecond.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import json
import selectors
import socket
import statistics
import threading
import time
from dataclasses import dataclass

NAP_S = 0.02  # a request that comes meanwhile is due later than that
MODEL = "metronome"


@dataclass
class Stream:
    """A request that is being answered."""

    peer: socket.socket
    begin: float
    prompt_tokens: int
    tokens: int
    sent: int = 0
    first: float = 0.0  # when the first token was sent


class Metronome:
    """The schedule of all streams."""

    def __init__(self, ttft_s: float, tpot_s: float) -> None:
        self.ttft_s, self.tpot_s = ttft_s, tpot_s
        self.due: list[tuple[float, int, Stream]] = []
        self.lock = threading.Lock()
        self.numbers = itertools.count()
        self.forget()

    def forget(self) -> None:
        """Begin a new account of the times that were served."""
        self.ttfts: list[float] = []
        self.tpots: list[float] = []
        self.most_streams = 0

    def add(self, stream: Stream) -> None:
        with self.lock:
            heapq.heappush(self.due, (stream.begin + self.ttft_s, next(self.numbers), stream))
            self.most_streams = max(self.most_streams, len(self.due))

    def run(self) -> None:
        """Send every token when it is due, for ever."""
        while True:
            with self.lock:
                ahead = self.due[0][0] - time.perf_counter() if self.due else NAP_S
                at, _, stream = heapq.heappop(self.due) if ahead <= 0 else (0.0, 0, None)
            if stream is None:
                time.sleep(min(ahead, NAP_S))
            elif self.tick(stream):
                with self.lock:
                    heapq.heappush(self.due, (at + self.tpot_s, next(self.numbers), stream))

    def tick(self, stream: Stream) -> bool:
        """Send a token, and after the last one the usage; whether the stream goes on."""
        now = time.perf_counter()
        stream.sent += 1
        if stream.sent == 1:
            stream.first = now
            self.ttfts.append(now - stream.begin)
        last = stream.sent == stream.tokens
        if last and stream.tokens > 1:
            self.tpots.append((now - stream.first) / (stream.tokens - 1))
        with contextlib.suppress(OSError):  # a client that went away is no news
            stream.peer.sendall(event(finish="length") + end(stream) if last else TOKEN)
        return not last

    def schedule(self) -> dict:
        """Medians of what was served, milliseconds; null before anything was."""
        return {
            "ttft_ms": statistics.median(self.ttfts) * 1000 if self.ttfts else None,
            "tpot_ms": statistics.median(self.tpots) * 1000 if self.tpots else None,
            "requests": len(self.ttfts),
            "most_streams": self.most_streams,
        }


def event(finish: str | None = None) -> bytes:
    """A chunk with one token, of the shape and the size that vLLM sends."""
    choice = {"index": 0, "text": "a", "logprobs": None, "finish_reason": finish, "stop_reason": None}
    return chunk({**HEAD, "choices": [choice], "usage": None})


def end(stream: Stream) -> bytes:
    """What follows the last token."""
    total = stream.prompt_tokens + stream.tokens
    usage = {"prompt_tokens": stream.prompt_tokens, "total_tokens": total, "completion_tokens": stream.tokens}
    return chunk({**HEAD, "choices": [], "usage": usage}) + framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def chunk(value: dict) -> bytes:
    return framed(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")


def framed(data: bytes) -> bytes:
    """A part of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


HEAD = {
    "id": "cmpl-00000000000000000000000000000000",
    "object": "text_completion",
    "created": 1,
    "model": MODEL,
}
TOKEN = event()
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Listener:
    """Reads requests of all connections."""

    def __init__(self, port: int, metronome: Metronome) -> None:
        self.metronome = metronome
        self.selector = selectors.DefaultSelector()
        self.listening = socket.create_server(("127.0.0.1", port), backlog=1024)
        self.selector.register(self.listening, selectors.EVENT_READ)
        self.read: dict[socket.socket, bytes] = {}

    def run(self) -> None:
        """Read for ever."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listening:
                    peer, _ = self.listening.accept()
                    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.selector.register(peer, selectors.EVENT_READ)
                    self.read[peer] = b""
                else:
                    self.receive(key.fileobj)

    def receive(self, peer: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = peer.recv(1 << 20)
        if not data:
            self.selector.unregister(peer)
            del self.read[peer]
            peer.close()
            return
        self.read[peer] += data
        head, blank, body = self.read[peer].partition(b"\r\n\r\n")
        if blank and len(body) >= length(head):
            self.read[peer] = body[length(head) :]
            self.answer(peer, *head.split(b" ", 2)[:2], body[: length(head)])

    def answer(self, peer: socket.socket, method: bytes, path: bytes, body: bytes) -> None:
        now = time.perf_counter()
        if (method, path) == (b"POST", b"/v1/completions"):
            wish = json.loads(body)
            stream = Stream(peer, now, len(wish["prompt"]), int(wish["max_tokens"]))
            if wish.get("stream"):
                peer.sendall(STREAM_HEAD)
                self.metronome.add(stream)
            else:  # what makes a server ready
                time.sleep(self.metronome.ttft_s)
                reply(peer, 200, {**HEAD, "choices": [{"index": 0, "text": "a", "finish_reason": "length"}]})
        elif path == b"/schedule":
            reply(peer, 200, self.metronome.schedule())
            self.metronome.forget()
        elif path == b"/v1/models":
            reply(peer, 200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        else:
            reply(peer, 200 if path == b"/health" else 404, {})


def length(head: bytes) -> int:
    """Bytes of the body, by the head of a request."""
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0


def reply(peer: socket.socket, status: int, value: dict) -> None:
    body = json.dumps(value).encode()
    peer.sendall(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n".encode())
    peer.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ttft-ms", type=float, default=100.0)
    parser.add_argument("--tpot-ms", type=float, default=10.0)
    arguments = parser.parse_args()
    metronome = Metronome(arguments.ttft_ms / 1000, arguments.tpot_ms / 1000)
    threading.Thread(target=metronome.run, daemon=True).start()
    Listener(arguments.port, metronome).run()


if __name__ == "__main__":
    main()
