"""The cache of a model hub: which snapshot a repository's revision is. Nothing is fetched."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pinproof.reasons import Reason, Refusal

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT = re.compile(r"[0-9a-f]{7,39}")


@dataclass(frozen=True)
class Snapshot:
    """One commit of a repository in a Hugging Face cache."""

    folder: Path
    repo: str
    commit: str


def cache_folder(named: str | None) -> Path:
    """The cache that a case names, else the one that the hub's own client would use here."""
    if named is not None:
        return Path(named).expanduser()
    if own := os.environ.get("HF_HUB_CACHE"):
        return Path(own)
    home = (
        os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface"
    )
    return Path(home) / "hub"


def find_snapshot(cache: Path, repo: str, revision: str, *, tokenizer_revision: str | None = None) -> Snapshot:
    """Find a repository's snapshot in a hub cache, without a network.

    `revision` is a commit (7 or more of its hex digits, if one alone begins so) or the name of a ref
    that the cache knows. The tokenizer
    is read from the same snapshot, so `tokenizer_revision` must lead to the same commit.
    Refusals: CHECKPOINT_MISSING (with the commits that are there), CHECKPOINT_MISMATCH.
    """
    root = cache / f"models--{repo.replace('/', '--')}"
    commit = _commit_of(root, revision)
    if tokenizer_revision is not None and (other := _commit_of(root, tokenizer_revision)) != commit:
        raise Refusal(
            Reason.CHECKPOINT_MISMATCH,
            f"tokenizer at {other}, weights at {commit}",
            file=root,
            key="tokenizer_revision",
        )
    folder = root / "snapshots" / commit
    if not folder.is_dir():
        there = sorted(path.name for path in root.glob("snapshots/*"))
        raise Refusal(
            Reason.CHECKPOINT_MISSING,
            f"no snapshot {commit}; there: {', '.join(there) or 'none'}",
            file=root,
            key=revision,
        )
    return Snapshot(folder, repo, commit)


def _commit_of(root: Path, revision: str) -> str:
    if not root.is_dir():
        raise Refusal(Reason.CHECKPOINT_MISSING, "the repository is not in the cache", file=root)
    if _COMMIT.fullmatch(revision):
        return revision
    there = sorted(path.name for path in root.glob("snapshots/*"))
    if _SHORT.fullmatch(revision) and len(found := [name for name in there if name.startswith(revision)]) == 1:
        return found[0]
    ref = root / "refs" / revision
    if ".." not in Path(revision).parts and ref.is_file() and _COMMIT.fullmatch(commit := ref.read_text().strip()):
        return commit
    raise Refusal(
        Reason.CHECKPOINT_MISSING,
        f"{revision!r} is neither a commit that is there nor a ref of the cache; "
        f"commits there: {', '.join(there) or 'none'}",
        file=root,
        key="revision",
    )
