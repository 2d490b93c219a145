"""Locks: what an environment is made from, requirement by requirement, and the local wheels that may meet it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from pinproof import records

TORCH_BUILD_VARIABLE = "PINPROOF_TORCH"
WHEELHOUSE_VARIABLE = "PINPROOF_WHEELHOUSE"


def torch_build(root: Path, named: Mapping[str, str]) -> str:
    """Which of an arm's locks is used: what PINPROOF_TORCH says, else `cpu` where a find-links
    folder holds the CPU build of torch that the lock names, else `index`."""
    if chosen := os.environ.get(TORCH_BUILD_VARIABLE):
        return chosen
    lock = named.get("cpu")
    if lock is None or not (root / lock).is_file():
        return "index"
    wanted = next((line for line in requirements(root / lock) if line.startswith("torch==")), "")
    version = wanted.removeprefix("torch==").split()[0] if wanted else ""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    pattern = f"torch-{version}-{tag}-*{platform.machine()}.whl"
    return "cpu" if version and any(_glob(folder, pattern) for folder in find_links()) else "index"


def wheelhouse() -> Path | None:
    """The folder that every wheel is taken from, where PINPROOF_WHEELHOUSE names one: then no index is asked."""
    named = os.environ.get(WHEELHOUSE_VARIABLE)
    return Path(named) if named else None


def find_links() -> list[Path]:
    """Local folders of wheels that pip or uv is told to look into; the wheelhouse alone where there is one."""
    if only := wheelhouse():
        return [only]
    words = f"{os.environ.get('UV_FIND_LINKS', '')} {os.environ.get('PIP_FIND_LINKS', '')}".replace(",", " ").split()
    folders = (Path(word.removeprefix("file://")) for word in words if "://" not in word or word.startswith("file://"))
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def requirements(lock: Path) -> list[str]:
    """The requirements of a lock, one a line, comments and layout left out."""
    text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (line.split(" #")[0].strip() for line in text.splitlines())
    return sorted(" ".join(line.split()) for line in lines if line and not line.startswith("#"))


def requirements_digest(lock: Path) -> str:
    """Digest of what a lock asks for: comments, order and line breaks do not change it."""
    return records.digest(requirements(lock))


def _glob(folder: Path, pattern: str) -> bool:
    return any(folder.glob(pattern))
