"""Unpacks a bundle of pinproof, verifies it, and runs the workflow from it: no index, no network.

    python3 unpack.py --parts FOLDER --to FOLDER [--provider PYTHON] [-- snakemake's arguments]

FOLDER of the parts holds manifest.json and every part. Standard library only. The interpreter that
runs this must be of the Python that the bundle is for; `--provider` is the one that has what the case
calls provided (by default this one). Without arguments after `--` it stops after the environment.
An unpacked bundle is left as it is: run it again with other arguments.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

_CHUNK = 1 << 20


def main():
    options, arguments = _arguments()
    parts, to = Path(options.parts).resolve(), Path(options.to).resolve()
    manifest = json.loads((parts / "manifest.json").read_text(encoding="utf-8"))
    wanted = manifest["worker"]["python"]
    if wanted != f"{sys.version_info[0]}.{sys.version_info[1]}":
        sys.exit(f"refused: the bundle is for Python {wanted}, this is {sys.version.split()[0]}")
    if not (to / ".unpacked").exists():
        _unpack(parts, to, manifest)
        (to / ".unpacked").touch()
    environment = _environment(to, options.provider)
    if not (to / ".installed").exists():
        _install(to, environment)
        (to / ".installed").touch()
    if not arguments:
        print(f"ready: {to}")
        return
    snakemake = [to / "venv/bin/snakemake", "--configfile", manifest["case_file"], *arguments]
    sys.exit(subprocess.run(list(map(str, snakemake)), cwd=to / "workflow", env=environment, check=False).returncode)


def _arguments():
    own, mark, rest = sys.argv[1:], [], []
    if "--" in own:
        at = own.index("--")
        own, mark, rest = own[:at], ["--"], own[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", required=True, help="folder of manifest.json and the parts")
    parser.add_argument("--to", required=True, help="folder to unpack into")
    parser.add_argument("--provider", default=sys.executable, help="interpreter that has what the case calls provided")
    return parser.parse_args(own), rest if mark else []


def _unpack(parts, to, manifest):
    to.mkdir(parents=True, exist_ok=True)
    for part in manifest["parts"]:
        path = parts / part["file"]
        if not path.is_file():
            sys.exit(f"refused: {part['file']} is missing: {part['bytes']} bytes, sha256 {part['sha256']}")
        found = _sha256(path)
        if found != part["sha256"]:
            sys.exit(f"refused: {part['file']} is damaged: sha256 {found}, the manifest says {part['sha256']}")
    stream = _Joined([parts / part["file"] for part in manifest["parts"]])
    with tarfile.open(fileobj=io.BufferedReader(stream, _CHUNK), mode="r|") as archive:
        for member in archive:
            if member.name not in manifest["files"] or not member.isfile():
                sys.exit(f"refused: the archive holds {member.name}, the manifest does not")
            archive.extract(member, to, set_attrs=False)
    for name, fact in manifest["files"].items():
        if not (to / name).is_file() or _sha256(to / name) != fact["sha256"]:
            sys.exit(f"refused: {name} is not what the manifest says")


def _environment(to, provider):
    """What the workflow runs with: nothing of this account but the path; an empty home below the bundle."""
    home = to / "home"
    home.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH") if name in os.environ}
    kept |= {name: value for name, value in os.environ.items() if name.startswith(("CUDA_", "PINPROOF_", "NVIDIA_"))}
    return {
        **kept,
        "HOME": str(home),
        "PATH": f"{to / 'venv/bin'}:{kept.get('PATH', os.defpath)}",
        "PINPROOF_WHEELHOUSE": str(to / "wheels"),
        "PINPROOF_PROVIDER": str(Path(provider).absolute()),
        "UV_CACHE_DIR": str(to / "uv-cache"),
        "UV_OFFLINE": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def _install(to, environment):
    """The workflow's own environment; uv comes out of its wheel, so that nothing need be there before."""
    wheel = next((to / "wheels").glob("uv-*.whl"))
    uv = to / "uv"
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
        uv.write_bytes(archive.read(name))
    uv.chmod(0o755)
    _call([uv, "venv", "--quiet", "--clear", "--python", sys.executable, to / "venv"], environment)
    install = [uv, "pip", "install", "--quiet", "--python", to / "venv/bin/python", "--no-deps", "--compile-bytecode"]
    only = ["--no-index", "--find-links", to / "wheels", "--require-hashes", "-r", to / "requirements.txt"]
    _call([*install, *only], environment)


def _call(argv, environment):
    done = subprocess.run(list(map(str, argv)), env=environment, check=False)
    if done.returncode:
        sys.exit(f"refused: {Path(argv[0]).name} {argv[1]} exited with {done.returncode}")


def _sha256(path):
    whole = hashlib.sha256()
    with open(path, "rb") as stream:
        while data := stream.read(_CHUNK):
            whole.update(data)
    return whole.hexdigest()


class _Joined(io.RawIOBase):
    """Files read one after another as one stream."""

    def __init__(self, paths):
        super().__init__()
        self._paths, self._stream = list(paths), None

    def readable(self):
        return True

    def readinto(self, buffer):
        while self._stream or self._paths:
            if self._stream is None:
                self._stream = open(self._paths.pop(0), "rb")  # noqa: SIM115
            if count := self._stream.readinto(buffer):
                return count
            self._stream.close()
            self._stream = None
        return 0


if __name__ == "__main__":
    main()
