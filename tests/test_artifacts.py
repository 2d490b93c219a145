"""What leaves the machine, made and checked by the workflow as a user calls it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from tests.stubs import rehearsed
from tests.stubs.workflow import ORACLE, ROOT, Call, Finished, Material, Workplace

from pinproof import archive, case, layout, packing, records, rehearsal, replay, verdict

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


def test_a_case_with_every_kind_of_row_is_archived_and_verified(
    tmp_path: Path, material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starts, warm-ups and drafts are judged again from span files, logs and raw outputs that were scrubbed."""
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "case.yaml"
    file.write_text(yaml.safe_dump(rehearsed.every_kind(material)))
    places = layout.Layout(case.load(file), file, ROOT, tmp_path / "results")
    assert rehearsed.end(places, None, monkeypatch).says == "HOLD"
    here = rehearsal.folder(places)
    staged = here / "material" / "case.yaml"
    # A rehearsal has its store inside its folder, which no case has.
    monkeypatch.setenv("PINPROOF_STORE", str((here / "store").rename(tmp_path / "store")))
    own = layout.Layout(case.load(staged), staged, ROOT, here.parent)
    records.write(own.verdict, "verdict", verdict.of(own))
    archive.make(own, tmp_path / "a.tar.zst")
    monkeypatch.setenv("PINPROOF_STORE", str(tmp_path / "none"))
    found = replay.verify(tmp_path / "a.tar.zst")
    assert (found.case, found.verdict, found.rows) == ("rehearsal", "REHEARSAL", 4)
    files = packing.unpack(tmp_path / "a.tar.zst")
    assert any(".spans/" in name for name in files)
    named = str(here / "material").encode()  # where the case says that its pins and locks are
    assert [name for name, data in files.items() if str(tmp_path).encode() in data.replace(named, b"")] == []


def test_gate_is_the_verdict_as_an_exit_status(finished: Workplace) -> None:
    held = finished.run("gate")
    assert held.status == 0, held.output
    assert "HOLD: exit status 0" in held.output
    names = {case.get("name") for case in ET.parse(finished.results / "stub" / "junit.xml").iter("testcase")}
    assert names == {"identity of oracle", "identity of previous", "serving"}
    assert (finished.results / "stub" / "comment.md").read_text().startswith("## HOLD: Do two equal")

    block = finished.material.pin(ORACLE).read_text()
    (finished.folder / "other.md").write_text(block.replace("torch_version = ", "torch_version = 9."))
    finished.edit(lambda case: case["arms"]["oracle"].update(pin=str(finished.folder / "other.md")))
    undecided = finished.run("gate")
    assert finished.verdict["verdict"] == "UNDECIDED"
    assert undecided.status == 20, undecided.output
    assert "of an earlier call" not in undecided.output
    assert finished.run("gate").status == 20

    (finished.results / "stub" / "verdict.json").unlink()
    (finished.folder / "other.md").unlink()
    assert finished.run("gate").status == 1


def test_verify_asks_which_archive(finished: Workplace, tmp_path: Path) -> None:
    refused = elsewhere(finished, tmp_path / "clone", "verify")
    assert refused.status == 1
    assert "--config archive=PATH" in refused.output
