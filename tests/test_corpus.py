"""Corpus: exact token counts under any tokenizer, and no two prompts that begin alike."""

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from pinproof.corpus import Corpus, make_corpus, verify
from pinproof.reasons import Reason, Refusal
from pinproof.synthesis import Spec, synthesise

LEGS = {"c1-r1": 3, "c1-r2": 3, "c4-r1": 5}


@pytest.fixture(scope="module")
def characters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The synthesised checkpoint's tokenizer: one character a token."""
    folder = tmp_path_factory.mktemp("characters") / "m"
    synthesise(Spec(hidden_size=8, layers=1, heads=1, kv_heads=1, head_dim=2, intermediate_size=8), folder)
    return folder / "tokenizer.json"


@pytest.fixture(scope="module")
def merging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE tokenizer with merges that adds a token before every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = "The able captain carried a candle to the castle, and the cattle came over the border at dawn. "
    tokenizer.train_from_iterator([text * 3, "Stone and bread and butter in the cellar of the chapel."], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=99)
    path = tmp_path_factory.mktemp("merging") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="module", params=["characters", "merging"])
def tokenizer_file(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def plain(file: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def prompts(corpus: Corpus) -> list[str]:
    return [prompt for leg in corpus.legs.values() for prompt in leg]


def refusal(call: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as error:
        call()
    return error.value


@pytest.mark.parametrize("length", [16, 17, 31, 64, 333, 1024])
def test_every_prompt_has_exactly_the_asked_tokens(tokenizer_file: Path, length: int) -> None:
    corpus = make_corpus(tokenizer_file, seed=1, legs=LEGS, input_tokens=length)
    assert {key: len(leg) for key, leg in corpus.legs.items()} == LEGS
    assert {len(plain(tokenizer_file).encode(prompt).ids) for prompt in prompts(corpus)} == {length}


def test_no_two_prompts_of_any_legs_share_their_first_block(tokenizer_file: Path) -> None:
    corpus = make_corpus(tokenizer_file, seed=0, legs={f"r{n}": 40 for n in range(10)}, input_tokens=32)
    tokens = [tuple(plain(tokenizer_file).encode(prompt).ids) for prompt in prompts(corpus)]
    assert all(one[:16] != other[:16] for one, other in combinations(tokens, 2))
    some = corpus.distinct_tokens
    assert some <= 16
    assert len({one[:some] for one in tokens}) == len(tokens) > len({one[: some - 1] for one in tokens})


def test_prompts_are_words_without_white_space_to_lose(tokenizer_file: Path) -> None:
    for prompt in prompts(make_corpus(tokenizer_file, seed=3, legs=LEGS, input_tokens=200)):
        assert prompt == prompt.strip()
        assert prompt.isascii()
        assert prompt.isprintable()
        assert "  " not in prompt
        assert prompt[0].isupper()


def test_text_survives_the_way_through_the_tokenizer(tokenizer_file: Path) -> None:
    tokenizer = plain(tokenizer_file)
    for prompt in prompts(make_corpus(tokenizer_file, seed=3, legs=LEGS, input_tokens=100)):
        assert tokenizer.decode(tokenizer.encode(prompt).ids) == prompt


def test_special_tokens_that_are_added_are_counted(characters: Path, merging: Path) -> None:
    assert make_corpus(characters, seed=0, legs={"a": 1}, input_tokens=16).special_tokens == 0
    assert make_corpus(merging, seed=0, legs={"a": 1}, input_tokens=16).special_tokens == 1


def test_the_same_seed_gives_the_same_corpus_everywhere(characters: Path) -> None:
    corpus = make_corpus(characters, seed=0, legs={"a": 2}, input_tokens=48)
    assert corpus.legs["a"] == (
        "Ghost flat fruit aim brave agree fresh flat a as",
        "Bank float fair garlic baker finch. Forest bunch",
    )


def test_another_seed_or_leg_gives_other_prompts(characters: Path) -> None:
    one = make_corpus(characters, seed=0, legs={"a": 2, "b": 2}, input_tokens=48)
    two = make_corpus(characters, seed=1, legs={"a": 2}, input_tokens=48)
    assert len({*one.legs["a"], *one.legs["b"], *two.legs["a"]}) == 6
    assert one.digest != two.digest


def test_legs_added_at_the_end_change_no_other_leg(tokenizer_file: Path) -> None:
    short = make_corpus(tokenizer_file, seed=0, legs={"a": 9, "b": 9}, input_tokens=20)
    long = make_corpus(tokenizer_file, seed=0, legs={"a": 9, "b": 9, "c": 9}, input_tokens=20)
    assert {key: long.legs[key] for key in short.legs} == short.legs


def test_files_are_json_lines_that_the_client_reads(characters: Path, tmp_path: Path) -> None:
    corpus = make_corpus(characters, seed=0, legs=LEGS, input_tokens=32, output_tokens=7)
    manifest = corpus.write(tmp_path)
    lines = corpus.file(tmp_path, "c4-r1").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"prompt": prompt, "output_tokens": 7} for prompt in corpus.legs["c4-r1"]
    ]
    assert manifest["legs"]["c4-r1"]["prompts"] == len(lines) == 5


def test_without_output_tokens_a_line_holds_the_prompt_only(characters: Path, tmp_path: Path) -> None:
    make_corpus(characters, seed=0, legs={"a": 1}, input_tokens=32).write(tmp_path)
    assert list(json.loads((tmp_path / "a.jsonl").read_text())) == ["prompt"]


def test_a_written_corpus_is_verified_and_read_back(tokenizer_file: Path, tmp_path: Path) -> None:
    corpus = make_corpus(tokenizer_file, seed=0, legs=LEGS, input_tokens=32, output_tokens=4)
    corpus.write(tmp_path)
    assert verify(tmp_path, tokenizer_file) == corpus


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Ghost", "Ghosts", "33 tokens"),
        ("Ghost", "Guest", "does not describe"),
        ('"prompt"', '"text"', "not lines of prompts"),
        ('"output_tokens":4', '"output_tokens":5', "output_tokens"),
        ("{", "[", "not lines of prompts"),
    ],
)
def test_a_changed_file_is_a_mismatch(characters: Path, tmp_path: Path, old: str, new: str, says: str) -> None:
    make_corpus(characters, seed=0, legs={"a": 2}, input_tokens=32, output_tokens=4).write(tmp_path)
    file = tmp_path / "a.jsonl"
    file.write_text(file.read_text().replace(old, new, 1))
    error = refusal(lambda: verify(tmp_path, characters))
    assert error.reason is Reason.CORPUS_MISMATCH
    assert says in str(error)


