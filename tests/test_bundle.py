"""Bundles: everything for a worker without a network, in parts; what is damaged or missing is said, not run."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders import FILE, case_value, put_text
from tests.stubs import wheel

from pinproof import bundle, case, layout, records
from pinproof.hardware import Worker

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize(
    ("worker", "there", "absent"),
    [
        (Worker(python="3.12", glibc="2.28"), "manylinux_2_28_x86_64", "manylinux_2_31_x86_64"),
        (Worker(python="3.12", glibc="2.39"), "manylinux1_x86_64", "manylinux_2_40_x86_64"),
        (Worker(python="3.12", machine="aarch64"), "manylinux2014_aarch64", "manylinux1_aarch64"),
    ],
)
def test_wheels_for_a_newer_c_library_than_the_workers_stay_out(worker: Worker, there: str, absent: str) -> None:
    assert there in bundle.platforms(worker)
    assert absent not in bundle.platforms(worker)


def test_a_worker_is_like_this_machine_where_nothing_is_said() -> None:
    assert bundle.here().python == HERE


def test_parts_put_together_are_what_was_written_whatever_their_size(tmp_path: Path) -> None:
    for size in (1, 7, 10, 11):
        parts = bundle._Parts(tmp_path, size)
        for data in (b"abc", b"", b"defghij"):
            assert parts.write(data) == len(data)
        parts.close()
        assert b"".join(path.read_bytes() for path in parts.paths) == b"abcdefghij"
        assert max(path.stat().st_size for path in parts.paths) <= size
        assert parts.paths[0].name == "part01"


# -- made and unpacked, with small wheels and no index -------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a project whose whole pipeline is uv and one stub wheel; small parts."""
    root = tmp_path_factory.mktemp("project")
    house = root / "house"
    engine = wheel.build("1.1.0", house)
    uv = _uv_wheel(house)
    pinned = f"stub-engine==1.1.0 --hash=sha256:{records.file_sha256(engine)}\n"
    put_text(root / "envs/pipeline.txt", pinned + f"uv=={uv[0]} --hash=sha256:{uv[1]}\n")
    put_text(root / "envs/arm.txt", "torch==2.11.0 --hash=sha256:00\n")
    for name in (
        "Snakefile",
        "rules/a.smk",
        "scripts/a.py",
        "config/a.yaml",
        "profiles/a",
        "tests/stubs/a.py",
        "pins/1.1.md",
        "pins/1.0.md",
    ):
        put_text(root / name, f"{name}\n")
    arm = {"mode": "index", "distribution": "stub-engine", "version": "1.1.0", "sha256": records.file_sha256(engine)}
    arm |= {"locks": {"index": "envs/arm.txt"}, "provided": {"torch": "2.11.0+cu130"}}
    changes = {f"arms.{name}.engine": arm for name in ("oracle", "previous")}
    value = case_value(changes | {"worker": {**bundle.here().model_dump(), "part_mib": 1}})
    places = layout.Layout(case.parse(value, FILE), root / "config/small.yaml", root, root / "results")
    put_text(places.case_file, json.dumps(value))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(house))
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        body = bundle.make(places, log=root / "log")
    put_text(places.bundle, json.dumps({"schema": "bundle", **body}))
    return places.bundle.parent


