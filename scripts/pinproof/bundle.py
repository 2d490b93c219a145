"""Bundles: all that a worker without a network needs, in parts of a stated size.

One archive (the workflow, the wheels of its own environment and of the arms', a program that unpacks
and runs) cut into parts, each with its digest. What the worker has already (an engine's `provided`) is
not in it, and a synthesised checkpoint is made there. Wheels are chosen for the worker, not for this
machine: its Python, its processor, its C library.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from packaging.utils import canonicalize_name, parse_wheel_filename

from pinproof import commands, layout, locks, provided, records
from pinproof.hardware import Worker
from pinproof.reasons import Reason, Refusal

PROGRAM = Path(__file__).parent / "children" / "unpack.py"
WORKFLOW = ("Snakefile", "rules", "scripts", "config", "envs", "profiles", "tests/stubs")
PIPELINE_LOCK = "envs/pipeline.txt"
MIB = 2**20


def make(places: layout.Layout, *, log: Path) -> dict[str, Any]:
    """Make the bundle beside its record, and return the record's body.

    Refusals: WHEEL_UNAVAILABLE when a wheel for the worker cannot be had, with the installer's last lines.
    """
    worker = places.case.worker or here()
    folder = places.bundle.parent
    stage = folder / "stage"
    shutil.rmtree(folder, ignore_errors=True)
    wheels = stage / "wheels"
    wheels.mkdir(parents=True)
    _fetch_pipeline(places.root / PIPELINE_LOCK, wheels, worker, log)
    for name in places.case.arms:
        _fetch_arm(places, name, wheels, worker, log)
    _copy_workflow(places, stage / "workflow")
    records.write_text(stage / "requirements.txt", "".join(_pinned(places.root / PIPELINE_LOCK, wheels)))
    files = {path.relative_to(stage).as_posix(): _facts(path) for path in sorted(stage.rglob("*")) if path.is_file()}
    parts = [_facts(path) | {"file": path.name} for path in _pack(stage, files, folder, worker.part_mib * MIB)]
    shutil.rmtree(stage)
    shutil.copyfile(PROGRAM, folder / PROGRAM.name)
    return {
        "case": places.case.case,
        "case_file": _case_place(places),
        "worker": worker.model_dump(),
        "left_out": {name: dict(arm.engine.provided) for name, arm in places.case.arms.items()},
        "parts": parts,
        "files": files,
    }


def sources(places: layout.Layout) -> list[str]:
    """The files of the workflow that a bundle is made from, as a rule names them."""
    found = []
    for name in WORKFLOW:
        source = places.root / name
        inner = sorted(source.rglob("*")) if source.is_dir() else [source]
        found += [path for path in inner if path.is_file() and "__pycache__" not in path.parts]
    return [str(path) for path in found]


def here() -> Worker:
    """A worker like this machine."""
    return Worker(
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        machine=platform.machine(),
        glibc=platform.libc_ver()[1],
    )


def platforms(worker: Worker) -> list[str]:
    """The wheel platforms that the worker takes, newest first: pip matches each name exactly."""
    newest = int(worker.glibc.split(".")[1])
    modern = [f"manylinux_2_{minor}_{worker.machine}" for minor in range(newest, 4, -1)]
    legacy = ["manylinux2014", *(["manylinux2010", "manylinux1"] if worker.machine == "x86_64" else [])]
    return [*modern, *(f"{name}_{worker.machine}" for name in legacy), f"linux_{worker.machine}"]


def _download(what: Sequence[str | Path], wheels: Path, worker: Worker, log: Path) -> None:
    words = [word for name in platforms(worker) for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--implementation", "cp"]
    finished = commands.run([*pip, "--python-version", worker.python, *words, "--dest", wheels, *what], log=log)
    if finished.status != 0:
        message = f"pip {finished.ended} for Python {worker.python} on {worker.machine}:\n{finished.tail}"
        raise Refusal(Reason.WHEEL_UNAVAILABLE, message, file=log)


def _fetch_pipeline(lock: Path, wheels: Path, worker: Worker, log: Path) -> None:
    """The wheels of the workflow's own environment; a source distribution of pure Python is built here."""
    _download(["--require-hashes", "-r", lock], wheels, worker, log)
    for source in [*wheels.glob("*.tar.gz"), *wheels.glob("*.zip")]:
        pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", wheels, source]
        finished = commands.run(pip, log=log)
        if finished.status != 0:
            raise Refusal(
                Reason.WHEEL_UNAVAILABLE, f"pip {finished.ended} for {source.name}:\n{finished.tail}", file=log
            )
        source.unlink()


