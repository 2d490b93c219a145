"""Corpus: the prompts of every leg, with exact token counts and no two that begin alike.

Prompts are plain ASCII words drawn from a SHAKE-128 stream of the seed, so the same seed and
tokenizer give the same corpus anywhere. A leg's file has the form that `vllm bench serve` reads as
its `custom` data set. Counts are what the server counts: special tokens that the tokenizer adds
are among them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pinproof import records
from pinproof.reasons import Reason, Refusal

LegKey = str

FIRST_TOKENS = 16  # no two prompts share these: the size of the engine's prefix blocks
MANIFEST = "corpus.json"

_DOMAIN = "pinproof/corpus/1"
_SCHEMA = "corpus"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ATTEMPTS = 64
_CLAIMS = ("seed", "input_tokens", "output_tokens", "tokenizer_sha256", "special_tokens")

# 256 words of three to six letters: one byte of the stream picks one.
_WORD_LIST = """
able acid acre aft age agree ahead aim air album alert alley allow alone amber angle ankle apple apron arch
arm arrow ash aside atlas aunt awake award axle bacon badge baker band bank barn basil basin bath beach bean
beard beast bell bench berry bike bird blade blaze blend block bloom blue board boat body bolt bone book boot
border bottle bowl brain branch brave bread brick bride bright broad broom brown brush bucket build bunch bus
butter button cabin cable cage cake calf call calm camel camp canal candle cane canvas cape card cargo carpet
carry cart carve castle cattle cave cedar cellar chain chair chalk chapel charm cheek cheese cherry chest chief
child chime choir cider circle city clay clean clerk cliff climb clock close cloth cloud coach coal coast coat
cobalt coffee coin cold collar colt comb cook copper coral cord corn corner cotton count cousin cover crab craft
crane cream creek crew crisp crop cross crowd crown cup curve dairy dance dawn deep deer desk dew dial dinner
ditch dock donkey door dove draft drain dream dress drift drum dry duck dune dusk dust eager eagle early earth
east edge eight elbow elder elm empty engine equal estate even fabric face fair falcon fall farm fast father
feast fern ferry field fifth finch finger fire fish flag flame flat fleet flint float flock floor flour flower
flute fog forest fork fox frame fresh frost fruit garden garlic gate gentle ghost giant ginger glad glass globe
glove goat gold goose grain grape
"""
_WORDS = tuple(_WORD_LIST.split())
_FILLERS = (" a", " I", "s", "a", ".", ",", ";", "!", "?", "e", "n", "x", "1")


@dataclass(frozen=True)
class Corpus:
    """Prompts by leg. `distinct_tokens` is how many first tokens tell any two prompts apart."""

    seed: int
    input_tokens: int
    output_tokens: int | None
    tokenizer_sha256: str
    special_tokens: int
    distinct_tokens: int
    legs: Mapping[LegKey, tuple[str, ...]]

    @property
    def digest(self) -> str:
        """Digest over everything that the requests of every leg are made of."""
        return records.digest({key: _text(prompts, self.output_tokens) for key, prompts in self.legs.items()})

    def file(self, folder: Path, key: LegKey) -> Path:
        """Where the leg's prompts lie under the corpus folder."""
        return folder / f"{key}.jsonl"

    def write(self, folder: Path) -> dict[str, Any]:
        """Write a file a leg and, last, the manifest `corpus.json`, which is returned."""
        for key, prompts in self.legs.items():
            records.write_text(self.file(folder, key), _text(prompts, self.output_tokens))
        return records.write(folder / MANIFEST, _SCHEMA, self.as_record())

    def as_record(self) -> dict[str, Any]:
        """What the manifest says: everything but the prompts themselves."""
        return {
            "seed": self.seed,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "tokenizer_sha256": self.tokenizer_sha256,
            "special_tokens": self.special_tokens,
            "distinct_tokens": self.distinct_tokens,
            "digest": self.digest,
            "legs": {
                key: {
                    "prompts": len(prompts),
                    "sha256": hashlib.sha256(_text(prompts, self.output_tokens).encode()).hexdigest(),
                }
                for key, prompts in self.legs.items()
            },
        }


