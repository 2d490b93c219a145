"""Environments of engines: which places of wheels a lock is installed from."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinproof import environment, records


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


def test_a_whole_environment_is_left_alone_because_another_checkout_may_measure_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[Path] = []

    def install(folder: Path, *_: object) -> None:
        folder.mkdir(exist_ok=True)
        installed.append(folder)

    monkeypatch.setattr(environment, "_install", install)
    lock, wheel = tmp_path / "lock.txt", tmp_path / "a-1-py3-none-any.whl"
    lock.write_text("numpy==2.3.5\n")
    wheel.write_bytes(b"wheel")
    made = [
        environment.create(tmp_path / "env", lock, wheel, records.file_sha256(wheel), log=tmp_path / "log")
        for _ in range(2)
    ]
    assert installed == [tmp_path / "env"]
    assert records.content_digest(made[0]) == records.content_digest(made[1])
    lock.write_text("numpy==2.3.6\n")
    environment.create(tmp_path / "env", lock, wheel, records.file_sha256(wheel), log=tmp_path / "log")
    assert len(installed) == 2
