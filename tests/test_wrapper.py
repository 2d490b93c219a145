"""A lease by a wrapper: what touches the device runs under it, with a ticket in hand, and loses it with the wrapper."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinproof import lease, processes, records, wrapper
from pinproof.case import CommandLease
from pinproof.reasons import Reason, Refusal

# A wrapper that grants the device to its child alone, by a variable, as a queue does.
GRANT = "import os, subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:], env={**os.environ, 'GRANTED': 'gpu0'}))"
WRAPPER = [sys.executable, "-c", GRANT]
# What is run under it: the status that its arguments say, told as a script of the workflow tells it.
INSIDE = (
    "import os, sys, time\n"
    "sys.path.insert(0, sys.argv[1])\n"
    "from pathlib import Path\n"
    "from pinproof import case, lease, wrapper\n"
    "declared = case.CommandLease(kind='command', argv=['rc'], proof_env='GRANTED')\n"
    "with lease.granted(declared, Path(sys.argv[2]), lease.Who('c', 'r')) as held:\n"
    "    print('held', held.as_record()['kind'], os.environ['GRANTED'], flush=True)\n"
    "    exec(sys.argv[3])\n"
    "wrapper.tell(7)\n"
)
SCRIPTS = str(Path(wrapper.__file__).parents[1])


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(processes, "MACHINE_FOLDER", tmp_path / "machine")
    monkeypatch.setattr(wrapper, "GRACE_S", 3.0)
    monkeypatch.delenv(wrapper.TICKET, raising=False)
    yield
    assert not [marker for marker in processes._recorded() if marker.startswith("lease.")]


def declared(*argv: str, proof_env: str | None = None) -> CommandLease:
    return CommandLease(kind="command", argv=list(argv), proof_env=proof_env)


def run(folder: Path, inside: str = "", *, argv: list[str] = WRAPPER) -> tuple[int, str]:
    """Run a script under a wrapper: its status, and all that was said."""
    said: list[str] = []
    command = [sys.executable, "-c", INSIDE, SCRIPTS, str(folder / "gpu.lock"), inside]
    status = wrapper.run(declared(*argv), command, folder / "leases", said.append)
    return status, "\n".join(said)


def refused(act: object, *arguments: object) -> Refusal:
    with pytest.raises(Refusal) as refusal:
        act(*arguments)
    return refusal.value


def test_what_touches_the_device_runs_under_the_wrapper_and_its_status_and_log_come_back(tmp_path: Path) -> None:
    status, said = run(tmp_path)
    assert status == 7
    assert "| held command gpu0" in said
    assert "| under the lease: ticket " in said
    (log,) = tmp_path.glob("leases/*/wrapper.log")  # kept: a queue may forget its own
    assert "held command gpu0" in log.read_text()


def test_the_wrapper_is_detached_from_whoever_asked_for_it(tmp_path: Path) -> None:
    run(tmp_path)
    (record,) = tmp_path.glob("leases/*/wrapper.json")
    assert records.read(record, "wrapper")["parent"] == 1


def test_a_wrapper_that_cannot_be_started_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refusal:
        run(tmp_path, argv=["/no/such/wrapper"])
    assert refusal.value.reason is Reason.LEASE_REFUSED
    assert "/no/such/wrapper" in str(refusal.value)


def test_a_wrapper_that_ends_without_running_anything_is_refused_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refusal:
        run(tmp_path, argv=[sys.executable, "-c", "print('no quota')"])
    assert refusal.value.reason is Reason.LEASE_REFUSED
    assert "no quota" in str(refusal.value)


def test_a_wrapper_that_goes_while_the_command_runs_has_lost_the_lease_and_nothing_runs_on(tmp_path: Path) -> None:
    mortal = f"{GRANT.splitlines()[0]}\nchild = subprocess.Popen(sys.argv[1:], env={{**os.environ, 'GRANTED': 'x'}})\n"
    mortal += f"import time, pathlib\nwhile not pathlib.Path({str(tmp_path / 'seen')!r}).exists(): time.sleep(0.01)\n"
    mortal += "os._exit(0)"
    inside = f"Path({str(tmp_path / 'seen')!r}).write_text(str(os.getpid())); time.sleep(600)"
    with pytest.raises(Refusal) as refusal:
        run(tmp_path, inside, argv=[sys.executable, "-c", mortal])
    assert refusal.value.reason is Reason.LEASE_LOST
    assert processes.started(int((tmp_path / "seen").read_text())) is None


def test_inside_the_lease_is_lost_when_the_wrapper_is_gone(tmp_path: Path) -> None:
    inside = (
        "ticket = Path(os.environ[wrapper.TICKET])\n"
        "from pinproof import records\n"
        "records.write(ticket.with_name('heartbeat.json'), 'heartbeat', {'beat': 99, 'alive': False})\n"
        "try: held.check()\n"
        "except Exception as error: print('told:', error.reason.code, flush=True)\n"
    )
    assert "| told: lease-lost" in run(tmp_path, inside)[1]


def test_a_heartbeat_that_ends_is_a_lease_that_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper._write_beat(tmp_path / "ticket.json", 1, alive=True)
    ticket = wrapper.Ticket.of_this_process(declared("rc"), {wrapper.TICKET: str(tmp_path / "ticket.json")})
    ticket.check()
    monkeypatch.setattr(wrapper, "SILENCE_S", -1.0)
    assert refused(ticket.check).reason is Reason.LEASE_LOST
    wrapper._write_beat(tmp_path / "ticket.json", 2, alive=True)
    ticket.check()


def test_without_a_ticket_the_device_is_refused(tmp_path: Path) -> None:
    refusal = refused(lambda: lease.granted(declared("rc"), tmp_path / "lock", lease.Who("c", "r")).__enter__())
    assert refusal.reason is Reason.LEASE_REFUSED
    assert "not started under rc" in refusal.message


def test_without_the_variable_that_the_wrapper_sets_it_is_refused(tmp_path: Path) -> None:
    wrapper._write_beat(tmp_path / "ticket.json", 1, alive=True)
    environment = {wrapper.TICKET: str(tmp_path / "ticket.json")}
    refusal = refused(wrapper.Ticket.of_this_process, declared("rc", proof_env="RC_LEASE"), environment)
    assert (refusal.reason, refusal.key) == (Reason.LEASE_REFUSED, "lease.proof_env")


def test_what_is_carried_inside_is_ours_and_nothing_that_the_wrapper_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINPROOF_STORE", "/shared")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    ticket = wrapper._write_ticket(["python"], tmp_path)
    carried = records.read(ticket, "ticket")["env"]
    assert carried["PINPROOF_STORE"] == "/shared"
    assert not {"CUDA_VISIBLE_DEVICES", "HF_TOKEN"} & set(carried)
