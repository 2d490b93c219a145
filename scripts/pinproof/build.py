"""Building an engine from its source: what it will call itself first, then the wheel.

Both are asked of the project's own build backend (PEP 517), in a private copy of the tree, under
one and the same environment, so that what the metadata says is what the build will say. Nothing is
inherited from the caller's shell that could change the bytes: what a build is told stands in its
BuildSpec.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import build
import filelock
from packaging.metadata import parse_email

from pinproof import binaries, buildenv, buildlog, commands, records, source, staging, versionfile
from pinproof import wheel as wheels
from pinproof.buildenv import BuildEnv
from pinproof.engines import WITHOUT_TRACE
from pinproof.reasons import Reason, Refusal

T = TypeVar("T")
Mode = Literal["source", "precompiled"]
# What the compilers, the loader and the network client need; nothing here is meant to change the bytes.
_KEPT = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "SSL_CERT_FILE",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "RUSTUP_HOME", "CARGO_HOME",
)  # fmt: skip
_OURS = (
    "VLLM_TARGET_DEVICE", "VLLM_USE_PRECOMPILED", "VLLM_PRECOMPILED_WHEEL_LOCATION", "VLLM_PRECOMPILED_WHEEL_COMMIT",
    "VLLM_PRECOMPILED_WHEEL_VARIANT", "MAX_JOBS", "NVCC_THREADS", "PATH", "GIT_CEILING_DIRECTORIES",
)  # fmt: skip
_VERSION_OVERRIDES = ("SETUPTOOLS_SCM_PRETEND_VERSION", "VLLM_VERSION_OVERRIDE", "VLLM_SKIP_", "VLLM_MAIN_CUDA_VERSION")
_TOOLS = {
    "cc": ("gcc", "--version"),
    "cxx": ("g++", "--version"),
    "nvcc": ("nvcc", "--version"),
    "cmake": ("cmake", "--version"),
    "rustc": ("rustc", "--version"),
}
_BUILT = "built.json"


@dataclass(frozen=True)
class BuildSpec:
    """What a build is told. `env` is what the case adds; `staged` names folders by the variable that redirects to them.

    `precompiled_wheel` is the wheel that mode `precompiled` takes its binaries from. `lock` fixes the
    build environment; without it uv resolves `[build-system] requires`. `without` names repositories
    that optional parts of the build want and that the case goes without. Environments are kept below
    `cache`. With `network` false, git, cargo and uv are told to stay off it.
    """

    tree: Path
    mode: Mode
    target_device: str
    cache: Path
    env: Mapping[str, str] = field(default_factory=dict)
    staged: Mapping[str, Path] = field(default_factory=dict)
    max_jobs: int | None = None
    nvcc_threads: int | None = None
    precompiled_wheel: Path | None = None
    python: Path = Path(sys.executable)
    lock: Path | None = None
    without: tuple[str, ...] = ()
    network: bool = True

    def __post_init__(self) -> None:
        """Refusal CASE_INVALID for what contradicts itself."""
        if clash := sorted({*_OURS, *self.staged} & set(self.env)):
            raise Refusal(Reason.CASE_INVALID, f"set by the build itself, not by env: {', '.join(clash)}")
        if (self.mode == "precompiled") != (self.precompiled_wheel is not None):
            needs = "needs the wheel" if self.mode == "precompiled" else "takes no wheel"
            raise Refusal(Reason.CASE_INVALID, f"mode {self.mode} {needs} that the binaries are taken from")

    @property
    def overrides(self) -> dict[str, str]:
        """What the case sets that makes a version by hand: it is recorded, and never inherited."""
        return {name: value for name, value in self.env.items() if name.startswith(_VERSION_OVERRIDES)}


def build_environment(spec: BuildSpec, env: BuildEnv | None = None) -> dict[str, str]:
    """The whole environment of the backend, the same for metadata and build; `env` comes first on PATH."""
    values = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if env is not None:
        values["PATH"] = os.pathsep.join([str(env.folder / "bin"), values.get("PATH", os.defpath)])
    values |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "PYTHONNOUSERSITE": "1"}
    if not spec.network:
        values |= {"GIT_ALLOW_PROTOCOL": "file", "CARGO_NET_OFFLINE": "true", "UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    if spec.without:
        values["CARGO_NET_OFFLINE"] = "true"
    values |= spec.env
    values |= {variable: str(folder.absolute()) for variable, folder in spec.staged.items()}
    values |= {"VLLM_TARGET_DEVICE": spec.target_device, "VLLM_USE_PRECOMPILED": str(int(spec.mode == "precompiled"))}
    if spec.precompiled_wheel is not None:
        values["VLLM_PRECOMPILED_WHEEL_LOCATION"] = str(spec.precompiled_wheel.absolute())
    for name, number in (("MAX_JOBS", spec.max_jobs), ("NVCC_THREADS", spec.nvcc_threads)):
        if number is not None:
            values[name] = str(number)
    return values


def identity(spec: BuildSpec) -> dict[str, Any]:
    """What of a build's orders changes its bytes: no job counts, no paths, no times.

    A staged source counts by the digest of its files, a wheel by its own; what cargo has at hand does
    not count, since the Cargo.lock of the tree fixes it. The source tree, the build
    environment and the toolchain are counted beside it.
    """
    return {
        "mode": spec.mode,
        "target_device": spec.target_device,
        "env": {name: value for name, value in sorted(spec.env.items()) if name not in WITHOUT_TRACE},
        "staged": _staged(spec),
        "precompiled_wheel": records.file_sha256(spec.precompiled_wheel) if spec.precompiled_wheel else None,
        "without": sorted(spec.without),
        "machine": platform.machine(),
    }


def toolchain(spec: BuildSpec, env: BuildEnv | None = None, *, log: Path) -> dict[str, str | None]:
    """What the compilers call themselves, in the environment of the build; None for one that is not there."""
    environment = build_environment(spec, env)
    found: dict[str, str | None] = {}
    for name, argv in _TOOLS.items():
        place = shutil.which(argv[0], path=environment["PATH"])
        finished = commands.run([place, *argv[1:]], log=log, env=environment, cwd=Path("/")) if place else None
        lines = finished.output.strip().splitlines() if finished and finished.status == 0 else []
        found[name] = next((line for line in lines if "release" in line), lines[0]) if lines else None
    return found


def environment_for(spec: BuildSpec, *, log: Path) -> BuildEnv:
    """The build environment: `[build-system] requires` and what the backend asks for beyond it.

    What a backend answered is kept with the environment, so that it is asked once. Refusals:
    BUILD_REQUIREMENT, BUILD_TORCH (target cuda or rocm with another build of torch).
    """
    requires = buildenv.requirements(spec.tree)
    how = {"python": spec.python, "lock": spec.lock, "offline": not spec.network, "log": log}
    env = buildenv.provide(spec.cache, requires, **how)
    _require_torch(spec, env)
    asked = {"source": source.key(spec.tree), "target": spec.target_device, "mode": spec.mode, "env": dict(spec.env)}
    answer = env.folder / f"asked-{records.digest(asked)[:16]}.json"
    try:
        more = records.read(answer, "build-asked")["requires"]
    except Refusal:
        with tempfile.TemporaryDirectory(dir=spec.cache, prefix="asked-") as folder:
            backend = _Backend(spec, env, source.take(spec.tree, Path(folder)), log)
            more = sorted(backend.ask(lambda project: project.get_requires_for_build("wheel")))
        records.write(answer, "build-asked", {"requires": more})
    if not buildenv.missing(env, more):
        return env
    return buildenv.provide(spec.cache, [*requires, *more], **how)


def metadata(spec: BuildSpec, folder: Path, *, log: Path) -> dict[str, Any]:
    """What the build will call itself, asked of its backend (PEP 517 prepare_metadata_for_build_wheel).

    `commit` (with its leading g) and `module_version` are what `_version.py` says after the backend
    ran; None when it has none. A private copy of the tree is kept in `folder`. Refusals: those of
    `environment_for`, and what the backend's output tells (`buildlog.failed`).
    """
    env = environment_for(spec, log=log)
    tree = source.take(spec.tree, folder)
    out = folder / "metadata"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    made = _Backend(spec, env, tree, log).ask(lambda project: project.prepare("wheel", out))
    if made is None:
        message = "its build backend has no prepare_metadata_for_build_wheel: its version is known after the build"
        raise Refusal(Reason.IDENTITY_UNKNOWN, message, file=spec.tree)
    told, _ = parse_email((Path(made) / "METADATA").read_bytes())
    module_version, commit = versionfile.read(tree, told["name"])
    return {
        "name": told["name"],
        "version": told["version"],
        "module_version": module_version,
        "commit": commit,
        "requires_dist": list(told.get("requires_dist", ())),
        "requires_python": told.get("requires_python"),
        "overrides": spec.overrides,
        "build_env": list(env.installed),
    }


def wheel(spec: BuildSpec, folder: Path, *, log: Path, about: buildlog.About | None = None) -> Path:
    """Build the wheel and place it in `folder` under its own name; one that is there is not built again.

    Its record (`built`) is written last. A wheel whose log says that it does not count is kept in
    `folder/refused`. Refusals: those of `metadata`, `wheel.verify`, `buildlog.spoiled`.
    """
    env = environment_for(spec, log=log)
    tools = toolchain(spec, env, log=log)
    origin = source.facts(spec.tree).identity
    key = {**identity(spec), "source": origin, "installed": list(env.installed), "toolchain": tools}
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder.parent / f".{folder.name}.lock"):  # checkouts of the workflow share a store
        return _finished(folder, key) or _make(spec, env, folder, key, log, about)


def _make(
    spec: BuildSpec, env: BuildEnv, folder: Path, key: Mapping[str, Any], log: Path, about: buildlog.About | None
) -> Path:
    work, partial = folder / "work", folder / "partial"
    for left in (work, partial):
        shutil.rmtree(left, ignore_errors=True)
    partial.mkdir()
    begun = time.monotonic()
    backend = _Backend(spec, env, source.take(spec.tree, work), log, about)
    made = Path(backend.ask(lambda project: project.build("wheel", partial)))
    seconds = time.monotonic() - begun
    if refusal := buildlog.spoiled(backend.output, backend.about, file=log):
        (folder / "refused").mkdir(exist_ok=True)
        made.replace(folder / "refused" / made.name)
        raise refusal
    taken = binaries.taken(made, spec.precompiled_wheel) if spec.precompiled_wheel else None
    body = {
        "key": dict(key),
        "wheel": wheels.verify(made).as_record(),
        "binaries": taken.as_record() if taken else None,
        "skipped": [line.replace(f"{backend.tree.absolute()}/", "") for line in buildlog.skipped(backend.output)],
        "staged_changed": [name for name, digest in _staged(spec).items() if digest != key["staged"][name]],
        "overrides": spec.overrides,
    }
    orders = {"max_jobs": spec.max_jobs, "nvcc_threads": spec.nvcc_threads}
    places = {variable: str(place) for variable, place in spec.staged.items()}
    with records.replacing(folder / made.name) as temporary:
        made.replace(temporary)
    records.write(folder / _BUILT, "built", body, provenance={"seconds": round(seconds, 1), "staged": places, **orders})
    for left in (work, partial):
        shutil.rmtree(left, ignore_errors=True)
    return folder / made.name


def built(folder: Path) -> dict[str, Any]:
    """The record of a finished build: its key, the wheel's facts, which binaries were used, seconds."""
    return records.read(folder / _BUILT, "built")


