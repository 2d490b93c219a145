"""Checkpoints: what a model's folder holds, and whether it is whole, before any server starts.

The cheap checks come first (names, sizes, pointers, headers, the index); only a folder that passes
them is read to the end for its digests. Every file counts, not the weights only: a chat template
of another revision changes a measurement as well.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pinproof import records
from pinproof.digests import Digests
from pinproof.hub import Snapshot
from pinproof.reasons import Reason, Refusal

Kind = Literal["local", "synthesised", "hub"]

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
_LFS = b"version https://git-lfs.github.com/spec/"
_HEADER_LIMIT = 100_000_000  # bytes; the format's own limit
_UNREAD = frozenset({".git", ".cache"})  # what git and the hub client keep for themselves
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_TOKENIZER_FILES = re.compile(
    r"(tokenizer[^/]*\.json|tokenizer\.model[^/]*|special_tokens_map\.json|added_tokens\.json|vocab\.(json|txt)"
    r"|merges\.txt|tekken\.json|spiece\.model|chat_template\.(jinja|json)|[^/]+\.tiktoken|[^/]+\.jinja)"
)
_DTYPE_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True)
class FileFact:
    """One file: its name relative to the folder (with slashes), size in bytes, and digest."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class CheckpointFacts:
    """What a checkpoint is. None is unknown (no safetensors header, no such key in config.json).

    `elements` counts the stored elements by dtype; a packed 4-bit weight counts once a byte.
    """

    kind: Kind
    repo: str | None
    commit: str | None
    files: tuple[FileFact, ...]
    weight_files: int
    weight_bytes: int
    elements: Mapping[str, int] | None
    architectures: tuple[str, ...] | None
    max_position_embeddings: int | None
    vocab_size: int | None
    quantization: str | None

    @property
    def parameters(self) -> int | None:
        """Number of stored elements of all dtypes; None when no header says so."""
        return None if self.elements is None else sum(self.elements.values())

    @property
    def digest(self) -> str:
        """Digest over every file's name, size and digest: equal exactly when the folders are."""
        return _digest_of(self.files)

    @property
    def tokenizer_digest(self) -> str | None:
        """The same over the tokenizer's files only; None when there is none."""
        files = [file for file in self.files if _TOKENIZER_FILES.fullmatch(file.name)]
        return _digest_of(files) if files else None

    def as_record(self) -> dict[str, Any]:
        """The facts as JSON values, digests included; no path of this machine is among them."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        return record | {
            "files": {file.name: {"size": file.size, "sha256": file.sha256} for file in self.files},
            "elements": None if self.elements is None else dict(self.elements),
            "architectures": None if self.architectures is None else list(self.architectures),
            "parameters": self.parameters,
            "digest": self.digest,
            "tokenizer_digest": self.tokenizer_digest,
        }


class WeightTotals(NamedTuple):
    """What is declared of the weight files as a whole; None is not declared.

    How many, their bytes together, and the size of each in any order.
    """

    files: int | None = None
    bytes: int | None = None
    sizes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Inspected:
    """A folder that is whole as far as can be told without reading it to the end."""

    folder: Path
    files: Mapping[str, Path]
    headers: Mapping[str, Mapping[str, Any]]
    weights: tuple[str, ...]
    config: Mapping[str, Any]

    @property
    def weight_bytes(self) -> int:
        """Size of what the engine loads."""
        return sum(self.files[name].stat().st_size for name in self.weights)

    @property
    def max_position_embeddings(self) -> int | None:
        """The longest sequence, tokens; None where the configuration does not say it."""
        return _limits(self.config)["max_position_embeddings"]


def inspect(
    source: Path | Snapshot,
    *,
    declared: Mapping[str, Mapping[str, Any]] | None = None,
    totals: WeightTotals | None = None,
) -> Inspected:
    """The checks that take no time: names, sizes, pointers, headers, the index. See `describe`."""
    folder = source.folder if isinstance(source, Snapshot) else source
    declared = declared or {}
    files = _files(folder)
    _refuse_pointers(folder, files)
    _refuse_partial(folder, source, files, decided=bool(declared))
    _check_declared_sizes(folder, files, declared)
    headers = {name: read_header(path) for name, path in files.items() if name.endswith(".safetensors")}
    _check_shards(folder, headers)
    weights = _check_index(folder, files, headers) or _weights(files)
    config = _config(folder, files)
    if not weights:
        raise Refusal(Reason.CHECKPOINT_MISSING, "no weight file", file=folder)
    found = Inspected(folder, files, headers, tuple(weights), config)
    _check_totals(found, totals or WeightTotals())
    return found


def describe(
    source: Path | Snapshot,
    cache: Path | None = None,
    *,
    kind: Literal["local", "synthesised"] = "local",
    declared: Mapping[str, Mapping[str, Any]] | None = None,
    totals: WeightTotals | None = None,
) -> CheckpointFacts:
    """Read a checkpoint and check that it is whole.

    `source` is a folder, or a snapshot of a hub cache. `cache` is a JSON file that remembers
    digests by path, size, mtime and inode. `declared` maps file names to `size` (bytes) and
    `sha256`, either of which may be absent; files that it does not name are recorded, not refused.
    `totals` is what the weight files must be as a whole.

    Refusals: CHECKPOINT_MISSING, CHECKPOINT_POINTER, CHECKPOINT_DAMAGED, CHECKPOINT_MISMATCH; the
    message names every file concerned.
    """
    found = inspect(source, declared=declared, totals=totals)
    facts = _hash(found.files, cache)
    _check_declared_digests(found.folder, facts, declared or {})
    return CheckpointFacts(
        kind="hub" if isinstance(source, Snapshot) else kind,
        repo=source.repo if isinstance(source, Snapshot) else None,
        commit=source.commit if isinstance(source, Snapshot) else None,
        files=facts,
        weight_files=len(found.weights),
        weight_bytes=found.weight_bytes,
        elements=_elements([found.headers[name] for name in found.weights if name in found.headers]),
        **_limits(found.config),
    )


def seen(folder: Path, known: Collection[str] = ()) -> list[list[Any]] | None:
    """Name, size and mtime of every file that is not known by its digest: another content is told by them.

    None when there is no such folder.
    """
    if not folder.is_dir():
        return None
    files = sorted(_walk(folder, "", frozenset()))
    status = {name: path.stat() for name, path in files if name not in known and path.exists()}
    return [[name, one.st_size, one.st_mtime_ns] for name, one in status.items()]


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Tensor entries of a safetensors file, checked against the file's size; no tensor is read.

    Refusal CHECKPOINT_DAMAGED says what does not fit.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_LIMIT):
            raise _damaged(path, f"the header asks for {length} bytes, the file has {size}")
        text = stream.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        spans = sorted(
            (*map(int, entry["data_offsets"]), math.prod(map(int, entry["shape"])), str(entry["dtype"]), name)
            for name, entry in header.items()
        )
        place = 0
        for begin, end, elements, dtype, name in spans:
            if begin != place or end < begin:
                raise _damaged(path, f"tensor at bytes {begin} to {end}, expected to begin at {place}", key=name)
            bits = _DTYPE_BITS.get(dtype)
            if bits is not None and elements * bits != 8 * (end - begin):
                raise _damaged(path, f"shape and dtype do not fill bytes {begin} to {end}", key=name)
            place = end
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, f"the header is not readable: {error!r}") from None
    if place != size - 8 - length:
        raise _damaged(path, f"the header describes {place} bytes of tensors, the file holds {size - 8 - length}")
    return header


def _files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise Refusal(Reason.CHECKPOINT_MISSING, "no such folder", file=folder)
    files = dict(sorted(_walk(folder, "", frozenset())))
    if dangling := [name for name, path in files.items() if not path.exists()]:
        raise Refusal(Reason.CHECKPOINT_MISSING, f"links that lead nowhere: {', '.join(dangling)}", file=folder)
    if not files:
        raise Refusal(Reason.CHECKPOINT_MISSING, "the folder is empty", file=folder)
    return files


def _walk(folder: Path, prefix: str, above: frozenset[Path]) -> Iterator[tuple[str, Path]]:
    """Every file below a folder; links to folders are followed, once around."""
    above |= {folder.resolve()}
    for path in folder.iterdir():
        if path.is_file() or (path.is_symlink() and not path.exists()):
            yield prefix + path.name, path
        elif path.is_dir() and path.name not in _UNREAD and path.resolve() not in above:
            yield from _walk(path, f"{prefix}{path.name}/", above)


def _refuse_pointers(folder: Path, files: Mapping[str, Path]) -> None:
    pointers = []
    for name, path in files.items():
        try:
            with path.open("rb") as stream:
                if stream.read(len(_LFS)) == _LFS:
                    pointers.append(name)
        except OSError as error:
            raise Refusal(Reason.CHECKPOINT_MISSING, f"not readable: {error.strerror}", file=path) from None
    if pointers:
        raise Refusal(Reason.CHECKPOINT_POINTER, f"Git LFS pointers, not files: {', '.join(pointers)}", file=folder)


def _refuse_partial(folder: Path, source: Path | Snapshot, files: Mapping[str, Path], *, decided: bool) -> None:
    """Refuse what a broken-off download left, unless a declared list decides what must be there."""
    partial = [name for name in files if name.endswith(".incomplete")]
    if not decided:
        partial += [path.relative_to(folder).as_posix() for path in _partial_downloads(folder)]
    if not decided and isinstance(source, Snapshot):
        blobs = folder.parent.parent / "blobs"
        names = sorted(path.name for path in blobs.glob("*.incomplete"))
        partial += [f"blobs/{name}" for name in names if not (blobs / name.split(".")[0]).exists()]
    if partial:
        raise Refusal(Reason.CHECKPOINT_MISSING, f"downloads that broke off: {', '.join(partial)}", file=folder)


def _partial_downloads(folder: Path) -> list[Path]:
    """Partial files of the hub client in a local folder, those left out whose download ended later."""
    kept = folder / ".cache" / "huggingface"
    lines = (path.read_text(errors="replace").splitlines() for path in kept.rglob("*.metadata"))
    ended = {parts[1] for parts in lines if len(parts) > 1}  # commit, etag, time
    return sorted(path for path in kept.rglob("*.incomplete") if not ended & set(path.name.split(".")))


def _check_declared_sizes(folder: Path, files: Mapping[str, Path], declared: Mapping[str, Mapping[str, Any]]) -> None:
    if missing := sorted(set(declared) - set(files)):
        raise Refusal(Reason.CHECKPOINT_MISSING, f"declared, but not there: {', '.join(missing)}", file=folder)
    wrong = [
        f"{name} ({actual} bytes, declared {size})"
        for name, entry in sorted(declared.items())
        if (size := entry.get("size")) is not None and (actual := files[name].stat().st_size) != size
    ]
    if wrong:
        raise Refusal(Reason.CHECKPOINT_MISMATCH, f"size differs: {', '.join(wrong)}", file=folder)


def _check_declared_digests(
    folder: Path, facts: tuple[FileFact, ...], declared: Mapping[str, Mapping[str, Any]]
) -> None:
    wrong = [
        f"{fact.name} ({fact.sha256}, declared {wanted})"
        for fact in facts
        if (wanted := declared.get(fact.name, {}).get("sha256")) is not None and wanted != fact.sha256
    ]
    if wrong:
        raise Refusal(Reason.CHECKPOINT_MISMATCH, f"sha256 differs: {', '.join(wrong)}", file=folder)


def _check_totals(found: Inspected, declared: WeightTotals) -> None:
    sizes = sorted(found.files[name].stat().st_size for name in found.weights)
    here = WeightTotals(len(sizes), sum(sizes), tuple(sizes))
    if declared.sizes is not None and (lost := Counter(declared.sizes) - Counter(sizes)):
        text = f"no weight file of {_bytes(lost.elements())}; there are files of {_bytes(sizes)}"
        raise Refusal(Reason.CHECKPOINT_MISSING, text, file=found.folder)
    wanted = declared._replace(sizes=declared.sizes and tuple(sorted(declared.sizes)))
    for what, own, asked in zip(("weight files", "bytes of weights", "as sizes of weights"), here, wanted, strict=True):
        if asked is not None and own != asked:
            raise Refusal(Reason.CHECKPOINT_MISMATCH, f"{own} {what}, declared {asked}", file=found.folder)


def _bytes(sizes: Iterable[int]) -> str:
    return f"{', '.join(map(str, sorted(sizes)))} bytes"


def _check_shards(folder: Path, names: Mapping[str, Any]) -> None:
    """Shards count themselves in their names: refuse when one of the series is not there."""
    missing = set()
    for match in filter(None, map(_SHARD.fullmatch, names)):
        count = match["count"]
        series = {f"{match['stem']}-{number:05d}-of-{count}.safetensors" for number in range(1, int(count) + 1)}
        missing |= series - set(names)
    if missing:
        raise Refusal(Reason.CHECKPOINT_MISSING, f"shards not there: {', '.join(sorted(missing))}", file=folder)


def _check_index(folder: Path, files: Mapping[str, Path], headers: Mapping[str, Mapping]) -> list[str]:
    """Compare every index with its shards' headers; return the shards that the folder's own index names."""
    used: set[str] = set()
    for name in (name for name in files if name.endswith(".safetensors.index.json")):
        index = _json(files[name])
        weight_map = index.get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
            raise _damaged(files[name], "no weight_map of shards in the index")
        prefix = name.rpartition("/")[0]
        shards = {shard: f"{prefix}/{shard}".lstrip("/") for shard in sorted(set(weight_map.values()))}
        if missing := [shard for shard in shards.values() if shard not in headers]:
            raise Refusal(
                Reason.CHECKPOINT_MISSING, f"the index names shards not there: {', '.join(missing)}", file=folder
            )
        absent = [
            (tensor, shards[shard]) for tensor, shard in weight_map.items() if tensor not in headers[shards[shard]]
        ]
        if absent:
            places = ", ".join(f"{tensor} in {shard}" for tensor, shard in absent[:8])
            more = f" and {len(absent) - 8} more" if len(absent) > 8 else ""
            message = f"the index names tensors that their shards do not hold: {places}{more}"
            raise Refusal(Reason.CHECKPOINT_DAMAGED, message, file=files[name], key=absent[0][0])
        used |= set(shards.values()) if not prefix else set()
    return sorted(used)


def _weights(files: Mapping[str, Path]) -> list[str]:
    """What the engine would load where no index says so: safetensors before other kinds, the top before below."""
    found = [name for name in files if name.endswith(".safetensors")]
    found = found or [name for name in files if name.endswith(_WEIGHT_SUFFIXES)]
    return [name for name in found if "/" not in name] or found


def _config(folder: Path, files: Mapping[str, Path]) -> dict[str, Any]:
    if "config.json" in files:
        return _json(files["config.json"])
    if "params.json" in files or any(name.endswith(".gguf") for name in files):
        return {}
    raise Refusal(Reason.CHECKPOINT_MISSING, "no config.json", file=folder)


def _limits(config: Mapping[str, Any]) -> dict[str, Any]:
    text = config.get("text_config") or {}
    quantization = config.get("quantization_config") or text.get("quantization_config") or {}
    architectures = config.get("architectures")
    return {
        "architectures": None if architectures is None else tuple(architectures),
        "max_position_embeddings": config.get("max_position_embeddings", text.get("max_position_embeddings")),
        "vocab_size": config.get("vocab_size", text.get("vocab_size")),
        "quantization": quantization.get("quant_method"),
    }


def _elements(headers: list[dict[str, dict[str, Any]]]) -> dict[str, int] | None:
    counts: Counter[str] = Counter()
    for header in headers:
        for entry in header.values():
            counts[entry["dtype"]] += math.prod(entry["shape"])
    return dict(sorted(counts.items())) if headers else None


def _hash(files: Mapping[str, Path], cache: Path | None) -> tuple[FileFact, ...]:
    digests = Digests(cache)
    return tuple(FileFact(name, path.stat().st_size, digests.sha256(path)) for name, path in files.items())


def _digest_of(files: Any) -> str:
    return records.digest({file.name: [file.size, file.sha256] for file in files})


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise _damaged(path, f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _damaged(path, "not a JSON object")
    return value


def _damaged(path: Path, message: str, key: str | None = None) -> Refusal:
    return Refusal(Reason.CHECKPOINT_DAMAGED, message, file=path, key=key)
