"""What leaves the machine, made and checked by the workflow as a user calls it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from tests.stubs import rehearsed
from tests.stubs.workflow import ORACLE, ROOT, Call, Finished, Material, Workplace
from tests.test_attestation import keys

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
    first = archive.read_bytes()
    archive.unlink()
    assert finished.run("archive", "report").status == 0
    assert archive.read_bytes() == first

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


def test_an_attestation_is_signed_by_the_key_that_is_given_and_checked_elsewhere(
    finished: Workplace, tmp_path: Path
) -> None:
    unasked = finished.run("attest")
    assert (unasked.status, "--config key=PATH" in unasked.output) == (1, True)
    private, public = keys(tmp_path)
    signed = finished.run("attest", "--config", f"key={private}")
    assert signed.status == 0, signed.output
    folder = finished.results / "stub"
    given = [f"archive={folder / 'verdict.tar.zst'}", f"attestation={folder / 'attestation.json'}"]
    checked = elsewhere(finished, tmp_path / "clone", "verify", "--config", *given, f"key={public}")
    assert checked.status == 0, checked.output
    assert "attested: signed by the key" in checked.output
    _, other = keys(tmp_path, "ecdsa")
    refused = elsewhere(finished, tmp_path / "clone", "verify", "--config", *given, f"key={other}")
    assert (refused.status, "not signed by the key" in refused.output) == (1, True)


def test_pins_stand_side_by_side(finished: Workplace, tmp_path: Path) -> None:
    earlier = finished.copy(tmp_path / "earlier")
    earlier.edit(lambda case: case["rows"][0]["metrics"][0].update(tolerance=0.8))
    assert earlier.run("verdict").status == 0
    given = f"verdicts={finished.results} {earlier.results}"
    call = finished.run("history", "--config", given)
    assert call.status == 0, call.output
    page = (finished.results / "history.md").read_text()
    assert page.startswith("# 2 pins side by side")
    assert "<svg" in (finished.results / "history.svg").read_text()
    assert finished.run("history").status == 0
    assert (finished.results / "history.md").read_text().startswith("# 1 pin")


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
    assert finished.run("--keep-going", "gate", "verify").status == 1  # another job's failure is no HOLD
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
