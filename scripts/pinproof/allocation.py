"""A lease by Slurm: the allocation of the job that the workflow runs in is the right to the device.

SLURM_JOB_ID alone proves nothing, anyone can set it. Slurm must say that the job runs, is ours and
has this host, and the kernel or the process tree must say that this process is inside of it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import psutil

from pinproof.reasons import Reason, Refusal

JOB = "SLURM_JOB_ID"
TIMEOUT_S = 60
# One line of squeue: state, uid, nodes, job.
_FORMAT = "%T|%U|%N|%i"


@dataclass(frozen=True)
class Allocation:
    """A job that was seen to run, with this process inside."""

    job: str
    nodes: str
    seen_by: Literal["cgroup", "slurmstepd", "salloc"]

    kind = "slurm"

    @classmethod
    def of_this_process(cls, environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Allocation:
        """The allocation that this process runs in. Refusal LEASE_REFUSED: there is none, or it is not ours."""
        job = environment.get(JOB, "")
        if not re.fullmatch("[0-9]+", job):
            raise Refusal(Reason.LEASE_REFUSED, f"not inside a Slurm job: {JOB} is not set", key="lease")
        said = squeue(job)
        if said is None:
            raise Refusal(Reason.LEASE_REFUSED, f"squeue does not tell of job {job}", key="lease")
        if wrong := _wrong(said):
            raise Refusal(Reason.LEASE_REFUSED, f"job {job} {wrong}", key="lease")
        seen = _seen_by(job, root)
        if seen is None:
            message = f"{JOB} is {job}, but neither the cgroup nor the process tree shows this process inside of it"
            raise Refusal(Reason.LEASE_REFUSED, message, key="lease")
        return cls(job, said["nodes"], seen)

    def check(self) -> None:
        """Refuse (LEASE_LOST) when the job no longer runs, or Slurm does not say that it does."""
        said = squeue(self.job)
        if said is None:
            raise Refusal(Reason.LEASE_LOST, f"squeue no longer tells of job {self.job}")
        if wrong := _wrong(said):
            raise Refusal(Reason.LEASE_LOST, f"job {self.job} {wrong}")

    def as_record(self) -> dict[str, Any]:
        """The proof as JSON values."""
        return asdict(self)


def squeue(job: str) -> dict[str, str] | None:
    """What Slurm says of a job; None when it does not know it, or does not answer."""
    argv = ["squeue", "--noheader", "--jobs", job, "--format", _FORMAT]
    try:
        done = subprocess.run(argv, capture_output=True, check=False, text=True, timeout=TIMEOUT_S)
    except FileNotFoundError:
        raise Refusal(Reason.LEASE_REFUSED, "there is no squeue on this machine", key="lease") from None
    except subprocess.TimeoutExpired:
        return None
    parts = done.stdout.strip().split("|")
    if done.returncode or len(parts) != 4 or parts[3] != job:
        return None
    return dict(zip(("state", "uid", "nodes", "job"), parts, strict=True))


def _wrong(said: Mapping[str, str]) -> str | None:
    """Why what Slurm says is no lease of ours; None when it is one."""
    if said["state"] != "RUNNING":
        return f"is {said['state']}"
    if said["uid"] != str(os.getuid()):
        return f"is of the account {said['uid']}, not of {os.getuid()}"
    return None


def _seen_by(job: str, root: Path) -> Literal["cgroup", "slurmstepd", "salloc"] | None:
    """Who shows that this process is inside the job."""
    cgroup = root / "proc/self/cgroup"
    jobs = re.findall(r"/job_(\d+)(?:/|$)", cgroup.read_text(), re.MULTILINE) if cgroup.exists() else []
    if jobs:
        return "cgroup" if job in jobs else None
    line = [psutil.Process(), *psutil.Process().parents()]
    for child, parent in pairwise(line):
        if re.match(rf"slurmstepd: \[{job}\.", " ".join(parent.cmdline())):
            return "slurmstepd"
        if parent.name() == "salloc" and child.environ().get(JOB) == job:  # as salloc set it for its command
            return "salloc"
    return None
