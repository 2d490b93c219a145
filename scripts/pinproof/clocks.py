"""Clocks: what a device did while a leg ran, and whether that leg counts.

A device whose clock moved, that was throttled or shared, or that was not seen to be busy, gave a leg
that says nothing about the engine. None of this looks at a metric. A processor has no such rules: its
samples stand beside the leg.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pinproof import device, sampling
from pinproof.hardware import Clocks, Device
from pinproof.leg import Objection
from pinproof.nvml import BENIGN_THROTTLE, COUNTED, GpuState, Nvml, throttled_between
from pinproof.reasons import Reason
from pinproof.sampling import Summary

PERIOD_S = 0.1  # of a device that has clock rules: 30 busy samples are 3 s of a leg
THROTTLED_SHARE = 0.01  # of a leg, by the device's own counters, where the case states no other
NS = 1e9


@dataclass(frozen=True)
class Seen:
    """The device during one leg; `foreign` are pids on it that are not ours, None where it does not tell."""

    summary: Summary
    throttled_ns: Mapping[str, int | None]
    persistence: bool | None
    foreign: tuple[int, ...] | None

    def as_record(self) -> dict[str, Any]:
        """What the rules look at, as JSON values."""
        clock = self.summary.clock_mhz
        return {
            "sm_mhz": None if clock is None else {**clock._asdict(), "spread": clock.spread},
            "busy_samples": self.summary.busy_samples,
            "busy_share": self.summary.busy_fraction,
            "throttle": None if self.summary.throttle is None else dict(self.summary.throttle),
            "throttled_ns": dict(self.throttled_ns),
            "seconds": self.summary.seconds,
            "persistence": self.persistence,
            "foreign": None if self.foreign is None else list(self.foreign),
        }


class Eyes:
    """Watches the device of a case while servers are up: its sampler, and its state before and after a leg."""

    def __init__(self, declared: Device, ours: sampling.Find, nvml: Nvml | None, number: int) -> None:
        self.rules: Clocks | None = declared.clocks
        self._ours, self._nvml, self._number = ours, nvml, number
        if nvml is None:
            self.sampler = sampling.Sampler(sampling.CpuSource(ours))
        elif declared.kind == "simulated":
            self.sampler = sampling.SimulatedSampler(sampling.NvidiaSource(nvml, number), declared.clocks.busy_samples)
        else:
            self.sampler = sampling.Sampler(sampling.NvidiaSource(nvml, number, ours), PERIOD_S)

    def state(self) -> GpuState | None:
        """The device now; None where there is none to ask."""
        return None if self._nvml is None else self._nvml.state(self._number)

    def seen(self, before: GpuState | None, begun: float, ended: float) -> Seen | None:
        """The device between two moments (seconds, monotonic); None where there is none to ask."""
        after = self.state()
        if before is None or after is None:
            return None
        return Seen(
            summary=self.sampler.summary(begun, ended),
            throttled_ns=throttled_between(before.throttled_ns, after.throttled_ns),
            persistence=after.persistence,
            foreign=foreign(after.processes, self._ours()),
        )


@contextlib.contextmanager
def watching(
    declared: Device, ours: sampling.Find, connect: Callable[[device.Kind], Nvml] = device.connect
) -> Iterator[Eyes]:
    """Watch the declared device, its clock locked meanwhile where the case says so, and let go when left.

    Refusals: as `device.connect`, and DEVICE_PRIVILEGE where the clock may not be locked.
    """
    with contextlib.ExitStack() as stack:
        nvml, number = None, 0
        if declared.clocks is not None:
            nvml = stack.enter_context(connect(declared.kind))
            number = nvml.select(declared.uuid)
            if mhz := declared.clocks.lock_mhz:
                nvml.lock(number, mhz)
                stack.callback(nvml.unlock, number)
        eyes = Eyes(declared, ours, nvml, number)
        with eyes.sampler:
            yield eyes


def foreign(listed: Mapping[int, int | None] | None, ours: Iterable[int]) -> tuple[int, ...] | None:
    """Pids on the device that are not ours.

    None where nothing can be said: there is no list, or none of ours is in it, as in a container whose
    driver counts in another process namespace.
    """
    mine = set(ours)
    if listed is None or not mine & set(listed):
        return None
    return tuple(sorted(set(listed) - mine))


def objections(rules: Clocks, seen: Seen) -> list[Objection]:
    """Why a leg does not count by what the device did; empty when it does. Unknown clocks do not pass."""
    found = [*_coverage(rules, seen.summary), *_throttling(rules, seen)]
    clock = seen.summary.clock_mhz
    if clock is not None and clock.spread is not None and clock.spread > rules.spread:
        text = (
            f"the SM clock went from {clock.minimum:.0f} to {clock.maximum:.0f} MHz, {clock.spread:.1%} of its median"
        )
        found.append(Objection(Reason.CLOCKS_MOVED, f"{text}; allowed are {rules.spread:.1%}"))
    if rules.persistence and seen.persistence is False:
        found.append(Objection(Reason.CLOCKS_MOVED, "the driver is not in persistence mode"))
    if seen.foreign:
        pids = ", ".join(map(str, seen.foreign))
        found.append(Objection(Reason.DEVICE_BUSY, f"other processes were on the device: pids {pids}"))
    return found


def between(rules: Clocks, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Objection]:
    """Why the two legs of a pair are not compared: their clocks differ. Takes `Seen.as_record`."""
    first, second = one["sm_mhz"], other["sm_mhz"]
    if first is None or second is None:
        return []  # said of the leg itself already
    found = []
    for what in ("median", "mean"):
        apart = abs(first[what] - second[what]) / max(first[what], second[what])
        if apart > rules.between_arms:
            text = f"the {what} SM clock of the pair's legs is {first[what]:.0f} and {second[what]:.0f} MHz"
            found.append(
                Objection(Reason.CLOCKS_MOVED, f"{text}, {apart:.1%} apart; allowed are {rules.between_arms:.1%}")
            )
    return found


def of_legs(legs: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The clock evidence of legs, by arm; empty where the device has none. MHz, shares, and seconds throttled."""
    by_arm: dict[str, list[Mapping[str, Any]]] = {}
    for one in legs:
        if "clocks" in one:
            by_arm.setdefault(one["id"]["arm"], []).append(one["clocks"])
    return {arm: _evidence(found) for arm, found in sorted(by_arm.items())}


