"""Weights: the checkpoints of a case, made or found, and the same until the last leg."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.builders import places, put, refusal_of

from pinproof import records, weights
from pinproof.layout import Layout
from pinproof.reasons import Reason

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {"architectures": ["X"], "max_position_embeddings": 2048, "vocab_size": 9}


def model(folder: Path, **config: Any) -> Path:
    folder.mkdir(parents=True)
    save_file({"a": np.zeros((2, 3), "f2")}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A hub's cache with one snapshot of org/name."""
    model(tmp_path / "hub/models--org--name/snapshots" / COMMIT)
    refs = tmp_path / "hub/models--org--name/refs"
    refs.mkdir()
    (refs / "main").write_text(COMMIT)
    return tmp_path / "hub"


def local(root: Path, **declared: Any) -> Layout:
    return places(root, {"checkpoints.tiny": {"kind": "local", "path": "models/own", **declared}})


def hub(root: Path, cache: Path, **declared: Any) -> Layout:
    value = {"kind": "hub", "repository": "org/name", "revision": COMMIT, "cache": str(cache), **declared}
    return places(root, {"checkpoints.tiny": value})


def recorded(found: Layout) -> Layout:
    put(found.checkpoint("tiny"), "checkpoint", weights.describe(found, "tiny").as_record())
    return found


def blocked(found: Layout) -> list[tuple[str, Reason | None]]:
    return [(text, reason) for _, state, text, reason in weights.foreseen(found) if state == "blocks"]


# -- kinds ---------------------------------------------------------------------------------------


def test_a_local_folder_is_relative_to_the_repository(tmp_path: Path) -> None:
    model(tmp_path / "models/own")
    found = local(tmp_path)
    assert found.subject("tiny") == tmp_path / "models/own"
    assert weights.describe(found, "tiny").kind == "local"


def test_a_hub_s_snapshot_is_named_by_its_commit(tmp_path: Path, cache: Path) -> None:
    found = hub(tmp_path, cache, revision="main", tokenizer_revision=COMMIT)
    facts = weights.describe(found, "tiny")
    assert (facts.kind, facts.repo, facts.commit) == ("hub", "org/name", COMMIT)
    assert found.subject("tiny") == cache / "models--org--name/snapshots" / COMMIT


