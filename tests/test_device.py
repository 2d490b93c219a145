"""Devices: what is here, and whether it is what the case names. NVIDIA devices are simulated."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from pinproof.device import DeviceFacts, differences, identify, require
from pinproof.nvml import BENIGN_THROTTLE, Nvml, may_lock_clocks, throttle_names, throttled_between
from pinproof.reasons import Reason, Refusal


class FakeError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML says {value}")
        self.value = value


class FakeNvml:
    """Stands for the pynvml module: a list of devices, each a mapping from a call's name to its answer."""

    NVMLError = FakeError
    NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_DRIVER_NOT_LOADED = 12, 9
    NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED, NOT_SUPPORTED = 15, 16, 3
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *devices: dict[str, Any], init_error: int | None = None) -> None:
        self.devices, self.init_error, self.open = devices, init_error, 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init_error is not None:
            raise FakeError(self.init_error)
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.95"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> dict:  # noqa: N802
        return self.devices[number]

    def __getattr__(self, name: str) -> Callable:
        what = name.removeprefix("nvmlDeviceGet")
        if what == name or name.startswith("__"):
            raise AttributeError(name)

        def ask(device: dict, *arguments: Any) -> Any:
            answer = device.get(what, FakeError(self.NOT_SUPPORTED))
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return ask


def field(value: int | None) -> SimpleNamespace:
    return SimpleNamespace(nvmlReturn=3 if value is None else 0, value=SimpleNamespace(ullVal=value or 0))


def h200(**changes: Any) -> dict[str, Any]:
    return {
        "Name": "NVIDIA H200",
        "UUID": "GPU-1",
        "CudaComputeCapability": (9, 0),
        "MemoryInfo": SimpleNamespace(total=150 * 2**30, used=2**30),
        "MaxClockInfo": lambda kind: {1: 1980, 2: 3201}[kind],
        "ClockInfo": lambda kind: {1: 1440, 2: 3201}[kind],
        "PowerUsage": 694088,
        "EnforcedPowerLimit": 700000,
        "Temperature": 60,
        "CurrentClocksEventReasons": 4,
        "UtilizationRates": SimpleNamespace(gpu=99),
        "PersistenceMode": 1,
        "ComputeRunningProcesses": [SimpleNamespace(pid=7, usedGpuMemory=2**20)],
        "GraphicsRunningProcesses": [],
        "FieldValues": lambda ids: [field({74: 5_000, 75: 0}.get(number)) for number in ids],
        **changes,
    }


def gb10() -> dict[str, Any]:
    """Unified memory: no memory, no memory clock, no process list."""
    return {
        "Name": "NVIDIA GB10",
        "UUID": "GPU-2",
        "CudaComputeCapability": (12, 1),
        "MaxClockInfo": lambda kind: {1: 3003, 2: 0}[kind],
        "ClockInfo": lambda kind: 2184 if kind == 1 else (_ for _ in ()).throw(FakeError(3)),
        "MemoryInfo": FakeError(3),
    }


def nvidia(*devices: dict[str, Any], gpu: str | int | None = None) -> DeviceFacts:
    return identify("nvidia", gpu=gpu, nvml=Nvml(FakeNvml(*devices)))


