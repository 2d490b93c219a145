"""Synthesis: a small Qwen3 checkpoint made from a seed, the same bytes on every machine.

Weights are whole numbers of one byte times a power of two, which bfloat16 holds exactly; the bytes
come from SHAKE-128. So no floating-point rounding, no transcendental function and no array library
can make two machines disagree.

The vocabulary is printable ASCII and the newline, one character a token, and four special tokens.
The rows of `lm_head` for the characters come in pairs that differ in sign only, and those for the
special tokens are zero: one character of each pair has a logit of at least zero, so greedy decoding
always emits text, and one token is one character of the stream.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pinproof import records
from pinproof.reasons import Reason, Refusal

CHARACTERS = "".join(chr(code) for code in range(0x20, 0x7F)) + "\n"
UNKNOWN, BEGIN, END, PAD = SPECIALS = ("<|unk|>", "<|bos|>", "<|eos|>", "<|pad|>")
VOCABULARY = {token: number for number, token in enumerate((*CHARACTERS, *SPECIALS))}
WEIGHTS = "model.safetensors"

_ONE = b"\x80\x3f"  # 1.0 in bfloat16, little-endian
_DOMAIN = "pinproof/synthesis/1"


@dataclass(frozen=True)
class Spec:
    """The shape of a synthesised model; the default has 3.2 million parameters (6.4 MB).

    `positions` is the longest sequence in tokens (max_position_embeddings).
    """

    seed: int = 0
    hidden_size: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 768
    positions: int = 4096
    tie_word_embeddings: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            floor = 0 if field.name == "seed" else 1
            if field.name != "tie_word_embeddings" and (type(value) is not int or value < floor):
                raise Refusal(
                    Reason.CASE_INVALID, f"must be a whole number of at least {floor}, is {value!r}", key=field.name
                )
        if self.heads % self.kv_heads:
            raise Refusal(Reason.CASE_INVALID, f"must divide heads ({self.heads}), is {self.kv_heads}", key="kv_heads")
        if self.head_dim % 2:
            raise Refusal(Reason.CASE_INVALID, f"must be even, is {self.head_dim}", key="head_dim")

    @property
    def vocab_size(self) -> int:
        """Number of tokens: the characters and the special ones."""
        return len(VOCABULARY)


def synthesise(spec: Spec, folder: Path) -> dict[str, dict]:
    """Make the checkpoint under `folder`, whole or not at all, and return its files.

    The result maps a file's name to its `size` (bytes) and `sha256`, as `checkpoint.describe`
    takes them for `declared`. A folder that holds exactly these files is left as it is; one that
    holds anything else is refused (CHECKPOINT_MISMATCH), never overwritten. One tensor at a time is
    in memory.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        made = {name: _write(temporary / name, parts) for name, parts in sorted(_files(spec).items())}
        temporary.chmod(0o755)
        try:
            temporary.replace(folder)
        except OSError:
            if not folder.exists():
                raise
            if not _holds(folder, made):  # something was there, or another process was first
                message = "the folder holds something else than this synthesis"
                raise Refusal(Reason.CHECKPOINT_MISMATCH, message, file=folder) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return made


def _files(spec: Spec) -> dict[str, Iterable[bytes]]:
    """Each file's bytes, in parts."""
    special = {"bos_token_id": VOCABULARY[BEGIN], "eos_token_id": VOCABULARY[END], "pad_token_id": VOCABULARY[PAD]}
    return {
        "config.json": [_json(_config(spec))],
        "generation_config.json": [_json(special)],
        "tokenizer.json": [_json(_tokenizer())],
        "tokenizer_config.json": [_json(_tokenizer_config(spec))],
        WEIGHTS: _safetensors(_tensors(spec)),
    }


def _config(spec: Spec) -> dict:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": VOCABULARY[BEGIN],
        "dtype": "bfloat16",
        "eos_token_id": VOCABULARY[END],
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "hidden_size": spec.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": spec.intermediate_size,
        "max_position_embeddings": spec.positions,
        "max_window_layers": spec.layers,
        "model_type": "qwen3",
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "num_key_value_heads": spec.kv_heads,
        "pad_token_id": VOCABULARY[PAD],
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "rope_theta": 10000.0,  # read by transformers before 5
        "sliding_window": None,
        "tie_word_embeddings": spec.tie_word_embeddings,
        "torch_dtype": "bfloat16",  # read by transformers before 4.56
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": spec.vocab_size,
    }


def _tokenizer() -> dict:
    # BPE without merges splits a text into characters; `Fuse` joins them again without spaces.
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": VOCABULARY[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in SPECIALS
        ],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": VOCABULARY,
            "merges": [],
        },
    }


def _tokenizer_config(spec: Spec) -> dict:
    return {
        "add_bos_token": False,  # nosec B105 # a token of a text
        "add_eos_token": False,  # nosec B105 # a token of a text
        "bos_token": BEGIN,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "model_max_length": spec.positions,
        "pad_token": PAD,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": UNKNOWN,
    }


