"""A small project of the same shape as vLLM's build, made by code in a git repository.

setuptools-scm makes its version, the target device and the build mode make its local part, CMake
fetches a repository at configure time unless a variable names a staged copy, and one tiny C
extension is compiled. With VLLM_USE_PRECOMPILED=1 nothing is compiled: the extension is taken from
the wheel that VLLM_PRECOMPILED_WHEEL_LOCATION names.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

TINY_URL = "https://tiny.invalid/tiny.git"
TINY_VARIABLE = "TINY_SRC_DIR"
_STAMP = "2026-09-01T12:00:00 +0000"
_WHO = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in
        (("NAME", "Test"), ("EMAIL", "test@example.org"), ("DATE", _STAMP))}  # fmt: skip

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77", "setuptools-scm>=8"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
requires-python = ">=3.11"
dynamic = ["version"]
dependencies = ["packaging>=24"]

[tool.setuptools.packages.find]
include = ["{name}*"]
"""

SETUP = """\
import os
import pathlib
import subprocess
import sys
import sysconfig
import zipfile

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools_scm import get_version

NAME = "{name}"
ROOT = pathlib.Path(__file__).parent
DEVICE = os.environ.get("VLLM_TARGET_DEVICE", "cuda")
LOCATION = os.environ.get("VLLM_PRECOMPILED_WHEEL_LOCATION")
PRECOMPILED = os.environ.get("VLLM_USE_PRECOMPILED", "") == "1"


def version():
    base = get_version(write_to=f"{{NAME}}/_version.py"{describe})
    suffix = {{"cpu": "cpu", "empty": "empty"}}.get(DEVICE, "precompiled" if PRECOMPILED else "")
    return base + ("." if "+" in base else "+") + suffix if suffix else base


def take_binaries():
    if not LOCATION:
        print("VLLM_PRECOMPILED_WHEEL_COMMIT not valid: , trying to fetch base commit in main branch")
        raise SystemExit("no wheel to take binaries from")
    with zipfile.ZipFile(LOCATION) as wheel:
        member = f"{{NAME}}/_C.abi3.so"
        (ROOT / member).write_bytes(wheel.read(member))
    return ["_C.abi3.so"]


class CMakeBuild(build_ext):
    def build_extension(self, extension):
        pathlib.Path(self.build_temp).mkdir(parents=True, exist_ok=True)
        jobs = os.environ.get("MAX_JOBS", "1")
        include = sysconfig.get_path("include")
        configure = ["cmake", str(ROOT.absolute()), f"-DPYTHON_INCLUDE={{include}}", f"-DVLLM_TARGET_DEVICE={{DEVICE}}",
                     f"-DARCHITECTURES={{os.environ.get('TORCH_CUDA_ARCH_LIST', '')}}"]
        subprocess.check_call(configure, cwd=self.build_temp)
        subprocess.check_call(["cmake", "--build", ".", "-j", jobs], cwd=self.build_temp)
        place = pathlib.Path(self.get_ext_fullpath(extension.name)).parent
        place.mkdir(parents=True, exist_ok=True)
        (place / "_C.abi3.so").write_bytes((pathlib.Path(self.build_temp) / "_C.abi3.so").read_bytes())


data = ["py.typed"]
extensions = [] if DEVICE == "empty" or PRECOMPILED else [Extension(f"{{NAME}}._C", [], py_limited_api=True)]
if PRECOMPILED and not {{"egg_info", "dist_info"}} & set(sys.argv[1:]):
    data += take_binaries()
setup(version=version(), ext_modules=extensions, package_data={{NAME: data}}, cmdclass={{"build_ext": CMakeBuild}})
"""

CMAKE = """\
cmake_minimum_required(VERSION 3.20)
project({name} LANGUAGES C)
include(FetchContent)
include(cmake/tiny.cmake)
add_library(_C MODULE csrc/ext.c)
set_target_properties(_C PROPERTIES PREFIX "" SUFFIX ".abi3.so")
target_include_directories(_C PRIVATE ${{PYTHON_INCLUDE}} ${{tiny_SOURCE_DIR}})
target_compile_definitions(_C PRIVATE "ARCHITECTURES=\\"${{ARCHITECTURES}}\\"")
"""

TINY_CMAKE = """\
# The environment variable takes precedence over GIT_REPOSITORY.
if(DEFINED ENV{{{variable}}})
  set({variable} $ENV{{{variable}}})
endif()
if({variable})
  FetchContent_Declare(tiny SOURCE_DIR ${{{variable}}})
else()
  set(TINY_REVISION "v1.2")
  FetchContent_Declare(
    tiny
    GIT_REPOSITORY {url}
    GIT_TAG ${{TINY_REVISION}}
  )
endif()
FetchContent_MakeAvailable(tiny)
"""

