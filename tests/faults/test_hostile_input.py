"""Any input at all at every door: it is read, or refused in words; nothing else is raised, and nothing is written."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import fixture_project
from tests.builders import case_value, raw_output

from pinproof import (
    buildlog,
    case,
    checkpoint,
    citations,
    lease,
    leg,
    packing,
    pin,
    processes,
    published,
    question,
    records,
    replay,
    serverlog,
    spans,
    versionfile,
    warmuplog,
    wheel,
)
from pinproof.client import Client, Load
from pinproof.reasons import Reason, Refusal
from pinproof.server import Server

PAGE = (
    b"# A pin\n\n```parity-pin\nbuild_mode = index\nvllm_runtime_version = 1.1.0\n"
    b"vllm_distribution_version = 1.1.0\n```\n"
)
LOG = (
    b"(EngineCore pid=7) ERROR 12-01 10:00:00 [core.py:1] Traceback (most recent call last):\n"
    b'(EngineCore pid=7) ERROR 12-01 10:00:00 [core.py:1]   File "/x.py", line 1, in load\n'
    b"(EngineCore pid=7) ERROR 12-01 10:00:00 [core.py:1] ValueError: told to fail\n"
    b"INFO 12-01 10:00:00 [core.py:1] Initializing a V1 LLM engine (v1.1.0) with config: model='m', max_seq_len=64, "
    b"speculative_config=None, compilation_config={'mode': 3, 'sizes': [1, 2]}\n"
    b"RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'E': 1}\n"
)
SPAN = (
    b'{"event": "process", "format": 1, "marker": "r/oracle/1", "boot": "b", "pid": 7, "parent": 1, "began": 1.0, '
    b'"loaded": 1.1, "at": 1.2, "wall": 5.0, "process": "EngineCore", "program": "x", "forked": false}\n'
    b'{"event": "begin", "id": 1, "parent": null, "name": "m:f", "thread": 1, "at": 1.3, "wall": 5.1}\n'
    b'{"event": "end", "id": 1, "at": 1.4, "wall": 5.2, "exception": null, "deferred": false}\n'
)
HOLDER = {
    **{"pid": 7, "process_started": 1, "boot": "b", "namespace": "n", "host": "h", "case": "c", "row": "r"},
    **{"since": 1.0, "progress": "p", "updated": 1.0},
}
REPS = {
    "plan": {"direction": "no-worse", "tolerance": 0.1, "looks": [3]},
    "noise": {"sd": 0.01, "pairs": 8},
    "reps": [1.0, 1.01, 0.99],
}


@dataclass(frozen=True)
class Door:
    """Where input comes in: the name of its file, a good one to begin with, and who reads it."""

    file: str
    good: bytes
    read: Callable[[Path], Any]


def _packed() -> bytes:
    files = {"case.yaml": b"case: x\n", "results/x/verdict.json": b"{}"}
    listed = {name: {"bytes": len(data), "sha256": "0" * 64} for name, data in files.items()}
    index = records.text("archive", {"files": listed}).encode()
    return packing.pack({**files, packing.INDEX: index, packing.SEAL: packing.seal(index)})


def _wheel() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return fixture_project.wheel(Path(folder), "x", "1.0").read_bytes()


def _safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


def _holder(path: Path) -> str:
    return str(lease.look(path.with_name("x.lock")))


def _log(path: Path) -> None:
    """Everything that reads a server's log; it refuses nothing, for a log is whatever an engine writes."""
    text = path.read_bytes().decode(errors="replace")
    serverlog.first_error(text)
    serverlog.exit_cause(text, -9)
    serverlog.stuck(text)
    serverlog.is_waiting(text)
    serverlog.last_line(text)
    serverlog.kernels_compiled(text)
    serverlog.resolved_config(text)
    warmuplog.read(text, "vllm.worker:Worker.load_model")


def _build_log(path: Path) -> None:
    text = path.read_bytes().decode(errors="replace")
    buildlog.torch_versions(text)
    buildlog.skipped(text)


