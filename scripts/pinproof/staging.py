"""Staged sources: every repository that a build of a tree would clone, and what is at hand instead.

The tree is read, never run. That nothing was found is only believed of a scan that accounts for
every word which speaks of a repository: what it could not read is listed, and refuses.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import subprocess
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from pinproof import cmake, source, versionfile
from pinproof.reasons import Reason, Refusal

Kind = Literal["cmake", "archive", "git", "submodule", "cargo", "requirement"]
_SPEAKS = re.compile(r"\bGIT_REPOSITORY\b|\bgit['\"]?[\s,]+['\"]?(?:clone|submodule)\b")
_DECLARES = {"fetchcontent_declare", "fetchcontent_populate", "externalproject_add", "cpmaddpackage"}
_SCHEME = re.compile(r"(?:https?|ssh|git|file)://|git@")
_GPU = {"cuda": "CUDA", "rocm": "HIP"}


@dataclass(frozen=True)
class Declared:
    """A repository that a build would clone, where the tree says so, and the variable that redirects it.

    `applies`: True when the build comes there, None when it may, False when it does not.
    """

    name: str
    repository: str
    tag: str | None
    file: str
    line: int
    variable: str | None
    kind: Kind = "cmake"
    applies: bool | None = None

    def __str__(self) -> str:
        tag = f" at {self.tag}" if self.tag else ""
        return f"{self.name} ({self.repository}{tag}, {self.file}:{self.line})"


@dataclass(frozen=True)
class Scan:
    """What a tree declares. `reads` are the environment variables that its build files look at."""

    declared: tuple[Declared, ...]
    reads: frozenset[str]
    files: tuple[str, ...]
    unread: tuple[str, ...]

    @property
    def wanted(self) -> tuple[Declared, ...]:
        """Those to which this build comes, or may come; one of each name and variable."""
        found = [one for one in self.declared if one.applies is not False]
        return tuple({(one.name, one.variable): one for one in reversed(found)}.values())[::-1]

    @property
    def uncompiled(self) -> Scan:
        """What is left of it when nothing is compiled (mode precompiled): CMake is not run then."""
        left = tuple(one for one in self.declared if one.file.endswith((".py", ".toml", ".gitmodules")))
        return replace(self, declared=left, unread=tuple(text for text in self.unread if text.startswith("setup.py")))

    @property
    def said(self) -> str:
        """The answer in words, with how much was looked at."""
        looked = f"{len(self.files)} build files read"
        if self.unread:
            return f"{looked}; not understood: {', '.join(self.unread)}"
        if not self.files:
            return "the tree has no build files that could clone: no CMake, no setup.py"
        if not self.declared:
            return f"{looked}, no repository is declared for this build"
        left = len(self.declared) - sum(one.applies is not False for one in self.declared)
        return f"{looked}, {len(self.wanted)} repositories wanted, {left} declarations not for this build"

    def as_record(self) -> dict:
        """The scan as JSON values."""
        return {
            "wanted": [asdict(one) for one in self.wanted],
            "files": list(self.files),
            "unread": list(self.unread),
            "said": self.said,
        }


def known(target: str, machine: str | None = None) -> dict[str, str]:
    """What is certain of the variables of a build for a target device on a machine."""
    machine = machine or platform.machine()
    values = {
        "VLLM_TARGET_DEVICE": target,
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": machine,
        "ASIMD_FOUND": "ON" if machine in ("aarch64", "arm64") else "OFF",
        "APPLE_SILICON_FOUND": "OFF",
        "MACOSX_FOUND": "OFF",
    }
    return values | ({"VLLM_GPU_LANG": _GPU[target]} if target in _GPU else {})


def scan(tree: Path, values: Mapping[str, str] | None = None) -> Scan:
    """Every repository that the build of a tree would clone, under what is `known` of its variables."""
    walk = cmake.walk(tree, values or {})
    found = [one for command in walk.commands for one in _of_cmake(command, tree)]
    reads = set(walk.environment)
    python, read_there = _of_python(tree / "setup.py", tree)
    found += [*python, *_of_pyproject(tree), *_of_gitmodules(tree), *_of_cargo(tree)]
    looked = [*walk.files, *(path for path in (tree / "setup.py", tree / "pyproject.toml") if path.is_file())]
    unread = [text for path in looked if path.suffix != ".toml" for text in _unaccounted(path, tree, found)]
    unread += [f"{text} leads out of what can be read" for text in walk.unresolved]
    names = tuple(str(path.relative_to(tree)) for path in looked)
    return Scan(tuple(found), frozenset(reads | read_there), names, tuple(unread))


def require_staged(
    found: Scan,
    staged: Mapping[str, Path],
    *,
    network: bool,
    without: Collection[str] = (),
    probe: Callable[[Declared], str | None] | None = None,
) -> None:
    """Refuse a build that would clone what is neither staged nor reachable: all of it is named at once.

    `without` names what the case says this build goes without. `probe` says why a remote cannot be
    reached, None when it can. Also refused: a staged folder that
    is missing or empty or lacks its submodules, a variable that the tree does not read, and a
    declaration that was not understood. Refusal SOURCE_MISSING.
    """
    wrong = [f"not understood, so it may clone: {text}" for text in found.unread]
    for variable, folder in sorted(staged.items()):
        if variable not in found.reads | {one.variable for one in found.declared}:
            there = ", ".join(sorted({one.variable for one in found.declared if one.variable})) or "none"
            wrong.append(f"{variable} is staged, but this tree does not read it; it redirects by: {there}")
        if lacking := _lacking(folder):
            wrong.append(f"{variable}={folder}: {lacking}")
    needed = [one for one in found.wanted if one.variable not in staged and one.name not in without]
    ask = probe or ask_remote
    if network:
        with ThreadPoolExecutor(max_workers=8) as pool:
            answers = list(pool.map(ask, needed))
    else:
        answers = ["the network is cut off"] * len(needed)
    for one, answer in zip(needed, answers, strict=True):
        if answer is not None:
            may = "would be cloned" if one.applies else "may be cloned"
            wrong.append(f"{one} {may}, is not staged, and cannot be reached: {answer}; {_how(one)}")
    if wrong:
        raise Refusal(Reason.SOURCE_MISSING, f"{found.said}:\n" + "\n".join(f"  {line}" for line in wrong))


def ask_remote(one: Declared, *, timeout_s: float = 20) -> str | None:
    """Why a repository cannot be reached; None when git can list it."""
    if one.kind == "archive":
        return "an archive, which is not probed"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "ls-remote", "--quiet", "--", one.repository, "HEAD"],
            env={**kept, **quiet}, cwd="/", capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"git ls-remote: {error}"
    return None if done.returncode == 0 else done.stderr.strip() or f"git ls-remote exited with {done.returncode}"


@dataclass(frozen=True)
class Fingerprint:
    """What a staged folder holds: files, bytes, and the digest of their names and contents."""

    files: int
    bytes: int
    sha256: str


def fingerprint(folder: Path) -> Fingerprint:
    """The fingerprint of a staged folder, `.git` left out. Refusal SOURCE_MISSING when there is nothing."""
    if lacking := _lacking(folder):
        raise Refusal(Reason.SOURCE_MISSING, lacking, file=folder)
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts]
    return Fingerprint(len(sizes), sum(sizes), source.content_digest(folder))


# -- what a tree declares ------------------------------------------------------------------------


def _of_cmake(command: cmake.Command, tree: Path) -> Iterator[Declared]:
    place = (str(command.file.relative_to(tree)), command.line)
    variable = command.redirects[0] if command.redirects else None
    if command.name in _DECLARES:
        repository, archive = command.after("GIT_REPOSITORY"), command.after("URL")
        name = command.after("NAME") or (command.texts or ["?"])[0]
        if repository or archive:
            kind = "cmake" if repository else "archive"
            yield Declared(
                name, repository or archive, command.after("GIT_TAG"), *place, variable, kind, command.certain
            )
    elif command.name in ("execute_process", "add_custom_command", "add_custom_target"):
        texts = command.texts
        for at in range(len(texts) - 1):
            if Path(texts[at]).name == "git" and texts[at + 1] in ("clone", "submodule"):
                url = next((text for text in texts[at:] if _SCHEME.match(text)), " ".join(texts[at : at + 4]))
                yield Declared(_stem(url), url, None, *place, variable, "git", command.certain)
    elif command.name == "file" and "DOWNLOAD" in command.texts[:1] and len(command.texts) > 1:
        url = command.texts[1]
        yield Declared(_stem(url), url, None, *place, variable, "archive", command.certain)


def _of_python(path: Path, tree: Path) -> tuple[list[Declared], set[str]]:
    """Clones that a setup.py would start, and the environment variables that it reads by name."""
    if not path.is_file():
        return [], set()
    try:
        module = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except versionfile.UNPARSABLE:
        return [], set()
    found = []
    for node in ast.walk(module):
        words = []
        if isinstance(node, ast.List | ast.Tuple):
            words = [ast.unparse(e) if not isinstance(e, ast.Constant) else str(e.value) for e in node.elts]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
            words = node.value.split()
        if len(words) > 1 and words[0] == "git" and words[1] in ("clone", "submodule"):
            url = next((word for word in words if _SCHEME.match(word)), " ".join(words[:4]))
            place = (str(path.relative_to(tree)), node.lineno)
            found.append(Declared(_stem(url), url, None, *place, None, "git", None))
    names = {node.value for node in ast.walk(module) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return found, {name for name in names if re.fullmatch(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+", name)}


def _of_pyproject(tree: Path) -> Iterator[Declared]:
    for requirement in _toml(tree / "pyproject.toml").get("build-system", {}).get("requires", []):
        if found := re.match(r"\s*([\w.-]+)\s*@\s*git\+(\S+?)(?:@([^@/\s]+))?\s*$", str(requirement)):
            yield Declared(found[1], found[2], found[3], "pyproject.toml", 1, None, "requirement", True)


def _of_gitmodules(tree: Path) -> Iterator[Declared]:
    path = tree / ".gitmodules"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    for found in re.finditer(r"\[submodule \"(?P<name>[^\"]+)\"\](?P<body>[^\[]*)", text):
        values = dict(re.findall(r"(?m)^\s*(\w+)\s*=\s*(.*?)\s*$", found["body"]))
        place = tree / values.get("path", found["name"])
        applies = False if place.is_dir() and any(place.iterdir()) else None
        line = text.count("\n", 0, found.start()) + 1
        yield Declared(
            found["name"], values.get("url", "?"), values.get("branch"), ".gitmodules", line, None, "submodule", applies
        )


def _of_cargo(tree: Path) -> Iterator[Declared]:
    """Repositories of a Rust workspace, where the build backend compiles Rust; cargo reads CARGO_HOME."""
    requires = " ".join(map(str, _toml(tree / "pyproject.toml").get("build-system", {}).get("requires", [])))
    if not re.search(r"setuptools-rust|maturin", requires):
        return
    for path in sorted([tree / "Cargo.toml", *tree.glob("*/Cargo.toml")]):
        manifest = _toml(path)
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for table in (manifest, manifest.get("workspace", {})):
            for name, value in table.get("dependencies", {}).items():
                if isinstance(value, Mapping) and "git" in value:
                    line = next((n for n, text in enumerate(lines, 1) if text.startswith(name)), 1)
                    tag = value.get("rev") or value.get("tag") or value.get("branch")
                    place = str(path.relative_to(tree))
                    yield Declared(name, value["git"], tag, place, line, "CARGO_HOME", "cargo", None)


def _toml(path: Path) -> dict:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}


def _unaccounted(path: Path, tree: Path, found: list[Declared]) -> Iterator[str]:
    """Words of a file that speak of a repository and belong to no declaration: the positive control."""
    name = str(path.relative_to(tree))
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".py":
        try:
            text = ast.unparse(_without_docstrings(ast.parse(text)))
        except versionfile.UNPARSABLE:
            yield f"{name} (not Python that this Python reads)"
            return
    else:
        text = re.sub(r"(?m)(?:^|(?<=\s))#[^\n]*", "", text)
    spoken = len(_SPEAKS.findall(text))
    read = sum(one.file == name for one in found)
    if spoken > read:
        yield f"{name} ({spoken} mentions of a repository, {read} read)"


def _without_docstrings(module: ast.Module) -> ast.Module:
    for node in ast.walk(module):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [
                one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            ] or [ast.Pass()]
    return module


def _stem(url: str) -> str:
    return re.sub(r"\.git$", "", url.rstrip("/").rsplit("/", 1)[-1]) or url


# -- what is at hand -----------------------------------------------------------------------------


def _lacking(folder: Path) -> str | None:
    """What a staged folder lacks; None when it is whole as far as its own .gitmodules tells."""
    if not folder.is_dir():
        return "no such folder"
    if not any(path.name != ".git" for path in folder.iterdir()):
        return "the folder is empty"
    lacking = [one.name for one in _of_gitmodules(folder) if one.applies is None]
    return f"its submodules are not there: {', '.join(lacking)} (git submodule update --init)" if lacking else None


def _how(one: Declared) -> str:
    if one.variable:
        return f"stage it and name it by {one.variable}"
    if one.kind == "cmake":
        return f"the tree reads no variable for it: CMAKE_ARGS=-DFETCHCONTENT_SOURCE_DIR_{one.name.upper()}=PATH"
    return "the tree reads no variable for it"
