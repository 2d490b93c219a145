"""A process tree is ours from spawn to proven gone, whatever it does to its environment."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pinproof import processes, records
from pinproof.processes import Interrupted, Survivor, end, members, shielded, spawn, survivors, terminating
from pinproof.reasons import Reason, Refusal

PYTHON = [sys.executable, "-S", "-u", "-c"]
RUN = f"test-{os.getpid()}"  # the machine may run other tests, and real runs
LIFE = f"{RUN}/arm/1"
OLD = f"old-{RUN}/arm/1"

STUB = [sys.executable, "-S", str(Path(__file__).parent / "stubs" / "engine.py")]
SCRIPTS = Path(__file__).parents[1] / "scripts"

SLEEP = "import time\nprint('up')\ntime.sleep(600)\n"
FORK = "import os\nchild = os.fork()\n"
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
# become a process without the marker, as after setproctitle, which writes over the environment
WIPE = "os.execve(sys.executable, [sys.executable, '-S', '-c', 'import time; time.sleep(600)'], {})"
LEAVE_SESSION = "os.setsid()"
LEAVE_LOG = "null = os.open(os.devnull, os.O_WRONLY); os.dup2(null, 1); os.dup2(null, 2)"

Start = Callable[..., subprocess.Popen]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine folder for the test alone; whatever a test leaves behind is ended."""
    monkeypatch.setattr(processes, "MACHINE_FOLDER", tmp_path / "machine")
    yield tmp_path / "machine"
    for marker in {life.marker for life in processes._recorded().values()}:
        end(marker, 0)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Spawn Python code as a life and wait until it has said that it is up."""

    def make(code: str, marker: str = LIFE) -> subprocess.Popen:
        log = tmp_path / f"{marker.replace('/', '-')}.log"
        process = spawn([*PYTHON, code], env={}, cwd=tmp_path, log=log, marker=marker)
        until(lambda: "up" in log.read_text())
        return process

    return make


def until(condition: Callable[[], object], limit_s: float = 20) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def pids(marker: str = LIFE) -> list[int]:
    return sorted(process.pid for process in members(marker))


def others(run: str) -> list[Survivor]:
    """The survivors among the lives of this test."""
    return [one for one in survivors(run) if RUN in one.marker]


# starting


def test_a_life_is_started_without_a_shell_in_a_session_of_its_own(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "print(sys.argv[1:], os.environ['A'], 'HOME' in os.environ, os.environ['PINPROOF_MARKER'])\n"
        "print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()))\n"
    )
    log = tmp_path / "deep" / "one.log"
    process = spawn([*PYTHON, code, "$HOME; ls"], env={"A": "1"}, cwd=tmp_path, log=log, marker=LIFE)
    assert process.wait() == 0
    assert log.read_text() == "['$HOME; ls'] 1 False " + LIFE + "\nTrue ''\n"


def test_a_program_that_is_not_there_is_refused_and_leaves_no_record(tmp_path: Path, machine: Path) -> None:
    with pytest.raises(Refusal) as refusal:
        spawn(["/no/such/program"], env={}, cwd=tmp_path, log=tmp_path / "log", marker=LIFE)
    assert refusal.value.reason is Reason.ENV_BROKEN
    assert list((machine / "lives").iterdir()) == []


def test_two_lives_do_not_share_a_log(start: Start, tmp_path: Path) -> None:
    start(SLEEP)
    with pytest.raises(ValueError, match=f"is the log of {LIFE}"):
        spawn(["true"], env={}, cwd=tmp_path, log=tmp_path / f"{RUN}-arm-1.log", marker=f"{RUN}/arm/2")


def test_a_marker_with_odd_characters_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a marker"):
        spawn(["true"], env={}, cwd=tmp_path, log=tmp_path / "log", marker="a b")


def test_a_machine_folder_that_is_a_link_is_refused(tmp_path: Path, machine: Path) -> None:
    machine.symlink_to(tmp_path)
    with pytest.raises(Refusal) as refusal:
        processes.machine_folder("lives")
    assert refusal.value.reason is Reason.LOCK_PLACE
    machine.unlink()


# finding


def test_members_are_exactly_the_processes_of_the_marker(start: Start) -> None:
    first = start(FORK + SLEEP, LIFE)
    start(SLEEP, f"{RUN}/arm/10")
    until(lambda: len(pids(LIFE)) == 2)
    assert first.pid in pids(LIFE)
    assert len(pids(f"{RUN}/arm/10")) == 1


def test_a_zombie_is_not_alive(start: Start) -> None:
    process = start("print('up')")
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)  # nobody has waited for it
    assert members(LIFE) == []


@pytest.mark.parametrize("leave", [LEAVE_SESSION, LEAVE_LOG], ids=["its log tells", "its session tells"])
def test_an_orphan_that_wiped_its_environment_is_still_ours(start: Start, tmp_path: Path, leave: str) -> None:
    leader = start(FORK + f"import sys\nif child == 0:\n    {leave}\n    {WIPE}\nprint('up', child)\n")
    leader.wait()
    orphan = psutil.Process(int((tmp_path / f"{RUN}-arm-1.log").read_text().split()[1]))
    until(lambda: orphan.environ() == {})  # not looked for before: nothing is remembered of it
    assert members(LIFE) == [orphan]
    assert end(LIFE, 5).empty


def test_a_child_that_shed_every_sign_is_ours_through_its_parent(start: Start) -> None:
    start(FORK + f"import sys\nif child == 0:\n    {LEAVE_SESSION}\n    {LEAVE_LOG}\n    {WIPE}\n" + SLEEP)
    until(lambda: {} in [process.environ() for process in members(LIFE)])


def test_a_process_that_was_ours_stays_ours_when_its_parent_has_gone(start: Start) -> None:
    leader = start(FORK + f"import sys\nif child == 0:\n    {LEAVE_SESSION}\n    {LEAVE_LOG}\n    {WIPE}\n" + SLEEP)
    until(lambda: {} in [process.environ() for process in members(LIFE)])
    leader.kill()
    leader.wait()
    assert len(pids()) == 1
    assert end(LIFE, 5).empty


def test_a_life_inside_a_life_is_not_the_outer_ones(start: Start) -> None:
    inner = f"subprocess.Popen({[*PYTHON, SLEEP]!r}, env={{'PINPROOF_MARKER': '{RUN}/inner/1'}})"
    outer = start(f"import subprocess\n{inner}\n{SLEEP}", f"{RUN}/outer/1")
    until(lambda: len(pids(f"{RUN}/inner/1")) == 1)
    assert pids(f"{RUN}/outer/1") == [outer.pid]
    end(f"{RUN}/inner/1", 0)


# ending


def test_term_is_enough_for_a_process_that_obeys(start: Start) -> None:
    process = start(SLEEP)
    teardown = end(LIFE, 10)
    assert (teardown.needed, teardown.termed, teardown.killed, teardown.left) == ("TERM", (process.pid,), (), ())
    assert teardown.empty
    assert process.wait() == -signal.SIGTERM


def test_what_ignores_term_is_killed_after_the_grace_and_recorded_so(start: Start) -> None:
    process = start(DEAF + SLEEP)
    teardown = end(LIFE, 0.2)
    assert (teardown.needed, teardown.killed, teardown.left) == ("KILL", (process.pid,), ())
    assert teardown.seconds >= 0.2
    assert process.wait() == -signal.SIGKILL


def test_children_that_are_started_during_the_teardown_are_ended_too(start: Start) -> None:
    breed = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os.fork() and os._exit(0))\n"
    first = start(breed + SLEEP)
    teardown = end(LIFE, 1)
    assert teardown.empty
    assert {*teardown.termed, *teardown.killed} > {first.pid}
    assert pids() == []


def test_the_top_of_a_tree_gets_one_term_and_its_child_none(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    args = [
        "--port",
        "1",
        "--fault",
        "hard-second-term",
        "--fault",
        "never-listens",
    ]  # leaks its child at a second TERM
    process = spawn([*STUB, *args], env={}, cwd=tmp_path, log=log, marker=LIFE)
    until(lambda: len(pids()) == 2 and "attention" in log.read_text())
    teardown = end(LIFE, 20)
    assert (teardown.needed, teardown.termed, teardown.killed) == ("TERM", (process.pid,), ())


def test_a_child_whose_parent_left_without_it_gets_a_term_of_its_own(start: Start) -> None:
    start(FORK + SLEEP)
    until(lambda: len(pids()) == 2)
    both = tuple(pids())
    teardown = end(LIFE, 4)
    assert (teardown.needed, teardown.termed) == ("TERM", both)


def test_ending_what_has_already_gone_needs_nothing(machine: Path) -> None:
    assert end(LIFE, 5).needed == "nothing"


def test_nothing_else_is_ended(start: Start) -> None:
    stranger = subprocess.Popen([*PYTHON, SLEEP], stdout=subprocess.PIPE)
    try:
        start(SLEEP)
        end(LIFE, 5)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.communicate()


# after a crash of ours


@pytest.fixture
def crashed(tmp_path: Path, machine: Path) -> Callable[[str], int]:
    """Run a parent that spawns a server and is killed with SIGKILL; the pid of the server."""

    def make(*faults: str) -> int:
        args = [*STUB, "--port", str(processes.free_port()), *(part for one in faults for part in ("--fault", one))]
        code = (
            "import time\nfrom pathlib import Path\nfrom pinproof import processes\n"
            f"processes.MACHINE_FOLDER = Path({str(machine)!r})\n"
            f"server = processes.spawn({args!r}, env={{}}, cwd=Path('/'), log=Path({str(tmp_path / 'log')!r}),"
            f" marker={OLD!r})\nprint(server.pid, flush=True)\ntime.sleep(600)\n"
        )
        parent = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        until(lambda: "attention" in (tmp_path / "log").read_text())
        assert {one.owner_alive for one in others("new")} == {True}
        parent.kill()
        parent.communicate()
        return pid

    return make


def test_a_server_of_a_killed_parent_is_found_and_can_be_ended_by_its_marker(crashed: Callable) -> None:
    pid = crashed()
    (found,) = others("new")
    assert (found.pid, found.marker, found.owner_alive) == (pid, OLD, False)
    assert "engine.py" in found.command
    assert found.as_record()["started"] > 0
    assert others(f"old-{RUN}") == []
    assert end(found.marker, 10).empty
    assert others("new") == []


def test_a_survivor_that_wiped_its_environment_is_found_too(crashed: Callable) -> None:
    crashed("parent-exits", "bare-child")
    until(lambda: len(others("new")) == 1)
    (found,) = others("new")
    assert psutil.Process(found.pid).environ() == {}
    assert found.marker == OLD


def test_records_of_lives_that_left_nothing_behind_are_tidied_away(start: Start, machine: Path) -> None:
    start(SLEEP)
    (record,) = (machine / "lives").iterdir()
    body = {key: value for key, value in records.read(record, "life").items() if key != "schema"}
    old = {**body, "marker": OLD, "boot": "another", "log": "/elsewhere", "session": 1}
    records.write(machine / "lives" / "old.json", "life", old)
    path = processes._record_path(OLD)
    (machine / "lives" / "old.json").rename(path)
    assert {one.marker for one in others("new")} == {LIFE}
    assert not path.exists()
    assert record.exists()


# signals


def test_the_first_signal_runs_every_finally_and_the_second_does_not_abort_it(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pinproof.processes import terminating\n"
        "with terminating():\n"
        "    try:\n        print('up', flush=True); sys.stdin.readline()\n"
        "    finally:\n        print('tearing down', flush=True); sys.stdin.readline()\n"
        "        print('torn down', flush=True)\n"
    )
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == b"tearing down\n"
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            child.send_signal(number)
        out, err = child.communicate(b"go on\n")
    assert out == b"torn down\n"
    assert b"Interrupted: SIGTERM" in err


def test_a_signal_during_a_shielded_block_comes_after_it() -> None:
    done = []
    with pytest.raises(Interrupted), terminating():
        with shielded():
            signal.raise_signal(signal.SIGTERM)
            done.append("the block")
        done.append("never")
    assert done == ["the block"]


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminating(), shielded():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with terminating(), shielded():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


# ports


def test_free_ports_are_free_and_never_the_same() -> None:
    ports = {processes.free_port() for _ in range(20)}
    assert len(ports) == 20
    assert all(processes.port_is_free(port) for port in ports)


def test_a_port_that_is_bound_but_does_not_listen_yet_is_not_free() -> None:
    with socket.socket() as loading:
        loading.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        loading.bind(("127.0.0.1", 0))
        assert not processes.port_is_free(loading.getsockname()[1])


@pytest.mark.parametrize(("address", "local"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_a_listener_is_known_by_pid_and_address(address: str, local: bool) -> None:
    with socket.socket() as listening:
        listening.bind((address, 0))
        listening.listen()
        (one,) = processes.listener_owner(listening.getsockname()[1])
        assert (one.pid, one.address, one.local) == (os.getpid(), address, local)
        assert not processes.port_is_free(listening.getsockname()[1])