def _output(path: Path) -> None:
    raw = leg.read_raw(path)
    leg.objections(raw, leg.Asked(2, 16, 4), {"generation_tokens": 8.0})
    leg.metrics(raw)
    leg.reported(raw)


def _cited(path: Path) -> None:
    published_of = {"pin": None, "device": None, "date": None}
    cited = [{"file": path.name, "line": 1, "quote": "0.976x"}]
    stated = case.parse(
        case_value({"pages": str(path.parent), "rows[0].published": {**published_of, "cited": cited}}), path
    )
    (found,) = citations.check(stated, path.parent)
    citations.numbers(path.read_bytes().decode(errors="replace"))
    assert found.state in citations.State


DOORS = {
    "case file": Door("case.yaml", yaml.safe_dump(case_value()).encode(), case.load),
    "pin page": Door("pin.md", PAGE, pin.read_pin),
    "cited page": Door("page.md", b"| c1 | 0.976x |\n", _cited),
    "wheel": Door("x-1.0-py3-none-any.whl", _wheel(), wheel.verify),
    "archive": Door("a.tar.zst", _packed(), replay.verify),
    "span file": Door(
        "7-1.jsonl", SPAN, lambda path: spans.read(path.parent, marker="r/oracle/1", spawned=1.0, boot="b")
    ),
    "server log": Door("server.log", LOG, _log),
    "build log": Door("build.log", b"FAILED: x.o\nc++: fatal error: Killed signal terminated program\n", _build_log),
    "client's output": Door("x.raw.json", json.dumps(raw_output()).encode(), _output),
    "record": Door("x.json", records.text("row", {"outcome": "pass"}).encode(), lambda path: records.read(path, "row")),
    "holder of a lease": Door("x.lock.holder.json", records.text("lease", HOLDER).encode(), _holder),
    "weights": Door("model.safetensors", _safetensors(), checkpoint.read_header),
    "version file": Door(
        "_version.py", b"__version__ = version = '1.0'\n", lambda path: versionfile.literals(path.read_text("latin-1"))
    ),
    "reps": Door("reps.yaml", yaml.safe_dump(REPS).encode(), lambda path: question.answer(question.read(path))),
    "published": Door("published.yaml", b"rows: []\n", lambda path: published.needed(published.read(path))),
}

# What a file may hold that means more than it looks like.
PIECES = st.sampled_from(
    [
        *(
            b"\x00",
            b"\xff\xfe",
            b"\n",
            b"\r\n",
            b"\t",
            b"\x1b[2J",
            b"\xed\xa0\x80",
            "\N{ARABIC-INDIC DIGIT SEVEN}".encode(),
        ),
        *(b"NaN", b"Infinity", b"-1e999", b"1e308", b"1" * 400, b"9" * 25, b"-1", b"0", b"null", b"true", b"[]", b"{}"),
        *(b'"', b"'", b": ", b"{" * 300, b"[" * 300, b"&a *a", b"!!python/name:os.system ", b"%s{0}{x}"),
        *(b"../" * 9, b"$(touch pwned)"),
    ]
)


