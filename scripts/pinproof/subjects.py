"""Subjects: the checkpoints that rows measure, as a case declares them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pinproof.findings import Strict, alternatives


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


Checkpoint = alternatives("kind", synthesised=Synthesised)
