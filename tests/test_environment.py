"""Environments of engines: which places of wheels a lock is installed from."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import refusal_of

from pinproof import environment, provided, records, spanwheel
from pinproof.reasons import Reason


@pytest.mark.parametrize(("torch", "expected"), [("2.13.0+cpu", True), ("2.13.0", False)])
def test_only_a_lock_that_names_a_local_build_is_installed_from_find_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: str, expected: bool
) -> None:
    """Else `torch==2.13.0` would be met by the CPU build in the folder, under another hash."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    lock = tmp_path / "lock.txt"
    lock.write_text(f"# torch+other\ntorch=={torch} \\\n    --hash=sha256:{'0' * 64}\nnumpy==2.3.5\n")
    assert environment._links(lock) == (["--find-links", tmp_path] if expected else [])


def test_a_whole_environment_is_left_alone_because_another_checkout_may_measure_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[Path] = []

    def install(folder: Path, *_: object) -> None:
        folder.mkdir(exist_ok=True)
        installed.append(folder)

    monkeypatch.setattr(environment, "_install", install)
    lock, wheel = tmp_path / "lock.txt", tmp_path / "a-1-py3-none-any.whl"
    lock.write_text("numpy==2.3.5\n")
    wheel.write_bytes(b"wheel")
    made = [
        environment.create(tmp_path / "env", lock, wheel, records.file_sha256(wheel), log=tmp_path / "log")
        for _ in range(2)
    ]
    assert installed == [tmp_path / "env"]
    assert records.content_digest(made[0]) == records.content_digest(made[1])
    lock.write_text("numpy==2.3.6\n")
    environment.create(tmp_path / "env", lock, wheel, records.file_sha256(wheel), log=tmp_path / "log")
    assert len(installed) == 2


# -- with what the machine has already, and without a network ------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The installer's calls; nothing is run."""
    made: list[list[str]] = []

    def run(argv: list, log: Path) -> None:
        made.append([str(word) for word in argv])
        if argv[1] == "venv":
            Path(argv[-1]).mkdir(parents=True)

    monkeypatch.setattr(environment, "_run", run)
    for name in ("PINPROOF_WHEELHOUSE", "UV_FIND_LINKS", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    return made


def create(tmp_path: Path, **more: object) -> dict:
    lock, wheel = tmp_path / "lock.txt", tmp_path / "engine/wheel/a-1-py3-none-any.whl"
    lock.write_text(f"numpy==2.3.5 --hash=sha256:{'0' * 64}\ntorch==2.11.0 --hash=sha256:{'1' * 64}\n")
    wheel.parent.mkdir(parents=True, exist_ok=True)
    wheel.write_bytes(b"wheel")
    return environment.create(
        tmp_path / "engine/env", lock, wheel, records.file_sha256(wheel), log=tmp_path / "log", **more
    )


def have(name: str, version: str) -> provided.Distribution:
    return provided.Distribution(name, version, (), Path("/there"), (f"{name}/__init__.py",))


def test_what_the_machine_has_is_left_out_of_the_lock_linked_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]
) -> None:
    there = {"torch": have("torch", "2.11.0+cu130"), "numpy": have("numpy", "9")}
    linked: dict = {}
    monkeypatch.setattr(provided, "read", lambda python, *, log: there)
    monkeypatch.setattr(provided, "link", lambda site, targets: linked.update(targets))
    record = create(tmp_path, has={"torch": "2.11.0+cu130"})
    assert record["provided"] == {"torch": "2.11.0+cu130"}
    assert linked == {"torch": Path("/there/torch")}
    listed = Path(calls[1][calls[1].index("-r") + 1]).read_text()
    assert listed == f"numpy==2.3.5 --hash=sha256:{'0' * 64}\n"


def test_a_machine_that_lacks_what_it_must_have_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]
) -> None:
    monkeypatch.setattr(provided, "read", lambda python, *, log: {})
    assert refusal_of(lambda: create(tmp_path, has={"torch": "2.11.0"})).reason is Reason.PROVIDED_OTHER
    assert calls == []


def test_where_a_wheelhouse_is_named_no_index_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]
) -> None:
    monkeypatch.setenv("PINPROOF_WHEELHOUSE", str(tmp_path / "house"))
    create(tmp_path)
    for call in calls[1:]:
        assert call[call.index("--no-index") : call.index("--no-index") + 3] == [
            "--no-index",
            "--find-links",
            str(tmp_path / "house"),
        ]


@pytest.mark.parametrize("spans", [True, False])
def test_the_span_plugin_is_installed_where_starts_are_timed(
    tmp_path: Path, calls: list[list[str]], spans: bool
) -> None:
    record = create(tmp_path, spans=spans)
    assert any(word.endswith(spanwheel.FILE) for word in calls[-1]) is spans
    assert ("spans" in record) is spans
