"""Synthesis: the same small checkpoint on every machine, one character a token."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

from pinproof import checkpoint
from pinproof.reasons import Reason, Refusal
from pinproof.synthesis import CHARACTERS, SPECIALS, VOCABULARY, Spec, synthesise

SMALL = Spec(hidden_size=16, layers=1, heads=2, kv_heads=1, head_dim=8, intermediate_size=32, positions=64)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthesis") / "small"
    synthesise(SMALL, folder)
    return folder


def tensors(folder: Path) -> dict[str, np.ndarray]:
    """bfloat16 tensors as float32, read by the safetensors library's header and by hand."""
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            bits = np.frombuffer(data[begin:end], "<u2").astype("<u4") << 16
            found[name] = bits.view("<f4").reshape(entry["shape"])
    return found


def test_the_default_checkpoint_has_these_bytes_everywhere(tmp_path: Path) -> None:
    files = synthesise(Spec(), tmp_path / "m")
    assert {name: entry["sha256"][:16] for name, entry in files.items()} == {
        "config.json": "c1e04133559cbd4d",
        "generation_config.json": "080d05ed3bad63b0",
        "model.safetensors": "2f9968b59ce648c5",
        "tokenizer.json": "64079c166356667e",
        "tokenizer_config.json": "bbf0a19ab88744eb",
    }
    facts = checkpoint.describe(tmp_path / "m", kind="synthesised", declared=files)
    assert facts.elements == {"BF16": 3_199_744}
    assert facts.max_position_embeddings == 4096


def test_another_seed_gives_other_weights_and_the_same_tokenizer(tmp_path: Path, small: Path) -> None:
    other = synthesise(Spec(**{**SMALL.__dict__, "seed": 1}), tmp_path / "other")
    first = synthesise(SMALL, small)
    assert other["model.safetensors"]["sha256"] != first["model.safetensors"]["sha256"]
    assert other["tokenizer.json"] == first["tokenizer.json"]


def test_the_safetensors_library_reads_the_weights(small: Path) -> None:
    with safe_open(small / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
        assert set(file.keys()) == set(tensors(small))


def test_weights_have_the_shapes_that_qwen3_asks_for(small: Path) -> None:
    shapes = {name: array.shape for name, array in tensors(small).items()}
    layer = "model.layers.0"
    assert shapes["model.embed_tokens.weight"] == shapes["lm_head.weight"] == (100, 16)
    assert shapes[f"{layer}.self_attn.q_proj.weight"] == (16, 16)
    assert shapes[f"{layer}.self_attn.k_proj.weight"] == shapes[f"{layer}.self_attn.v_proj.weight"] == (8, 16)
    assert shapes[f"{layer}.self_attn.q_norm.weight"] == (8,)
    assert shapes[f"{layer}.mlp.down_proj.weight"] == (16, 32)
    assert shapes["model.norm.weight"] == (16,)


def test_norms_are_one_and_matrices_keep_the_size_of_their_input(tmp_path: Path) -> None:
    synthesise(Spec(), tmp_path / "m")
    for name, array in tensors(tmp_path / "m").items():
        if "norm" in name:
            assert (array == 1).all()
        else:
            gain = array[: len(CHARACTERS)].std() * np.sqrt(array.shape[1])
            assert 0.5 < gain < 2, name


def test_greedy_decoding_always_emits_a_character(small: Path) -> None:
    head = tensors(small)["lm_head.weight"]
    hidden = np.random.default_rng(0).normal(size=(1000, 16)).astype("f4")
    assert ((hidden @ head.T).argmax(axis=1) < len(CHARACTERS)).all()
    assert (head[0:96:2] == -head[1:96:2]).all()
    assert (head[len(CHARACTERS) :] == 0).all()


def test_tied_embeddings_leave_lm_head_out(tmp_path: Path) -> None:
    synthesise(Spec(**{**SMALL.__dict__, "tie_word_embeddings": True}), tmp_path / "tied")
    found = tensors(tmp_path / "tied")
    assert "lm_head.weight" not in found
    assert (found["model.embed_tokens.weight"][len(CHARACTERS) :] == 0).all()


@pytest.mark.parametrize("text", ["a", "  two  spaces ", "line\nline\n", "it 's n't , . x"])
def test_a_character_is_a_token_and_text_comes_back(small: Path, text: str) -> None:
    tokenizer = Tokenizer.from_file(str(small / "tokenizer.json"))
    ids = tokenizer.encode(text).ids
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


def test_every_id_is_in_the_tokenizer_and_decodes_to_something(small: Path) -> None:
    tokenizer = Tokenizer.from_file(str(small / "tokenizer.json"))
    config = json.loads((small / "config.json").read_text())
    assert config["vocab_size"] == tokenizer.get_vocab_size() == len(VOCABULARY) == 100
    assert all(tokenizer.decode([number], skip_special_tokens=False) for number in range(100))
    assert tokenizer.decode(list(range(96, 100))) == ""


def test_characters_outside_the_alphabet_are_the_unknown_token(small: Path) -> None:
    tokenizer = Tokenizer.from_file(str(small / "tokenizer.json"))
    assert tokenizer.encode("é").tokens == [SPECIALS[0]]


def test_a_checkpoint_that_is_there_is_left_alone(small: Path) -> None:
    before = (small / "model.safetensors").stat()
    synthesise(SMALL, small)
    after = (small / "model.safetensors").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_folder_with_something_else_is_refused_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "mine.txt").write_text("mine")
    with pytest.raises(Refusal) as error:
        synthesise(SMALL, tmp_path / "m")
    assert error.value.reason is Reason.CHECKPOINT_MISMATCH
    assert (tmp_path / "m" / "mine.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_half_made_checkpoint_never_has_the_final_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("pinproof.synthesis.os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        synthesise(SMALL, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("field", "value"), [("kv_heads", 3), ("head_dim", 7), ("layers", 0), ("seed", -1), ("positions", 2.5)]
)
def test_a_shape_that_cannot_be_is_refused_by_its_key(field: str, value: object) -> None:
    with pytest.raises(Refusal) as error:
        Spec(**{field: value})
    assert (error.value.reason, error.value.key) == (Reason.CASE_INVALID, field)
