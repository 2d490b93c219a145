"""Wheels: what a wheel file is, whether it is whole, and the same bytes under another name.

Nothing is unpacked to disk and nothing large is held in memory. The tag in the file name is what an
installer looks at; a `Tag` in WHEEL that says otherwise is a fact (`tag_disagrees`), not a refusal.
"""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import io
import platform
import re
import stat
import struct
import sys
import zipfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import unquote

from packaging.metadata import parse_email
from packaging.tags import Tag, compatible_tags, cpython_tags, parse_tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from pinproof import versionfile
from pinproof.reasons import Reason, Refusal
from pinproof.records import file_sha256, replacing

_CHUNK = 1 << 20
_TEXT_LIMIT = 64 << 20  # no metadata file of a wheel is larger
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


@dataclass(frozen=True)
class Extension:
    """A compiled extension of a wheel; size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class WheelFacts:
    """What a wheel says of itself. `version` is METADATA's; `module_*` come from `<package>/_version.py`, unrun."""

    file: str
    name: str
    version: str
    build_tag: str | None
    file_tags: tuple[str, ...]
    wheel_tags: tuple[str, ...]
    tag_disagrees: bool
    requires_dist: tuple[str, ...]
    entry_points: tuple[str, ...]
    extensions: tuple[Extension, ...]
    module_version: str | None
    commit_id: str | None
    size: int
    sha256: str

    def as_record(self) -> dict:
        """The facts as JSON values."""
        return asdict(self)


def inspect(path: Path) -> WheelFacts:
    """Read a wheel's facts; nothing in it is executed and no content is compared with RECORD.

    Refusals: WHEEL_UNAVAILABLE (no such file), WHEEL_NAME, WHEEL_TRUNCATED, WHEEL_RECORD.
    """
    filename = _parse_name(path)
    with _open(path) as archive:
        info = _info_folder(archive, path)
        metadata, _ = parse_email(_text(archive, f"{info}/METADATA", path))
        wheel_tags = re.findall(r"(?m)^Tag:[ \t]*(\S+)", _text(archive, f"{info}/WHEEL", path))
        rows = _record_rows(archive, info, path)
        module = _module_file(archive, filename.name)
        module_version, commit = versionfile.literals(_text(archive, module, path)) if module else (None, None)
        points = f"{info}/entry_points.txt"
        entry_points = _entry_points(_text(archive, points, path)) if points in archive.NameToInfo else ()
    if not metadata.get("name") or not metadata.get("version"):
        raise Refusal(Reason.WHEEL_NAME, "METADATA has no Name or no Version", file=path)
    announced = {tag for entry in wheel_tags for tag in parse_tag(entry)}
    return WheelFacts(
        file=path.name,
        name=metadata["name"],
        version=metadata["version"],
        build_tag=filename.build_tag,
        file_tags=tuple(sorted(map(str, filename.tags))),
        wheel_tags=tuple(sorted(map(str, announced))),
        tag_disagrees=announced != filename.tags,
        requires_dist=tuple(metadata.get("requires_dist", ())),
        entry_points=entry_points,
        extensions=tuple(Extension(row.path, row.size or 0) for row in rows if _is_extension(row.path)),
        module_version=module_version,
        commit_id=commit,
        size=path.stat().st_size,
        sha256=file_sha256(path),
    )


def verify(path: Path, sha256: str | None = None, *, python: tuple[int, int] | None = None) -> WheelFacts:
    """Check that a wheel is whole, is what its name says, and can be installed here; return its facts.

    `python` is the (major, minor) of the interpreter it is for; by default the running one.
    Refusals: as `inspect`, and WHEEL_DIGEST, WHEEL_NAME, WHEEL_PLATFORM, WHEEL_RECORD.
    """
    filename = _parse_name(path)
    if sha256 is not None and path.is_file() and (found := file_sha256(path)) != sha256.lower():
        raise Refusal(Reason.WHEEL_DIGEST, f"sha256 is {found}, declared {sha256}", file=path)
    facts = inspect(path)
    _check_name(filename, facts, path)
    _check_platform(filename, path, python)
    with _open(path) as archive:
        _check_record(archive, path)
    return facts


