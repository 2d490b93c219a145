"""What a build needs, checked before it starts: each check a function of plain values."""

from pathlib import Path

import pytest

from pinproof import architecture, budget
from pinproof.buildenv import Torch
from pinproof.reasons import Reason

NVCC = """nvcc: NVIDIA (R) Cuda compiler driver
Cuda compilation tools, release {}, V13.0.88
"""
CUDA_TORCH = Torch("2.13.0+cu130", cuda="13.0")


# -- disk, memory, time --------------------------------------------------------------------------


def test_disk_is_compared_with_the_measured_need() -> None:
    assert budget.disk(170, 169).state == "ready"
    short = budget.disk(70, 169)
    assert (short.state, short.reason) == ("blocks", Reason.DISK_SHORT)
    assert "70.0 GB free, the build needs 169.0 GB" in short.text


def test_an_unknown_need_or_an_unread_disk_is_unknown() -> None:
    assert [budget.disk(70, None).state, budget.disk(None, 169).state] == ["unknown", "unknown"]


def test_max_jobs_times_the_memory_of_a_job_must_fit() -> None:
    assert budget.memory(64, 4, 16, cores=20).state == "ready"
    short = budget.memory(64, 6, 16, cores=20)
    assert (short.state, short.reason) == ("blocks", Reason.MEMORY_SHORT)
    assert short.text == "MAX_JOBS=6, 6 x 16 GB = 96 GB, 64.0 GB are free; MAX_JOBS=4 fits"


def test_without_max_jobs_every_core_is_a_job() -> None:
    short = budget.memory(64, None, 16, cores=20)
    assert short.state == "blocks"
    assert "MAX_JOBS is not set, so each of 20 cores is a job" in short.text


def test_memory_for_not_even_one_job_says_so() -> None:
    assert budget.memory(8, 1, 16, cores=2).text.endswith("not even one job fits")


def test_an_unknown_memory_is_unknown() -> None:
    assert {budget.memory(64, 4, None, 2).state, budget.memory(None, 4, 16, 2).state} == {"unknown"}


def test_the_time_of_a_build_belongs_to_a_device() -> None:
    seconds = {"NVIDIA Thor": 5640, "NVIDIA GB10": 7740}
    assert budget.time(seconds, "NVIDIA GB10", 9000).state == "ready"
    short = budget.time(seconds, "NVIDIA GB10", 6000)
    assert (short.state, short.reason) == ("blocks", Reason.BUILD_TIME)
    elsewhere = budget.time(seconds, "NVIDIA H200", 9000)
    assert elsewhere.state == "unknown"
    assert "measured elsewhere: NVIDIA GB10 7740 s, NVIDIA Thor 5640 s" in elsewhere.text


# -- toolkit -------------------------------------------------------------------------------------


def test_nvcc_prints_its_release() -> None:
    assert budget.nvcc_version(NVCC.format("13.0")) == "13.0"
    assert budget.nvcc_version("command not found") is None


@pytest.mark.parametrize(
    ("nvcc", "torch", "state", "reason"),
    [
        (NVCC.format("13.0"), CUDA_TORCH, "ready", None),
        (NVCC.format("13.2"), CUDA_TORCH, "ready", None),
        (NVCC.format("11.8"), Torch("2.13.0+cu121", cuda="12.1"), "blocks", Reason.TOOLCHAIN_MISMATCH),
        (None, CUDA_TORCH, "blocks", Reason.TOOLCHAIN_MISMATCH),
        ("no such thing", CUDA_TORCH, "unknown", None),
        (NVCC.format("13.0"), Torch("2.13.0+cpu"), "blocks", Reason.BUILD_TORCH),
        (NVCC.format("13.0"), None, "blocks", Reason.BUILD_TORCH),
    ],
)
def test_the_cuda_of_nvcc_is_compared_with_that_of_the_build_environment_s_torch(
    nvcc: str | None, torch: Torch | None, state: str, reason: Reason | None
) -> None:
    found = budget.toolkit(nvcc, torch)
    assert (found.state, found.reason) == (state, reason)


def test_a_cpu_build_of_torch_is_named_as_what_it_is() -> None:
    assert "target cuda needs a CUDA build of torch" in budget.toolkit(NVCC.format("13.0"), Torch("2.13.0+cpu")).text


