"""Packing: files in one .tar.zst whose bytes follow from the files alone, and the safe way back.

What is read is anyone's: it is looked at in memory, within stated limits, and only plain files with
plain names are taken. A stream that is not the very one that these files pack to is refused, with the
first file at which it differs, so that no byte of a header or of the padding goes unseen. The index is
the first file, and its digest the second: they tell which file should have stood at a place.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import zstandard

from pinproof.reasons import Reason, Refusal

INDEX = "index.json"  # {"files": {name: {"bytes": …, "sha256": …}}} of all files but these two
SEAL = "index.json.sha256"
LEVEL = 10  # of zstandard; more takes longer than it saves
LARGEST = 1 << 30  # bytes of an unpacked archive
MOST = 100_000  # files of it
LONGEST = 512  # characters of a name
_WINDOW = 1 << 27  # bytes of memory that a compressed stream may ask for
_CHUNK = 1 << 20

Files = Mapping[str, bytes]


def pack(files: Files) -> bytes:
    """The archive: names sorted, no owners, no times, one thread, so that the same files are the same bytes."""
    stream = _tar(files)
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True).compress(stream)


def seal(index: bytes) -> bytes:
    """The digest of the index, as sha256sum writes it."""
    return f"{hashlib.sha256(index).hexdigest()}  {INDEX}\n".encode()


def unpack(path: Path, *, largest: int = LARGEST, most: int = MOST) -> dict[str, bytes]:
    """The files of an archive, by name, and nothing written anywhere.

    Refusals: ARCHIVE_HOSTILE (a name or a kind of member that leads out of a folder, two of one name, more
    files or bytes than the limits), ARCHIVE_DAMAGED (not whole, or not the bytes that these files pack to).
    """
    stream = _decompressed(path, largest)
    files: dict[str, bytes] = {}
    broken = "its bytes are not those that its files pack to"
    try:
        with tarfile.open(fileobj=io.BytesIO(stream), mode="r:") as archive:
            for member in archive:
                _require_plain(path, member, files)
                if len(files) == most:
                    raise Refusal(Reason.ARCHIVE_HOSTILE, f"more than {most} files", file=path)
                files[member.name] = archive.extractfile(member).read()
    except (tarfile.TarError, ValueError, EOFError, OverflowError) as error:
        broken = f"not a whole archive: {error}"
    if (at := _first_difference(stream, _tar(files))) is not None:
        raise Refusal(Reason.ARCHIVE_DAMAGED, broken, file=path, key=_owner(files, at))
    return files


def write(files: Files, folder: Path) -> None:
    """Write unpacked files below an empty folder."""
    for name, data in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _tar(files: Files) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files, key=_order):
            archive.addfile(_header(name, len(files[name])), io.BytesIO(files[name]))
    return stream.getvalue()


def _header(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)  # owner and time are 0 already
    member.size, member.mode = size, 0o644
    return member


def _decompressed(path: Path, largest: int) -> bytes:
    """The stream within the limit, whatever its header promises."""
    found = bytearray()
    try:
        with open(path, "rb") as packed:
            reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(packed, read_across_frames=True)
            while chunk := reader.read(_CHUNK):
                found += chunk
                if len(found) > largest:
                    raise Refusal(Reason.ARCHIVE_HOSTILE, f"it unpacks to more than {largest} bytes", file=path)
    except FileNotFoundError:
        raise Refusal(Reason.ARCHIVE_DAMAGED, "no such file", file=path) from None
    except (OSError, zstandard.ZstdError) as error:
        raise Refusal(Reason.ARCHIVE_DAMAGED, f"not a whole zstandard stream: {error}", file=path) from None
    return bytes(found)


def _require_plain(path: Path, member: tarfile.TarInfo, known: Files) -> None:
    if told := _against(member, known):
        raise Refusal(Reason.ARCHIVE_HOSTILE, f"{member.name[:LONGEST]!r} {told}", file=path)


def _against(member: tarfile.TarInfo, known: Files) -> str | None:
    """Why a member is not taken."""
    name = member.name
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        return "is no plain file"
    if name in known:
        return "is there twice"
    if len(name) > LONGEST or not name.isprintable() or "\\" in name:
        return "is no plain name"
    if name.startswith("/") or PurePosixPath(name).as_posix() != name or {".", ".."} & set(name.split("/")):
        return "leads out of its folder"
    if any(str(parent) in known for parent in PurePosixPath(name).parents):
        return "lies below a file"
    return None


def _first_difference(one: bytes, other: bytes) -> int | None:
    """The first place at which two byte strings differ; None when they are equal."""
    if one == other:
        return None
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _owner(files: Files, at: int) -> str | None:
    """The file whose header, bytes or padding should stand at a place of the stream; None behind the last."""
    with contextlib.suppress(ValueError, OverflowError):  # an index may claim anything
        return next((name for name, end in _ends(_sizes(files)) if at < end), None)
    return INDEX


def _sizes(files: Files) -> dict[str, int]:
    """The size of every file that should be there, as far as an index can be read; else of those that are."""
    sizes = {INDEX: 0, SEAL: len(seal(b""))} | {name: len(data) for name, data in files.items()}
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        sizes |= {name: int(one["bytes"]) for name, one in json.loads(files[INDEX])["files"].items()}
    return sizes


def _ends(sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    place = 0
    for name in sorted(sizes, key=_order):
        header = _header(name, sizes[name]).tobuf(tarfile.PAX_FORMAT)
        place += len(header) + -(-sizes[name] // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        yield name, place


def _order(name: str) -> tuple[bool, bool, str]:
    return name != INDEX, name != SEAL, name
