"""The archive of a verdict, and its verification where the case was never run."""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard
from rocrate.rocrate import ROCrate
from tests import builders
from tests.builders import edit, put, put_text, refusal_of

from pinproof import archive, crate, layout, packing, page, records, replay
from pinproof.reasons import Reason, Refusal

HOME = "/home/anna"
SECRET = "correct-horse-battery"
LOG = "logs/measure_row-serving.log"


def archived(
    root: Path,
    change: Callable[[layout.Layout], Any] = lambda places: None,
    case_changes: dict[str, Any] | None = None,
) -> tuple[layout.Layout, Path]:
    """The small case with all that a run leaves, changed before its verdict, and the archive of that."""
    made = builders.measured(root, case_changes)
    places = replace(made.places, case_file=root / "case.yaml")
    put_text(places.case_file, yaml.safe_dump(builders.case_value(case_changes)))
    for arm in places.case.arms.values():
        put_text(root / arm.pin, "# a pin\n")
    for number, engine in enumerate(places.engines().values()):
        put(engine.wheel, "wheel", {"wheel": {"file": f"vllm-{number}.whl", "sha256": str(number) * 64}})
        put_text(engine.folder / "wheel" / f"vllm-{number}.whl", "bytes of a wheel")
        put_text(engine.folder / "logs" / "make_env.log", f"into {engine.folder}\n")
    put_text(places.folder / LOG, f"token={SECRET}\nin {HOME}/.cache\n")
    change(places)
    again(places)
    target = root / "verdict.tar.zst"
    archive.make(places, target)
    return places, target


def again(places: layout.Layout) -> None:
    """Decide and write anew what follows from the legs."""
    made = builders.Results.__new__(builders.Results)
    made.root, made.places = places.root, places
    made.series().decide()
    records.write(places.verdict, "verdict", made.verdict(), provenance={"written": "2026-12-01T10:00:00Z", "pid": 7})
    put_text(places.page, page.of(records.read(places.verdict, "verdict")))


