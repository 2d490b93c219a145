"""What the TEST DOUBLE of a server puts on the wire when it is told to misbehave there: exact bytes.

A fault strikes every streamed answer; what is answered without a stream (the completion that makes a
server ready) stays well, so that it is the load client that meets it.
"""

import json
import socket
import struct
import time

PING = b": ping\n\n"
PAGE = b"<html><body>502 Bad Gateway</body></html>"


def handler(base, kinds):
    """The handler of a server that has these faults on the wire; `base` itself when there are none."""
    return type("Wire", (FAULTS[kinds[0]], base), {}) if kinds else base


class Comments:
    """Comments between the events, as a server sends them that wants to be heard."""

    def _event(self, value):
        self._write(PING)
        super()._event(value)


class Duplicates:
    """Every event comes twice."""

    def _event(self, value):
        super()._event(value)
        if value["choices"]:
            super()._event(value)


class EmptyChunks:
    """Before every event comes one without text."""

    def _event(self, value):
        if value["choices"]:
            super()._event(self._chunk("", None))
        super()._event(value)


class Trickle:
    """Every byte comes in a chunk of its own."""

    def _write(self, data):
        for at in range(len(data)):
            super()._write(data[at : at + 1])
        if not data:
            super()._write(data)


class LargeChunk:
    """Before the first event comes a comment of a megabyte."""

    def _event(self, value):
        if not getattr(self, "sent", False):
            self.sent = True
            self._write(b": " + b"x" * (1 << 20) + b"\n\n")
        super()._event(value)


class Usage:
    """The usage at the end is another than what was sent."""

    usage = None

    def _event(self, value):
        if "usage" in value:
            value = {**value, "usage": self.usage and {**value["usage"], "completion_tokens": self.counted(value)}}
        super()._event(value)


class UsageMore(Usage):
    """One token more than was sent."""

    usage = True

    def counted(self, value):
        return value["usage"]["completion_tokens"] + 1


class UsageOfWords(Usage):
    """A word for a number."""

    usage = True

    def counted(self, value):
        return "many"


class AfterTheFirst:
    """Something else happens after the first event."""

    def _event(self, value):
        if self.begun:
            self.instead()
            raise ConnectionAbortedError
        self.begun = True
        super()._event(value)

    def _stream(self, answer, include_usage):
        self.begun = False
        try:
            super()._stream(answer, include_usage)
        except ConnectionAbortedError:
            self.close_connection = True
            self.engine.count(answer.usage, "abort")

    def instead(self):
        """End the connection in the middle of a chunk."""
        self.wfile.write(b"40\r\ndata: {")


class ErrorAfterTheFirst(AfterTheFirst):
    """An error comes in the stream, which then ends in good order."""

    def instead(self):
        self._write(b'data: {"error": {"message": "the stub was told to fail", "code": 500}}\n\n')
        self._write(b"data: [DONE]\n\n")
        self._write(b"")


class EndAfterTheFirst(AfterTheFirst):
    """The stream ends in good order, too early."""

    def instead(self):
        self._write(b"")


class ResetAfterTheFirst(AfterTheFirst):
    """The connection is reset."""

    def instead(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


class NoChunkAfterTheFirst(AfterTheFirst):
    """What follows is no chunk."""

    def instead(self):
        self.wfile.write(b"no hex digits\r\n")


class NoTextAfterTheFirst(AfterTheFirst):
    """What follows is no UTF-8."""

    def instead(self):
        self._write(b'data: {"choices": [{"text": "\xff\xfe"}]}\n\n')
        self._write(b"")


class NoJsonAfterTheFirst(AfterTheFirst):
    """What follows is half an object."""

    def instead(self):
        self._write(b'data: {"choices": [{"te\n\n')
        self._write(b"")


class Redirect:
    """Every streamed request is sent to another port, where nobody listens."""

    def _stream(self, answer, include_usage):
        self.send_response(307)
        self.send_header("Location", "http://127.0.0.1:1/v1/completions")
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.engine.count(answer.usage, "abort")


class OtherBody:
    """Status 200, and a page of a proxy in the place of a stream."""

    def _stream(self, answer, include_usage):
        self._send(200, PAGE, "text/html")
        self.engine.count(answer.usage, "abort")


class ErrorBody:
    """Status 200, and an error in the place of a stream."""

    def _stream(self, answer, include_usage):
        self._send(200, json.dumps({"error": {"message": "told to fail", "code": 500}}).encode(), "application/json")
        self.engine.count(answer.usage, "abort")


class Silence:
    """The head of an answer, its first event, and then nothing for ever."""

    def _event(self, value):
        super()._event(value)
        while True:
            time.sleep(3600)


FAULTS = {
    "wire-comments": Comments,
    "wire-duplicates": Duplicates,
    "wire-empty-chunks": EmptyChunks,
    "wire-trickle": Trickle,
    "wire-large-chunk": LargeChunk,
    "wire-no-usage": Usage,
    "wire-usage-more": UsageMore,
    "wire-usage-of-words": UsageOfWords,
    "wire-cut": AfterTheFirst,
    "wire-error": ErrorAfterTheFirst,
    "wire-early-end": EndAfterTheFirst,
    "wire-reset": ResetAfterTheFirst,
    "wire-no-chunk": NoChunkAfterTheFirst,
    "wire-no-text": NoTextAfterTheFirst,
    "wire-no-json": NoJsonAfterTheFirst,
    "wire-redirect": Redirect,
    "wire-page": OtherBody,
    "wire-error-body": ErrorBody,
    "wire-silence": Silence,
}
