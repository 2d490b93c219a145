"""NVML: what an NVIDIA device is and how it stands, as plain values; None is what it does not tell."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pinproof.reasons import Reason, Refusal

THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "application-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
    0x100: "display-clocks",
    0x200: "board-limit",
    0x400: "reliability",
}
BENIGN_THROTTLE = frozenset({"idle", "application-clocks", "display-clocks"})

# NVML's performance policy counters. The event counters say more, but their numbers differ between
# versions of NVML, so that an older driver would answer with another field.
_THROTTLE_FIELDS = {"power": 74, "thermal": 75, "sync-boost": 76, "board-limit": 77, "reliability": 79}
# Which reasons a policy's counter counts. A reason is an instant's flag, so where there is a counter it is the word.
COUNTED = {
    "power": frozenset({"sw-power-cap"}),
    "thermal": frozenset({"sw-thermal", "hw-thermal"}),
    "sync-boost": frozenset({"sync-boost"}),
    "board-limit": frozenset({"board-limit"}),
    "reliability": frozenset({"reliability"}),
}
_SYS_ADMIN = 21  # number of the capability that the NVIDIA driver asks for before it changes clocks


class Gpu(NamedTuple):
    """An NVIDIA device. `memory_bytes` is None where memory is shared with the host."""

    name: str | None
    uuid: str | None
    compute_capability: str | None
    driver: str | None
    memory_bytes: int | None
    max_sm_mhz: int | None
    max_memory_mhz: int | None


class GpuClocks(NamedTuple):
    """What a sample of an NVIDIA device reads; `throttle` is a bit mask of THROTTLE_REASONS."""

    sm_mhz: int | None
    memory_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    throttle: int | None
    utilisation: float | None


class GpuState(NamedTuple):
    """An NVIDIA device at a moment. `throttled_ns` counts up: only the difference of two readings
    says anything. `processes` maps pid to bytes; in a container it may be empty while memory is
    used, so judge by `memory_used_bytes`."""

    clocks: GpuClocks
    persistence: bool | None
    throttled_ns: Mapping[str, int | None]
    power_limit_w: float | None
    memory_used_bytes: int | None
    processes: Mapping[int, int | None] | None


def throttled_between(before: Mapping[str, int | None], after: Mapping[str, int | None]) -> dict[str, int | None]:
    """Nanoseconds throttled between two readings of `GpuState.throttled_ns`, by policy.

    None where either reading is unknown or the counter went back (the driver was reloaded).
    """
    return {
        policy: None if (start := before.get(policy)) is None or end is None or end < start else end - start
        for policy, end in after.items()
    }


def throttle_names(mask: int) -> tuple[str, ...]:
    """The reasons in a throttle bit mask; a bit without a name is given as a number."""
    bits = (1 << place for place in range(mask.bit_length()) if mask >> place & 1)
    return tuple(THROTTLE_REASONS.get(bit, hex(bit)) for bit in bits)


def may_lock_clocks(root: Path = Path("/")) -> bool | None:
    """Whether clocks may be locked, as far as reading tells: False when the process lacks the
    capability, else None: only a try would tell, and nothing is tried here."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", _status(root), re.MULTILINE)
    return False if match and not int(match[1], 16) >> _SYS_ADMIN & 1 else None