def relabel(source: Path, folder: Path, name: str = "vllm", local: str = "cpu") -> Path:
    """Write the same wheel under another distribution name and local version into `folder`; return its path.

    Only Name, Version, the names of the .dist-info and .data folders and RECORD change; compressed
    bytes of all else are copied. The same source gives the same bytes. An empty `local` keeps the
    version. Refusals: as `verify` of the source, except WHEEL_PLATFORM.
    """
    filename = _parse_name(source)
    facts = inspect(source)
    _check_name(filename, facts, source)
    version = with_local(facts.version, local)
    stem = f"{canonicalize_name(name).replace('-', '_')}-{version}"
    tags = unquote(source.name).removesuffix(".whl").split("-", 2)[2]
    target = folder / f"{stem}-{tags}.whl"
    with _open(source) as archive, source.open("rb") as raw, replacing(target) as temporary:
        _check_record(archive, source)
        info = _info_folder(archive, source)
        own = {info: f"{stem}.dist-info", f"{info.removesuffix('.dist-info')}.data": f"{stem}.data"}

        def moved(name: str) -> str:
            head, slash, tail = name.partition("/")
            return f"{own.get(head, head)}{slash}{tail}"

        metadata = _renamed_metadata(archive.read(f"{info}/METADATA"), name, version, source)
        rows = {row.path: row for row in _record_rows(archive, info, source)}
        rows[f"{info}/METADATA"] = _Row(f"{info}/METADATA", _digest_text(hashlib.sha256(metadata)), len(metadata))
        void = {f"{info}/{signature}" for signature in _SIGNATURES}  # they signed the old RECORD
        record = io.StringIO(newline="")
        csv.writer(record, lineterminator="\n").writerows(
            (moved(row.path), row.digest, row.size) for row in rows.values() if row.path not in void
        )
        changed = {f"{info}/METADATA": metadata, f"{info}/RECORD": record.getvalue().encode()}
        with zipfile.ZipFile(temporary, "w") as packed:
            for member in archive.infolist():
                if member.filename in changed:
                    entry = _entry(member, moved(member.filename))
                    entry.compress_type = zipfile.ZIP_STORED  # other zlibs deflate to other bytes
                    packed.writestr(entry, changed[member.filename])
                elif not member.is_dir() and member.filename not in void:
                    _copy(raw, packed, member, moved(member.filename))
    return target


# -- names and tags ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FileName:
    name: str
    version: Version
    build_tag: str | None
    tags: frozenset[Tag]


def _parse_name(path: Path) -> _FileName:
    """The parts of a wheel's file name; a URL's `%2B` is read as `+`."""
    try:
        name, version, build, tags = parse_wheel_filename(unquote(path.name))
    except InvalidWheelFilename as error:
        raise Refusal(
            Reason.WHEEL_NAME,
            f"not a wheel file name (name-version[-build]-python-abi-platform.whl): {error}",
            file=path,
        ) from None
    return _FileName(name, version, "".join(map(str, build)) or None, tags)


def _check_name(filename: _FileName, facts: WheelFacts, path: Path) -> None:
    try:
        version = Version(facts.version)
    except InvalidVersion:
        raise Refusal(Reason.WHEEL_NAME, f"METADATA version is not a version: {facts.version}", file=path) from None
    if canonicalize_name(facts.name) != filename.name or version != filename.version:
        raise Refusal(
            Reason.WHEEL_NAME,
            f"file name says {filename.name} {filename.version}, METADATA says {facts.name} {facts.version}",
            file=path,
        )


def supported_tags(python: tuple[int, int] | None = None) -> frozenset[Tag]:
    """The tags that CPython `python` (major, minor; default: the running one) accepts on this machine."""
    python = python or sys.version_info[:2]
    return frozenset([*cpython_tags(python), *compatible_tags(python, f"cp{python[0]}{python[1]}")])


def _check_platform(filename: _FileName, path: Path, python: tuple[int, int] | None) -> None:
    supported = supported_tags(python)
    if filename.tags & supported:
        return
    platforms = {tag.platform for tag in supported}
    if any(tag.platform in platforms for tag in filename.tags):
        wanted = ", ".join(sorted({f"{tag.interpreter}-{tag.abi}" for tag in filename.tags}))
        major, minor = python or sys.version_info[:2]
        raise Refusal(Reason.WHEEL_PLATFORM, f"is for {wanted}, the interpreter is CPython {major}.{minor}", file=path)
    machine, glibc = platform.machine(), platform.libc_ver()[1] or "unknown"
    texts = []
    for name in sorted({tag.platform for tag in filename.tags}):
        many = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", name)
        if many and many[3] == machine:
            texts.append(f"{name} needs glibc {many[1]}.{many[2]}, this machine has {glibc}")
        else:
            texts.append(f"{name} is not for this machine ({sys.platform} {machine}, glibc {glibc})")
    raise Refusal(Reason.WHEEL_PLATFORM, "; ".join(texts), file=path)