def test_without_a_named_cache_the_hub_client_s_own_is_taken(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    value = {"kind": "hub", "repository": "org/name", "revision": COMMIT}
    assert weights.describe(places(tmp_path, {"checkpoints.tiny": value}), "tiny").commit == COMMIT


def test_a_tokenizer_of_another_commit_is_refused(tmp_path: Path, cache: Path) -> None:
    other = "f" * 40
    model(cache / "models--org--name/snapshots" / other)
    ((_, reason),) = blocked(hub(tmp_path, cache, tokenizer_revision=other))
    assert reason is Reason.CHECKPOINT_MISMATCH


# -- identity ------------------------------------------------------------------------------------


def test_a_commit_is_the_identity_whatever_it_is_called_and_wherever_it_lies(tmp_path: Path, cache: Path) -> None:
    moved = shutil.copytree(cache, tmp_path / "elsewhere")
    named = {
        hub(tmp_path, place, revision=revision).checkpoint("tiny").name
        for place in (cache, moved, tmp_path / "none-yet")
        for revision in (COMMIT,)
    }
    named |= {hub(tmp_path, cache, revision=revision).checkpoint("tiny").name for revision in ("main", COMMIT[:9])}
    assert len(named) == 1


def test_a_local_folder_with_other_bytes_is_another_checkpoint(tmp_path: Path) -> None:
    folder = model(tmp_path / "models/own")
    before = local(tmp_path).checkpoint("tiny")
    assert local(tmp_path).checkpoint("tiny") == before
    (folder / "tokenizer.json").write_text("[]")
    os.utime(folder / "tokenizer.json", ns=(1, 1))
    assert local(tmp_path).checkpoint("tiny") != before


def test_declared_digests_are_the_identity_wherever_the_folder_lies(tmp_path: Path) -> None:
    folder = model(tmp_path / "models/own")
    files = {path.name: {"sha256": records.file_sha256(path)} for path in folder.iterdir()}
    before = local(tmp_path, files=files).checkpoint("tiny")
    shutil.copytree(folder, tmp_path / "models/copy", copy_function=shutil.copyfile)
    assert local(tmp_path, files=files, path="models/copy").checkpoint("tiny") == before


# -- before anything starts ----------------------------------------------------------------------


def test_what_is_missing_is_named_with_its_sizes(tmp_path: Path) -> None:
    found = hub(tmp_path, tmp_path / "no-cache", sizes=[9965652512, 1970287640])
    ((text, reason),) = blocked(found)
    assert reason is Reason.CHECKPOINT_MISSING
    assert f"org/name at {COMMIT}" in text
    assert "weights of 9965652512, 1970287640 bytes, 11935940152 bytes of weights in all (11.9 GB)" in text


def test_a_declared_file_that_is_not_there_is_named_with_its_size(tmp_path: Path) -> None:
    model(tmp_path / "models/own")
    ((text, _),) = blocked(local(tmp_path, files={"chat_template.jinja": {"size": 77}}))
    assert text.startswith("declared, but not there: chat_template.jinja")
    assert "chat_template.jinja 77 bytes" in text


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"sizes": [5]}, Reason.CHECKPOINT_MISSING),
        ({"weights": {"files": 2}}, Reason.CHECKPOINT_MISMATCH),
        ({"weights": {"bytes": 5}}, Reason.CHECKPOINT_MISMATCH),
        ({"files": {"model.safetensors": {"size": 5}}}, Reason.CHECKPOINT_MISMATCH),
    ],
)
def test_weights_of_another_size_are_refused(tmp_path: Path, declared: dict[str, Any], reason: Reason) -> None:
    model(tmp_path / "models/own")
    assert [found for _, found in blocked(local(tmp_path, **declared))] == [reason]


def test_a_wrong_digest_is_found_when_the_files_are_read(tmp_path: Path) -> None:
    model(tmp_path / "models/own")
    found = local(tmp_path, files={"model.safetensors": {"sha256": "0" * 64}})
    assert blocked(found) == []
    assert refusal_of(weights.describe, found, "tiny").reason is Reason.CHECKPOINT_MISMATCH


def test_requests_longer_than_the_model_are_refused(tmp_path: Path) -> None:
    model(tmp_path / "models/own", max_position_embeddings=19)
    ((text, reason),) = blocked(local(tmp_path))
    assert reason is Reason.CASE_INVALID
    assert text == "input_tokens + output_tokens is 20, but checkpoint tiny has 19 positions"


def test_prompts_need_a_tokenizer(tmp_path: Path) -> None:
    (model(tmp_path / "models/own") / "tokenizer.json").unlink()
    ((text, reason),) = blocked(local(tmp_path))
    assert (text, reason) == ("no tokenizer.json: the prompts' tokens cannot be counted", Reason.CHECKPOINT_MISSING)


# -- until the last leg --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["local", "synthesised"])
def test_a_file_that_changed_since_is_refused_by_its_name(tmp_path: Path, kind: str) -> None:
    if kind == "local":
        model(tmp_path / "models/own")
    digest = records.file_sha256(tmp_path / "models/own/tokenizer.json") if kind == "local" else ""
    files = {"tokenizer.json": {"sha256": digest}}
    found = recorded(local(tmp_path, files=files) if kind == "local" else places(tmp_path))
    weights.require_same(found, "tiny")
    (found.subject("tiny") / "tokenizer.json").write_text("other")
    refusal = refusal_of(weights.require_same, found, "tiny")
    assert refusal.reason is Reason.CHECKPOINT_MISMATCH
    assert refusal.message == "changed since the checkpoint was recorded: tokenizer.json"
