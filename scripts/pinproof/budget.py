"""What a build needs, checked before it starts: disk, memory, toolkit, architectures, time.

Every check is a function of plain values, so that it can be asked of any machine; `look` puts the
questions of one build to the machine at hand.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from packaging.version import InvalidVersion, Version

from pinproof import architecture
from pinproof.buildenv import Torch
from pinproof.finding import GB, Finding
from pinproof.reasons import Reason

ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"


def nvcc_output() -> str | None:
    """What the nvcc on PATH prints of itself; None when there is none, or it does not run."""
    try:
        done = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def free_disk_gb(folder: Path) -> float | None:
    """Free disk where a folder is, or will be."""
    place = next((one for one in (folder.absolute(), *folder.absolute().parents) if one.exists()), None)
    return None if place is None else shutil.disk_usage(place).free / GB


@dataclass(frozen=True)
class Needs:
    """What the case says a build needs: GB, and seconds by the name of a device. None: nobody measured it."""

    disk_gb: float | None = None
    memory_per_job_gb: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Probes:
    """How the machine is asked; a probe answers None when it cannot tell."""

    free_disk_gb: Callable[[Path], float | None] = free_disk_gb
    memory_gb: Callable[[], float | None] = lambda: psutil.virtual_memory().available / GB
    cores: Callable[[], int] = lambda: len(psutil.Process().cpu_affinity())
    nvcc: Callable[[], str | None] = nvcc_output


def look(
    needs: Needs,
    *,
    folder: Path,
    target: str,
    max_jobs: int | None,
    torch: Torch | None,
    architectures: str | None,
    device: str | None = None,
    capability: str | None = None,
    runtime_torch: str | None = None,
    available_s: float | None = None,
    probes: Probes | None = None,
) -> list[Finding]:
    """All findings about one build. What only a GPU target needs is not asked for another."""
    ask = probes or Probes()
    found = [
        disk(ask.free_disk_gb(folder), needs.disk_gb),
        memory(ask.memory_gb(), max_jobs, needs.memory_per_job_gb, ask.cores()),
        time(needs.seconds, device, available_s),
    ]
    if torch is not None:
        found.append(torches(torch.version, runtime_torch))
    if target == "cuda":
        found.append(toolkit(ask.nvcc(), torch))
        found.append(architecture_list(architectures, capability))
    return found


def disk(free_gb: float | None, needed_gb: float | None) -> Finding:
    """Free disk against the measured need of the build tree."""
    if needed_gb is None:
        return Finding("build disk", "unknown", "the case does not say how much a build needs (disk_gb)")
    if free_gb is None:
        return Finding("build disk", "unknown", "the free disk could not be read")
    text = f"{free_gb:.1f} GB free, the build needs {needed_gb:.1f} GB"
    return (
        Finding("build disk", "ready", text)
        if free_gb >= needed_gb
        else Finding("build disk", "blocks", text, Reason.DISK_SHORT)
    )


def memory(free_gb: float | None, max_jobs: int | None, per_job_gb: float | None, cores: int) -> Finding:
    """MAX_JOBS times the memory of a job, against the memory there is; without MAX_JOBS, every core is a job."""
    subject, jobs = "build memory", max_jobs or cores
    how = f"MAX_JOBS={max_jobs}" if max_jobs else f"MAX_JOBS is not set, so each of {cores} cores is a job"
    if per_job_gb is None:
        return Finding(subject, "unknown", f"{how}; the case does not say how much a job needs (memory_per_job_gb)")
    if free_gb is None:
        return Finding(subject, "unknown", f"{how}; the free memory could not be read")
    text = f"{how}, {jobs} x {per_job_gb:g} GB = {jobs * per_job_gb:g} GB, {free_gb:.1f} GB are free"
    if jobs * per_job_gb <= free_gb:
        return Finding(subject, "ready", text)
    fits = int(free_gb // per_job_gb)
    advice = f"; MAX_JOBS={fits} fits" if fits else "; not even one job fits"
    return Finding(subject, "blocks", text + advice, Reason.MEMORY_SHORT)


def toolkit(nvcc: str | None, torch: Torch | None) -> Finding:
    """The CUDA of nvcc (what `nvcc --version` prints) against the CUDA that torch was compiled with."""
    subject, version = "build toolkit", nvcc_version(nvcc or "")
    if torch is None or torch.cuda is None:
        what = "no torch" if torch is None else f"torch {torch.version}, a CPU build"
        text = f"target cuda needs a CUDA build of torch in the build environment, which has {what}"
        return Finding(subject, "blocks", text, Reason.BUILD_TORCH)
    if nvcc is None:
        text = f"no nvcc on PATH; torch {torch.version} wants CUDA {torch.cuda}"
        return Finding(subject, "blocks", text, Reason.TOOLCHAIN_MISMATCH)
    if version is None:
        return Finding(subject, "unknown", "what nvcc --version prints has no release in it")
    text = f"nvcc is CUDA {version}, torch {torch.version} was compiled with CUDA {torch.cuda}"
    try:
        ours, theirs = Version(version), Version(torch.cuda)
    except InvalidVersion:
        return Finding(subject, "unknown", text)
    if ours.major != theirs.major:  # torch itself refuses another major number, and lets a minor one pass
        return Finding(subject, "blocks", text, Reason.TOOLCHAIN_MISMATCH)
    return Finding(subject, "ready", text + ("" if ours.minor == theirs.minor else " (the minor numbers differ)"))


def architecture_list(listed: str | None, capability: str | None) -> Finding:
    """TORCH_CUDA_ARCH_LIST against the compute capability of the device."""
    subject = "build architectures"
    if not listed:
        text = f"{ARCHITECTURES} is not set: the build would take the device that it happens to see, or all"
        return Finding(subject, "unknown", text)
    found, other = architecture.parse(listed)
    if other:
        text = f"{ARCHITECTURES} names no architecture by {', '.join(other)}"
        return Finding(subject, "blocks", text, Reason.BUILD_ARCHITECTURE)
    device = architecture.capability(capability or "")
    if device is None:
        return Finding(subject, "unknown", f"{listed}; the compute capability of the device is not known")
    fits = [str(one) for one in found if one.runs_on(device)]
    if not fits:
        text = f"{listed}: none of it runs on a device of compute capability {capability}"
        return Finding(subject, "blocks", text, Reason.BUILD_ARCHITECTURE)
    more = "" if len(found) == 1 else f"; {len(found)} architectures are built where one would do"
    return Finding(subject, "ready", f"{', '.join(fits)} runs on compute capability {capability}{more}")


def torches(build: str, runtime: str | None) -> Finding:
    """The torch that is built against and the one that the engine will run on: the local part counts."""
    subject = "build torch"
    if runtime is None:
        return Finding(subject, "unknown", f"built against torch {build}; the engine's lock names no torch")
    text = f"built against torch {build}, will run on {runtime}"
    same = Version(build) == Version(runtime)
    return Finding(subject, "ready", text) if same else Finding(subject, "blocks", text, Reason.TOOLCHAIN_MISMATCH)


def time(seconds: Mapping[str, float], device: str | None, available_s: float | None) -> Finding:
    """The measured time of a build on this device; a time from another device is not a budget."""
    subject, own = "build time", seconds.get(device or "")
    if own is None:
        others = ", ".join(f"{name} {value:.0f} s" for name, value in sorted(seconds.items()))
        known = f"measured elsewhere: {others}" if others else "measured nowhere"
        return Finding(subject, "unknown", f"no build was timed on {device or 'this device'}; {known}")
    text = f"{own:.0f} s the last time on {device}"
    if available_s is not None and own > available_s:
        return Finding(subject, "blocks", f"{text}, {available_s:.0f} s are there", Reason.BUILD_TIME)
    return Finding(subject, "ready", text)


def nvcc_version(text: str) -> str | None:
    """The CUDA release that `nvcc --version` prints; None when there is none in it."""
    found = re.search(r"release (\d+\.\d+)", text)
    return found[1] if found else None
