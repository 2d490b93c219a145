"""Devices: what this machine is, and whether it is the one that the case names.

`identity` holds what must be equal for two numbers to be comparable; the boot, the kernel and the
state of the moment stand apart. What the machine does not tell is None. Nothing here sets a clock
or any other state; NVML is asked through `Nvml` only, so a test puts a simulated device there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from pinproof import records, simulation
from pinproof.nvml import Gpu, GpuState, Nvml
from pinproof.reasons import Reason, Refusal

Kind = Literal["cpu", "nvidia", "simulated"]
SIMULATED_VARIABLE = "PINPROOF_SIMULATED"  # a rehearsal or a test sets it; without it no simulated device is found

# What driver and firmware keep for themselves: an idle device shows up to about 1 GiB as used.
OWN_BYTES = 2 * 2**30


class Host(NamedTuple):
    """The machine. `machine` is a digest of the machine id; memory is rounded to GiB, since it
    differs by a little from boot to boot."""

    cpu_model: str | None
    arch: str
    cores: int
    usable_cores: int
    sockets: int | None
    microcode: str | None
    memory_gib: int
    machine: str | None


@dataclass(frozen=True)
class DeviceFacts:
    """A device, as `identify` found it."""

    kind: Kind
    host: Host
    gpu: Gpu | None
    state: GpuState | None
    boot_id: str | None
    kernel: str
    memory_bytes: int

    @property
    def identity(self) -> dict[str, Any]:
        """What must be equal between two measurements; `name` is the GPU's, or the CPU's model."""
        host = self.host._asdict()
        if self.gpu is None:
            return {"kind": self.kind, "name": self.host.cpu_model, **host}
        # The memory of a virtual machine may grow while it is used; the device is not measured by it.
        del host["memory_gib"]
        return {"kind": self.kind, **host, **self.gpu._asdict()}

    @property
    def digest(self) -> str:
        """Digest of the identity."""
        return records.digest(self.identity)

    def as_record(self) -> dict[str, Any]:
        """The facts as JSON values."""
        state = None
        if self.state is not None:
            processes = self.state.processes
            state = self.state._asdict() | {
                "clocks": self.state.clocks._asdict(),
                "throttled_ns": dict(self.state.throttled_ns),
                "processes": None if processes is None else {str(pid): used for pid, used in processes.items()},
            }
        return {
            "identity": self.identity,
            "digest": self.digest,
            "boot": {"id": self.boot_id, "kernel": self.kernel, "memory_bytes": self.memory_bytes},
            "state": state,
        }


def identify(
    kind: str, *, gpu: str | int | None = None, nvml: Nvml | None = None, root: Path = Path("/")
) -> DeviceFacts:
    """Read what the device of this kind is.

    `gpu` picks one of several NVIDIA devices by uuid or number. `root` is where /proc, /sys and
    /etc are looked for. Refusals: DEVICE_OTHER when there is no such device (what is there is
    named), DEVICE_BROKEN when its driver does not answer, CASE_INVALID for an unknown kind.
    """
    host, memory = _host(root)
    found, state = None, None
    if kind in ("nvidia", "simulated"):
        with contextlib.ExitStack() as stack:
            try:
                nvml = nvml or stack.enter_context(connect(kind))
                number = nvml.select(gpu)
            except Refusal as error:
                there = f"there is: cpu {host.cpu_model}, {host.arch}, {host.cores} cores"
                raise Refusal(error.reason, f"asked for nvidia: {error.message}; {there}", key="device.kind") from None
            found, state = nvml.gpu(number), nvml.state(number)
    elif kind != "cpu":
        message = f"unknown kind of device {kind!r}: cpu, nvidia or simulated"
        raise Refusal(Reason.CASE_INVALID, message, key="device.kind")
    return DeviceFacts(
        kind=kind,
        host=host,
        gpu=found,
        state=state,
        boot_id=_text(root / "proc/sys/kernel/random/boot_id"),
        kernel=platform.release(),
        memory_bytes=memory,
    )


def connect(kind: Kind) -> Nvml:
    """NVML for devices of this kind, the simulated one only where a rehearsal or a test asks for it.

    Refusals: DEVICE_OTHER without a driver or where nothing is simulated, DEVICE_BROKEN.
    """
    if kind != "simulated":
        return Nvml()
    if not os.environ.get(SIMULATED_VARIABLE):
        message = f"a simulated device is for rehearsals and tests, which set {SIMULATED_VARIABLE}"
        raise Refusal(Reason.DEVICE_OTHER, message, key="device.kind")
    return Nvml(simulation.Gb10(*os.environ[SIMULATED_VARIABLE].split()))


def require_free(facts: DeviceFacts) -> None:
    """Refuse (DEVICE_BUSY) a device that somebody uses, before anything of ours is on it.

    A process list that is empty proves nothing in a container: then the memory in use tells.
    """
    if facts.state is None:
        return
    if pids := sorted(facts.state.processes or ()):
        raise Refusal(Reason.DEVICE_BUSY, f"processes are on the device: pids {', '.join(map(str, pids))}")
    used = facts.state.memory_used_bytes
    if used is not None and used > OWN_BYTES:
        message = f"{used / 2**30:.1f} GiB of the device are in use, and no process that can be seen uses it"
        raise Refusal(Reason.DEVICE_BUSY, message)


def require(declared: Mapping[str, Any], facts: DeviceFacts) -> None:
    """Refuse (DEVICE_OTHER) a device that is not the declared one, naming every field that differs.

    Keys are those of `DeviceFacts.identity`; a declared None asks for nothing, and a value that
    the machine does not tell does not match. An unknown key is refused (CASE_INVALID).
    """
    identity = facts.identity
    if unknown := sorted(set(declared) - set(identity)):
        known = ", ".join(sorted(identity))
        raise Refusal(Reason.CASE_INVALID, f"unknown: {', '.join(unknown)}; known are: {known}", key="device")
    wanted = {key: value for key, value in declared.items() if value is not None}
    here = {key: identity[key] for key in wanted}
    if found := differences(wanted, here, ("declared", "here")):
        raise Refusal(Reason.DEVICE_OTHER, "; ".join(found), key="device")


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any], names: tuple[str, str] = ("first", "second")
) -> tuple[str, ...]:
    """The fields in which two identities differ, in words; empty when they are the same device.

    Unknown on both sides is no difference. Equal boots do not stand in for this comparison.
    """
    keys = dict.fromkeys([*first, *second])
    return tuple(
        f"{key}: {names[0]} {_shown(first.get(key))}, {names[1]} {_shown(second.get(key))}"
        for key in keys
        if str(first.get(key)) != str(second.get(key))
    )


def _host(root: Path) -> tuple[Host, int]:
    info = _text(root / "proc/cpuinfo") or ""
    machine = _text(root / "etc/machine-id") or None
    memory = psutil.virtual_memory().total
    packages = set(re.findall(r"^physical id\s*:\s*(\d+)", info, re.MULTILINE))
    host = Host(
        cpu_model=_cpu_model(info),
        arch=platform.machine(),
        cores=os.cpu_count() or 1,
        usable_cores=len(os.sched_getaffinity(0)),
        sockets=len(packages) or None,
        microcode=_first(r"^microcode\s*:\s*(\S+)", info),
        memory_gib=round(memory / 2**30),
        machine=machine and hashlib.sha256(f"pinproof/machine/{machine}".encode()).hexdigest()[:32],
    )
    return host, memory


def _cpu_model(info: str) -> str | None:
    """The model's name; on Arm, which has none, the implementer and part numbers of its cores."""
    if name := _first(r"^model name\s*:\s*(.+)$", info):
        return " ".join(name.split())
    makers = sorted(set(re.findall(r"^CPU implementer\s*:\s*(\S+)", info, re.MULTILINE)))
    parts = sorted(set(re.findall(r"^CPU part\s*:\s*(\S+)", info, re.MULTILINE)))
    return f"implementer {'+'.join(makers)} part {'+'.join(parts)}" if makers and parts else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else None


def _shown(value: Any) -> str:
    return "unknown" if value is None else str(value)