@dataclass(frozen=True)
class _Tensor:
    """A tensor of bfloat16; its little-endian bytes are made when they are asked for."""

    shape: tuple[int, ...]
    data: Callable[[], bytes]


def _tensors(spec: Spec) -> dict[str, _Tensor]:
    """Each tensor by name."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim

    def ones(size: int) -> _Tensor:
        return _Tensor((size,), lambda: _ONE * size)

    def matrix(name: str, rows: int, columns: int) -> _Tensor:
        size = rows * columns
        return _Tensor((rows, columns), lambda: _bfloat16(_stream(spec.seed, name, size), _exponent(columns)))

    head = "model.embed_tokens.weight" if spec.tie_word_embeddings else "lm_head.weight"
    found = {
        "model.norm.weight": ones(hidden),
        head: _Tensor((spec.vocab_size, hidden), lambda: _bfloat16(_head(spec.seed, head, hidden), _exponent(hidden))),
    }
    shapes = {} if spec.tie_word_embeddings else {"model.embed_tokens.weight": (spec.vocab_size, hidden)}
    for layer in range(spec.layers):
        prefix = f"model.layers.{layer}"
        found[f"{prefix}.input_layernorm.weight"] = ones(hidden)
        found[f"{prefix}.post_attention_layernorm.weight"] = ones(hidden)
        found[f"{prefix}.self_attn.q_norm.weight"] = ones(spec.head_dim)
        found[f"{prefix}.self_attn.k_norm.weight"] = ones(spec.head_dim)
        shapes |= {
            f"{prefix}.self_attn.q_proj.weight": (queries, hidden),
            f"{prefix}.self_attn.k_proj.weight": (keys, hidden),
            f"{prefix}.self_attn.v_proj.weight": (keys, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, queries),
            f"{prefix}.mlp.gate_proj.weight": (inner, hidden),
            f"{prefix}.mlp.up_proj.weight": (inner, hidden),
            f"{prefix}.mlp.down_proj.weight": (hidden, inner),
        }
    return found | {name: matrix(name, *shape) for name, shape in shapes.items()}


def _head(seed: int, name: str, columns: int) -> bytes:
    """Rows of the output projection: pairs of opposite sign, then zeros for the special tokens."""
    negate = bytes(256 - value if value else 0 for value in range(256))
    half = _stream(seed, name, len(CHARACTERS) // 2 * columns).replace(b"\x80", b"\x81")  # -128 has no opposite
    rows = (half[start : start + columns] for start in range(0, len(half), columns))
    return b"".join(row + row.translate(negate) for row in rows) + bytes(len(SPECIALS) * columns)


def _stream(seed: int, name: str, size: int) -> bytes:
    return hashlib.shake_128(f"{_DOMAIN}\0{seed}\0{name}".encode()).digest(size)


def _exponent(fan_in: int) -> int:
    """e such that 127 / 2**e is sqrt(3 / fan_in), rounded to a power of two: outputs keep the inputs' size."""
    return math.isqrt(2 * 127 * 127 * fan_in // 3).bit_length() - 1


def _bfloat16(data: bytes, exponent: int) -> bytes:
    """Bytes read as signed numbers k, as little-endian bfloat16 k / 2**exponent (exact: k has 8 bits)."""
    patterns = [struct.pack(">f", (k - 256 if k > 127 else k) / (1 << exponent)) for k in range(256)]
    pairs = bytearray(2 * len(data))
    pairs[0::2] = data.translate(bytes(pattern[1] for pattern in patterns))
    pairs[1::2] = data.translate(bytes(pattern[0] for pattern in patterns))
    return bytes(pairs)


def _safetensors(tensors: Mapping[str, _Tensor]) -> Iterator[bytes]:
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(tensors):
        shape = tensors[name].shape
        size = 2 * math.prod(shape)
        header[name] = {"data_offsets": [offset, offset + size], "dtype": "BF16", "shape": list(shape)}
        offset += size
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in sorted(tensors):
        yield tensors[name].data()


def _json(value: dict) -> bytes:
    return (json.dumps(value, sort_keys=True, indent=2, ensure_ascii=True) + "\n").encode()


def _holds(folder: Path, made: Mapping[str, Mapping[str, Any]]) -> bool:
    if not folder.is_dir() or {path.name for path in folder.iterdir()} != set(made):
        return False
    return all(records.file_sha256(folder / name) == facts["sha256"] for name, facts in made.items())


def _write(path: Path, parts: Iterable[bytes]) -> dict[str, Any]:
    """Write a file to the disk; its size and digest."""
    size, digest = 0, hashlib.sha256()
    with path.open("wb") as stream:
        for part in parts:
            stream.write(part)
            digest.update(part)
            size += len(part)
        stream.flush()
        os.fsync(stream.fileno())
    return {"size": size, "sha256": digest.hexdigest()}
