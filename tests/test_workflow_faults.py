"""A call that is interrupted or killed: nothing of it runs on, no file lies, and the next call goes on."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.stubs.workflow import ORACLE, Call, Workplace, marked, until

pytestmark = pytest.mark.workflow


@pytest.fixture
def unmeasured(finished: Workplace) -> Workplace:
    """A place where all is done but the legs; a file there says how the oracle fails to start, if it does."""

    def faults(case: dict[str, Any]) -> None:
        case["arms"]["oracle"]["serve"]["env"]["STUB_FAULT_FILE"] = str(finished.folder / "faults")

    shutil.rmtree(finished.measured[0])
    finished.edit(faults)
    return finished


def interrupt(place: Workplace, call: Call, number: signal.Signals) -> None:
    """Signal the group, and look at what is left."""
    status = call.signal(number).status
    assert status not in (0, None)
    until(lambda: not marked(place.material))
    for file in place.results.rglob("*.json"):
        if not file.name.startswith("."):
            json.loads(file.read_text())  # whole
    assert not list(place.results.rglob("series.json"))


def start(place: Workplace, *, legs: int) -> Call:
    """A call that has measured so many legs more than there were."""
    before = set(place.legs)
    call = place.start("verdict")
    call.until(lambda: len(set(place.legs) - before) >= legs)
    return call


def whole_pairs(legs: dict[str, bytes]) -> dict[str, bytes]:
    """Legs whose pair is complete; a lone one is set aside by the next call."""
    pairs = Counter(name.rsplit("-", 2)[0] for name in legs)
    return {name: leg for name, leg in legs.items() if pairs[name.rsplit("-", 2)[0]] == 2}


def finish(place: Workplace, *, before: dict[str, bytes]) -> None:
    """The next call goes on from there to a verdict, with the legs there were."""
    call = place.run("verdict")
    assert call.status == 0, call.output
    assert place.verdict["verdict"] == "HOLD"
    assert whole_pairs(before).items() <= place.legs.items()
    assert place.plan("verdict") == {}


def test_whenever_it_is_interrupted_nothing_runs_on_and_the_next_call_goes_on(unmeasured: Workplace) -> None:
    place = unmeasured
    (place.folder / "faults").write_text("never-listens")
    call = place.start("verdict")
    call.until(lambda: len(marked(place.material)) >= 3)  # two servers and the client
    interrupt(place, call, signal.SIGINT)
    assert place.legs == {}

    (place.folder / "faults").unlink()
    interrupt(place, start(place, legs=3), signal.SIGTERM)
    first = place.legs
    assert len(first) >= 3

    interrupt(place, start(place, legs=2), signal.SIGINT)
    second = place.legs
    assert len(second) >= 4
    assert whole_pairs(first).items() <= second.items()

    finish(place, before=second)
    assert whole_pairs(place.legs) == place.legs
    assert len(place.legs) == 12  # as many as an undisturbed run: at most one leg was lost at each interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_environment_is_whole_or_made_again(finished: Workplace, number: signal.Signals) -> None:
    (engine,) = (path.parents[1] for path in finished.engines.glob(f"*/source/*-{ORACLE}-*.whl"))
    shutil.rmtree(engine / "env")
    marker = str(Path("results") / "engines" / engine.name / "env" / "pinproof.json")
    call = finished.start(marker)
    call.until((engine / "env" / "pyvenv.cfg").exists)
    assert call.signal(number).status != 0
    assert not (engine / "env" / "pinproof.json").exists()
    assert finished.run(marker).status == 0
    assert (engine / "env" / "bin" / "vllm").exists()
    assert finished.plan(marker) == {}


def test_what_a_killed_run_left_behind_is_told_and_ended_before_the_device_is_used(unmeasured: Workplace) -> None:
    place = unmeasured
    call = start(place, legs=2)
    before = place.legs
    left = marked(place.material)
    call.script("measure_row").send_signal(signal.SIGKILL)
    assert call.wait().status == 1
    until(lambda: len(marked(place.material)) == 2)  # the client ends with the run that it serves
    survivors = marked(place.material)
    assert survivors.items() <= left.items()

    again = start(place, legs=1)
    for pid, marker in survivors.items():
        assert f"an earlier run was killed and left {marker} behind (pids {pid}): ending it" in again.output
        assert pid not in marked(place.material)
    assert again.output.index("ending it") < again.output.index("A/A pair")
    assert whole_pairs(before).items() <= place.legs.items()
    interrupt(place, again, signal.SIGINT)
