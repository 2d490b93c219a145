"""A lease by Slurm: a running job of ours with this process inside; a variable alone proves nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pinproof import allocation, case, lease
from pinproof.allocation import Allocation
from pinproof.reasons import Reason, Refusal

JOB = {"SLURM_JOB_ID": "42"}
Say = Callable[[str], None]


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """A TEST DOUBLE of squeue that says this of job 42; empty: it fails as for an unknown job."""
    program, answer = tmp_path / "bin" / "squeue", tmp_path / "answer"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ -s {answer} ] || {{ echo "slurm_load_jobs error: Invalid job id" >&2; exit 1; }}\ncat {answer}\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    answer.write_text(f"RUNNING|{os.getuid()}|node1|42\n")
    return lambda text: answer.write_text(text) and None


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine whose kernel says that this process is in job 42."""
    return cgroup(tmp_path, "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0")


def cgroup(folder: Path, line: str) -> Path:
    (folder / "proc/self").mkdir(parents=True, exist_ok=True)
    (folder / "proc/self/cgroup").write_text(f"{line}\n")
    return folder


def refused(environment: dict[str, str], root: Path) -> Refusal:
    with pytest.raises(Refusal) as refusal:
        Allocation.of_this_process(environment, root)
    assert refusal.value.reason is Reason.LEASE_REFUSED
    return refusal.value


def test_a_running_job_of_ours_with_this_process_inside_is_a_lease(squeue: Say, root: Path) -> None:
    found = Allocation.of_this_process(JOB, root)
    assert found.as_record() == {"job": "42", "nodes": "node1", "seen_by": "cgroup"}
    found.check()


@pytest.mark.parametrize("environment", [{}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "42; rm"}])
def test_outside_of_a_job_it_is_refused(environment: dict[str, str], root: Path) -> None:
    assert "not inside a Slurm job" in refused(environment, root).message


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("", "squeue does not tell of job 42"),
        ("PENDING|{uid}|node1|42\n", "job 42 is PENDING"),
        ("RUNNING|{other}|node1|42\n", "is of the account"),
        ("RUNNING|{uid}|node1|43\n", "squeue does not tell of job 42"),
    ],
)
def test_a_job_that_does_not_run_or_is_another_s_is_refused(squeue: Say, root: Path, said: str, told: str) -> None:
    squeue(said.format(uid=os.getuid(), other=os.getuid() + 1))
    assert told in refused(JOB, root).message


@pytest.mark.parametrize("line", ["0::/user.slice/session-3.scope", "0::/system.slice/slurmstepd.scope/job_7/step_0"])
def test_a_variable_without_the_process_inside_of_the_job_is_refused(squeue: Say, tmp_path: Path, line: str) -> None:
    assert "neither the cgroup nor the process tree" in refused(JOB, cgroup(tmp_path, line)).message


@pytest.mark.parametrize("said", ["", "COMPLETING|{uid}|node1|42\n"])
def test_an_allocation_that_ended_is_a_lease_that_is_lost(squeue: Say, root: Path, said: str) -> None:
    found = Allocation.of_this_process(JOB, root)
    squeue(said.format(uid=os.getuid()))
    with pytest.raises(Refusal) as refusal:
        found.check()
    assert refusal.value.reason is Reason.LEASE_LOST


def test_without_slurm_it_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "no squeue" in refused(JOB, root).message


def test_the_lease_of_a_case_asks_for_it_before_it_waits_for_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(allocation.JOB, raising=False)
    declared, path = case.SlurmLease(kind="slurm"), tmp_path / "lock"
    with pytest.raises(Refusal) as refusal, lease.granted(declared, path, lease.Who("c", "r")):
        pass
    assert refusal.value.reason is Reason.LEASE_REFUSED
    assert not path.exists()