def _uv_wheel(house: Path) -> tuple[str, str]:
    """A wheel that is called uv and holds a program in its place: what unpack takes out and calls."""
    path = house / "uv-0.0.1-py3-none-any.whl"
    program = f"""#!{sys.executable}
import sys, pathlib
print("uv", *sys.argv[1:])
if sys.argv[1] == "venv":
    binaries = pathlib.Path(sys.argv[-1]) / "bin"
    binaries.mkdir(parents=True)
    snakemake = binaries / "snakemake"
    snakemake.write_text("#!/bin/sh\\npwd\\nenv\\nfor word; do echo word $word; done\\nexit 7\\n")
    snakemake.chmod(0o755)
"""
    info = "uv-0.0.1.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("uv-0.0.1.data/scripts/uv", program)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 0.0.1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return "0.0.1", hashlib.sha256(path.read_bytes()).hexdigest()


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def unpack(folder: Path, to: Path, *arguments: str) -> subprocess.CompletedProcess:
    program = folder / "unpack.py"
    words = [sys.executable, program, "--parts", folder, "--to", to, *arguments]
    return subprocess.run(
        words, env={"PATH": "/usr/bin:/bin", "SECRET": "x"}, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_bundle_names_its_worker_its_files_and_what_is_left_out(made: Path) -> None:
    found = manifest(made)
    assert found["worker"]["python"] == HERE
    assert found["left_out"]["oracle"] == {"torch": "2.11.0+cu130"}
    assert found["case_file"] == "config/small.yaml"
    wheels = sorted(name for name in found["files"] if name.startswith("wheels/"))
    assert wheels == ["wheels/stub_engine-1.1.0-py3-none-any.whl", "wheels/uv-0.0.1-py3-none-any.whl"]
    assert {"workflow/Snakefile", "workflow/scripts/a.py", "workflow/pins/1.1.md", "requirements.txt"} <= set(
        found["files"]
    )


def test_parts_are_no_larger_than_stated_and_have_their_digests(made: Path) -> None:
    for part in manifest(made)["parts"]:
        data = (made / part["file"]).read_bytes()
        assert len(data) == part["bytes"] <= 2**20
        assert hashlib.sha256(data).hexdigest() == part["sha256"]


def test_it_is_unpacked_installed_without_an_index_and_run(made: Path, tmp_path: Path) -> None:
    done = unpack(made, tmp_path / "to", "--provider", "/worker/python", "--", "--cores", "1", "verdict")
    assert done.returncode == 7, done.stderr
    lines = done.stdout.splitlines()
    (install,) = [line for line in lines if line.startswith("uv pip install")]
    assert "--no-index" in install
    assert "--require-hashes" in install
    assert [line for line in lines if line.startswith("word ")] == [
        f"word {word}" for word in ("--configfile", "config/small.yaml", "--cores", "1", "verdict")
    ]
    environment = dict(line.split("=", 1) for line in lines if "=" in line)
    assert environment["HOME"] == str(tmp_path / "to/home")
    assert environment["PINPROOF_WHEELHOUSE"] == str(tmp_path / "to/wheels")
    assert environment["PINPROOF_PROVIDER"] == "/worker/python"
    assert "SECRET" not in environment
    assert str(tmp_path / "to/workflow") in lines


def test_a_second_call_neither_unpacks_nor_installs(made: Path, tmp_path: Path) -> None:
    assert unpack(made, tmp_path / "to").stdout.splitlines()[-1] == f"ready: {tmp_path / 'to'}"
    put_text(tmp_path / "to/workflow/Snakefile", "kept\n")
    again = unpack(made, tmp_path / "to")
    assert again.stdout == f"ready: {tmp_path / 'to'}\n"
    assert (tmp_path / "to/workflow/Snakefile").read_text() == "kept\n"


def copied(made: Path, folder: Path) -> Path:
    folder.mkdir()
    for path in made.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "said"), [(Path.unlink, "part01 is missing"), (damage, "part01 is damaged")], ids=["missing", "damaged"]
)
def test_a_part_that_is_missing_or_damaged_is_named_and_nothing_is_run(
    made: Path, tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    folder = copied(made, tmp_path / "parts")
    harm(folder / "part01")
    done = unpack(folder, tmp_path / "to")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"refused: {said}")
    assert not (tmp_path / "to/.unpacked").exists()


def test_another_python_than_the_bundles_is_refused(made: Path, tmp_path: Path) -> None:
    folder = copied(made, tmp_path / "parts")
    text = (folder / "manifest.json").read_text().replace(f'"python": "{HERE}"', '"python": "3.99"')
    (folder / "manifest.json").write_text(text)
    assert "refused: the bundle is for Python 3.99" in unpack(folder, tmp_path / "to").stderr
