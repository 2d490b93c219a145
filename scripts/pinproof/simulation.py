"""A simulated NVIDIA device, for rehearsals and tests, and the simulated clock of a rehearsal's starts.

The device gives the answers of a GB10 that is busy at one clock. It stands in the place of the pynvml
module. Like the real one it shares its memory with the host, so that memory, memory clock and process
list are not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

from pinproof import records

STATED_AT = "X-Rehearsed-At-S"  # header of a double's answer: seconds since its spawn, by its schedule
SM_MHZ, MAX_SM_MHZ = 2184, 3003
# What a simulated device can be told to do, as the variable that asks for it says.
TROUBLES = {
    "refuses-clock-lock": "no permission to lock its clocks",
    "wandering-clock": "its SM clock jumps from sample to sample",
    "throttled": "it is slowed by its heat",
    "no-persistence": "its driver is not in persistence mode",
}
NOT_SUPPORTED = 3


def answered(headers: Mapping[str, str], seconds: float) -> float:
    """When an answer came, seconds since the spawn: `seconds`, as it was measured.

    A rehearsal compares doubles, and must end in the same way on a busy machine: there, and only there,
    it is what the double states of its schedule.
    """
    stated = headers.get(STATED_AT) if records.rehearsing() else None
    return seconds if stated is None else float(stated)


class SimulatedError(Exception):
    """What NVML raises; `value` is its number."""

    def __init__(self, value: int) -> None:
        super().__init__(f"simulated NVML error {value}")
        self.value = value


class Gb10:
    """One simulated GB10. What it does not tell is answered as NVML does: not supported."""

    NVMLError = SimulatedError
    NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_DRIVER_NOT_LOADED = 12, 9
    NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED, NVML_ERROR_NO_PERMISSION = 15, 16, 4
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    _ANSWERS: ClassVar[dict[str, Any]] = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": "580.00-simulated",
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": 0,
        "nvmlDeviceGetName": "NVIDIA GB10 (simulated)",
        "nvmlDeviceGetUUID": "GPU-simulated",
        "nvmlDeviceGetCudaComputeCapability": (12, 1),
        "nvmlDeviceGetPowerUsage": 60_000,
        "nvmlDeviceGetTemperature": 55,
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=95),
    }

    def __init__(self, *troubles: str) -> None:
        """`troubles` are words of TROUBLES; others mean nothing."""
        self._troubles = set(troubles) & TROUBLES.keys()
        self._asked = 0

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        self._asked += kind == self.NVML_CLOCK_SM
        return self._sm(kind, SM_MHZ - 400 * (self._asked % 2) * ("wandering-clock" in self._troubles))

    def nvmlDeviceGetPersistenceMode(self, handle: int) -> int:  # noqa: N802
        return int("no-persistence" not in self._troubles)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:  # noqa: N802
        return 0x40 if "throttled" in self._troubles else 0

    def nvmlDeviceSetGpuLockedClocks(self, handle: int, least: int, most: int) -> None:  # noqa: N802
        if "refuses-clock-lock" in self._troubles:
            raise SimulatedError(self.NVML_ERROR_NO_PERMISSION)

    def nvmlDeviceResetGpuLockedClocks(self, handle: int) -> None:  # noqa: N802
        self.nvmlDeviceSetGpuLockedClocks(handle, 0, 0)

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        return self._sm(kind, MAX_SM_MHZ)

    def _sm(self, kind: int, mhz: int) -> int:
        if kind != self.NVML_CLOCK_SM:
            raise SimulatedError(NOT_SUPPORTED)
        return mhz

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def answer(*_: Any) -> Any:
            if name not in self._ANSWERS:
                raise SimulatedError(NOT_SUPPORTED)
            return self._ANSWERS[name]

        return answer