EXTENSION = """\
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include "tiny.h"

static PyObject *answer(PyObject *self, PyObject *arguments) { return PyLong_FromLong(TINY_ANSWER); }
static PyObject *built_for(PyObject *self, PyObject *arguments) { return PyUnicode_FromString(ARCHITECTURES); }
static PyMethodDef methods[] = {
    {"answer", answer, METH_NOARGS, NULL}, {"built_for", built_for, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", NULL, -1, methods};
PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create(&module); }
"""

ONLY_VERSION_TAGS = """, git_describe_command=["git", "describe", "--dirty", "--tags", "--long", "--abbrev=40",
                       "--match", "v[0-9]*"]"""


def git(tree: Path, *words: str) -> str:
    """One git command, with a fixed author and date, free of the user's settings."""
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"], "HOME": "/"}
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", *words],
        cwd=tree, env={**quiet, **_WHO}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


def write(tree: Path, files: dict[str, str]) -> None:
    """Write text files below a folder."""
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def repository(tree: Path, files: dict[str, str]) -> Path:
    """A git repository with one commit of these files."""
    tree.mkdir(parents=True)
    git(tree, "init", "--quiet")
    write(tree, files)
    return commit(tree, "first")


def commit(tree: Path, text: str) -> Path:
    """Commit all that is there; a file of its own makes sure that there is something."""
    with open(tree / "CHANGES", "a", encoding="utf-8") as stream:
        stream.write(f"{text}\n")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", text)
    return tree


def project(tree: Path, *, name: str = "vllm", tag: str | None = "v0.29.0", version_tags_only: bool = False) -> Path:
    """The project in a git repository: a tag on its first commit, and two commits after it."""
    describe = ONLY_VERSION_TAGS if version_tags_only else ""
    files = {
        ".gitignore": "build/\n*.egg-info/\n_version.py\n*.so\n",
        "pyproject.toml": PYPROJECT.format(name=name),
        "setup.py": SETUP.format(name=name, describe=describe),
        "CMakeLists.txt": CMAKE.format(name=name),
        "cmake/tiny.cmake": TINY_CMAKE.format(variable=TINY_VARIABLE, url=TINY_URL),
        "csrc/ext.c": EXTENSION,
        f"{name}/__init__.py": "from ._version import __commit_id__, __version__\n",
        f"{name}/py.typed": "",
    }
    repository(tree, files)
    if tag is not None:
        git(tree, "tag", tag)
    return commit(commit(tree, "second"), "third")


def tiny(tree: Path, answer: int = 42) -> Path:
    """The repository that the project fetches at configure time."""
    repository(tree, {"tiny.h": f"#define TINY_ANSWER {answer}\n"})
    git(tree, "tag", "v1.2")
    return tree


def reachable(tiny_repository: Path) -> dict[str, str]:
    """Variables under which git finds the fetched repository, as if the network were there."""
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{tiny_repository}.insteadOf",
        "GIT_CONFIG_VALUE_0": TINY_URL,
    }


def shallow(tree: Path, folder: Path) -> Path:
    """A clone of the last commit only."""
    git(tree, "clone", "--quiet", "--depth", "1", f"file://{tree}", str(folder))
    return folder


def bundle(tree: Path, path: Path, *words: str) -> Path:
    """A git bundle; of everything when no words say otherwise."""
    git(tree, "bundle", "create", "--quiet", str(path), *(words or ("--all",)))
    return path


def sdist(path: Path, *, name: str = "vllm", version: str = "0.32.0", commit_id: str | None = "g5df63a720") -> Path:
    """A released source archive: one folder, PKG-INFO, and the `_version.py` of the release."""
    text = f"__version__ = version = '{version}'\n__commit_id__ = commit_id = {commit_id!r}\n"
    files = {
        "PKG-INFO": f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": PYPROJECT.format(name=name),
        "setup.py": "raise SystemExit('code of the tree was run')\n",
        f"{name}/__init__.py": "raise SystemExit('code of the tree was run')\n",
        f"{name}/_version.py": text,
    }
    return archive(path, {f"{name}-{version}/{file}": text for file, text in files.items()})


def archive(path: Path, files: dict[str, str]) -> Path:
    """A .tar.gz of text files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as packed:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            packed.addfile(member, io.BytesIO(text.encode()))
    return path


def wheel(folder: Path, name: str, version: str, files: dict[str, bytes] | None = None) -> Path:
    """A small wheel with a true RECORD; an ELF-like file is a file like any other."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    members = {
        f"{name}/__init__.py": b"",
        **(files or {}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, data in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}\n")
    members[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for member, data in members.items():
            entry = zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if data.startswith(b"\x7fELF") else 0o644) << 16
            packed.writestr(entry, data)
    return path