def _evidence(found: list[Mapping[str, Any]]) -> dict[str, Any]:
    clock = [one["sm_mhz"] for one in found if one["sm_mhz"] is not None]
    grown = [value for one in found for value in one["throttled_ns"].values() if value is not None]
    return {
        "legs": len(found),
        "sm_mhz_median": [min(values), max(values)] if (values := [one["median"] for one in clock]) else None,
        "sm_mhz_spread": max((one["spread"] for one in clock if one["spread"] is not None), default=None),
        "busy_samples": min(one["busy_samples"] for one in found),
        "busy_share": min((one["busy_share"] for one in found if one["busy_share"] is not None), default=None),
        "throttle": sorted({name for one in found for name in one["throttle"] or ()} - BENIGN_THROTTLE),
        "throttled_s": sum(grown) / NS if grown else None,
        "persistence": found[-1]["persistence"],
    }


def _coverage(rules: Clocks, summary: Summary) -> Iterator[Objection]:
    if summary.clock_mhz is None:
        yield Objection(Reason.CLOCKS_UNSEEN, "no SM clock was read while the device was busy")
    if summary.busy_samples < rules.busy_samples:
        text = f"{summary.busy_samples} samples of the busy device, {rules.busy_samples} are asked for"
        yield Objection(Reason.CLOCKS_UNSEEN, text)
    if summary.busy_fraction is not None and summary.busy_fraction < rules.busy_share:
        text = (
            f"the device was busy in {summary.busy_fraction:.0%} of the samples, asked for are {rules.busy_share:.0%}"
        )
        yield Objection(Reason.CLOCKS_UNSEEN, text)


def _throttling(rules: Clocks, seen: Seen) -> Iterator[Objection]:
    known = {policy: grown for policy, grown in sorted(seen.throttled_ns.items()) if grown is not None}
    counted = BENIGN_THROTTLE.union(*(COUNTED[policy] for policy in known))
    if named := sorted(set(seen.summary.throttle or ()) - counted):
        yield Objection(Reason.DEVICE_THROTTLED, f"the device was throttled: {', '.join(named)}")
    for policy, grown in known.items():
        allowed = rules.throttled.get(policy, THROTTLED_SHARE)
        if grown > allowed * seen.summary.seconds * NS:
            text = f"{grown / NS:.2f} s of {seen.summary.seconds:.1f} s were throttled by policy {policy}"
            yield Objection(Reason.DEVICE_THROTTLED, f"{text}; allowed are {allowed:.0%}")