def _fetch_arm(places: layout.Layout, name: str, wheels: Path, worker: Worker, log: Path) -> None:
    """What an arm's lock installs on the worker, and its engine's wheel by version and digest."""
    engine = places.case.arms[name].engine
    lock = places.engine(name).lock
    wanted = provided.left(lock, engine.provided)
    listed = wheels.parent / "wanted.txt"
    records.write_text(listed, "".join(f"{one}\n" for one in wanted))
    _download(["--require-hashes", "-r", listed], wheels, worker, log)
    records.write_text(listed, f"{engine.distribution}=={engine.version} --hash=sha256:{engine.sha256}\n")
    _download(["--require-hashes", "-r", listed], wheels, worker, log)
    listed.unlink()


def _pinned(lock: Path, wheels: Path) -> Iterator[str]:
    """The pipeline's requirements with the digests of the very wheels of the bundle."""
    there: dict[tuple[str, str], Path] = {}
    for path in sorted(wheels.glob("*.whl")):
        name, version, _, _ = parse_wheel_filename(path.name)
        there[name, str(version)] = path
    for line in locks.requirements(lock):
        need = provided.requirement(line)
        version = next(iter(need.specifier)).version
        path = there[canonicalize_name(need.name), version]
        yield f"{need.name}=={version} --hash=sha256:{records.file_sha256(path)}\n"


def _case_place(places: layout.Layout) -> str:
    """Where the case lies in the bundled workflow."""
    try:
        return places.case_file.resolve().relative_to(places.root.resolve()).as_posix()
    except ValueError:
        return f"config/{places.case.case}.yaml"


def _copy_workflow(places: layout.Layout, folder: Path) -> None:
    folder.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", ".*")
    for name in WORKFLOW:
        source = places.root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignore)
        else:
            shutil.copyfile(source, folder / name)
    named = [arm.pin for arm in places.case.arms.values()]
    named += [lock for arm in places.case.arms.values() for lock in arm.engine.locks.values()]
    named += [places.case.previous_pin] if places.case.previous_pin else []
    for one in named:
        if not (folder / one).exists() and (places.root / one).is_file() and not Path(one).is_absolute():
            (folder / one).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(places.root / one, folder / one)
    case = folder / _case_place(places)
    case.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(places.case_file, case)


def _facts(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": records.file_sha256(path)}


def _pack(stage: Path, files: Sequence[str], folder: Path, size: int) -> list[Path]:
    """One archive, cut into parts; wheels are packed already, so it is not compressed."""
    parts = _Parts(folder, size)
    with tarfile.open(fileobj=parts, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name in files:
            archive.add(stage / name, arcname=name, filter=_plain)
    parts.close()
    return parts.paths


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without what varies: owner and time."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


class _Parts:
    """A stream that goes into files of at most `size` bytes: part01, part02, …"""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder, self._size, self._left = folder, size, 0
        self._stream: BinaryIO | None = None
        self.paths: list[Path] = []

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        while view:
            if not self._left:
                self.close()
                self.paths.append(self._folder / f"part{len(self.paths) + 1:02d}")
                self._stream, self._left = self.paths[-1].open("wb"), self._size
            piece = view[: self._left]
            self._stream.write(piece)
            self._left -= len(piece)
            view = view[len(piece) :]
        return len(data)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