def _finished(folder: Path, key: Mapping[str, Any]) -> Path | None:
    """The finished wheel of the same key, when its bytes are the recorded ones."""
    try:
        found = built(folder)
    except Refusal:
        return None
    file = folder / found["wheel"]["file"]
    same = found["key"] == key and file.is_file() and records.file_sha256(file) == found["wheel"]["sha256"]
    return file if same else None


def _staged(spec: BuildSpec) -> dict[str, str]:
    folders = {variable: folder for variable, folder in sorted(spec.staged.items()) if variable != "CARGO_HOME"}
    return {variable: staging.fingerprint(folder).sha256 for variable, folder in folders.items()}


def _require_torch(spec: BuildSpec, env: BuildEnv) -> None:
    """Refuse a GPU target that the torch of the build environment was not compiled for."""
    torch = env.torch
    built_for = {"cuda": torch and (torch.cuda or torch.hip), "rocm": torch and torch.hip}
    if torch is None or spec.target_device not in built_for or built_for[spec.target_device]:
        return
    message = (
        f"target {spec.target_device} needs a {spec.target_device.upper()} build of torch in the build environment;"
        f" it has torch {torch.version}, a build for {f'CUDA {torch.cuda}' if torch.cuda else 'CPU'}"
    )
    raise Refusal(Reason.BUILD_TORCH, message, file=spec.lock or spec.tree / "pyproject.toml")


