"""What leaves the machine, made and checked by the workflow as a user calls it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stubs.workflow import ROOT, Call, Finished, Workplace

from pinproof import packing

pytestmark = pytest.mark.workflow


def elsewhere(place: Workplace, folder: Path, *words: str) -> Finished:
    """A call in an empty folder, for the default case, which nobody ran there."""
    folder.mkdir(exist_ok=True)
    argv = ["-s", str(ROOT / "Snakefile"), "-d", str(folder), "--cores", "1", *words]
    call = Call(argv, folder, place.material.environment())
    place.material.calls.append(call)
    return call.wait()


def test_an_archive_is_made_once_and_verifies_where_the_case_was_never_run(finished: Workplace, tmp_path: Path) -> None:
    made = finished.run("archive")
    assert made.status == 0, made.output
    archive = finished.results / "stub" / "verdict.tar.zst"
    assert str(finished.folder).encode() not in b"".join(packing.unpack(archive).values())
    assert finished.plan("archive") == {}

    verified = elsewhere(finished, tmp_path / "clone", "verify", "--config", f"archive={archive}")
    assert verified.status == 0, verified.output
    assert "identical: stub is HOLD" in verified.output
    assert sorted(path.name for path in (tmp_path / "clone" / "results").rglob("*.*")) == ["verify_archive.log"]

    changed = packing.unpack(archive)
    changed["results/stub/verdict.md"] += b"\n"
    (tmp_path / "changed").write_bytes(packing.pack(changed))
    refused = elsewhere(finished, tmp_path / "clone", "verify", "--config", f"archive={tmp_path / 'changed'}")
    assert refused.status == 1
    assert "results/stub/verdict.md: not the file that the index names" in refused.output


def test_verify_asks_which_archive(finished: Workplace, tmp_path: Path) -> None:
    refused = elsewhere(finished, tmp_path / "clone", "verify")
    assert refused.status == 1
    assert "--config archive=PATH" in refused.output
