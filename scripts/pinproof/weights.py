"""Weights: the checkpoints of a case, made or found, described, and the same until the last leg."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pinproof import checkpoint, hub, records, synthesis
from pinproof.claims import Serving
from pinproof.layout import Layout
from pinproof.reasons import Reason, Refusal
from pinproof.subjects import Checkpoint, Hub, Synthesised

GB = 1e9
TOKENIZER = "tokenizer.json"


def describe(places: Layout, name: str) -> checkpoint.CheckpointFacts:
    """Make a checkpoint, or find it, and read it to the end. Refusals: those of `checkpoint.describe`."""
    declared = places.case.checkpoints[name]
    if isinstance(declared, Synthesised):
        folder = places.subject(name)
        made = synthesis.synthesise(synthesis.Spec(**declared.model_dump(exclude={"kind"})), folder)
        return checkpoint.describe(folder, places.digests, declared=made, kind="synthesised")
    source = _source(places, declared)
    return checkpoint.describe(source, places.digests, declared=declared.known, totals=_totals(declared))


def require_same(places: Layout, name: str) -> None:
    """Refuse a checkpoint whose files are no longer those of its record (CHECKPOINT_MISMATCH).

    Digests are remembered, so this reads again only what changed.
    """
    recorded = records.read(places.checkpoint(name), "checkpoint")
    declared = places.case.checkpoints[name]
    source = places.subject(name) if isinstance(declared, Synthesised) else _source(places, declared)
    found = checkpoint.describe(source, places.digests).as_record()
    if found["digest"] != recorded["digest"]:
        before, now = recorded["files"], found["files"]
        other = sorted(file for file in {*before, *now} if before.get(file) != now.get(file))
        message = f"changed since the checkpoint was recorded: {', '.join(other)}"
        raise Refusal(Reason.CHECKPOINT_MISMATCH, message, file=places.subject(name))


def foreseen(places: Layout) -> Iterator[tuple[str, str, str, Reason | None]]:
    """What can be told of every checkpoint in a moment: subject, state, text, reason."""
    for name, declared in places.case.checkpoints.items():
        about = f"checkpoint {name}"
        if isinstance(declared, Synthesised):
            yield about, "ready", "made by the workflow", None
            continue
        try:
            found = checkpoint.inspect(_source(places, declared), declared=declared.known, totals=_totals(declared))
        except Refusal as refusal:
            at = f" ({refusal.file})" if refusal.file else ""
            yield about, "blocks", f"{refusal.message}{at}{_wanted(declared)}", refusal.reason
            continue
        text = f"{len(found.weights)} weight files, {found.weight_bytes / GB:.2f} GB; digests are read later"
        yield about, "ready", text, None
        yield from _unfit(places, name, found)


def _source(places: Layout, declared: Checkpoint) -> Path | hub.Snapshot:
    return places.snapshot(declared) if isinstance(declared, Hub) else (places.root / declared.path).absolute()


def _totals(declared: Checkpoint) -> checkpoint.WeightTotals:
    sizes = None if declared.sizes is None else tuple(declared.sizes)
    return checkpoint.WeightTotals(declared.weights.files, declared.weights.bytes, sizes)


def _wanted(declared: Checkpoint) -> str:
    """What is declared of the files, for whoever is to fetch them."""
    named = [f"{name} {one.size} bytes" for name, one in sorted(declared.files.items()) if one.size is not None]
    total = declared.weights.bytes if declared.sizes is None else sum(declared.sizes)
    told = [f"{declared.repository} at {declared.revision}"] if isinstance(declared, Hub) else []
    told += named or ([f"weights of {', '.join(map(str, declared.sizes))} bytes"] if declared.sizes else [])
    told += [] if total is None else [f"{total} bytes of weights in all ({total / GB:.1f} GB)"]
    return f"; wanted: {', '.join(told)}" if told else ""


def _unfit(places: Layout, name: str, found: checkpoint.Inspected) -> Iterator[tuple[str, str, str, Reason | None]]:
    """Rows that a checkpoint cannot serve."""
    limit = found.max_position_embeddings
    rows = [row for row in places.case.rows if isinstance(row, Serving) and row.checkpoint == name]
    if rows and TOKENIZER not in found.files:
        text = f"no {TOKENIZER}: the prompts' tokens cannot be counted"
        yield f"checkpoint {name}", "blocks", text, Reason.CHECKPOINT_MISSING
    for row in rows:
        if limit is not None:
            asked = row.recipe.input_tokens + row.recipe.output_tokens
            if asked > limit:
                text = f"input_tokens + output_tokens is {asked}, but checkpoint {name} has {limit} positions"
                yield f"row {row.id}", "blocks", text, Reason.CASE_INVALID
