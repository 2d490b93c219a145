"""Environments of engines: which places of wheels a lock is installed from."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinproof import environment


@pytest.mark.parametrize(("torch", "expected"), [("2.13.0+cpu", True), ("2.13.0", False)])
def test_only_a_lock_that_names_a_local_build_is_installed_from_find_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: str, expected: bool
) -> None:
    """Else `torch==2.13.0` would be met by the CPU build in the folder, under another hash."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    lock = tmp_path / "lock.txt"
    lock.write_text(f"# torch+other\ntorch=={torch} \\\n    --hash=sha256:{'0' * 64}\nnumpy==2.3.5\n")
    assert environment._links(lock) == (["--find-links", tmp_path] if expected else [])
