"""Network and protocol faults: what a server sends its load client, byte by byte (tests/stubs/package/vllm/wire.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.faults.fault import Fault, Outcome
from tests.faults.scene import Scene
from tests.stubs.workflow import Finished

from pinproof.reasons import Owner, Reason

OF_A_LEG = (Reason.REQUESTS_FAILED, Reason.OUTPUT_SHORT)  # what is said against a leg, not against who ran it
_FAILED = (Outcome.UNDECIDED, Reason.REQUESTS_FAILED, Owner.TARGET)
_SHORT = (Outcome.UNDECIDED, Reason.OUTPUT_SHORT, Owner.TARGET)
_HOLD = (Outcome.HOLD, None, None)


def _sends(fault: str, arm: str = "oracle", **row: Any) -> Callable[[Scene], Finished]:
    """An arm's server has a fault on the wire; the row may be given less patience."""

    def act(scene: Scene) -> Finished:
        scene.misbehave(arm, fault)
        if row:
            scene.place.edit(lambda case: case["rows"][0].update(row))
        return scene.call()

    return act


def _fault(name: str, what: str, ends: tuple, **row: Any) -> Fault:
    outcome, reason, owner = ends
    return Fault(name, what, _sends(name, **row), outcome, reason, owner, mend=Scene.behave)


FAULTS = [
    _fault("wire-comments", "comments between the events of a stream", _HOLD),
    _fault("wire-duplicates", "every event of a stream comes twice", _HOLD),
    _fault("wire-empty-chunks", "chunks without text between the others", _HOLD),
    _fault("wire-trickle", "every byte of a stream comes in a chunk of its own", _HOLD),
    _fault("wire-large-chunk", "a comment of a megabyte before the first event", _HOLD),
    _fault("wire-no-usage", "the usage at the end of a stream is null", _HOLD),
    _fault("wire-usage-more", "the usage counts a token more than was sent", _SHORT),
    _fault("wire-usage-of-words", "the usage has a word for a number",
           (Outcome.UNDECIDED, Reason.CLIENT_FAILED, Owner.INSTRUMENT)),
    _fault("wire-cut", "the connection ends in the middle of a chunk, after the first token", _FAILED),
    _fault("wire-reset", "the connection is reset after the first token", _FAILED),
    _fault("wire-error", "an error in the stream after the first token, which then ends in good order", _SHORT),
    _fault("wire-early-end", "the stream ends in good order after the first token", _SHORT),
    _fault("wire-no-chunk", "what follows the first token is no chunk", _FAILED),
    _fault("wire-no-text", "what follows the first token is no UTF-8", _FAILED),
    _fault("wire-no-json", "what follows the first token is half an object", _FAILED),
    _fault("wire-redirect", "every request is redirected to a port where nobody listens", _FAILED),
    _fault("wire-page", "status 200 with a page of a proxy", _FAILED),
    _fault("wire-error-body", "status 200 with an error in the body", _FAILED),
    _fault("wire-silence", "nothing after the first token, while /health answers",
           (Outcome.UNDECIDED, Reason.SERVER_STALLED, Owner.TARGET), stall_timeout_s=3),
    Fault("wire-reference-cut", "the connection of the arm compared with ends after the first token",
          _sends("wire-cut", "previous"), Outcome.UNDECIDED, Reason.REFERENCE_FAILED, Owner.INPUT, mend=Scene.behave),
]  # fmt: skip
