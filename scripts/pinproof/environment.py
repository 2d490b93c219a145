"""Environments of engines: made from a lock and one wheel, whole or not at all."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from pinproof import commands, locks, provided, records, spanwheel
from pinproof.reasons import Reason, Refusal

SCHEMA = "env"
WHOLE = ".whole.json"


def create(
    folder: Path,
    lock: Path,
    wheel: Path,
    wheel_sha256: str,
    *,
    log: Path,
    has: Mapping[str, str] | None = None,
    spans: bool = False,
) -> dict:
    """Make the environment of an engine in `folder` and return the record that marks it whole.

    uv installs what the lock names, each by its hash, then the wheel, and with `spans` the span plugin;
    bytecode is compiled now, so that no server start pays for it. What the machine `has` already (name ->
    version) is left out of the lock and linked instead. A half-made folder is removed first; one that is
    whole already, made by another checkout that shares the store, is left as it is: it may be measuring
    with it. Refusals: WHEEL_UNAVAILABLE, WHEEL_DIGEST and PROVIDED_OTHER before anything is touched,
    ENV_FAILED with the installer's last lines.
    """
    if not wheel.is_file():
        raise Refusal(Reason.WHEEL_UNAVAILABLE, "no such wheel; delete the wheel.json that names it", file=wheel)
    if records.file_sha256(wheel) != wheel_sha256:
        raise Refusal(Reason.WHEEL_DIGEST, "the wheel is not the one its record names", file=wheel)
    body = {"requirements": locks.requirements_digest(lock), "wheel": wheel.name, "wheel_sha256": wheel_sha256}
    body |= {"spans": spanwheel.sha256()} if spans else {}
    wanted = provided.left(lock, has or {})
    linked, targets = _provided(has, {canonicalize_name(provided.requirement(one).name) for one in wanted}, log)
    body |= {"provided": linked} if has else {}
    if not _is_whole(folder, body):
        _install(folder, lock if not has else _written(folder, wanted), wheel, spans, log)
        if targets:
            provided.link(_site(folder), targets)
        records.write(folder / WHOLE, SCHEMA, body)
    return records.write(folder / "pinproof.json", SCHEMA, body, provenance={"python": sys.executable})


def _is_whole(folder: Path, body: dict) -> bool:
    """Snakemake removes the marker that it knows before it runs the rule; this one stays."""
    try:
        return records.content_digest(records.read(folder / WHOLE, SCHEMA)) == records.content_digest(
            records.headed(SCHEMA, body)
        )
    except Refusal:
        return False


def _provided(has: Mapping[str, str] | None, installed: set[str], log: Path) -> tuple[dict[str, str], dict[str, Path]]:
    """Versions by name of what is linked, and the links."""
    if not has:
        return {}, {}
    there = provided.read(provided.provider(), log=log)
    which = provided.chosen(has, there, installed)
    return {name: one.version for name, one in sorted(which.items())}, provided.links(there, which)


def _written(folder: Path, requirements: list[str]) -> Path:
    """The requirements as a file beside the environment, for the installer."""
    path = folder.with_name(f"{folder.name}-requirements.txt")
    records.write_text(path, "".join(f"{one}\n" for one in requirements))
    return path


def _site(folder: Path) -> Path:
    tag = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / tag / "site-packages"


def _install(folder: Path, lock: Path, wheel: Path, spans: bool, log: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    _run([uv, "venv", "--python", sys.executable, folder], log)
    install = [uv, "pip", "install", "--python", folder / "bin" / "python", "--no-deps", "--compile-bytecode"]
    if house := locks.wheelhouse():
        install += ["--offline", "--no-index", "--find-links", house]
    _run([*install, *_links(lock), "--require-hashes", "-r", lock], log)
    _run([*install, wheel, *([spanwheel.write(wheel.parent.parent)] if spans else [])], log)


def _links(lock: Path) -> list[str | Path]:
    """Find-links folders, for a lock that names a local version (torch 2.13.0+cpu). For another they are
    kept from uv: a `torch==2.13.0` of the index would be met by the CPU build there, under another hash."""
    if locks.wheelhouse() or not any("+" in requirement.split()[0] for requirement in locks.requirements(lock)):
        return []
    return [word for place in locks.find_links() for word in ("--find-links", place)]


def _run(argv: list, log: Path) -> None:
    settings = {name: value for name, value in os.environ.items() if name != "UV_FIND_LINKS"}
    finished = commands.run(argv, log=log, env=settings)
    if finished.status != 0:
        raise Refusal(Reason.ENV_FAILED, f"{Path(argv[0]).name} {argv[1]} {finished.ended}:\n{finished.tail}", file=log)
