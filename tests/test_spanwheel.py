"""The wheel of the span plugin: whole, the same bytes each time, and loaded as vLLM loads it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pinproof import records, spanwheel, wheel


def test_it_is_a_whole_wheel_with_the_entry_point_that_every_engine_process_loads(tmp_path: Path) -> None:
    facts = wheel.verify(spanwheel.write(tmp_path))
    assert (facts.name, facts.version, facts.requires_dist, facts.extensions) == ("pinproof-spans", "1", (), ())
    assert facts.entry_points == ("vllm.general_plugins: pinproof_spans = pinproof_spans:load",)
    assert not facts.tag_disagrees


def test_two_of_them_have_the_same_bytes_and_the_digest_that_was_known_before(tmp_path: Path) -> None:
    first, second = (spanwheel.write(tmp_path / name) for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert records.file_sha256(first) == spanwheel.sha256()


def test_nothing_in_it_depends_on_the_machine(tmp_path: Path) -> None:
    with zipfile.ZipFile(spanwheel.write(tmp_path)) as archive:
        members = archive.infolist()
    names = [member.filename for member in members]
    assert names == [*sorted(names[:-1]), names[-1]]
    assert names[-1].endswith("/RECORD")
    assert {(one.date_time, one.compress_type, one.external_attr >> 16) for one in members} == {
        ((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED, 0o100644)
    }


def test_what_changes_the_plugin_changes_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = spanwheel.sha256()
    (tmp_path / "__init__.py").write_text("def load(): ...\n")
    monkeypatch.setattr(spanwheel, "SOURCE", tmp_path)
    assert spanwheel.sha256() != before


def test_an_interpreter_finds_the_entry_point_where_it_is_unpacked(tmp_path: Path) -> None:
    zipfile.ZipFile(spanwheel.write(tmp_path)).extractall(tmp_path / "site")
    program = (
        "from importlib.metadata import entry_points as e\n"
        "for one in e(group='vllm.general_plugins'): one.load()()\n"
        "import sys; print('pinproof_spans' in sys.modules, 'pinproof_spans.recording' in sys.modules)\n"
    )
    argv = [sys.executable, "-P", "-S", "-c", program]
    told = subprocess.run(argv, env={"PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["True", "False"]  # without PINPROOF_SPANS it does nothing at all
