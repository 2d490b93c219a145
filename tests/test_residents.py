"""Who is up: lives that are shared by neighbouring legs, and how all of them end at once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.builders import small_case

from pinproof import lease, plan, processes
from pinproof.reasons import Reason, Refusal
from pinproof.residents import Residents, blaming, speaking, wait_ready
from pinproof.series import in_time
from pinproof.server import Server, ServerSpec, stop_all

STUB = (sys.executable, "-S", str(Path(__file__).parent / "stubs" / "engine.py"))
CASE = small_case()
ROW = CASE.rows[0]
A, B = plan.order(CASE, ROW, 0)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    monkeypatch.setattr(processes, "MACHINE_FOLDER", tmp_path / "machine")

    def make(arm: str, life: int, *faults: str) -> Server:
        spec = ServerSpec(
            argv=(*STUB, "--port", "{port}", "--model", "subject", *(f"--fault={one}" for one in faults)),
            env={"PATH": "/usr/bin:/bin"},
            model_name="subject",
            log=tmp_path / f"{arm}-{life}.log",
            start_timeout_s=60,
            stall_timeout_s=60,
            grace_s=1,
        )
        return Server.start(spec, f"test-{os.getpid()}/{arm}/{life}")

    yield make
    left = set(processes._recorded())
    for marker in left:
        processes.end(marker, 0)
    assert left == set()


# the order of legs in time


def lives(rounds: list[dict[str, tuple[str, str]]]) -> int:
    """How many lives these rounds cost where one server is up at a time."""
    up, count = "", 0
    for orders in rounds:
        for group in in_time(orders, together=False, up=(up,)):
            for cell, position in group:
                arm = orders[cell][position]
                count += arm != up
                up = arm
    return count


def serpentine(reps: int, cells: list[str]) -> list[dict[str, tuple[str, str]]]:
    return [dict.fromkeys(cells, plan.order(CASE, ROW, index)) for index in range(reps)]


@pytest.mark.parametrize("cells", [["c1"], ["c1", "c4", "c8"]], ids=len)
@pytest.mark.parametrize("reps", [1, 2, 3, 8])
def test_n_reps_cost_n_and_one_lives_whatever_the_number_of_cells(reps: int, cells: list[str]) -> None:
    assert lives(serpentine(reps, cells)) == reps + 1


def test_cells_that_fell_out_of_step_cost_no_life_more() -> None:
    assert lives([{"c1": (A, B), "c4": (B, A)}]) == 3  # A B | B A
    assert lives([{"c1": (A, B)}, {"c1": (A, B), "c4": (B, A)}]) == 4  # A B | B A | A B


def test_with_both_servers_up_a_pair_is_taken_at_once() -> None:
    orders = {"c1": (A, B), "c4": (A, B)}
    assert in_time(orders, together=True, up=(A, B)) == [[("c1", 0), ("c1", 1)], [("c4", 0), ("c4", 1)]]


# lives


def held(folder: Path) -> lease.Lease:
    return lease.Lease(folder / "lock", lease.Holder.me(lease.Who("case", "row")))


def test_one_at_a_time_the_other_is_gone_before_the_next_begins(start: Callable, tmp_path: Path) -> None:
    seen: list[tuple[str, list[str]]] = []
    with Residents(start, held(tmp_path), together=False) as residents:
        residents.prepare = lambda servers: seen.extend((arm, list(residents.up)) for arm in servers)
        first = residents.take(A)
        assert residents.take(A) is first
        second = residents.take(B)
        assert first.teardown is not None
        assert second.alive()
        assert residents.take(A).marker.endswith(f"/{A}/2")
    assert seen == [(A, [A]), (B, [B]), (A, [A])]


def test_together_both_are_brought_up_at_once_and_taken_as_they_are(start: Callable, tmp_path: Path) -> None:
    with Residents(start, held(tmp_path), together=True) as residents:
        residents.prepare = wait_ready
        residents.bring((A, B))
        assert [residents.take(arm).marker.rsplit("/", 2)[1] for arm in (A, B, A)] == [A, B, A]
        assert len(residents.up) == 2


def test_servers_are_ended_at_the_same_time(start: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end waits until the other has begun: one after the other would wait in vain."""
    both, end = threading.Barrier(2, timeout=30), processes.end

    def together(marker: str, grace_s: float) -> processes.Teardown:
        both.wait()
        return end(marker, grace_s)

    servers = [start(arm, 1) for arm in (A, B)]
    wait_ready(dict(zip((A, B), servers, strict=True)))
    monkeypatch.setattr(processes, "end", together)
    stop_all(servers)
    assert [server.teardown.needed for server in servers if server.teardown] == ["TERM", "TERM"]


def test_what_the_lease_was_spent_on_is_booked(start: Callable, tmp_path: Path) -> None:
    lease_of = held(tmp_path)
    with Residents(start, lease_of, together=False) as residents:
        residents.prepare = wait_ready
        residents.take(A)
    lease_of.account.close()
    account = lease_of.account.as_record()
    assert 0 < account["spent_s"]["teardown"] <= account["held_s"]
    assert account["useful"] == 0


# whose failure


def test_the_arm_whose_server_failed_to_start_is_the_one_that_is_told(start: Callable) -> None:
    servers = {"oracle": start("oracle", 1), "previous": start("previous", 1, "exits-at-start")}
    with pytest.raises(Refusal) as refusal:
        wait_ready(servers)
    stop_all(list(servers.values()))
    assert refusal.value.reason is Reason.REFERENCE_FAILED
    assert refusal.value.message.startswith("previous, which is not the pin: ")
    assert refusal.value.message.endswith("(server-exited)")


def test_the_pin_s_own_failure_and_those_of_the_machine_stay_what_they_are() -> None:
    own = Refusal(Reason.SERVER_EXITED, "ended")
    neighbour = Refusal(Reason.SERVER_MEMORY, "no memory")
    assert speaking(own, "oracle") is own
    assert speaking(neighbour, "previous") is neighbour
    assert speaking(own, None) is own
    with pytest.raises(Refusal) as refusal, blaming({}, "previous"):
        raise own
    assert refusal.value.reason is Reason.REFERENCE_FAILED