class Nvml:
    """The NVML calls that are made, behind plain values; None is what the device does not tell.

    `library` is the pynvml module or a stand-in for it. Refusals: DEVICE_OTHER without a driver,
    DEVICE_BROKEN when it does not answer.
    """

    def __init__(self, library: ModuleType | None = None) -> None:
        if library is None:
            import pynvml as library
        self._library = library
        self._handles: dict[int, Any] = {}
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            absent = {library.NVML_ERROR_LIBRARY_NOT_FOUND, library.NVML_ERROR_DRIVER_NOT_LOADED}
            reason = Reason.DEVICE_OTHER if error.value in absent else Reason.DEVICE_BROKEN
            raise Refusal(reason, f"the NVIDIA driver does not answer ({error})") from None

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the library go."""
        with contextlib.suppress(self._library.NVMLError):
            self._library.nvmlShutdown()

    def select(self, gpu: str | int | None) -> int:
        """Number of the device with this uuid or number; without one, of the only device."""
        count = self._ask("nvmlDeviceGetCount") or 0
        names = [f"{n}: {self._of(n, 'Name')} ({self._of(n, 'UUID')})" for n in range(count)]
        matching = [n for n in range(count) if gpu is None or gpu in (n, self._of(n, "UUID"))]
        if len(matching) == 1:
            return matching[0]
        there = ", ".join(names) or "no NVIDIA device"
        message = (
            "several devices, name one by its uuid" if matching else f"no device {gpu!r}" if names else "no device"
        )
        raise Refusal(Reason.DEVICE_OTHER, f"{message}; NVML lists {there}")

    def gpu(self, number: int) -> Gpu:
        """What a device is."""
        library = self._library
        capability = self._of(number, "CudaComputeCapability")
        memory = self._of(number, "MemoryInfo")
        return Gpu(
            name=self._of(number, "Name"),
            uuid=self._of(number, "UUID"),
            compute_capability=None if capability is None else "{}.{}".format(*capability),
            driver=self._ask("nvmlSystemGetDriverVersion"),
            memory_bytes=(memory.total or None) if memory else None,
            max_sm_mhz=self._of(number, "MaxClockInfo", library.NVML_CLOCK_SM),
            max_memory_mhz=self._of(number, "MaxClockInfo", library.NVML_CLOCK_MEM) or None,
        )

    def state(self, number: int) -> GpuState:
        """How a device stands now."""
        persistence = self._of(number, "PersistenceMode")
        memory = self._of(number, "MemoryInfo")
        limit = self._of(number, "EnforcedPowerLimit")
        lists = [self._of(number, f"{use}RunningProcesses") for use in ("Compute", "Graphics")]
        running = None if lists == [None, None] else {p.pid: p.usedGpuMemory for some in lists for p in some or ()}
        return GpuState(
            clocks=self.clocks(number),
            persistence=None if persistence is None else bool(persistence),
            throttled_ns=self._throttled(number),
            power_limit_w=None if limit is None else limit / 1000,
            memory_used_bytes=memory.used if memory and memory.total else None,
            processes=running,
        )

    def clocks(self, number: int) -> GpuClocks:
        """The quick part of the state, for sampling."""
        library = self._library
        milliwatts = self._of(number, "PowerUsage")
        use = self._of(number, "UtilizationRates")
        return GpuClocks(
            sm_mhz=self._of(number, "ClockInfo", library.NVML_CLOCK_SM),
            memory_mhz=self._of(number, "ClockInfo", library.NVML_CLOCK_MEM),
            power_w=None if milliwatts is None else milliwatts / 1000,
            temperature_c=self._of(number, "Temperature", library.NVML_TEMPERATURE_GPU),
            throttle=self._of(number, "CurrentClocksEventReasons"),
            utilisation=None if use is None else use.gpu / 100,
        )

    def lock(self, number: int, mhz: int) -> None:
        """Hold the SM clock at `mhz`. Refusal DEVICE_PRIVILEGE where that is not allowed."""
        self._set(number, "SetGpuLockedClocks", mhz, mhz)

    def unlock(self, number: int) -> None:
        """Let the SM clock go again."""
        self._set(number, "ResetGpuLockedClocks")

    def _set(self, number: int, what: str, *arguments: int) -> None:
        library = self._library
        try:
            getattr(library, f"nvmlDevice{what}")(library.nvmlDeviceGetHandleByIndex(number), *arguments)
        except library.NVMLError as error:
            message = f"{what} {' '.join(map(str, arguments))}: {error}"
            raise Refusal(Reason.DEVICE_PRIVILEGE, message, key="device.clocks.lock_mhz") from None

    def _throttled(self, number: int) -> dict[str, int | None]:
        answers = self._of(number, "FieldValues", list(_THROTTLE_FIELDS.values()))
        known = [None] * len(_THROTTLE_FIELDS) if answers is None else list(answers)
        return {
            name: int(answer.value.ullVal) if answer is not None and answer.nvmlReturn == 0 else None
            for name, answer in zip(_THROTTLE_FIELDS, known, strict=True)
        }

    def _of(self, number: int, what: str, *arguments: Any) -> Any:
        if number not in self._handles:
            self._handles[number] = self._ask("nvmlDeviceGetHandleByIndex", number)
        handle = self._handles[number]
        return None if handle is None else self._ask(f"nvmlDeviceGet{what}", handle, *arguments)

    def _ask(self, function: str, *arguments: Any) -> Any:
        library = self._library
        try:
            return getattr(library, function)(*arguments)
        except AttributeError:  # an older pynvml has no such function
            return None
        except library.NVMLError as error:
            if error.value in (library.NVML_ERROR_GPU_IS_LOST, library.NVML_ERROR_RESET_REQUIRED):
                raise Refusal(Reason.DEVICE_BROKEN, f"{function}: {error}") from None
            return None


def _status(root: Path) -> str:
    try:
        return (root / "proc/self/status").read_text(errors="replace")
    except OSError:
        return ""
