"""A sample of every kind of fault on real vLLM: its engine's processes, its memory, its weights, its load client.

Engines are made in, or taken from, the repository's own results folder, or from PINPROOF_STORE.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tests.faults import network, resources
from tests.faults.examine import examine
from tests.faults.fault import Fault, Line, Outcome
from tests.faults.scene import CASE, Scene, can_mount
from tests.stubs import workflow
from tests.stubs.workflow import ROOT, Call, Finished, Material, Workplace, until

from pinproof import bench, leg, processes
from pinproof.client import Client, Load
from pinproof.reasons import Owner, Reason

pytestmark = [pytest.mark.real, pytest.mark.faults, pytest.mark.timeout(2400)]

STORE = Path(os.environ.get("PINPROOF_STORE", ROOT / "results"))
PATIENCE_S = 900  # for a start of two engines on two slow cores


# -- the whole workflow --------------------------------------------------------------------------


@dataclass(frozen=True)
class RealMaterial(Material):
    """Real engines; calls get the environment of the machine, and the machine folder of the tests."""

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "PINPROOF_MACHINE_FOLDER": str(self.machine), "PINPROOF_STORE": str(STORE), **more}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """The default case, shortened, with tolerances that a loaded machine meets: a HOLD at the first look."""
    folder = tmp_path_factory.mktemp("real")
    value = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    value["case"] = CASE
    value["decision"] |= {"noise_pairs": 3, "looks": [3]}
    value["rows"] = value["rows"][:1]  # the serving row
    (row,) = value["rows"]
    row["cells"] = [{"concurrency": 2, "prompts": 4}]
    row["metrics"] = [{"name": metric["name"], "tolerance": 0.9} for metric in row["metrics"]]
    place = Workplace(folder, RealMaterial(folder / "material"), store=STORE).write(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflow, "PATIENCE_S", PATIENCE_S)
        first = place.run("verdict")
        assert first.status == 0, first.output
        yield place


@pytest.fixture
def scene(measured: Workplace, tmp_path: Path) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(measured.copy(tmp_path / "place"), stack)


def _in_a_leg(scene: Scene) -> Call:
    scene.unmeasure()
    return scene.measuring(legs=1)


def _engine(server: psutil.Process) -> psutil.Process:
    """The process of the engine; it has wiped its environment, and calls itself so."""
    return next(one for one in server.children(recursive=True) if "EngineCore" in " ".join(one.cmdline()))


def _killed_engine(scene: Scene) -> Finished:
    call = _in_a_leg(scene)
    _engine(scene.process("oracle")).kill()
    return call.wait()


def _killed_client(scene: Scene) -> Finished:
    call = _in_a_leg(scene)
    scene.process(".client").kill()
    return call.wait()


def _flipped_weights(scene: Scene) -> Finished:
    """One bit of the weights is another; the store is a copy, for it is shared."""
    store = scene.place.folder / "store"
    shutil.copytree(STORE / "checkpoints", store / "checkpoints")
    (store / "engines").symlink_to(STORE / "engines")
    file = next(store.glob("checkpoints/*/*.safetensors"))
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    scene.unmeasure()
    return scene.call(PINPROOF_STORE=str(store))


FAULTS = [
    Fault("real-engine-killed", "SIGKILL of the pinned vLLM's engine process in a leg",
          _killed_engine, Outcome.UNDECIDED, Reason.SERVER_KILLED, Owner.ENVIRONMENT),
    Fault("real-load-client-killed", "SIGKILL of vLLM's load client in a leg",
          _killed_client, Outcome.UNDECIDED, Reason.CLIENT_FAILED, Owner.INSTRUMENT),
    Fault("real-out-of-memory", "the kernel kills the pinned vLLM's API server for want of memory (cgroup)",
          resources.killed_for_memory, Outcome.UNDECIDED, Reason.SERVER_KILLED, Owner.ENVIRONMENT, root=True),
    Fault("real-flipped-weights", "one bit of the weights is another",
          _flipped_weights, Outcome.UNDECIDED, Reason.CHECKPOINT_MISMATCH, Owner.INPUT),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_of_real_engines_ends_as_it_must(fault: Fault, scene: Scene, seen: list[Line]) -> None:
    if fault.root and not can_mount():
        pytest.skip("takes the rights of root")
    seen.append(examine("real", fault, scene))
    engines = str(STORE / "engines")
    until(
        lambda: not [one for one in psutil.process_iter(["cmdline"]) if engines in " ".join(one.info["cmdline"] or [])]
    )


# -- the real load client, and the wire ----------------------------------------------------------

OUTPUT_TOKENS, PROMPT = 12, "one two three four"
# What vLLM's client makes of the wire where the double of it makes something else.
OTHERWISE = {
    "wire-no-usage": Reason.OUTPUT_SHORT,  # it counts the text again, with a tokenizer that is not the server's
}
_SERVE = """\
import sys
sys.path.insert(0, sys.argv[1])
from vllm import stub_engine, wire
stub_engine.Handler = wire.handler(stub_engine.Handler, sys.argv[3:])
stub_engine.main(["--port", sys.argv[2]])
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """vLLM's load client, resident."""
    folder = tmp_path_factory.mktemp("client")
    python = max(STORE.glob("engines/*/env/bin/python"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "MACHINE_FOLDER", folder / "machine")
        environment = bench.environment(folder / "caches")
        with Client(python, env=environment, log=folder / "client.log", marker="faults/.client/1") as resident:
            resident.wait_ready()
            yield resident


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub engine as an importable package."""
    folder = tmp_path_factory.mktemp("package")
    stubs = ROOT / "tests" / "stubs"
    shutil.copytree(stubs / "package" / "vllm", folder / "vllm")
    shutil.copyfile(stubs / "engine.py", folder / "vllm" / "stub_engine.py")
    (folder / "vllm" / "_version.py").write_text('__version__ = "1.1.0+stub"\n__commit_id__ = None\n')
    return folder


@contextlib.contextmanager
def serving(package: Path, fault: str) -> Iterator[str]:
    """A server with a fault on its wire; its address."""
    port = processes.free_port()
    argv = [sys.executable, "-c", _SERVE, str(package), str(port), fault]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            until(lambda: not processes.port_is_free(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def objections(client: Client, address: str, folder: Path) -> list[leg.Objection]:
    """What is said against a leg of the real client; its prompts are counted by two tokenizers, which is no matter."""
    asked = leg.Asked(2, len(PROMPT), OUTPUT_TOKENS)
    corpus, result = folder / "prompts.jsonl", folder / "raw.json"
    corpus.write_text(2 * (json.dumps({"prompt": PROMPT, "output_tokens": OUTPUT_TOKENS}) + "\n"))
    tokenizer = next(STORE.glob("checkpoints/*/tokenizer.json")).parent
    load = Load(address, "key", "stub", tokenizer, corpus, asked, 2, result)
    client.run(load, timeout_s=60, check=lambda: None)
    found = leg.objections(leg.read_raw(result), asked, {})
    return [one for one in found if one.reason is not Reason.INPUT_DIFFERS]


@pytest.mark.parametrize(
    "fault",
    [fault for fault in network.FAULTS if fault.reason in (None, *network.OF_A_LEG)],
    ids=lambda fault: fault.name,
)
def test_the_real_client_makes_of_the_wire_what_its_double_makes(
    fault: Fault, client: Client, package: Path, tmp_path: Path, seen: list[Line]
) -> None:
    with serving(package, fault.name) as address:
        found = objections(client, address, tmp_path)
    wanted: Any = OTHERWISE.get(fault.name, fault.reason)
    assert (found[0].reason if found else None) is wanted, found
    owner = None if wanted is None else str(wanted.owner)
    came_to = Outcome.HOLD if wanted is None else Outcome.UNDECIDED
    seen.append(Line("real", f"real-{fault.name}", f"vLLM's load client: {fault.what}", str(came_to),
                     wanted and wanted.code, owner, "not called", (), ()))  # fmt: skip
