"""What becomes of a fault: it is done, looked at, mended, and the next call must come to where it came before."""

from __future__ import annotations

from tests.faults.fault import Fault, Line
from tests.faults.scene import Scene, markers, running
from tests.stubs.workflow import Finished, until


def examine(kind: str, fault: Fault, scene: Scene) -> Line:
    """Let a scene suffer a fault. AssertionError when it ends otherwise than stated, or leaves what it must not."""
    call = fault.act(scene)
    speaks_plainly(call)
    end = scene.end(call)
    stated = (fault.outcome, fault.reason and fault.reason.code, fault.owner and str(fault.owner))
    assert (end.outcome, end.reason, end.owner) == stated, call.output
    assert fault.says in call.output, call.output
    assert set(scene.broken()) <= scene.spoiled
    assert fault.voids or scene.kept.items() <= scene.legs().items(), "a leg that was complete is lost"
    survivors = tuple(markers(scene.material))
    measured = {} if fault.voids else scene.legs()
    fault.mend(scene)
    again = scene.call("verdict", *scene.wanted)
    speaks_plainly(again)
    then = scene.end(again).outcome
    assert then == fault.then, again.output
    assert measured.items() <= scene.legs().items(), "a leg that was complete is lost by the next call"
    assert scene.broken() == []
    until(lambda: not running(scene.material))
    return Line(
        kind=kind,
        name=fault.name,
        what=fault.what,
        outcome=str(end.outcome),
        reason=end.reason,
        owner=end.owner,
        then=str(then),
        survivors=survivors,
        files=tuple(scene.left_over()),
    )


def speaks_plainly(call: Finished) -> None:
    """No traceback of ours: what a person is told is words."""
    assert "Traceback (most recent call last)" not in call.output, call.output