def make_corpus(
    tokenizer_file: Path,
    *,
    seed: int,
    legs: Mapping[LegKey, int],
    input_tokens: int,
    output_tokens: int | None = None,
) -> Corpus:
    """Make prompts of exactly `input_tokens` tokens each for every leg.

    `tokenizer_file` is the subject's tokenizer.json. `legs` maps a leg's key, which becomes a file
    name, to its number of prompts. Adding legs at the end leaves the prompts of the others as they
    are. `output_tokens`, when given, is written beside every prompt.

    Refusals: CASE_INVALID for lengths and keys that cannot be met, CHECKPOINT_DAMAGED when the
    tokenizer cannot be read.
    """
    if input_tokens < FIRST_TOKENS:
        raise Refusal(Reason.CASE_INVALID, f"at least {FIRST_TOKENS}, is {input_tokens}", key="input_tokens")
    if bad := [key for key in legs if not _KEY.fullmatch(key)]:
        raise Refusal(Reason.CASE_INVALID, f"not a file name: {', '.join(map(repr, bad))}", key="legs")
    writer = _Writer(_tokenizer(tokenizer_file), input_tokens)
    made = {
        key: tuple(writer.prompt(f"{seed}\0{key}\0{number}") for number in range(count)) for key, count in legs.items()
    }
    return Corpus(
        seed=seed,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        tokenizer_sha256=records.file_sha256(tokenizer_file),
        special_tokens=writer.count(""),
        distinct_tokens=_distinct(writer.beginnings),
        legs=made,
    )


def verify(folder: Path, tokenizer_file: Path) -> Corpus:
    """Read a written corpus back and check all that it claims, counting every token anew.

    Refusals: RECORD_MISSING and RECORD_DAMAGED for the manifest, CORPUS_MISMATCH with file and line.
    """
    manifest = records.read(folder / MANIFEST, _SCHEMA)
    try:
        claims = {name: manifest[name] for name in _CLAIMS}
        keys = list(manifest["legs"])
    except KeyError as error:
        raise Refusal(Reason.RECORD_DAMAGED, f"no key {error}", file=folder / MANIFEST) from None
    if (found := records.file_sha256(tokenizer_file)) != claims["tokenizer_sha256"]:
        raise _mismatch(folder / MANIFEST, f"made for another tokenizer than {found}")
    tokenizer = _tokenizer(tokenizer_file)
    first: dict[tuple[int, ...], str] = {}
    legs: dict[LegKey, tuple[str, ...]] = {}
    for key in keys:
        file = folder / f"{key}.jsonl"
        legs[key] = _read(file, claims["output_tokens"])
        for line, prompt in enumerate(legs[key], start=1):
            place, tokens = f"{key} line {line}", tokenizer.encode(prompt).ids
            if len(tokens) != claims["input_tokens"]:
                raise _mismatch(file, f"{len(tokens)} tokens, expected {claims['input_tokens']}", f"line {line}")
            if (other := first.setdefault(tuple(tokens[:FIRST_TOKENS]), place)) != place:
                raise _mismatch(file, f"begins with the same {FIRST_TOKENS} tokens as {other}", f"line {line}")
    corpus = Corpus(legs=legs, distinct_tokens=_distinct(list(first)), **claims)
    if corpus.as_record() != {name: value for name, value in manifest.items() if name != "schema"}:
        raise _mismatch(folder / MANIFEST, "the manifest does not describe these files")
    return corpus


