"""Subjects: the checkpoints that rows measure, as a case declares them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from pinproof.findings import Strict, alternatives
from pinproof.ids import REPOSITORY as _REPOSITORY
from pinproof.ids import Sha256

Bytes = Annotated[int, Field(ge=0)]


class Synthesised(Strict):
    """A checkpoint that the workflow makes itself from a fixed seed: a small Qwen3 decoder."""

    kind: Literal["synthesised"] = Field(description="made by the workflow, same bytes on every machine")
    seed: int = Field(ge=0, description="seed of the weights")
    hidden_size: int = Field(gt=0, le=8192, description="width of the decoder")
    layers: int = Field(gt=0, le=128, description="number of decoder layers")
    heads: int = Field(gt=0, description="number of attention heads")
    kv_heads: int = Field(gt=0, description="number of key-value heads")
    head_dim: int = Field(gt=0, description="width of one attention head")
    intermediate_size: int = Field(gt=0, description="width of the feed-forward layers")
    positions: int = Field(ge=2048, description="longest sequence, tokens")


class DeclaredFile(Strict):
    """What is known beforehand of one file of a checkpoint."""

    size: Bytes | None = Field(default=None, description="its size, bytes")
    sha256: Sha256 | None = Field(default=None, description="its digest")


class Weights(Strict):
    """What is known beforehand of the weight files together."""

    files: int | None = Field(default=None, gt=0, description="how many there are")
    bytes: Bytes | None = Field(default=None, description="their size together, bytes")


class Found(Strict):
    """A checkpoint that was made elsewhere; what is declared of it must be so."""

    files: dict[str, DeclaredFile] = Field(
        default={}, description="files by name below the folder; those that are not named are recorded, not refused"
    )
    sizes: list[Bytes] | None = Field(
        default=None, min_length=1, description="sizes of all weight files in any order, bytes; null: not known"
    )
    weights: Weights = Field(default=Weights(), description="number and size of all weight files together")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Found:
        if self.sizes is not None and self.weights.files not in (None, len(self.sizes)):
            raise ValueError(f"weights.files is {self.weights.files}, but sizes has {len(self.sizes)}")
        if self.sizes is not None and self.weights.bytes not in (None, sum(self.sizes)):
            raise ValueError(f"weights.bytes is {self.weights.bytes}, but sizes are {sum(self.sizes)} together")
        return self

    @property
    def known(self) -> dict[str, dict[str, Any]]:
        """What is declared of files, by name."""
        return {name: one.model_dump(exclude_none=True) for name, one in self.files.items()}


class Local(Found):
    """Kind `local`: a folder of this machine."""

    kind: Literal["local"] = Field(description="a folder of this machine")
    path: str = Field(min_length=1, description="the folder, absolute or relative to the repository's root")


class Hub(Found):
    """Kind `hub`: a snapshot in a model hub's cache; nothing is fetched."""

    kind: Literal["hub"] = Field(description="a snapshot in the cache of a model hub")
    repository: Annotated[str, StringConstraints(pattern=_REPOSITORY)] = Field(
        description="name on the hub, such as Qwen/Qwen3-0.6B"
    )
    revision: str = Field(min_length=1, description="commit, whole or 7 digits and more, or a ref that the cache knows")
    tokenizer_revision: str | None = Field(
        default=None, description="must lead to the commit of the weights; null: it is taken from there"
    )
    cache: str | None = Field(
        default=None, description="folder of the cache; null: where the hub's own client has it (HF_HUB_CACHE, HF_HOME)"
    )


Checkpoint = alternatives("kind", synthesised=Synthesised, local=Local, hub=Hub)