def with_local(version: str, local: str) -> str:
    """The version with a local label added to those it has; an empty label adds nothing."""
    parsed = Version(version)
    parts = [part for part in (parsed.local, local) if part]
    if len(parts) == 2 and parts[0].split(".")[-1] == local:
        parts.pop()
    return str(Version("+".join([parsed.public, ".".join(parts)]) if parts else parsed.public))


# -- the archive ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """One line of RECORD; a digest is `algorithm=base64`, or empty."""

    path: str
    digest: str
    size: int | None


def _open(path: Path) -> zipfile.ZipFile:
    """Open a wheel and refuse names that would leave the folder it is unpacked to."""
    if not path.is_file():
        raise Refusal(Reason.WHEEL_UNAVAILABLE, "no such wheel file", file=path)
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, struct.error, ValueError) as error:
        with path.open("rb") as stream:
            head = stream.read(40)
        pointer = " (a Git LFS pointer: git lfs pull)" if head.startswith(b"version https://git-lfs") else ""
        message = f"not a whole zip archive of {path.stat().st_size} bytes: {error}{pointer}"
        raise Refusal(Reason.WHEEL_TRUNCATED, message, file=path) from None
    seen: set[str] = set()
    for member in archive.infolist():
        name = member.filename
        hostile = name.startswith("/") or "\\" in name or ":" in name.split("/")[0] or ".." in name.split("/")
        if hostile or stat.S_ISLNK(member.external_attr >> 16) or member.flag_bits & 0x1 or name in seen:
            archive.close()
            what = "twice in the archive" if name in seen else "not a plain file inside the archive"
            raise Refusal(Reason.WHEEL_RECORD, f"{name!r} is {what}", file=path, key=name)
        seen.add(name)
    return archive


def _info_folder(archive: zipfile.ZipFile, path: Path) -> str:
    folders = {head for head, slash, _ in (n.partition("/") for n in archive.NameToInfo) if head.endswith(".dist-info")}
    if len(folders) != 1:
        raise Refusal(Reason.WHEEL_RECORD, f"holds {len(folders)} .dist-info folders, expected one", file=path)
    return folders.pop()


def _text(archive: zipfile.ZipFile, name: str, path: Path) -> str:
    member = archive.NameToInfo.get(name)
    if member is None or member.file_size > _TEXT_LIMIT:
        what = "is missing" if member is None else f"is too large ({member.file_size} bytes)"
        raise Refusal(Reason.WHEEL_RECORD, f"{name} {what}", file=path, key=name)
    try:
        return archive.read(member).decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(Reason.WHEEL_RECORD, f"{name} is not UTF-8 text", file=path, key=name) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise Refusal(Reason.WHEEL_TRUNCATED, f"{name} cannot be unpacked: {error}", file=path, key=name) from None


def _record_rows(archive: zipfile.ZipFile, info: str, path: Path) -> list[_Row]:
    rows = []
    try:
        for line in csv.reader(io.StringIO(_text(archive, f"{info}/RECORD", path), newline="")):
            if line:
                name, digest, size = line
                rows.append(_Row(name, digest, int(size) if size else None))
    except (ValueError, csv.Error) as error:
        raise Refusal(Reason.WHEEL_RECORD, f"RECORD has a malformed line: {error}", file=path) from None
    return rows


def _check_record(archive: zipfile.ZipFile, path: Path) -> None:
    """Compare every file of the archive with RECORD, both ways, by size and digest."""
    info = _info_folder(archive, path)
    exempt = {f"{info}/{name}" for name in ("RECORD", *_SIGNATURES)}
    rows: dict[str, _Row] = {}
    for row in _record_rows(archive, info, path):
        if row.path in rows:
            raise Refusal(Reason.WHEEL_RECORD, f"RECORD names {row.path} twice", file=path, key=row.path)
        rows[row.path] = row
    members = {member.filename: member for member in archive.infolist() if not member.is_dir()}
    if missing := sorted(rows.keys() - members.keys()):
        raise Refusal(
            Reason.WHEEL_RECORD, f"RECORD names {_some(missing)}, not in the archive", file=path, key=missing[0]
        )
    if extra := sorted(members.keys() - rows.keys() - exempt):
        raise Refusal(Reason.WHEEL_RECORD, f"{_some(extra)} not in RECORD", file=path, key=extra[0])
    for name, member in members.items():
        if name not in exempt:
            _check_member(archive, member, rows[name], path)


