"""Build environments: what `[build-system] requires` asks for, installed once and kept.

One is made by uv under a digest of what went in, and its marker is written last. Whether it has
what a tree asks for is checked at every use, not only when it was made.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import filelock
from packaging.requirements import InvalidRequirement, Requirement

from pinproof import commands, locks, records, versionfile
from pinproof.reasons import Reason, Refusal

SCHEMA = "buildenv"
_FALLBACK = ("setuptools >= 40.8.0",)  # PEP 518: what a project that says nothing asks for
_LENGTH = 16


@dataclass(frozen=True)
class Torch:
    """A build of torch: its version with the local part, and the CUDA or HIP that it was compiled with."""

    version: str
    cuda: str | None = None
    hip: str | None = None


@dataclass(frozen=True)
class BuildEnv:
    """An environment that is whole; `installed` are its distributions as `name==version`, sorted."""

    folder: Path
    installed: tuple[str, ...]

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def torch(self) -> Torch | None:
        """Its torch, read without importing it; None when it has none."""
        for path in _site(self.folder).glob("torch/version.py"):
            values = versionfile.assigned(path.read_text(encoding="utf-8"))
            if isinstance(version := values.get("__version__"), str):
                return Torch(version, values.get("cuda"), values.get("hip"))
        return None


def requirements(tree: Path) -> tuple[str, ...]:
    """`[build-system] requires` of a source tree. Refusal SOURCE_INVALID for a pyproject.toml that cannot be read."""
    path = tree / "pyproject.toml"
    if not path.is_file():
        return _FALLBACK
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        found = tuple(table.get("build-system", {}).get("requires", _FALLBACK))
        for text in found:
            Requirement(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, InvalidRequirement, TypeError) as error:
        raise Refusal(Reason.SOURCE_INVALID, f"its build requirements cannot be read: {error}", file=path) from None
    return found


def provide(
    root: Path,
    wanted: Sequence[str],
    *,
    python: Path | None = None,
    lock: Path | None = None,
    offline: bool = False,
    log: Path,
) -> BuildEnv:
    """The environment below `root` that has what is wanted; made when it is not there or not whole.

    With a lock, exactly the lock is installed, each by its hash; else uv resolves what is wanted.
    Refusals: BUILD_REQUIREMENT (uv's last lines, or the requirement that the lock does not bring).
    """
    python = python or Path(sys.executable)
    key = {
        "wanted": sorted(wanted) if lock is None else None,
        "lock": locks.requirements_digest(lock) if lock else None,
        "python": _version_of(python),
        "machine": platform.machine(),
        "links": sorted(path.name for folder in locks.find_links() for path in folder.glob("*.whl")),
    }
    folder = root / records.digest(key)[:_LENGTH]
    root.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(root / f"{folder.name}.lock"):
        if not _is_whole(folder):
            _make(folder, wanted, python, lock, offline=offline, log=log)
            body = {"key": key, "installed": list(_installed(folder))}
            records.write(folder / "pinproof.json", SCHEMA, body, provenance={"python": str(python)})
    made = BuildEnv(folder, _installed(folder))
    if lacking := missing(made, wanted):
        whose = f"{lock.name} does not bring" if lock else "the build environment lacks"
        raise Refusal(Reason.BUILD_REQUIREMENT, f"{whose} {'; '.join(lacking)}", file=lock)
    return made


def missing(env: BuildEnv, wanted: Sequence[str]) -> list[str]:
    """The requirements that an environment does not meet, each with what it has instead."""
    has = dict(one.split("==", 1) for one in env.installed)
    found = []
    for requirement in map(Requirement, wanted):
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        version = has.get(_plain(requirement.name))
        if version is None:
            found.append(f"{requirement} (not there)")
        elif not requirement.specifier.contains(version, prereleases=True):
            found.append(f"{requirement} (there is {version})")
    return found


def _make(folder: Path, wanted: Sequence[str], python: Path, lock: Path | None, *, offline: bool, log: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    cut = ["--offline"] if offline else []
    links = [word for place in locks.find_links() for word in ("--find-links", place)]
    what = ["--no-deps", "--require-hashes", "-r", lock] if lock else list(wanted)
    install = [uv, "pip", "install", *cut, "--python", folder / "bin" / "python", *links, *what]
    for argv in ([uv, "venv", *cut, "--python", python, folder], install):
        finished = commands.run(argv, log=log)
        if finished.status != 0:
            message = f"uv {argv[1]} {finished.ended}, wanted {', '.join(wanted)}:\n{finished.tail}"
            raise Refusal(Reason.BUILD_REQUIREMENT, message, file=log)


def _is_whole(folder: Path) -> bool:
    """Is the marker there, and does the environment still hold what it names?"""
    try:
        noted = records.read(folder / "pinproof.json", SCHEMA)["installed"]
    except Refusal:
        return False
    return (folder / "bin" / "python").exists() and noted == list(_installed(folder))


def _installed(folder: Path) -> tuple[str, ...]:
    found = metadata.distributions(path=[str(_site(folder))])
    return tuple(sorted(f"{_plain(one.metadata['Name'])}=={one.version}" for one in found))


def _site(folder: Path) -> Path:
    return next(iter(folder.glob("lib/python3*/site-packages")), folder / "lib")


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _version_of(python: Path) -> str:
    """Implementation and version of an interpreter, such as cpython-3.11."""
    text = "import sys; print(f'{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}')"
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", text], capture_output=True, text=True, check=True, env={"PATH": os.defpath}
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Refusal(Reason.BUILD_REQUIREMENT, f"the interpreter cannot be started: {error}", file=python) from None
    return done.stdout.strip()