class _Writer:
    """Writes prompts of one length, and remembers how each began."""

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        self._tokenizer = tokenizer
        self._length = length
        self._costs: dict[str, int] = {}
        self._seen: set[tuple[int, ...]] = set()
        self.beginnings: list[tuple[int, ...]] = []

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text).ids)

    def prompt(self, name: str) -> str:
        """A prompt of the exact length that begins like none before."""
        for attempt in range(_ATTEMPTS):
            text = self._fit(_words(f"{_DOMAIN}\0{name}\0{attempt}"))
            if text is None:
                continue
            beginning = tuple(self._tokenizer.encode(text).ids[:FIRST_TOKENS])
            if beginning not in self._seen:
                self._seen.add(beginning)
                self.beginnings.append(beginning)
                return text
        raise Refusal(
            Reason.CASE_INVALID,
            f"no text of exactly {self._length} tokens that begins unlike {len(self._seen)} others was found",
            key="input_tokens",
        )

    def _fit(self, words: Iterator[str]) -> str | None:
        """Text of exactly the wanted length: words by their estimated costs, then counted and mended."""
        pieces = [next(words)]
        estimate = self.count(pieces[0])
        while estimate <= self._length:
            pieces.append(next(words))
            estimate += self._cost(pieces[-1])
        counted = self.count("".join(pieces))
        while counted > self._length and len(pieces) > 1:
            pieces.pop()
            counted = self.count("".join(pieces))
        while counted < self._length:
            text = "".join(pieces)
            candidates = ((piece, self.count(text + piece)) for piece in (next(words), *_FILLERS))
            step = next(((piece, n) for piece, n in candidates if counted < n <= self._length), None)
            if step is None:
                return None
            pieces.append(step[0])
            counted = step[1]
        return "".join(pieces) if counted == self._length else None

    def _cost(self, piece: str) -> int:
        """Tokens that a word adds inside a text; an estimate, since neighbours may merge."""
        if piece not in self._costs:
            self._costs[piece] = self.count(f"one{piece} two") - self.count("one two")
        return self._costs[piece]


def _words(name: str) -> Iterator[str]:
    """Words of a text for ever, each with the space before it; sentences have 5 to 12 words."""
    left = 0
    for place, byte in enumerate(_bytes(name)):
        word = _WORDS[byte]
        if left == 0:
            left = 5 + byte % 8
            yield f". {word.capitalize()}" if place else word.capitalize()
        else:
            yield f" {word}"
        left -= 1


def _bytes(name: str) -> Iterator[int]:
    """A stream of bytes without end that depends on the name only."""
    for block in itertools.count():
        yield from hashlib.shake_128(f"{name}\0{block}".encode()).digest(1024)


def _distinct(beginnings: Sequence[tuple[int, ...]]) -> int:
    """The smallest number of first tokens by which any two prompts differ."""
    return next(
        (n for n in range(1, FIRST_TOKENS) if len({some[:n] for some in beginnings}) == len(beginnings)), FIRST_TOKENS
    )


def _tokenizer(file: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing more precise
        raise Refusal(Reason.CHECKPOINT_DAMAGED, f"not a tokenizer: {error}", file=file) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _text(prompts: Sequence[str], output_tokens: int | None) -> str:
    length = {} if output_tokens is None else {"output_tokens": output_tokens}
    return "".join(records.canonical({"prompt": prompt, **length}) + "\n" for prompt in prompts)


def _read(file: Path, output_tokens: int | None) -> tuple[str, ...]:
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        prompts = tuple(line["prompt"] for line in lines)
    except FileNotFoundError:
        raise _mismatch(file, "no such file") from None
    except (ValueError, KeyError, TypeError) as error:
        raise _mismatch(file, f"not lines of prompts: {error!r}") from None
    if any(line.get("output_tokens") != output_tokens for line in lines):
        raise _mismatch(file, f"output_tokens differs from {output_tokens}")
    return prompts


def _mismatch(file: Path, message: str, key: str | None = None) -> Refusal:
    return Refusal(Reason.CORPUS_MISMATCH, message, file=file, key=key)