def repack(target: Path, files: dict[str, bytes]) -> Path:
    """An archive whose index and seal fit to files that were changed."""
    index = json.loads(files[packing.INDEX])
    for name, one in index["files"].items():
        one |= {"bytes": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}
    files[packing.INDEX] = json.dumps(index).encode()
    files[packing.SEAL] = packing.seal(files[packing.INDEX])
    target.write_bytes(packing.pack(files))
    return target


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[layout.Layout, Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_TOKEN", SECRET)
        patch.setenv("HOME", HOME)
        return archived(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def files(small: tuple[layout.Layout, Path]) -> dict[str, bytes]:
    return packing.unpack(small[1])


def test_it_holds_what_the_verdict_names_and_how_it_came_to_be(small: Any, files: dict[str, bytes]) -> None:
    places, _ = small
    verdict = json.loads(files["results/small/verdict.json"])
    for name in verdict["inputs"]:
        assert f"results/{name}" in files or f"store/{name}" in files
    legs = places.row("serving").legs
    assert {f"results/{path.relative_to(places.results)}" for path in legs.iterdir()} <= files.keys()
    assert {"case.yaml", "inputs/locks/oracle.txt", "inputs/pins/oracle.md", f"results/small/{LOG}"} <= files.keys()


def test_wheels_stay_behind_and_their_digests_are_told(files: dict[str, bytes]) -> None:
    left = json.loads(files[packing.INDEX])["left_out"]
    assert not [name for name in files if name.endswith(".whl")]
    assert sorted(left.values()) == ["0" * 64, "1" * 64]
    assert all(name.startswith("store/engines/") and name.endswith(".whl") for name in left)


def test_two_archives_of_the_same_results_are_the_same_bytes(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, target = small
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    monkeypatch.setenv("HOME", HOME)
    archive.make(places, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == target.read_bytes()


def test_no_secret_no_home_and_no_place_of_the_checkout_is_in_it(small: Any, files: dict[str, bytes]) -> None:
    places, _ = small
    for unwanted in (SECRET, HOME, str(places.root)):
        assert [name for name, data in files.items() if unwanted.encode() in data] == []
    assert files[f"results/small/{LOG}"] == b"token=[secret]\nin ~/.cache\n"


def test_of_a_scrubbed_file_the_index_keeps_the_original_s_digest(small: Any, files: dict[str, bytes]) -> None:
    places, _ = small
    one = json.loads(files[packing.INDEX])["files"][f"results/small/{LOG}"]
    assert one["original"] == {"sha256": records.file_sha256(places.folder / LOG)}
    assert one["sha256"] == hashlib.sha256(files[f"results/small/{LOG}"]).hexdigest()


def test_it_verifies_where_nothing_of_the_case_is(small: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, target = small
    moved = tmp_path / "verdict.tar.zst"
    moved.write_bytes(target.read_bytes())
    monkeypatch.chdir(tmp_path)
    found = replay.verify(moved)
    assert (found.case, found.verdict, found.rows, found.legs) == ("small", "HOLD", 1, 14)
    assert found.scrubbed == 3


def test_it_verifies_on_another_python_and_processor(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(layout.sys, "implementation", type("pypy", (), {"name": "pypy"}))
    places, target = small
    with pytest.raises(Refusal):  # the case itself is not found under this machine's identities
        archive.make(places, tmp_path / "x")
    assert replay.verify(target).verdict == "HOLD"


def test_evidence_that_was_scrubbed_still_leads_to_the_same_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's output names the tokenizer's place, the failure a log: their digests are the originals'."""
    monkeypatch.setenv("HOME", HOME)

    def change(places: layout.Layout) -> None:
        for raw in places.row("serving").legs.glob("*.raw.json"):
            edit(raw, lambda value: value.update(tokenizer_id=f"{HOME}/checkpoints/x"))
            record = raw.with_name(raw.name.replace(".raw", ""))
            edit(record, lambda value, raw=raw: value.update(raw_sha256=records.file_sha256(raw)))
        told = {"objections": [{"reason": "client-failed", "owner": "instrument", "message": f"see {HOME}/x.log"}]}
        legs = sorted(places.row("serving").legs.glob("s1-noise-c1-03-*previous.json"))
        edit(legs[0], lambda value: value.update(valid=False, **told))

    places, target = archived(tmp_path, change)
    found = packing.unpack(target)
    assert HOME.encode() not in b"".join(found.values())
    assert replay.verify(target).scrubbed >= 14
    (name,) = [name for name in found if name.endswith("/verdict.json")]
    assert b"see ~/x.log" in found[name]
    index = json.loads(found[packing.INDEX])["files"]
    assert index[name]["original"]["sha256"] == records.file_sha256(places.verdict)
    inputs = json.loads(found[name])["inputs"]
    assert inputs["small/rows/serving.json"] == records.content_digest(
        records.read(places.row("serving").result, "row")
    )


def test_a_case_that_names_a_home_and_a_checkpoint_of_this_machine_verifies_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Identities are made of what the case says, so that stays; what a machine saw of a checkpoint was recorded."""
    monkeypatch.setenv("HOME", HOME)
    weights = tmp_path / "weights"
    put_text(weights / "model.safetensors", "weights")
    changes = {
        "checkpoints.tiny": {"kind": "local", "path": str(weights)},
        "arms.oracle.serve.env": {"MODELS": f"{HOME}/models"},
    }
    places, target = archived(tmp_path / "there", lambda places: put_text(places.folder / LOG, HOME), changes)
    plan = places.row("serving").plan.relative_to(places.results)
    shutil.rmtree(weights)
    found = packing.unpack(target)
    assert replay.verify(target).verdict == "HOLD"
    assert found[f"results/small/{LOG}"] == b"~"
    assert {name for name, data in found.items() if HOME.encode() in data} == {
        "case.yaml",
        "results/small/rows/serving.json",
        "results/small/verdict.json",
        f"results/{plan}",
    }


def test_another_checkpoint_than_the_case_states_is_found(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    put_text(weights / "model.safetensors", "weights")
    stated = {"kind": "local", "path": str(weights), "weights": {"files": 1}}
    _, target = archived(tmp_path / "there", case_changes={"checkpoints.tiny": stated})
    found = packing.unpack(target)
    changed = found["case.yaml"].replace(b"files: 1", b"files: 2")
    refusal = refusal_of(replay.verify, repack(tmp_path / "a", {**found, "case.yaml": changed}))
    assert (refusal.reason, refusal.key) == (Reason.ARCHIVE_DIFFERS, "checkpoints.tiny")


def test_a_hundred_random_bytes_changed_are_a_hundred_found_and_named(small: Any, tmp_path: Path) -> None:
    _, target = small
    stream = zstandard.ZstdDecompressor().decompress(target.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(stream)) as made:
        spans = {one.name: (one.offset_data, one.offset_data + one.size) for one in made}
    draw = random.Random(8)
    content = sorted(at for begin, end in spans.values() for at in range(begin, end))
    found = 0
    for at in draw.sample(content, 100):
        changed = bytearray(stream)
        changed[at] ^= draw.randrange(1, 256)
        (tmp_path / "a").write_bytes(zstandard.compress(bytes(changed), 1))
        refusal = refusal_of(replay.verify, tmp_path / "a")
        (name,) = [name for name, (begin, end) in spans.items() if begin <= at < end]
        named = packing.INDEX if name == packing.SEAL else name
        assert refusal.reason is Reason.ARCHIVE_DAMAGED
        assert refusal.key == named
        found += 1
    assert found == 100


def test_a_changed_byte_of_the_compressed_file_is_found_or_changes_nothing_in_it(small: Any, tmp_path: Path) -> None:
    packed = small[1].read_bytes()
    whole = packing.unpack(small[1])
    draw = random.Random(9)
    for at in draw.sample(range(len(packed)), 100):
        changed = bytearray(packed)
        changed[at] ^= draw.randrange(1, 256)
        (tmp_path / "a").write_bytes(bytes(changed))
        try:
            replay.verify(tmp_path / "a")
        except Refusal as refusal:
            assert refusal.reason in (Reason.ARCHIVE_DAMAGED, Reason.ARCHIVE_HOSTILE)
        else:  # a compressed frame has bits on which no content hangs
            assert packing.unpack(tmp_path / "a") == whole


@pytest.mark.parametrize("name", [LOG, "verdict.md"])
def test_a_file_that_is_gone_or_added_is_found(files: dict[str, bytes], tmp_path: Path, name: str) -> None:
    less = {key: data for key, data in files.items() if key != f"results/small/{name}"}
    for changed, named in ((less, f"results/small/{name}"), ({**files, "results/more": b""}, "results/more")):
        (tmp_path / "a").write_bytes(packing.pack(changed))
        assert refusal_of(replay.verify, tmp_path / "a").key == named


CHANGES = {
    "a leg's figure": ("s1-rep-c1-00-0-oracle.raw.json", lambda value: value.update(output_throughput=110.0)),
    "a leg's validity": ("s1-rep-c1-00-0-oracle.json", lambda value: value.update(valid=False)),
    "a leg's provenance is no fact": ("s1-rep-c1-00-0-oracle.json", lambda value: value["provenance"].update(x=1)),
    "a row's outcome": ("rows/serving.json", lambda value: value.update(outcome="red")),
    "the verdict's word": ("small/verdict.json", lambda value: value.update(verdict="REVERT")),
    "the declared pin": ("small/pin.json", lambda value: value["arms"]["oracle"]["fields"].update(build_mode="file")),
    "what an engine reports": ("small/arms/oracle/gate.json", lambda value: value.update(outcome="fail")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_with_an_index_that_fits_is_found_by_what_follows_from_it(
    files: dict[str, bytes], tmp_path: Path, what: str
) -> None:
    ending, change = CHANGES[what]
    (name,) = [name for name in files if name.endswith(ending)]
    value = json.loads(files[name])
    change(value)
    target = repack(tmp_path / "a", {**files, name: json.dumps(value, sort_keys=True).encode()})
    if "no fact" in what:
        assert replay.verify(target).verdict == "HOLD"
    else:
        refusal = refusal_of(replay.verify, target)
        assert refusal.reason is Reason.ARCHIVE_DIFFERS
        assert refusal.key


def test_a_case_that_asks_for_another_tolerance_is_found(files: dict[str, bytes], tmp_path: Path) -> None:
    changed = files["case.yaml"].replace(b"tolerance: 0.1", b"tolerance: 0.2")
    assert changed != files["case.yaml"]
    refusal = refusal_of(replay.verify, repack(tmp_path / "a", {**files, "case.yaml": changed}))
    assert (refusal.reason, refusal.key) == (Reason.ARCHIVE_DIFFERS, "results/small/rows/serving.json")


def test_an_archive_of_other_code_says_so(files: dict[str, bytes], tmp_path: Path) -> None:
    index = json.loads(files[packing.INDEX])
    index["code"] = "0" * 64
    (name,) = [name for name in files if name.endswith("small/verdict.json")]
    changed = {**files, packing.INDEX: json.dumps(index).encode(), name: files[name].replace(b"HOLD", b"HELD")}
    assert "another version" in refusal_of(replay.verify, repack(tmp_path / "a", changed)).message


def test_a_pin_that_is_gone_is_named(small: Any, tmp_path: Path) -> None:
    places, _ = small
    refusal = refusal_of(archive.make, replace(places, root=tmp_path), tmp_path / "a")
    assert refusal.reason is Reason.CASE_INVALID


@pytest.mark.parametrize("lock", ["/etc/hostname", "../../../../../etc/hostname", "inputs"])
def test_a_lock_that_is_no_file_of_the_archive_is_not_read(files: dict[str, bytes], tmp_path: Path, lock: str) -> None:
    index = json.loads(files[packing.INDEX])
    index["identities"]["locks"]["oracle"] = lock
    refusal = refusal_of(replay.verify, repack(tmp_path / "a", {**files, packing.INDEX: json.dumps(index).encode()}))
    assert (refusal.reason, "no lock of arm oracle" in refusal.message) == (Reason.ARCHIVE_DIFFERS, True)


@pytest.mark.parametrize("text", [b"[" * 100_000, b"\xff\xfe", b"{}", b"null", b"NaN"])
@pytest.mark.parametrize("name", ["verdict.json", "device.json", "s1-rep-c1-00-0-oracle.raw.json"])
def test_whatever_stands_in_a_record_ends_in_a_refusal(
    files: dict[str, bytes], tmp_path: Path, name: str, text: bytes
) -> None:
    (name,) = [known for known in files if known.endswith(name)]
    refusal = refusal_of(replay.verify, repack(tmp_path / "a", {**files, name: text}))
    assert refusal.reason is Reason.ARCHIVE_DIFFERS


def test_a_secret_in_the_case_is_refused_and_its_line_named(small: Any, tmp_path: Path) -> None:
    places, _ = small
    own = replace(places, case_file=tmp_path / "case.yaml")
    put_text(own.case_file, places.case_file.read_text() + f"# hf_{'a' * 34}\n")
    refusal = refusal_of(archive.make, own, tmp_path / "a")
    assert (refusal.reason, refusal.file) == (Reason.CASE_INVALID, "case.yaml")
    assert refusal.key == f"line {len(own.case_file.read_text().splitlines())}"
    assert not (tmp_path / "a").exists()


def test_what_does_not_lead_to_its_verdict_gets_no_archive(tmp_path: Path) -> None:
    places, target = archived(tmp_path)
    edit(places.verdict, lambda value: value.update(verdict="REVERT"))
    target.unlink()
    refusal = refusal_of(archive.make, places, target)
    assert refusal.reason is Reason.ARCHIVE_DIFFERS
    assert not target.exists()


def test_the_crate_is_read_by_its_own_library_and_describes_every_file(files: dict[str, bytes], tmp_path: Path) -> None:
    packing.write(files, tmp_path)
    found = ROCrate(tmp_path)
    assert {entity.id for entity in found.data_entities} == files.keys() - {crate.FILE}
    verdict = found.get("#verdict")
    assert [entity.id for entity in verdict["result"]] == ["results/small/verdict.json"]
    assert "case.yaml" in [entity.id for entity in verdict["object"]]
    assert found.root_dataset["datePublished"] == "2026-12-01T10:00:00Z"
    for name in files.keys() - {crate.FILE, packing.INDEX, packing.SEAL}:
        assert found.get(name)["sha256"] == hashlib.sha256(files[name]).hexdigest()