@st.composite
def mutated(draw: st.DrawFn, good: bytes) -> bytes:
    """A good file with pieces cut out, doubled or put in; or any bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=400))
    data = good
    for _ in range(draw(st.integers(1, 4))):
        at, length = draw(st.integers(0, len(data))), draw(st.integers(0, 40))
        piece = draw(st.one_of(PIECES, st.binary(max_size=8), st.just(data[at : at + length] * 2)))
        data = data[:at] + piece + data[at + length :]
    return data


@pytest.mark.parametrize("name", list(DOORS))
@settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=st.data())
def test_any_file_is_read_or_refused_in_words(
    name: str, source: st.DataObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = DOORS[name]
    here, folder = tmp_path / "here", tmp_path / "input"
    for each in (here, folder):
        each.mkdir(exist_ok=True)
    monkeypatch.chdir(here)
    path = folder / door.file
    path.write_bytes(source.draw(mutated(door.good)))
    try:
        door.read(path)
    except Refusal as refusal:
        assert refusal.message
        assert "Traceback" not in str(refusal)
    assert list(here.iterdir()) == []
    assert [file.name for file in folder.iterdir()] == [path.name]


@pytest.mark.parametrize("name", [name for name in DOORS if name not in ("archive", "published", "reps")])
def test_the_good_file_of_a_door_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / DOORS[name].file
    path.write_bytes(DOORS[name].good)
    DOORS[name].read(path)


NAMES = st.text(st.characters(exclude_characters="/\x00", exclude_categories=("Cs",)), min_size=1, max_size=60)


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.one_of(NAMES, st.builds("x-{}-{}.whl".format, NAMES, NAMES)))
def test_a_wheel_of_any_name_is_read_or_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    try:
        path.write_bytes(_wheel())
    except OSError:  # no name of a file here
        return
    try:
        assert wheel.inspect(path).name == "x"
    except Refusal as refusal:
        assert refusal.reason is Reason.WHEEL_NAME
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("value", ["{[]: 1}", "[" * 5000, "{" * 300, "-" * 9000 + "1", "\\x00"])
def test_a_value_in_a_log_that_is_no_literal_is_a_text(value: str) -> None:
    config = f"model='m', compilation_config={value}"
    serverlog.resolved_config(
        f"INFO 12-01 10:00:00 [core.py:1] Initializing a V1 LLM engine (v1) with config: {config}\n"
    )


METRICS = (
    b'# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total{engine="0"} 7.0\n'
    b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1.0\n"
)


@settings(max_examples=100, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=st.data())
def test_what_a_server_says_of_its_counters_is_read_or_unknown(
    source: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = source.draw(mutated(METRICS)).decode(errors="replace")
    monkeypatch.setattr(Server, "metrics_text", lambda _: text)
    server = object.__new__(Server)
    counters = server.metrics()
    assert counters is None or records.canonical(counters.as_record())  # no NaN: it can stand in a record
    assert server.pending() is None or isinstance(server.pending(), int)


def test_a_client_that_is_gone_between_two_legs_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MACHINE_FOLDER", tmp_path / "machine")
    load = Load("http://127.0.0.1:1", "key", "m", tmp_path, tmp_path, leg.Asked(1, 1, 1), 1, tmp_path / "raw.json")
    with Client(Path("/bin/true"), env={}, log=tmp_path / "log", marker="faults/.client/1") as client:
        client._process.wait()
        with pytest.raises(Refusal) as refusal:
            client.run(load, timeout_s=5, check=lambda: None)
    assert refusal.value.reason is Reason.CLIENT_FAILED


MEMBERS = st.one_of(
    NAMES,
    st.sampled_from(["../x", "/etc/x", "a/../../x", "./x", "a//b", "x\n", "C:\\x", "a\\b", ".", "..", "x" * 2000]),
)
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)


@settings(max_examples=80, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(members=st.lists(st.tuples(MEMBERS, KINDS, st.binary(max_size=20)), max_size=4))
def test_an_archive_of_any_members_gives_plain_files_or_a_refusal(
    members: list[tuple[str, bytes, bytes]], tmp_path: Path
) -> None:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as packed:
        for name, kind, data in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, "/etc/passwd", len(data) * (kind == tarfile.REGTYPE)
            packed.addfile(member, io.BytesIO(data))
    path = tmp_path / "a.tar.zst"
    path.write_bytes(zstandard.compress(held.getvalue()))
    try:
        for name in packing.unpack(path):
            assert not Path(name).is_absolute()
            assert ".." not in Path(name).parts
    except Refusal as refusal:
        assert refusal.reason in (Reason.ARCHIVE_HOSTILE, Reason.ARCHIVE_DAMAGED)
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar.zst"]
