"""Caches that a start finds: the page cache, compiled graphs, compiled kernels; set, and seen to be set.

A cache folder is fresh when it is empty. It is warm when it holds what a first life of the same arm
left; every later life gets a copy of that, so that each finds the same bytes. The page cache is set
file by file, which needs no privilege and troubles no neighbour: it is dropped by advice to the
kernel and read in by reading, and what the kernel then really holds is counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pinproof.case import CACHE_VARIABLES
from pinproof.claims import Caches

KINDS = ("compile", "jit")
# Shares of the files' pages in memory that still count as dropped, and already as warm.
DROPPED, WARM = 0.05, 0.95
_SMALL = 64 << 10  # bytes: files below are left out; they are many and weigh little
_PAGE = mmap.PAGESIZE
_CHUNK = 8 << 20


class Cabinet:
    """The cache folders of one arm, and what a first life left in them."""

    def __init__(self, folder: Path) -> None:
        self._live, self._kept = folder / "live", folder / "kept"

    def environment(self) -> dict[str, str]:
        """The variables that lead an engine to these folders."""
        return {name: str(self._live / kind / name.lower()) for name, kind in CACHE_VARIABLES.items()}

    def keep(self) -> None:
        """What the caches hold now is what every warm start finds."""
        shutil.rmtree(self._kept, ignore_errors=True)
        if self._live.exists():
            self._live.rename(self._kept)

    def set(self, wanted: Caches) -> None:
        """Make every kind what the row asks for."""
        shutil.rmtree(self._live, ignore_errors=True)
        for kind in KINDS:
            (self._live / kind).mkdir(parents=True)
            if getattr(wanted, kind) == "warm" and (self._kept / kind).exists():
                shutil.copytree(self._kept / kind, self._live / kind, symlinks=True, dirs_exist_ok=True)

    def state(self) -> dict[str, Any]:
        """By kind: how many files, how many bytes, and their digest."""
        return {kind: state(self._live / kind) for kind in KINDS}


def state(folder: Path) -> dict[str, Any]:
    """What a folder holds: names and contents, whatever the times."""
    digest, count, size = hashlib.sha256(), 0, 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        data = _sha256(path)
        digest.update(f"{path.relative_to(folder).as_posix()}\0{data}\n".encode())
        count, size = count + 1, size + path.stat().st_size
    return {"files": count, "bytes": size, "digest": digest.hexdigest()[:16]}


class Pages:
    """The page cache of the files of an engine and a checkpoint."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._files = sorted(path for folder in folders for path in folder.rglob("*") if _counts(path))

    def set(self, wanted: str) -> None:
        """Read the files in, or advise the kernel to drop them; whether it did, `state` says."""
        for path in self._files:
            with contextlib.suppress(OSError), path.open("rb") as stream:
                if wanted == "dropped":
                    os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                else:
                    _read_missing(stream)

    def state(self) -> dict[str, Any]:
        """How many files and bytes, and the share of their pages in memory; null where that cannot be told."""
        pages = there = 0
        for path in self._files:
            try:
                with path.open("rb") as stream:
                    held = resident(stream)
            except OSError:
                return {"files": len(self._files), "resident": None}
            pages, there = pages + len(held), there + sum(one & 1 for one in held)
        return {
            "files": len(self._files),
            "bytes": pages * _PAGE,
            "resident": round(there / pages, 4) if pages else 1.0,
        }


def resident(stream: Any) -> bytes:
    """One byte a page of an open file; its lowest bit says that the page is in memory. OSError when unknown."""
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        count = -(-len(view) // _PAGE)
        vector = (ctypes.c_ubyte * count)()
        start = ctypes.c_char.from_buffer(view)
        try:
            if _mincore()(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(view)), vector) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
        finally:
            del start
        return bytes(vector)


def _mincore() -> Any:
    return ctypes.CDLL(None, use_errno=True).mincore


def _read_missing(stream: Any) -> None:
    if all(one & 1 for one in resident(stream)):
        return
    while stream.read(_CHUNK):
        pass


def _counts(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return not path.is_symlink() and path.is_file() and path.stat().st_size >= _SMALL
    return False


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def differences(wanted: Caches, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What a life found that the row does not ask for, in words.

    A kind that was empty before and after had nothing to hold, and is as warm as it can be; compiled
    graphs alone must be there, for a start without them is a cold one.
    """
    found = []
    for kind in KINDS:
        asked, had, left = getattr(wanted, kind), before[kind]["files"], after[kind]["files"]
        if asked == "fresh" and had:
            found.append(f"the {kind} cache held {had} files and was to be fresh")
        if asked == "warm" and not had and (left or kind == "compile"):
            found.append(f"a cold start: the {kind} cache held nothing and was to be warm")
    return found + page_difference(wanted, before["page"])


def page_difference(wanted: Caches, found: Mapping[str, Any]) -> list[str]:
    """What the page cache held that the row does not ask for; known before a life is spent on it."""
    share = found["resident"]
    if share is None:
        return ["the kernel does not tell what the page cache holds"]
    if wanted.page == "dropped" and share > DROPPED:
        return [f"{share:.0%} of the files' pages were in memory and were to be dropped"]
    if wanted.page == "warm" and share < WARM:
        return [f"{share:.0%} of the files' pages were in memory and were to be warm"]
    return []
