"""Packing: the same files are the same bytes, and what is read may be anyone's."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from pathlib import Path

import pytest
import zstandard
from tests.builders import refusal_of

from pinproof import packing
from pinproof.reasons import Reason

LONG = "results/" + "deep/" * 30 + "x.json"  # its name does not fit into one header
FILES = {"a.txt": b"a", LONG: b"x" * 3000, "results/empty": b"", "results/ünï.json": b"{}"}


def sealed(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files with the index and the seal of an archive."""
    listed = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    index = json.dumps({"files": listed}).encode()
    return {**files, packing.INDEX: index, packing.SEAL: packing.seal(index)}


def archive(path: Path, stream: bytes) -> Path:
    path.write_bytes(zstandard.ZstdCompressor().compress(stream))
    return path


def tar(*members: tarfile.TarInfo, data: bytes = b"") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        for member in members:
            member.size = len(data) if member.isreg() else 0
            made.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found


def stream_of(files: dict[str, bytes]) -> bytes:
    return zstandard.ZstdDecompressor().decompress(packing.pack(files))


def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    packed = tmp_path / "a.tar.zst"
    packed.write_bytes(packing.pack(sealed(FILES)))
    assert packing.unpack(packed) == sealed(FILES)
    packing.write(FILES, tmp_path / "out")
    assert (tmp_path / "out" / LONG).read_bytes() == FILES[LONG]


def test_the_order_in_which_files_come_does_not_change_a_byte() -> None:
    assert packing.pack(sealed(FILES)) == packing.pack(dict(reversed(sealed(FILES).items())))


def test_nothing_of_a_machine_is_in_a_header() -> None:
    with tarfile.open(fileobj=io.BytesIO(stream_of(FILES))) as made:
        assert {(one.uid, one.gid, one.uname, one.gname, one.mtime, one.mode) for one in made} == {
            (0, 0, "", "", 0, 0o644)
        }


@pytest.mark.parametrize(
    "hostile",
    [
        [member("/etc/passwd")],
        [member("../x")],
        [member("a/../../x")],
        [member("a//x")],
        [member("./x")],
        [member("a\\x")],
        [member("a\nx")],
        [member("x" * 600)],
        [member("x", tarfile.SYMTYPE, "/etc/passwd")],
        [member("x", tarfile.LNKTYPE, "y")],
        [member("x", tarfile.CHRTYPE)],
        [member("x", tarfile.FIFOTYPE)],
        [member("x", tarfile.DIRTYPE)],
        [member("x", tarfile.CONTTYPE)],
        [member("x"), member("x")],
        [member("x"), member("x/y")],
    ],
    ids=lambda members: members[-1].name[:10] + members[-1].type.decode(),
)
def test_hostile_members_are_refused_and_named(tmp_path: Path, hostile: list[tarfile.TarInfo]) -> None:
    refusal = refusal_of(packing.unpack, archive(tmp_path / "a", tar(*hostile)))
    assert refusal.reason is Reason.ARCHIVE_HOSTILE
    assert repr(hostile[-1].name)[1:10] in refusal.message


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = archive(tmp_path / "a", tar(member("x"), data=bytes(50_000_000)))
    assert bomb.stat().st_size < 10_000
    assert refusal_of(lambda: packing.unpack(bomb, largest=1_000_000)).reason is Reason.ARCHIVE_HOSTILE


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    many = archive(tmp_path / "a", tar(*(member(f"{number}") for number in range(11))))
    assert refusal_of(lambda: packing.unpack(many, most=10)).reason is Reason.ARCHIVE_HOSTILE


def test_a_window_that_takes_all_memory_is_refused(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, compression_level=1)
    path = tmp_path / "a"
    path.write_bytes(zstandard.ZstdCompressor(compression_params=parameters).compressobj().compress(bytes(300_000_000)))
    assert refusal_of(packing.unpack, path).reason is Reason.ARCHIVE_DAMAGED


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 no archive", zstandard.compress(b"no tar" * 200)])
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    assert refusal_of(packing.unpack, tmp_path / "a").reason is Reason.ARCHIVE_DAMAGED
    assert refusal_of(packing.unpack, tmp_path / "none").reason is Reason.ARCHIVE_DAMAGED


def test_a_stream_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(packing.pack(sealed(FILES))[:-20])
    assert refusal_of(packing.unpack, tmp_path / "a").reason is Reason.ARCHIVE_DAMAGED


def test_bytes_behind_the_archive_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(packing.pack(sealed(FILES)) + zstandard.compress(b"more"))
    assert refusal_of(packing.unpack, tmp_path / "a").reason is Reason.ARCHIVE_DAMAGED


def test_an_owner_or_a_time_in_a_header_is_refused_with_the_file_s_name(tmp_path: Path) -> None:
    late = member("a.txt")
    late.mtime = 1
    refusal = refusal_of(packing.unpack, archive(tmp_path / "a", tar(late, data=b"a")))
    assert refusal.reason is Reason.ARCHIVE_DAMAGED


def test_every_changed_byte_of_a_header_or_of_padding_is_found_and_its_file_named(tmp_path: Path) -> None:
    """Bytes of the files themselves are for the index: see test_archive."""
    files = sealed(FILES)
    stream = stream_of(files)
    content = set()
    with tarfile.open(fileobj=io.BytesIO(stream)) as made:
        spans = {}
        start = 0
        for one in made:
            end = one.offset_data + -(-one.size // 512) * 512
            spans[one.name] = (start, end)
            content |= set(range(one.offset_data, one.offset_data + one.size))
            start = end
    draw = random.Random(0)
    for at in draw.sample(sorted(set(range(start)) - content), 60):
        changed = bytearray(stream)
        changed[at] ^= draw.randrange(1, 256)
        refusal = refusal_of(packing.unpack, archive(tmp_path / "a", bytes(changed)))
        (name,) = [name for name, (begin, end) in spans.items() if begin <= at < end]
        long_name = name == LONG and refusal.reason is Reason.ARCHIVE_HOSTILE  # its name itself was changed
        assert refusal.key == name or long_name, (at, name, str(refusal))
