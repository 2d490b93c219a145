"""What a worker has already: distributions that are linked into an environment in the place of an install.

A GPU worker without a network often has its torch, with the CUDA libraries that it was built for. The
case names such distributions; they and what only they need are linked from the interpreter that has
them, folder by folder, so that nothing else of it can be imported. Their path-configuration files
(.pth) are linked too, into a real site folder, so that they work.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from pinproof import commands, locks, versionfile
from pinproof.reasons import Reason, Refusal

PROVIDER_VARIABLE = "PINPROOF_PROVIDER"
PROGRAM = Path(__file__).parent / "children" / "read_provided.py"


@dataclass(frozen=True)
class Distribution:
    """A distribution of the providing interpreter; files relative to `place`, without those outside."""

    name: str
    version: str
    requires: tuple[str, ...]
    place: Path
    files: tuple[str, ...]


def provider() -> Path:
    """The interpreter that has what is provided: PINPROOF_PROVIDER, else the one that this one was made from."""
    named = os.environ.get(PROVIDER_VARIABLE)
    return Path(named) if named else Path(getattr(sys, "_base_executable", sys.executable))


def read(python: Path, *, log: Path) -> dict[str, Distribution]:
    """Everything that an interpreter has installed, by canonical name.

    Refusal PROVIDED_OTHER when it cannot be read, or is another Python than this one.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "provided.json"
        finished = commands.run([python, "-I", PROGRAM, output], log=log, cwd=Path("/"))
        try:
            body = json.loads(output.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            message = f"{python} {finished.ended} and does not tell what it has:\n{finished.tail}"
            raise Refusal(Reason.PROVIDED_OTHER, message, file=log) from None
    if body["python"] != list(sys.version_info[:2]):
        theirs, ours = (".".join(map(str, one)) for one in (body["python"], sys.version_info[:2]))
        raise Refusal(Reason.PROVIDED_OTHER, f"{python} is Python {theirs}, the environment is of Python {ours}")
    return {canonicalize_name(name): _distribution(name, one) for name, one in body["distributions"].items()}


def requirement(line: str) -> Requirement:
    """A line of a lock (`locks.requirements`) without its hashes."""
    return Requirement(line.split(" --hash", 1)[0])


def left(lock: Path, has: Mapping[str, str]) -> list[str]:
    """What of a lock is to be installed where this is there already, one requirement a line."""
    named = {canonicalize_name(name) for name in has}
    return [one for one in locks.requirements(lock) if canonicalize_name(requirement(one).name) not in named]


def chosen(
    wanted: Mapping[str, str], there: Mapping[str, Distribution], installed: set[str]
) -> dict[str, Distribution]:
    """The named distributions, each as declared, and what they need that is not installed from the lock.

    `installed` are canonical names. Refusal PROVIDED_OTHER names what is not there, or is another version.
    """
    for name, version in wanted.items():
        found = there.get(canonicalize_name(name))
        if found is None:
            raise Refusal(Reason.PROVIDED_OTHER, f"{name} is not there, declared is {version}", key="provided")
        if version not in (here := _versions(found)):
            message = f"{name} {version} is declared, here is {' or '.join(here)}"
            raise Refusal(Reason.PROVIDED_OTHER, message, key="provided")
    seen: set[tuple[str, str]] = set()
    ahead = [(canonicalize_name(name), "") for name in wanted]
    while ahead:
        name, extra = one = ahead.pop()
        if one not in seen and name in there and name not in installed:
            seen.add(one)
            ahead += _needs(there[name], extra)
    return {name: there[name] for name, _ in sorted(seen)}


def links(there: Mapping[str, Distribution], which: Mapping[str, Distribution]) -> dict[str, Path]:
    """What to link: place below the site folder -> its target.

    A folder is linked whole when everything in it belongs to what is linked; a shared one (a namespace
    such as nvidia/) is gone through.
    """
    owners: dict[tuple[Path, str], set[str]] = defaultdict(set)
    for name, one in there.items():
        for file in one.files:
            for prefix in _prefixes(file):
                owners[one.place, prefix].add(name)
    found = {}
    for one in which.values():
        for file in one.files:
            own = next((prefix for prefix in _prefixes(file) if owners[one.place, prefix] <= which.keys()), file)
            found[own] = one.place / own
    return found


def link(site: Path, targets: Mapping[str, Path]) -> None:
    """Make the links; what the environment has of its own stays, and a folder of both is gone through."""
    for name, target in sorted(targets.items()):
        _link(site / name, target)


def _link(place: Path, target: Path) -> None:
    if place.is_symlink() or not target.exists():
        return
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    elif place.is_dir() and target.is_dir():
        for inner in sorted(target.iterdir()):
            _link(place / inner.name, inner)


def _distribution(name: str, one: Mapping[str, Any]) -> Distribution:
    inside = tuple(file for file in one["files"] if not file.startswith(("/", "..")))
    return Distribution(name, one["version"], tuple(one["requires"]), Path(one["place"]), inside)


def _versions(one: Distribution) -> tuple[str, ...]:
    """The version that its metadata says, and the one of its module with the local part, where it has one."""
    found = [one.version]
    for name in ("version.py", "_version.py"):
        path = one.place / one.name.replace("-", "_") / name
        if path.is_file():
            said = versionfile.assigned(path.read_text(encoding="utf-8", errors="replace")).get("__version__")
            if isinstance(said, str) and _public(said) == _public(one.version):
                found.append(said)
    return tuple(dict.fromkeys(found))


def _public(version: str) -> str:
    try:
        return Version(version).public
    except InvalidVersion:
        return version


def _needs(one: Distribution, extra: str) -> list[tuple[str, str]]:
    """What a distribution needs with this extra ("" for none): names, each with every extra that is asked for."""
    found = []
    for text in one.requires:
        try:
            need = Requirement(text)
        except InvalidRequirement:
            continue
        if need.marker is None or need.marker.evaluate({"extra": extra}):
            found += [(canonicalize_name(need.name), name) for name in ("", *sorted(need.extras))]
    return found


def _prefixes(file: str) -> list[str]:
    """A file's folders from the outermost, and the file itself."""
    parts = file.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