def test_the_torch_built_against_must_be_the_one_run_on_local_part_included() -> None:
    assert budget.torches("2.13.0+cu130", "2.13.0+cu130").state == "ready"
    other = budget.torches("2.13.0+cu132", "2.11.0+cu130")
    assert (other.state, other.reason) == ("blocks", Reason.TOOLCHAIN_MISMATCH)
    assert other.text == "built against torch 2.13.0+cu132, will run on 2.11.0+cu130"
    assert budget.torches("2.13.0+cu132", "2.13.0+cu130").state == "blocks"
    assert budget.torches("2.13.0", None).state == "unknown"


# -- architectures -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "capability", "state"),
    [
        ("12.1", "12.1", "ready"),
        ("12.1a", "12.1", "ready"),
        ("sm_121a", "12.1", "ready"),
        ("12.0f", "12.1", "ready"),
        ("12.0", "12.1", "ready"),
        ("12.0a", "12.1", "blocks"),
        ("9.0 10.0", "12.1", "blocks"),
        ("9.0;12.1", "12.1", "ready"),
        ("9.0+PTX", "12.1", "ready"),
        ("12.1", "12.0", "blocks"),
        ("Blackwell", "12.1", "blocks"),
        ("12.1a", None, "unknown"),
        (None, "12.1", "unknown"),
    ],
)
def test_the_architecture_list_is_compared_with_the_device(
    listed: str | None, capability: str | None, state: str
) -> None:
    found = budget.architecture_list(listed, capability)
    assert found.state == state
    assert (found.reason is Reason.BUILD_ARCHITECTURE) == (state == "blocks")


def test_more_architectures_than_one_are_told() -> None:
    assert "2 architectures are built where one would do" in budget.architecture_list("9.0 12.1", "12.1").text


def test_an_architecture_is_written_as_it_was_read() -> None:
    found, other = architecture.parse("7.5;sm_90a, 12.1f 10.0+PTX banana")
    assert ([str(one) for one in found], other) == (["7.5", "9.0a", "12.1f", "10.0+PTX"], ["banana"])
    assert [architecture.capability(text) for text in ("12.1", "sm_121", "")] == [(12, 1), None, None]


# -- together ------------------------------------------------------------------------------------


def probes(**values: object) -> budget.Probes:
    answers = {"free_disk_gb": 200.0, "memory_gb": 64.0, "cores": 20, "nvcc": NVCC.format("13.0"), **values}
    return budget.Probes(
        free_disk_gb=lambda folder: answers["free_disk_gb"],
        memory_gb=lambda: answers["memory_gb"],
        cores=lambda: answers["cores"],
        nvcc=lambda: answers["nvcc"],
    )


NEEDS = budget.Needs(disk_gb=169, memory_per_job_gb=16, seconds={"NVIDIA GB10": 7740})


def test_a_cuda_build_is_asked_everything() -> None:
    found = budget.look(
        NEEDS,
        folder=Path("/"),
        target="cuda",
        max_jobs=4,
        torch=CUDA_TORCH,
        architectures="12.1a",
        device="NVIDIA GB10",
        capability="12.1",
        runtime_torch="2.13.0+cu130",
        probes=probes(),
    )
    names = ["disk", "memory", "time", "torch", "toolkit", "architectures"]
    assert {one.subject: one.state for one in found} == {f"build {name}": "ready" for name in names}


def test_a_cpu_build_is_asked_for_no_toolkit_and_no_architecture() -> None:
    found = budget.look(
        NEEDS,
        folder=Path("/"),
        target="cpu",
        max_jobs=2,
        torch=Torch("2.13.0+cpu"),
        architectures=None,
        probes=probes(nvcc=None, free_disk_gb=1.0),
    )
    assert {one.subject: one.state for one in found} == {
        "build disk": "blocks",
        "build memory": "ready",
        "build time": "unknown",
        "build torch": "unknown",
    }


def test_the_machine_s_own_probes_answer() -> None:
    ask = budget.Probes()
    assert ask.free_disk_gb(Path("/no/such/folder")) > 0
    assert ask.memory_gb() > 0
    assert ask.cores() > 0
