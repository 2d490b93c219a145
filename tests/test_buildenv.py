"""Build environments: installed once, whole or not at all, and checked at every use. No index is asked."""

import json
from pathlib import Path

import pytest
from tests import fixture_project as fixture

from pinproof import buildenv, records
from pinproof.buildenv import Torch
from pinproof.reasons import Reason, Refusal

VERSION_PY = (
    b"from typing import Optional\n__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
)


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A find-links folder with two versions of a requirement and a torch, and no other place to look."""
    folder = tmp_path / "links"
    for version in ("1.0", "2.0"):
        fixture.wheel(folder, "helper", version)
    fixture.wheel(folder, "torch", "2.13.0+cpu", {"torch/version.py": VERSION_PY})
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def provide(tmp_path: Path, wanted: list[str], log: Path, **how: object) -> buildenv.BuildEnv:
    return buildenv.provide(tmp_path / "cache", wanted, **{"offline": True, "log": log, **how})


# -- what a tree asks for ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('[build-system]\nrequires = ["setuptools>=77", "torch == 2.13.0"]\n', ("setuptools>=77", "torch == 2.13.0")),
        ("[project]\nname = 'x'\n", ("setuptools >= 40.8.0",)),
        (None, ("setuptools >= 40.8.0",)),
    ],
)
def test_the_requirements_are_the_tree_s_own(text: str | None, wanted: tuple[str, ...], tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    assert buildenv.requirements(tmp_path) == wanted


@pytest.mark.parametrize(
    "text", ["[build-system\n", "[build-system]\nrequires = ['=1']\n", "[build-system]\nrequires = 3\n"]
)
def test_requirements_that_cannot_be_read_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(Refusal) as caught:
        buildenv.requirements(tmp_path)
    assert caught.value.reason is Reason.SOURCE_INVALID


# -- made once, whole or not at all --------------------------------------------------------------


def test_an_environment_holds_what_is_wanted_and_names_it(tmp_path: Path, links: Path, log: Path) -> None:
    env = provide(tmp_path, ["helper>=1"], log)
    assert env.installed == ("helper==2.0",)
    assert env.python.exists()
    assert env.torch is None


def test_it_is_made_once(tmp_path: Path, links: Path, log: Path) -> None:
    made = provide(tmp_path, ["helper>=1"], log)
    before = log.read_text()
    assert provide(tmp_path, ["helper>=1"], log) == made
    assert log.read_text() == before


def test_other_requirements_or_other_wheels_at_hand_make_another(tmp_path: Path, links: Path, log: Path) -> None:
    made = provide(tmp_path, ["helper>=1"], log)
    assert provide(tmp_path, ["helper==1.0"], log).installed == ("helper==1.0",)
    fixture.wheel(links, "helper", "3.0")
    assert provide(tmp_path, ["helper>=1"], log).installed == ("helper==3.0",)
    assert made.installed == ("helper==2.0",)


def test_a_half_made_environment_is_made_anew(tmp_path: Path, links: Path, log: Path) -> None:
    made = provide(tmp_path, ["helper>=1"], log)
    (made.folder / "pinproof.json").unlink()
    (made.folder / "lib/python3.11/site-packages/helper-2.0.dist-info/METADATA").unlink(missing_ok=True)
    assert provide(tmp_path, ["helper>=1"], log) == made


def test_an_environment_that_lost_something_is_made_anew(tmp_path: Path, links: Path, log: Path) -> None:
    made = provide(tmp_path, ["helper>=1"], log)
    marker = made.folder / "pinproof.json"
    record = json.loads(marker.read_text())
    marker.write_text(json.dumps(record | {"installed": ["helper==2.0", "gone==1"]}))
    assert provide(tmp_path, ["helper>=1"], log) == made
    assert records.read(marker, "buildenv")["installed"] == ["helper==2.0"]


def test_a_requirement_that_nobody_serves_is_refused_with_the_installer_s_words(
    tmp_path: Path, links: Path, log: Path
) -> None:
    with pytest.raises(Refusal, match="nowhere-to-be-found") as caught:
        provide(tmp_path, ["nowhere-to-be-found"], log)
    assert caught.value.reason is Reason.BUILD_REQUIREMENT


def test_the_torch_of_an_environment_is_read_and_not_imported(tmp_path: Path, links: Path, log: Path) -> None:
    env = provide(tmp_path, ["torch == 2.13.0"], log)
    assert env.torch == Torch("2.13.0+cpu", cuda=None, hip=None)


# -- from a lock ---------------------------------------------------------------------------------


def lock(tmp_path: Path, links: Path, version: str, digest: str | None = None) -> Path:
    wheel = links / f"helper-{version}-py3-none-any.whl"
    path = tmp_path / "build.txt"
    path.write_text(f"helper=={version} --hash=sha256:{digest or records.file_sha256(wheel)}\n")
    return path


def test_a_lock_decides_and_what_the_tree_asks_for_is_checked_against_it(
    tmp_path: Path, links: Path, log: Path
) -> None:
    assert provide(tmp_path, ["helper>=1"], log, lock=lock(tmp_path, links, "1.0")).installed == ("helper==1.0",)
    with pytest.raises(
        Refusal, match=r"build.txt does not bring helper>=2 \(there is 1.0\); other \(not there\)"
    ) as caught:
        provide(
            tmp_path, ["helper>=2", "other", "windows-only; sys_platform == 'win32'"], log, lock=tmp_path / "build.txt"
        )
    assert caught.value.reason is Reason.BUILD_REQUIREMENT


def test_a_wheel_that_is_not_the_locked_one_is_not_installed(tmp_path: Path, links: Path, log: Path) -> None:
    with pytest.raises(Refusal, match=r"[Hh]ash") as caught:
        provide(tmp_path, ["helper"], log, lock=lock(tmp_path, links, "1.0", "0" * 64))
    assert caught.value.reason is Reason.BUILD_REQUIREMENT


def test_comments_of_a_lock_make_no_other_environment(tmp_path: Path, links: Path, log: Path) -> None:
    made = provide(tmp_path, ["helper"], log, lock=lock(tmp_path, links, "1.0"))
    path = tmp_path / "build.txt"
    path.write_text("# a comment\n" + path.read_text())
    assert provide(tmp_path, ["helper"], log, lock=path).folder == made.folder