def refusal(call: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as error:
        call()
    return error.value


def machine(root: Path, cpuinfo: str = "", **files: str) -> Path:
    for name, text in {"proc/cpuinfo": cpuinfo, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_processor_of_this_machine() -> None:
    facts = identify("cpu")
    assert facts.kind == "cpu"
    assert facts.host.cores >= facts.host.usable_cores >= 1
    assert facts.memory_bytes == psutil.virtual_memory().total
    assert json.loads(json.dumps(facts.as_record()))["identity"] == facts.identity
    assert facts.gpu is facts.state is None


def test_an_x86_machine(tmp_path: Path) -> None:
    core = "model name\t: AMD  EPYC 9554\nmicrocode\t: 0xa101148\nphysical id\t: {}\n\n"
    files = {"etc/machine-id": "abc\n", "proc/sys/kernel/random/boot_id": "boot-1\n"}
    facts = identify("cpu", root=machine(tmp_path, core.format(0) + core.format(1), **files))
    assert facts.identity["name"] == "AMD EPYC 9554"
    assert (facts.host.sockets, facts.host.microcode, facts.boot_id) == (2, "0xa101148", "boot-1")


def test_an_arm_machine_is_named_by_its_cores_and_tells_no_microcode(tmp_path: Path) -> None:
    info = "CPU implementer\t: 0x41\nCPU part\t: 0xd87\n\nCPU implementer\t: 0x41\nCPU part\t: 0xd85\n"
    host = identify("cpu", root=machine(tmp_path, info)).host
    assert (host.cpu_model, host.microcode, host.sockets) == ("implementer 0x41 part 0xd85+0xd87", None, None)


def test_the_machine_id_is_kept_as_a_digest_only(tmp_path: Path) -> None:
    one = identify("cpu", root=machine(tmp_path / "1", **{"etc/machine-id": "0123456789abcdef"})).host.machine
    two = identify("cpu", root=machine(tmp_path / "2", **{"etc/machine-id": "fedcba9876543210"})).host.machine
    assert one != two
    assert "0123456789abcdef" not in one
    assert identify("cpu", root=machine(tmp_path / "3", **{"etc/machine-id": ""})).host.machine is None


def test_a_machine_that_tells_nothing_is_unknown_not_refused(tmp_path: Path) -> None:
    facts = identify("cpu", root=tmp_path)
    assert facts.host.cpu_model is facts.host.machine is facts.boot_id is None


def test_an_nvidia_device() -> None:
    facts = nvidia(h200())
    gpu = {key: facts.identity[key] for key in ("name", "uuid", "compute_capability", "driver", "max_sm_mhz")}
    assert gpu == {
        "name": "NVIDIA H200",
        "uuid": "GPU-1",
        "compute_capability": "9.0",
        "driver": "580.95",
        "max_sm_mhz": 1980,
    }
    assert facts.state.persistence is True
    assert facts.state.clocks._asdict() == {
        "sm_mhz": 1440,
        "memory_mhz": 3201,
        "power_w": 694.088,
        "temperature_c": 60,
        "throttle": 4,
        "utilisation": 0.99,
    }
    assert facts.state.processes == {7: 2**20}
    assert facts.state.power_limit_w == 700
    assert json.loads(json.dumps(facts.as_record()))["state"]["processes"] == {"7": 2**20}


def test_what_a_device_does_not_tell_is_unknown_never_zero() -> None:
    facts = nvidia(gb10())
    assert facts.gpu.memory_bytes is facts.gpu.max_memory_mhz is None
    state = facts.state
    assert state.persistence is state.memory_used_bytes is state.processes is state.power_limit_w is None
    assert state.clocks._asdict() == {
        "sm_mhz": 2184,
        "memory_mhz": None,
        "power_w": None,
        "temperature_c": None,
        "throttle": None,
        "utilisation": None,
    }
    assert set(state.throttled_ns.values()) == {None}
    json.dumps(facts.as_record(), allow_nan=False)


def test_memory_of_zero_bytes_is_unknown() -> None:
    facts = nvidia(h200(MemoryInfo=SimpleNamespace(total=0, used=0)))
    assert facts.gpu.memory_bytes is facts.state.memory_used_bytes is None


def test_memory_may_be_used_while_no_process_is_listed() -> None:
    state = nvidia(h200(ComputeRunningProcesses=[], MemoryInfo=SimpleNamespace(total=2**35, used=26 * 2**30))).state
    assert (state.processes, state.memory_used_bytes) == ({}, 26 * 2**30)


def test_identity_leaves_the_state_of_the_moment_out() -> None:
    cold, hot = nvidia(h200(Temperature=30)), nvidia(h200(Temperature=80, PersistenceMode=0))
    assert cold.digest == hot.digest
    assert cold.state != hot.state


@pytest.mark.parametrize("error", [12, 9])
def test_no_driver_is_another_device_and_says_what_is_there(error: int) -> None:
    found = refusal(lambda: identify("nvidia", nvml=Nvml(FakeNvml(init_error=error))))
    assert found.reason is Reason.DEVICE_OTHER


def test_a_machine_without_nvidia_names_what_was_asked_and_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", FakeNvml(init_error=12))
    error = refusal(lambda: identify("nvidia"))
    assert (error.reason, error.key) == (Reason.DEVICE_OTHER, "device.kind")
    assert "asked for nvidia" in error.message
    assert f"{identify('cpu').host.cores} cores" in error.message


def test_a_driver_that_does_not_answer_is_a_broken_machine() -> None:
    assert refusal(lambda: Nvml(FakeNvml(init_error=18))).reason is Reason.DEVICE_BROKEN
    assert refusal(lambda: nvidia(h200(PersistenceMode=FakeError(15)))).reason is Reason.DEVICE_BROKEN


def test_a_driver_without_devices() -> None:
    assert refusal(nvidia).reason is Reason.DEVICE_OTHER


def test_one_of_several_devices_must_be_named() -> None:
    error = refusal(lambda: nvidia(h200(), gb10()))
    assert error.reason is Reason.DEVICE_OTHER
    assert "NVIDIA H200 (GPU-1)" in error.message
    assert "NVIDIA GB10 (GPU-2)" in error.message
    assert nvidia(h200(), gb10(), gpu="GPU-2").gpu.name == "NVIDIA GB10"
    assert nvidia(h200(), gb10(), gpu=0).gpu.name == "NVIDIA H200"
    assert "no device 'GPU-3'" in refusal(lambda: nvidia(h200(), gpu="GPU-3")).message


def test_the_library_is_let_go_when_it_was_opened_here(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml(h200())
    monkeypatch.setitem(__import__("sys").modules, "pynvml", library)
    identify("nvidia")
    assert library.open == 0


def test_a_function_that_an_older_library_lacks_is_unknown() -> None:
    class Old(FakeNvml):
        def __getattr__(self, name: str) -> Callable:
            if name == "nvmlDeviceGetCurrentClocksEventReasons":
                raise AttributeError(name)
            return super().__getattr__(name)

    assert identify("nvidia", nvml=Nvml(Old(h200()))).state.clocks.throttle is None


def test_the_declared_device_passes() -> None:
    require({"kind": "nvidia", "name": "NVIDIA GB10", "compute_capability": "12.1"}, nvidia(gb10()))
    require({"kind": "nvidia", "name": None, "compute_capability": 12.1}, nvidia(gb10()))
    require({"kind": "cpu", "name": None}, identify("cpu"))


def test_another_device_is_refused_with_every_field_that_differs() -> None:
    declared = {"kind": "nvidia", "name": "NVIDIA GB10", "compute_capability": "12.1"}
    error = refusal(lambda: require(declared, nvidia(h200())))
    assert error.reason is Reason.DEVICE_OTHER
    assert error.message == (
        "name: declared NVIDIA GB10, here NVIDIA H200; compute_capability: declared 12.1, here 9.0"
    )
    assert refusal(lambda: require(declared | {"name": None}, nvidia(h200()))).reason is Reason.DEVICE_OTHER


def test_what_the_machine_does_not_tell_does_not_match() -> None:
    error = refusal(lambda: require({"memory_bytes": 1}, nvidia(gb10())))
    assert "here unknown" in error.message


def test_an_unknown_key_is_the_case_files_fault() -> None:
    error = refusal(lambda: require({"colour": "green"}, identify("cpu")))
    assert error.reason is Reason.CASE_INVALID
    assert "colour" in error.message


def test_an_unknown_kind_is_the_case_files_fault() -> None:
    assert refusal(lambda: identify("tpu")).reason is Reason.CASE_INVALID


def test_two_devices_of_one_boot_still_differ() -> None:
    one, two = nvidia(h200()), nvidia(h200(UUID="GPU-9"))
    assert one.boot_id == two.boot_id
    assert differences(one.identity, two.identity) == ("uuid: first GPU-1, second GPU-9",)
    assert differences(one.identity, nvidia(h200()).identity) == ()


def test_throttling_is_the_difference_of_two_readings() -> None:
    before = {"power": 173_000_000_000, "thermal": 5, "board-limit": None, "reliability": 9}
    after = {"power": 173_000_000_000, "thermal": 8, "board-limit": 4, "reliability": 2}
    assert throttled_between(before, after) == {"power": 0, "thermal": 3, "board-limit": None, "reliability": None}


def test_counters_that_only_some_policies_have() -> None:
    assert nvidia(h200()).state.throttled_ns == {
        "power": 5_000,
        "thermal": 0,
        "sync-boost": None,
        "board-limit": None,
        "reliability": None,
    }


def test_throttle_bits_have_names_and_an_unknown_bit_is_kept() -> None:
    assert throttle_names(0) == ()
    assert throttle_names(0x1 | 0x20) == ("idle", "sw-thermal")
    assert throttle_names(1 << 20) == ("0x100000",)
    assert set(throttle_names(0x7FF)) >= BENIGN_THROTTLE


@pytest.mark.parametrize(
    ("status", "answer"),
    [("CapEff:\t00000000a80425fb\n", False), ("CapEff:\t000001ffffffffff\n", None), ("", None)],
    ids=["container", "root", "unreadable"],
)
def test_clocks_cannot_be_locked_without_the_capability_and_else_only_a_try_tells(
    tmp_path: Path, status: str, answer: bool | None
) -> None:
    assert may_lock_clocks(machine(tmp_path, **{"proc/self/status": status})) is answer
