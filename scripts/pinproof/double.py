"""The double of an engine, as a wheel: what a rehearsal installs, reads and measures in an engine's place.

It is a stub (no model, no device, no meaning) that reports whatever identity it is told to report.
The same identity gives the same bytes. Distributions that a pin or a discharge names come beside it as
wheels of their own, empty but for a version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from pinproof import purewheel, records

_METADATA = "Summary: A double, for rehearsals.\n"
_TEXTS = {"entry_points.txt": "[console_scripts]\nvllm = vllm.entry:main\n"}
# Field of a pin block -> distribution, and the module that must say the same.
_OTHERS = {
    "flashinfer_version": ("flashinfer-python", "flashinfer"),
    "transformers_version": ("transformers", None),
    "nvidia_cutlass_dsl_version": ("nvidia-cutlass-dsl", "cutlass"),
}


@dataclass
class Identity:
    """What a double reports of itself. `files` replaces files of its package, by their place in the wheel."""

    distribution_version: str
    runtime_version: str
    commit: str | None = None
    torch_version: str = "2.13.0+stub"
    others: dict[str, str] = field(default_factory=dict)  # distribution -> version
    modules: dict[str, str] = field(default_factory=dict)  # module -> version that it says
    files: dict[str, str] = field(default_factory=dict)


def identity(fields: Mapping[str, str]) -> Identity:
    """The identity that a pin block declares."""
    found = Identity(
        distribution_version=fields["vllm_distribution_version"],
        runtime_version=fields["vllm_runtime_version"],
        commit=fields.get("vllm_commit"),
        torch_version=fields.get("torch_version", "2.13.0+stub"),
    )
    for name, (distribution, module) in _OTHERS.items():
        if name in fields:
            found.others[distribution] = fields[name]
            if module:
                found.modules[module] = fields[name]
    return found


def build(sources: Path, who: Identity, folder: Path) -> Path:
    """Write the double's wheel into a folder and return its path. `sources` holds its code."""
    package = sources / "package"
    files = {file.relative_to(package).as_posix(): file.read_bytes() for file in sorted(package.rglob("*.py"))}
    files["vllm/stub_engine.py"] = (sources / "engine.py").read_bytes()
    files["vllm/_version.py"] = (
        f'__version__ = version = "{who.runtime_version}"\n__commit_id__ = {who.commit!r}\n'.encode()
    )
    torch = files["torch/__init__.py"].decode()
    files["torch/__init__.py"] = re.sub(
        r'(?m)^__version__ = ".*"$', f'__version__ = "{who.torch_version}"', torch
    ).encode()
    files |= {name: text.encode() for name, text in who.files.items()}
    return _pack("vllm", who.distribution_version, files, folder, _TEXTS)


def companions(who: Identity, folder: Path) -> list[Path]:
    """The wheels of the distributions beside the double."""
    modules = {distribution: module for distribution, module in _OTHERS.values() if module}
    found = []
    for name, version in sorted(who.others.items()):
        files = {}
        if (module := modules.get(name)) in who.modules:
            files[f"{module}/__init__.py"] = f'__version__ = "{who.modules[module]}"\n'.encode()
        found.append(_pack(name, version, files, folder, {}))
    return found


def lock(wheels: list[Path]) -> str:
    """The lock that installs these wheels, each by its bytes."""
    lines = []
    for file in wheels:
        name = canonicalize_name(file.name.split("-")[0])
        lines.append(f"{name} @ {file.absolute().as_uri()} --hash=sha256:{records.file_sha256(file)}\n")
    return "# What is installed beside the double of a rehearsal.\n" + "".join(lines)


def _pack(name: str, version: str, files: Mapping[str, bytes], folder: Path, texts: Mapping[str, str]) -> Path:
    path = folder / purewheel.file_name(name, version)
    with records.replacing(path) as temporary:
        temporary.write_bytes(purewheel.packed(name, version, files, _METADATA, texts))
    return path
