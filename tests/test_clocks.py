"""Clocks: whether a leg counts by what the device did, never by what came out of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

import pytest
from tests.builders import refusal_of
from tests.test_device import FakeError, FakeNvml, gb10, h200

from pinproof import clocks, sampling, simulation
from pinproof.clocks import Seen, between, foreign, objections, watching
from pinproof.device import DeviceFacts, connect, identify, require_free
from pinproof.hardware import Clocks, CpuDevice, NvidiaDevice, Policy, SimulatedDevice
from pinproof.nvml import BENIGN_THROTTLE, COUNTED, THROTTLE_REASONS, Nvml
from pinproof.reasons import Reason
from pinproof.sampling import Sample

RULES = Clocks()


def seen(mhz: list[int], *, work: float = 0.9, throttle: int = 0, **changes: Any) -> Seen:
    samples = [
        Sample(t=0.1 * at, seconds=0.1, work=work, clock_mhz=one, throttle=throttle) for at, one in enumerate(mhz)
    ]
    facts = {"throttled_ns": {"power": 0, "thermal": None}, "persistence": True, "foreign": ()}
    return Seen(summary=sampling.summary(samples, -0.1, 0.1 * len(mhz)), **facts | changes)


def reasons(found: Seen, rules: Clocks = RULES) -> list[Reason]:
    return [one.reason for one in objections(rules, found)]


def test_a_busy_device_at_one_clock_has_nothing_against_its_leg() -> None:
    assert reasons(seen([2184] * 40)) == []


@pytest.mark.parametrize(("lowest", "found"), [(2080, []), (2074, [Reason.CLOCKS_MOVED])])
def test_the_clock_may_move_by_a_twentieth_of_its_median(lowest: int, found: list[Reason]) -> None:
    assert reasons(seen([lowest] + [2184] * 39)) == found


def test_a_mean_sees_the_excursion_that_a_median_does_not() -> None:
    steady, dipped = seen([2184] * 60), seen([2184] * 40 + [2080] * 20)
    assert reasons(dipped) == []
    found = between(RULES, steady.as_record(), dipped.as_record())
    assert [one.reason for one in found] == [Reason.CLOCKS_MOVED]
    assert found[0].message == "the mean SM clock of the pair's legs is 2184 and 2149 MHz, 1.6% apart; allowed are 1.0%"


def test_legs_within_a_hundredth_are_compared() -> None:
    assert between(RULES, seen([2184] * 40).as_record(), seen([2170] * 40).as_record()) == []


@pytest.mark.parametrize(("samples", "found"), [(30, []), (29, [Reason.CLOCKS_UNSEEN])])
def test_fewer_busy_samples_than_asked_for_do_not_pass(samples: int, found: list[Reason]) -> None:
    assert reasons(seen([2184] * samples)) == found


def test_an_idle_device_and_one_that_tells_no_clock_do_not_pass() -> None:
    assert set(reasons(seen([2184] * 40, work=0.0))) == {Reason.CLOCKS_UNSEEN}
    unknown = [Sample(t=0.1 * at, seconds=0.1, work=0.9) for at in range(40)]
    found = seen([2184] * 40)
    blind = Seen(sampling.summary(unknown, -0.1, 4), found.throttled_ns, True, ())
    assert reasons(blind) == [Reason.CLOCKS_UNSEEN]


@pytest.mark.parametrize(("mask", "found"), [(0x1 | 0x2 | 0x100, []), (0x8, [Reason.DEVICE_THROTTLED])])
def test_idle_and_set_clocks_are_no_throttling(mask: int, found: list[Reason]) -> None:
    assert reasons(seen([2184] * 40, throttle=mask)) == found


@pytest.mark.parametrize(("grown", "found"), [(0, []), (39_000_000, []), (None, [Reason.DEVICE_THROTTLED])])
def test_a_flag_of_an_instant_is_the_word_only_where_no_counter_is(grown: int | None, found: list[Reason]) -> None:
    assert reasons(seen([2184] * 40, throttle=0x4, throttled_ns={"power": grown})) == found


def test_the_devices_own_counters_tell_of_throttling_between_two_samples() -> None:
    assert reasons(seen([2184] * 40, throttled_ns={"power": 39_000_000})) == []
    assert reasons(seen([2184] * 40, throttled_ns={"power": 500_000_000})) == [Reason.DEVICE_THROTTLED]


def test_a_case_states_what_its_own_load_may_throttle_and_only_by_that_policy() -> None:
    rules = Clocks(throttled={"power": 0.05})
    assert reasons(seen([2184] * 40, throttled_ns={"power": 190_000_000}), rules) == []
    assert reasons(seen([2184] * 40, throttled_ns={"power": 210_000_000}), rules) == [Reason.DEVICE_THROTTLED]
    assert reasons(seen([2184] * 40, throttled_ns={"thermal": 50_000_000}), rules) == [Reason.DEVICE_THROTTLED]


def test_what_a_case_does_not_state_is_no_part_of_a_rows_key() -> None:
    assert "throttled" not in Clocks().model_dump()
    assert Clocks(throttled={"power": 0.05}).model_dump()["throttled"] == {"power": 0.05}


def test_every_counted_policy_can_be_stated_and_counts_known_reasons() -> None:
    assert set(get_args(Policy)) == set(COUNTED)
    assert set().union(*COUNTED.values()) <= set(THROTTLE_REASONS.values()) - BENIGN_THROTTLE


def test_a_neighbour_on_the_device_is_a_reason_of_the_environment() -> None:
    found = objections(RULES, seen([2184] * 40, foreign=(77,)))
    assert [(one.reason, one.message) for one in found] == [
        (Reason.DEVICE_BUSY, "other processes were on the device: pids 77")
    ]


def test_a_list_without_any_of_ours_is_of_another_process_namespace() -> None:
    assert foreign({7: None, 8: None}, [7]) == (8,)
    assert foreign({7: None}, [7]) == ()
    assert foreign({1007: None}, [7]) is None
    assert foreign(None, [7]) is None


def test_persistence_is_asked_for_only_where_the_case_says_so() -> None:
    off = seen([2184] * 40, persistence=False)
    assert reasons(off) == [Reason.CLOCKS_MOVED]
    assert reasons(off, Clocks(persistence=False)) == []
    assert reasons(seen([2184] * 40, persistence=None)) == []


# -- watching ------------------------------------------------------------------------------------


class Locking(FakeNvml):
    """Records what is set; `allowed` is whether it may be."""

    def __init__(self, *devices: dict, allowed: bool = True) -> None:
        super().__init__(*devices)
        self.calls: list[tuple] = []
        self.allowed = allowed

    def nvmlDeviceSetGpuLockedClocks(self, _: dict, low: int, high: int) -> None:  # noqa: N802
        self.calls.append(("lock", low, high))
        if not self.allowed:
            raise FakeError(4)

    def nvmlDeviceResetGpuLockedClocks(self, _: dict) -> None:  # noqa: N802
        self.calls.append(("reset",))


def test_nothing_is_set_on_a_device_unless_the_case_says_so() -> None:
    library = Locking(h200())
    with watching(NvidiaDevice(kind="nvidia"), lambda: [], lambda kind: Nvml(library)) as eyes:
        assert eyes.state().clocks.sm_mhz == 1440
    assert library.calls == []
    assert library.open == 0


def test_a_locked_clock_is_let_go_whatever_happens() -> None:
    library = Locking(h200())
    device = NvidiaDevice(kind="nvidia", clocks=Clocks(lock_mhz=2190))
    with pytest.raises(KeyError), watching(device, lambda: [], lambda kind: Nvml(library)):
        raise KeyError
    assert library.calls == [("lock", 2190, 2190), ("reset",)]


def test_a_lock_that_is_not_allowed_is_said_before_anything_is_started() -> None:
    library = Locking(h200(), allowed=False)
    device = NvidiaDevice(kind="nvidia", clocks=Clocks(lock_mhz=2190))

    def enter() -> None:
        with watching(device, lambda: [], lambda kind: Nvml(library)):
            raise AssertionError("must not come so far")

    refusal = refusal_of(enter)
    assert (refusal.reason, refusal.key) == (Reason.DEVICE_PRIVILEGE, "device.clocks.lock_mhz")


def test_a_processor_has_samples_and_no_rules() -> None:
    with watching(CpuDevice(kind="cpu"), lambda: []) as eyes:
        assert eyes.rules is None
        assert eyes.seen(eyes.state(), 0.0, 1.0) is None


def test_the_simulated_device_is_a_gb10_that_tells_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINPROOF_SIMULATED", "1")
    facts = identify("simulated")
    assert (facts.gpu.compute_capability, facts.gpu.memory_bytes, facts.state.processes) == ("12.1", None, None)
    require_free(facts)
    with watching(SimulatedDevice(kind="simulated"), lambda: []) as eyes:
        state = eyes.state()
    assert state.clocks.sm_mhz == simulation.SM_MHZ


def test_a_leg_on_a_simulated_device_is_seen_however_short_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINPROOF_SIMULATED", "1")
    device = SimulatedDevice(kind="simulated")
    with watching(device, lambda: []) as eyes:
        seen = eyes.seen(eyes.state(), 100.0, 100.001)
    assert (seen.summary.busy_samples, seen.summary.clock_mhz.median) == (device.clocks.busy_samples, simulation.SM_MHZ)
    assert objections(device.clocks, seen) == []


def test_nothing_is_simulated_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PINPROOF_SIMULATED", raising=False)
    assert refusal_of(connect, "simulated").reason is Reason.DEVICE_OTHER


# -- is the device free --------------------------------------------------------------------------


def nvidia(device: dict[str, Any]) -> DeviceFacts:
    return identify("nvidia", nvml=Nvml(FakeNvml(device)))


def test_a_device_on_which_somebody_is_is_not_free() -> None:
    refusal = refusal_of(require_free, nvidia(h200()))
    assert (refusal.reason, refusal.message) == (Reason.DEVICE_BUSY, "processes are on the device: pids 7")


def test_memory_that_nobody_visible_uses_is_somebodys() -> None:
    idle = {"ComputeRunningProcesses": [], "GraphicsRunningProcesses": []}
    require_free(nvidia(h200(**idle)))
    used = SimpleNamespace(total=150 * 2**30, used=26 * 2**30)
    assert "26.0 GiB" in refusal_of(require_free, nvidia(h200(**idle, MemoryInfo=used))).message


def test_a_device_that_tells_neither_is_taken_as_free() -> None:
    require_free(nvidia(gb10()))
    require_free(identify("cpu"))


def test_the_memory_of_the_host_is_no_part_of_a_gpus_identity() -> None:
    """A virtual machine's grows while it is used, and the device is the same."""
    assert "memory_gib" not in nvidia(gb10()).identity
    assert "memory_gib" in identify("cpu").identity


def test_the_period_gives_the_samples_that_are_asked_for_in_a_few_seconds() -> None:
    assert Clocks().busy_samples * clocks.PERIOD_S <= 5
