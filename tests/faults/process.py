"""Process faults: whoever is killed, stopped or started twice, at every stage."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.faults.fault import Fault, Outcome
from tests.faults.scene import CASE, Scene, gone, markers
from tests.stubs.workflow import ROW, Call, Finished

from pinproof.reasons import Owner, Reason

# The script of a stage -> what it makes, below the results, and what is removed beside; E is the oracle's engine.
STAGES = {
    "read_pin": (f"{CASE}/pin.json",),
    "fetch_source": ("E/source.json", "E/source"),
    "read_metadata": ("E/metadata.json",),
    "run_preflight": (f"{CASE}/preflight.json",),
    "make_wheel": ("E/wheel.json", "E/wheel"),
    "make_env": ("E/env/pinproof.json", "E/env"),
    "read_version": ("E/version.json",),
    "gate_arm": (f"{CASE}/arms/oracle/gate.json",),
    "make_checkpoint": ("checkpoints/????????????????.json", "checkpoints/????????????????"),
    "read_device": (f"{CASE}/device.json",),
    "decide_row": (f"{CASE}/rows/{ROW}.json",),
    "write_verdict": (f"{CASE}/verdict.json",),
    "write_page": (f"{CASE}/verdict.md",),
}


def _killed(stage: str) -> Callable[[Scene], Finished]:
    """The script of a stage is killed when all is written and its file has not yet its name."""

    def act(scene: Scene) -> Finished:
        patterns = [pattern.replace("E/", f"engines/{scene.engine.name}/") for pattern in STAGES[stage]]
        made = scene.file(patterns[0])
        scene.wanted = [scene.target(made)]
        scene.forget(*patterns)
        call = scene.inject(stage, "killed_before_its_file_has_its_name", scene.target(made))
        assert "Nothing to be done" not in call.output
        assert not made.exists(), f"{stage} was killed before its file had its name, and there it is"
        return call

    return act


def _signalled(who: Callable[[Scene, Call], object], number: signal.Signals) -> Callable[[Scene], Finished]:
    """A call that measures anew; after two legs somebody in it gets a signal."""

    def act(scene: Scene) -> Finished:
        scene.unmeasure()
        call = scene.measuring()
        target = who(scene, call)
        os.killpg(target.pid, number) if isinstance(target, Call) else target.send_signal(number)
        return call.wait()

    return act


def _server(scene: Scene, call: Call) -> object:
    return scene.process("oracle")


def _client(scene: Scene, call: Call) -> object:
    return scene.process(".client")


def _script(scene: Scene, call: Call) -> object:
    return call.script("measure_row")


def _group(scene: Scene, call: Call) -> object:
    return call


def _without_snakemake(scene: Scene) -> Finished:
    """Snakemake alone is killed; the script that it started measures on to the end."""
    scene.unmeasure()
    call = scene.measuring()
    os.kill(call.pid, signal.SIGKILL)
    ended = call.wait()
    gone(scene.material)
    refused = scene.call()
    assert refused.status == 1
    assert "--unlock" in refused.output  # what is left of it is told with its remedy
    return replace(ended, output=ended.output + refused.output)


def _unlock(scene: Scene) -> None:
    assert scene.call("--unlock").status == 0


def _while_it_runs_on(scene: Scene) -> Finished:
    """Snakemake alone is killed, and the next call comes while the script still measures."""
    scene.unmeasure()
    call = scene.measuring()
    os.kill(call.pid, signal.SIGKILL)
    call.wait()
    _unlock(scene)
    early = scene.legs()
    again = scene.call()
    assert early.items() <= scene.legs().items()
    return again


def _at_the_start(faults: str, number: signal.Signals) -> Callable[[Scene], Finished]:
    """Ctrl-C while both servers start."""

    def act(scene: Scene) -> Finished:
        scene.misbehave("oracle", faults)
        call = scene.start()
        call.until(lambda: {"oracle", "previous", ".client"} <= set(markers(scene.material)))
        return call.signal(number)

    return act


def _ignoring_term(scene: Scene) -> Finished:
    scene.misbehave("oracle", "ignores-term")
    return scene.call()


def _leaving_a_child(scene: Scene) -> Finished:
    scene.misbehave("oracle", "hard-second-term")
    return scene.call()


def _twice(scene: Scene) -> Finished:
    """The same case is started once more in the same folder, while it is measured."""
    scene.unmeasure()
    first = scene.measuring()
    second = scene.call()
    assert second.status == 1
    assert "cannot be locked" in second.output
    ended = first.wait()
    assert ended.status == 0, ended.output
    return second


def _elsewhere(scene: Scene) -> Finished:
    """The same case is started in another folder of the machine, while it is measured here."""
    other = scene.place.copy(scene.place.folder.with_name("other"))
    scene.unmeasure()
    first = scene.measuring()
    shutil.rmtree(other.measured[-1])
    second = other.run("verdict")
    assert first.wait().status == 0
    assert second.status == 0
    assert other.verdict["verdict"] == "HOLD"
    return second


def _rebooted(scene: Scene) -> Finished:
    """The machine boots in the middle of a series: the legs that are there are of another boot."""
    scene.unmeasure()
    scene.measuring(legs=4).signal(signal.SIGTERM)
    for file in scene.measured.glob("legs/s*.json"):
        if not file.name.endswith(".raw.json"):
            _of_another_boot(file)
    return scene.call()


def _of_another_boot(file: Any) -> None:
    text = file.read_text()
    boot = text.split('"boot_id": "')[1].split('"')[0]
    file.write_text(text.replace(boot, "00000000-0000-4000-8000-000000000000"))


FAULTS = [
    *(
        Fault(f"killed-{stage.replace('_', '-')}",
              f"SIGKILL of the script {stage}.py when all is written and its file has not its name yet",
              _killed(stage), Outcome.STOPPED, quick=stage in ("read_pin", "write_verdict"))
        for stage in STAGES
    ),
    Fault("killed-measure-row", "SIGKILL of the script that measures, after two legs",
          _signalled(_script, signal.SIGKILL), Outcome.STOPPED),
    Fault("killed-workflow", "SIGKILL of the whole process group of the call, after two legs",
          _signalled(_group, signal.SIGKILL), Outcome.STOPPED, mend=_unlock),
    Fault("killed-snakemake", "SIGKILL of snakemake alone: what it started measures on",
          _without_snakemake, Outcome.STOPPED, mend=_unlock),
    Fault("killed-snakemake-called-again", "SIGKILL of snakemake alone, and a call while what it started measures on",
          _while_it_runs_on, Outcome.HOLD),
    Fault("killed-client", "SIGKILL of the load client in a leg",
          _signalled(_client, signal.SIGKILL), Outcome.UNDECIDED, Reason.CLIENT_FAILED, Owner.INSTRUMENT),
    Fault("killed-server", "SIGKILL of the pinned engine's API server in a leg",
          _signalled(_server, signal.SIGKILL), Outcome.UNDECIDED, Reason.SERVER_KILLED, Owner.ENVIRONMENT),
    Fault("terminated-workflow", "SIGTERM to the process group of the call",
          _signalled(_group, signal.SIGTERM), Outcome.STOPPED),
    Fault("interrupted-workflow", "Ctrl-C in a leg", _signalled(_group, signal.SIGINT), Outcome.STOPPED),
    Fault("hung-up-workflow", "the terminal of the call is closed (SIGHUP)",
          _signalled(_group, signal.SIGHUP), Outcome.STOPPED, mend=_unlock),
    Fault("interrupted-start", "Ctrl-C while a server loads and listens to nobody",
          _at_the_start("never-listens", signal.SIGINT), Outcome.STOPPED, mend=Scene.behave),
    Fault("server-ignores-term", "the server does not end at SIGTERM", _ignoring_term, Outcome.HOLD),
    Fault("server-leaves-a-child", "an engine process outlives its API server", _leaving_a_child, Outcome.HOLD),
    Fault("started-twice", "the same case is started once more in the same folder while it is measured",
          _twice, Outcome.STOPPED, says="cannot be locked"),
    Fault("started-elsewhere", "the same case is started in another folder while it is measured",
          _elsewhere, Outcome.HOLD, says="held by pid"),
    Fault("rebooted", "the machine boots in the middle of a series",
          _rebooted, Outcome.HOLD, says="the machine was booted since the last leg",
          voids="legs of two boots are not mixed"),
]  # fmt: skip