def test_two_prompts_that_begin_alike_are_a_mismatch_with_both_places(characters: Path, tmp_path: Path) -> None:
    make_corpus(characters, seed=0, legs={"a": 1, "b": 1}, input_tokens=32).write(tmp_path)
    (tmp_path / "b.jsonl").write_text((tmp_path / "a.jsonl").read_text())
    error = refusal(lambda: verify(tmp_path, characters))
    assert (error.reason, error.key) == (Reason.CORPUS_MISMATCH, "line 1")
    assert "a line 1" in error.message


def test_a_missing_leg_and_a_missing_manifest(characters: Path, tmp_path: Path) -> None:
    make_corpus(characters, seed=0, legs={"a": 1}, input_tokens=32).write(tmp_path)
    (tmp_path / "a.jsonl").unlink()
    assert refusal(lambda: verify(tmp_path, characters)).reason is Reason.CORPUS_MISMATCH
    (tmp_path / "corpus.json").unlink()
    assert refusal(lambda: verify(tmp_path, characters)).reason is Reason.RECORD_MISSING


def test_a_corpus_belongs_to_its_tokenizer(characters: Path, merging: Path, tmp_path: Path) -> None:
    make_corpus(characters, seed=0, legs={"a": 1}, input_tokens=32).write(tmp_path)
    assert refusal(lambda: verify(tmp_path, merging)).reason is Reason.CORPUS_MISMATCH


def test_lengths_below_a_block_and_keys_that_are_no_file_names_are_refused(characters: Path) -> None:
    error = refusal(lambda: make_corpus(characters, seed=0, legs={"a": 1}, input_tokens=15))
    assert (error.reason, error.key) == (Reason.CASE_INVALID, "input_tokens")
    error = refusal(lambda: make_corpus(characters, seed=0, legs={"../a": 1}, input_tokens=16))
    assert (error.reason, error.key) == (Reason.CASE_INVALID, "legs")


def test_a_length_that_cannot_be_met_is_refused_not_approached(tmp_path: Path) -> None:
    """A tokenizer that only ever gives an even number of tokens."""
    tokenizer = Tokenizer(models.WordLevel({"x": 0, "y": 1}, unk_token="x"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A $A", special_tokens=[])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    error = refusal(lambda: make_corpus(tmp_path / "tokenizer.json", seed=0, legs={"a": 1}, input_tokens=17))
    assert (error.reason, error.key) == (Reason.CASE_INVALID, "input_tokens")


def test_a_tokenizer_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    error = refusal(lambda: make_corpus(tmp_path / "tokenizer.json", seed=0, legs={"a": 1}, input_tokens=16))
    assert error.reason is Reason.CHECKPOINT_DAMAGED
