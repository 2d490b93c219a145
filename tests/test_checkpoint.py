"""Checkpoints: whole or refused, before any server starts."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pinproof.checkpoint import WeightTotals, describe, read_header
from pinproof.hub import Snapshot, find_snapshot
from pinproof.reasons import Reason, Refusal

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 134\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two shards, an index, a configuration and a tokenizer."""
    return make(tmp_path / "model")


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    save_file({"a": np.zeros((2, 3), "f2"), "b": np.zeros(4, "f4")}, folder / shards[0])
    save_file({"c": np.zeros(5, "f2")}, folder / shards[1])
    index = {"weight_map": {"a": shards[0], "b": shards[0], "c": shards[1]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(
        json.dumps({"architectures": ["X"], "max_position_embeddings": 2048, "vocab_size": 9})
    )
    (folder / "tokenizer.json").write_text("{}")
    return folder


def refusal(call: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as error:
        call()
    return error.value


def test_facts_of_a_whole_checkpoint(folder: Path) -> None:
    facts = describe(folder)
    assert [file.name for file in facts.files] == sorted(path.name for path in folder.iterdir())
    assert (facts.kind, facts.repo, facts.commit) == ("local", None, None)
    assert facts.elements == {"F16": 11, "F32": 4}
    assert facts.parameters == 15
    assert (facts.weight_files, facts.max_position_embeddings, facts.vocab_size) == (2, 2048, 9)
    assert facts.weight_bytes == sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def test_the_record_is_json_and_names_no_place(folder: Path) -> None:
    record = json.loads(json.dumps(describe(folder).as_record()))
    assert record["digest"] == describe(folder).digest
    assert str(folder.parent) not in json.dumps(record)


def test_limits_may_stand_under_text_config(folder: Path) -> None:
    config = {"text_config": {"max_position_embeddings": 77}, "quantization_config": {"quant_method": "modelopt"}}
    (folder / "config.json").write_text(json.dumps(config))
    facts = describe(folder)
    assert (facts.max_position_embeddings, facts.vocab_size, facts.quantization) == (77, None, "modelopt")


def test_equal_folders_have_equal_digests_wherever_they_lie(folder: Path, tmp_path: Path) -> None:
    assert describe(folder).digest == describe(make(tmp_path / "elsewhere" / "model")).digest


def test_a_side_file_alone_changes_the_digest_and_the_tokenizer_digest(folder: Path) -> None:
    before = describe(folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    after = describe(folder)
    assert before.digest != after.digest
    assert before.tokenizer_digest != after.tokenizer_digest


def test_files_that_git_and_the_hub_client_keep_do_not_count(folder: Path) -> None:
    before = describe(folder).digest
    for name in (".git/HEAD", ".cache/huggingface/download/config.json.metadata"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("x")
    assert describe(folder).digest == before


def test_no_folder_and_an_empty_one_are_missing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        assert refusal(lambda name=name: describe(tmp_path / name)).reason is Reason.CHECKPOINT_MISSING


@pytest.mark.parametrize("share", [0.0, 0.05, 0.6, 0.99])
def test_a_file_cut_short_is_damaged(folder: Path, share: float) -> None:
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    error = refusal(lambda: describe(folder))
    assert error.reason is Reason.CHECKPOINT_DAMAGED
    assert path.name in error.file


def test_bytes_after_the_last_tensor_are_damage(folder: Path) -> None:
    with (folder / "model-00002-of-00002.safetensors").open("ab") as stream:
        stream.write(b"more")
    assert refusal(lambda: describe(folder)).reason is Reason.CHECKPOINT_DAMAGED


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"[]",
        b'{"a":{"dtype":"F16","shape":[2]}}',
        b'{"a":{"dtype":"F16","shape":[3],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}}',
    ],
    ids=["no JSON", "no object", "no offsets", "shape does not fill", "hole"],
)
def test_a_header_that_does_not_fit_is_damage(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert refusal(lambda: read_header(path)).reason is Reason.CHECKPOINT_DAMAGED


def test_packed_dtypes_are_measured_in_bits(tmp_path: Path) -> None:
    header = b'{"a":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}}'
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert read_header(tmp_path / "x.safetensors")["a"]["shape"] == [8]


def test_git_lfs_pointers_are_called_by_that_name(folder: Path) -> None:
    names = ["model-00001-of-00002.safetensors", "tokenizer.json"]
    for name in names:
        (folder / name).write_text(POINTER)
    error = refusal(lambda: describe(folder))
    assert error.reason is Reason.CHECKPOINT_POINTER
    assert all(name in error.message for name in names)


def test_an_index_that_names_a_tensor_its_shard_does_not_hold(folder: Path) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["mtp.fc.weight"] = "model-00002-of-00002.safetensors"
    path.write_text(json.dumps(index))
    error = refusal(lambda: describe(folder))
    assert (error.reason, error.key) == (Reason.CHECKPOINT_DAMAGED, "mtp.fc.weight")
    assert "model-00002-of-00002.safetensors" in error.message


def test_a_tensor_in_another_shard_than_the_index_says(folder: Path) -> None:
    path = folder / "model.safetensors.index.json"
    path.write_text(path.read_text().replace('"b": "model-00001', '"b": "model-00002'))
    assert refusal(lambda: describe(folder)).key == "b"


@pytest.mark.parametrize("indexed", [True, False])
def test_a_shard_that_is_not_there_is_missing_with_and_without_an_index(folder: Path, indexed: bool) -> None:
    (folder / "model-00001-of-00002.safetensors").unlink()
    if not indexed:
        (folder / "model.safetensors.index.json").unlink()
    error = refusal(lambda: describe(folder))
    assert error.reason is Reason.CHECKPOINT_MISSING
    assert "model-00001-of-00002.safetensors" in error.message


def test_no_weights_or_no_configuration_is_missing(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    assert refusal(lambda: describe(tmp_path / "m")).message == "no weight file"
    save_file({"a": np.zeros(1)}, tmp_path / "m" / "model.safetensors")
    describe(tmp_path / "m")
    (tmp_path / "m" / "config.json").unlink()
    assert refusal(lambda: describe(tmp_path / "m")).message == "no config.json"


def test_a_configuration_that_is_not_json_is_damage(folder: Path) -> None:
    (folder / "config.json").write_text('{"vocab')
    error = refusal(lambda: describe(folder))
    assert error.reason is Reason.CHECKPOINT_DAMAGED
    assert error.file.endswith("config.json")


def test_weights_without_headers_leave_their_elements_unknown(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"zip")
    facts = describe(tmp_path / "m")
    assert (facts.elements, facts.parameters, facts.weight_bytes) == (None, None, 3)


def test_a_partial_download_is_missing(folder: Path) -> None:
    partial = folder / ".cache/huggingface/download/abc=.ff00.1234.incomplete"
    partial.parent.mkdir(parents=True)
    partial.write_text("half")
    error = refusal(lambda: describe(folder))
    assert error.reason is Reason.CHECKPOINT_MISSING
    assert partial.name in error.message


def test_a_partial_download_that_was_ended_later_or_is_outside_a_declared_list_does_not_count(folder: Path) -> None:
    kept = folder / ".cache/huggingface/download"
    kept.mkdir(parents=True)
    (kept / "abc=.ff00.1234.incomplete").write_text("half")
    describe(folder, declared={"config.json": {}})
    (kept / "config.json.metadata").write_text(f"{COMMIT}\nff00\n1.0\n")
    describe(folder)


def test_declared_files_must_be_there(folder: Path) -> None:
    error = refusal(lambda: describe(folder, declared={"a.json": {}, "b.json": {}, "config.json": {}}))
    assert error.reason is Reason.CHECKPOINT_MISSING
    assert "a.json, b.json" in error.message


def test_declared_sizes_and_digests_must_hold(folder: Path) -> None:
    entry = describe(folder).as_record()["files"]["config.json"]
    describe(folder, declared={"config.json": entry})
    for wrong in ({"size": entry["size"] + 1}, {"sha256": "0" * 64}):
        error = refusal(lambda wrong=wrong: describe(folder, declared={"config.json": wrong}))
        assert error.reason is Reason.CHECKPOINT_MISMATCH
        assert "config.json" in error.message


def test_declared_totals_must_hold(folder: Path) -> None:
    facts = describe(folder)
    describe(folder, totals=WeightTotals(2, facts.weight_bytes))
    describe(folder, totals=WeightTotals(None, facts.weight_bytes))
    for wrong in (WeightTotals(3, None), WeightTotals(None, 1)):
        assert refusal(lambda wrong=wrong: describe(folder, totals=wrong)).reason is Reason.CHECKPOINT_MISMATCH


def age(folder: Path, seconds: float = 60) -> None:
    for path in folder.iterdir():
        os.utime(path, (time.time() - seconds,) * 2)


def test_digests_are_remembered_until_a_file_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    age(folder)
    cache = folder.parent / "digests.json"
    before = describe(folder, cache).digest
    read: list[str] = []
    monkeypatch.setattr("pinproof.records.file_sha256", lambda path: read.append(path.name) or "0" * 64)
    assert describe(folder, cache).digest == before
    assert read == []
    (folder / "tokenizer.json").write_text("[]")
    assert describe(folder, cache).digest != before
    assert read == ["tokenizer.json"]


def test_a_file_just_written_is_not_remembered(folder: Path) -> None:
    cache = folder.parent / "digests.json"
    describe(folder, cache)
    same_size = "[]"
    status = (folder / "tokenizer.json").stat()
    (folder / "tokenizer.json").write_text(same_size)
    os.utime(folder / "tokenizer.json", ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert describe(folder, cache).digest == describe(folder).digest


@pytest.mark.parametrize("text", ["", "half {", '{"schema": 1}'])
def test_a_damaged_cache_is_an_empty_one(folder: Path, text: str) -> None:
    age(folder)
    cache = folder.parent / "digests.json"
    cache.write_text(text)
    assert describe(folder, cache).digest == describe(folder).digest
    assert str(folder / "config.json") in json.loads(cache.read_text())["files"]


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A hub cache with one repository, two snapshots of which one is whole, and a ref."""
    root = tmp_path / "hub" / "models--org--name"
    whole = make(root / "snapshots" / COMMIT)
    (root / "blobs").mkdir()
    for path in list(whole.iterdir()):
        path.rename(root / "blobs" / f"{path.name.encode().hex()}")
        path.symlink_to(os.path.relpath(root / "blobs" / path.name.encode().hex(), whole))
    (root / "snapshots" / OTHER).mkdir()
    (root / "refs" / "pr").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    (root / "refs" / "pr" / "1").write_text(OTHER)
    return tmp_path / "hub"


@pytest.mark.parametrize("revision", [COMMIT, COMMIT[:8], "main"])
def test_a_snapshot_is_found_by_commit_or_ref(hub: Path, revision: str) -> None:
    facts = describe(find_snapshot(hub, "org/name", revision))
    assert (facts.kind, facts.repo, facts.commit) == ("hub", "org/name", COMMIT)
    assert facts.weight_files == 2


@pytest.mark.parametrize("revision", ["does-not-exist", COMMIT[:6], "1234567", "../refs/main", "0" * 40])
def test_a_revision_that_is_not_there_is_refused_with_what_is(hub: Path, revision: str) -> None:
    error = refusal(lambda: find_snapshot(hub, "org/name", revision))
    assert error.reason is Reason.CHECKPOINT_MISSING
    assert COMMIT in error.message


def test_a_repository_that_is_not_in_the_cache(hub: Path) -> None:
    assert refusal(lambda: find_snapshot(hub, "org/none", "main")).reason is Reason.CHECKPOINT_MISSING


def test_the_tokenizer_comes_from_the_commit_of_the_weights(hub: Path) -> None:
    assert find_snapshot(hub, "org/name", "main", tokenizer_revision=COMMIT).commit == COMMIT
    error = refusal(lambda: find_snapshot(hub, "org/name", "main", tokenizer_revision="pr/1"))
    assert (error.reason, error.key) == (Reason.CHECKPOINT_MISMATCH, "tokenizer_revision")


def test_a_link_without_its_blob_is_a_missing_file(hub: Path) -> None:
    snapshot = find_snapshot(hub, "org/name", COMMIT)
    (snapshot.folder / "tokenizer.json").resolve().unlink()
    assert "tokenizer.json" in refusal(lambda: describe(snapshot)).message


def test_a_download_that_broke_off_makes_an_undeclared_snapshot_doubtful(hub: Path) -> None:
    snapshot: Snapshot = find_snapshot(hub, "org/name", COMMIT)
    (hub / "models--org--name/blobs/ff00.abc.incomplete").write_text("half")
    assert refusal(lambda: describe(snapshot)).reason is Reason.CHECKPOINT_MISSING
    describe(snapshot, declared={"config.json": {}})
    (hub / "models--org--name/blobs/ff00").write_text("whole")
    describe(snapshot)