def _check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, row: _Row, path: Path) -> None:
    algorithm = row.digest.partition("=")[0]
    if algorithm not in ("sha256", "sha384", "sha512"):
        raise Refusal(Reason.WHEEL_RECORD, f"RECORD has no sha256 of {row.path}", file=path, key=row.path)
    if row.size is not None and row.size != member.file_size:
        message = f"{row.path} is {member.file_size} bytes, RECORD says {row.size}"
        raise Refusal(Reason.WHEEL_RECORD, message, file=path, key=row.path)
    hasher = hashlib.new(algorithm)
    try:
        with archive.open(member) as stream:
            while chunk := stream.read(_CHUNK):
                hasher.update(chunk)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise Refusal(
            Reason.WHEEL_TRUNCATED, f"{row.path} cannot be unpacked: {error}", file=path, key=row.path
        ) from None
    if _digest_text(hasher) != row.digest.rstrip("="):
        raise Refusal(Reason.WHEEL_RECORD, f"digest of {row.path} differs from RECORD", file=path, key=row.path)


def _digest_text(hasher) -> str:
    return f"{hasher.name}={base64.urlsafe_b64encode(hasher.digest()).rstrip(b'=').decode()}"


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


# -- what files of a wheel say -------------------------------------------------------------------


def _is_extension(path: str) -> bool:
    return re.search(r"\.so(\.\d+)*$", path) is not None


def _module_file(archive: zipfile.ZipFile, name: str) -> str | None:
    """The `_version.py` of the package: the one there is, or the one of the distribution's own name."""
    found = [entry for entry in archive.NameToInfo if entry.count("/") == 1 and entry.endswith("/_version.py")]
    own = [entry for entry in found if canonicalize_name(PurePosixPath(entry).parent.name) == name]
    return found[0] if len(found) == 1 else own[0] if own else None


def _entry_points(text: str) -> tuple[str, ...]:
    """`group: name = value` of every entry point, sorted; none when the file cannot be parsed."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str
    try:
        parser.read_string(text)
    except configparser.Error:
        return ()
    return tuple(sorted(f"{g}: {name} = {value}" for g in parser.sections() for name, value in parser[g].items()))


# -- packing -------------------------------------------------------------------------------------


def _renamed_metadata(metadata: bytes, name: str, version: str, path: Path) -> bytes:
    head, gap, body = re.match(rb"(?s)(.*?)(\r?\n\r?\n|\Z)(.*)", metadata).groups()
    for field, value in (("Name", name), ("Version", version)):
        pattern = rb"(?mi)^" + field.encode() + rb":[^\r\n]*"
        head, count = re.subn(pattern, f"{field}: {value}".encode(), head)
        if count != 1:
            raise Refusal(Reason.WHEEL_NAME, f"METADATA has {count} {field} fields", file=path)
    return head + gap + body


def _entry(member: zipfile.ZipInfo, name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _FIXED_TIME)
    entry.create_system = 3
    entry.external_attr = ((member.external_attr >> 16 & 0o111) | 0o644 | stat.S_IFREG) << 16
    entry.compress_type = member.compress_type
    return entry


def _copy(raw: BinaryIO, packed: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> None:
    """Append a member's compressed bytes as they are: 130 MB take a second, not a compression."""
    raw.seek(member.header_offset + 26)
    name_length, extra_length = struct.unpack("<HH", raw.read(4))
    raw.seek(name_length + extra_length, io.SEEK_CUR)
    entry = _entry(member, name)
    entry.CRC, entry.compress_size, entry.file_size = member.CRC, member.compress_size, member.file_size
    out = packed.fp
    out.seek(packed.start_dir)
    entry.header_offset = out.tell()
    out.write(entry.FileHeader())
    for left in range(member.compress_size, 0, -_CHUNK):
        out.write(raw.read(min(left, _CHUNK)))
    packed.start_dir = out.tell()
    packed.filelist.append(entry)
    packed.NameToInfo[name] = entry