class _Backend:
    """The project's build backend, run in the build environment's interpreter."""

    def __init__(
        self, spec: BuildSpec, env: BuildEnv, tree: Path, log: Path, about: buildlog.About | None = None
    ) -> None:
        self.spec, self.env, self.tree, self.log = spec, env, tree, log
        torch = env.torch
        known = about or buildlog.About(max_jobs=spec.max_jobs, nvcc_threads=spec.nvcc_threads)
        self.about = replace(known, torch=torch.version if torch else None)
        self.output, self.finished = "", None

    def ask(self, question: Callable[[build.ProjectBuilder], T]) -> T:
        """Put one question to the backend; a failure is a refusal that its output explains."""
        try:
            with warnings.catch_warnings(record=True) as said:  # `build` repeats the backend's warnings here
                warnings.simplefilter("always")
                answer = question(build.ProjectBuilder(self.tree, str(self.env.python), self._run))
            self._keep("".join(f"{one.category.__name__}: {one.message}\n" for one in said))
            return answer
        except (build.BuildException, build.BuildBackendException) as error:
            if self.finished is None or self.finished.status == 0:
                raise Refusal(
                    Reason.SOURCE_INVALID, f"its build backend cannot be used: {error}", file=self.spec.tree
                ) from None
            raise buildlog.failed(self.output, self.finished.ended, self.about, file=self.log) from None

    def _keep(self, text: str) -> None:
        """Add to the backend's output and to the log."""
        self.output += text
        with open(self.log, "a", encoding="utf-8") as stream:
            stream.write(text)

    def _run(self, cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None) -> None:
        """What `build` calls to start the hook's process; the names of the arguments are its own."""
        environment = build_environment(self.spec, self.env) | dict(extra_environ or {})
        environment["GIT_CEILING_DIRECTORIES"] = str(self.tree.absolute().parent)  # no facts of a repository around it
        self.finished = commands.run(cmd, log=self.log, env=environment, cwd=Path(cwd or self.tree))
        self.output += self.finished.output
        if self.finished.status != 0:
            raise build.BuildException(self.finished.ended)
