"""Devices, as a case declares them: what the baselines belong to, and how its clocks must have been."""

from __future__ import annotations

import operator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pinproof.findings import Strict, alternatives


class Placement(Strict):
    """Which cores the processes of a CPU server compute on once it is ready."""

    front: list[Annotated[int, Field(ge=0)]] = Field(min_length=1, description="API server and load client")
    engine: list[Annotated[int, Field(ge=0)]] = Field(min_length=1, description="engine and workers")


class Worker(Strict):
    """A machine without a network, which a bundle is made for."""

    python: str = Field(pattern=r"^3\.\d+$", description="its Python, in quotes, such as '3.12'")
    machine: Literal["x86_64", "aarch64"] = Field(default="x86_64", description="its processor, as uname -m says")
    glibc: str = Field(
        default="2.31", pattern=r"^2\.\d+$", description="its C library, in quotes: newer wheels stay out"
    )
    part_mib: int = Field(default=1024, ge=1, description="largest part of the bundle, MiB")


Policy = Literal["power", "thermal", "sync-boost", "board-limit", "reliability"]  # of NVML, as `nvml.COUNTED`


class Clocks(Strict):
    """What the clocks of a device must have been for a leg to count. Shares are 0 to 1."""

    lock_mhz: int | None = Field(
        default=None,
        gt=0,
        description="SM clock that is locked while servers are up, MHz; null: the clocks are left as they are",
    )
    spread: float = Field(default=0.05, gt=0, lt=1, description="largest (max - min) / median of the SM clock in a leg")
    between_arms: float = Field(
        default=0.01, gt=0, lt=1, description="largest difference of the two legs' median, and mean, SM clock"
    )
    busy_samples: int = Field(default=30, ge=1, description="fewest samples of a leg in which the device was busy")
    busy_share: float = Field(default=0.5, ge=0, le=1, description="smallest share of a leg's samples that were busy")
    # Left out of a row's key where it is not stated, so that rows measured before there was such a key keep theirs.
    throttled: dict[Policy, Annotated[float, Field(ge=0, le=1)]] = Field(
        default={},
        exclude_if=operator.not_,
        description="largest share of a leg that a policy may throttle, by the device's own counters; 0.01 where none "
        "is stated. Where clocks are not locked, the load itself may touch the power limit",
    )
    persistence: bool = Field(default=True, description="whether the driver must be in persistence mode")


class CpuDevice(Strict):
    """Kind `cpu`: the processor of this machine."""

    kind: Literal["cpu"] = Field(description="what kind of device")
    name: str | None = Field(default=None, description="its name as the machine reports it; null: any of this kind")
    placement: Placement | None = Field(
        default=None, description="which cores compute what, on both arms; null: wherever"
    )

    clocks: ClassVar[None] = None

    @property
    def declared(self) -> dict[str, Any]:
        """What the device is declared to be; null asks for nothing."""
        return self.model_dump(exclude={"placement"})


class NvidiaDevice(Strict):
    """Kind `nvidia`: one NVIDIA device, asked through NVML."""

    kind: Literal["nvidia"] = Field(description="what kind of device")
    name: str | None = Field(default=None, description="its name as NVML reports it, such as NVIDIA H200; null: any")
    compute_capability: str | None = Field(
        default=None, pattern=r"^\d+\.\d+$", description="in quotes, such as '9.0'; null: any"
    )
    driver: str | None = Field(default=None, description="version of the driver, in quotes; null: any")
    memory_bytes: int | None = Field(
        default=None,
        gt=0,
        description="its memory as NVML reports it; null: any, also one that shares the host's and tells none",
    )
    uuid: str | None = Field(default=None, description="which one, where there are several; null: the only one")
    clocks: Clocks = Field(default=Clocks(), description="what its clocks must have been for a leg to count")

    placement: ClassVar[None] = None

    @property
    def declared(self) -> dict[str, Any]:
        """What the device is declared to be; null asks for nothing."""
        return self.model_dump(exclude={"clocks"})


class SimulatedDevice(NvidiaDevice):
    """Kind `simulated`: an NVIDIA GB10 that is not there, for rehearsals and tests."""

    kind: Literal["simulated"] = Field(description="a device that is not there; nothing is measured on it")


Device = alternatives("kind", cpu=CpuDevice, nvidia=NvidiaDevice, simulated=SimulatedDevice)
