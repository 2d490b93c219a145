"""Scenes for the faults, and their report where one is asked for."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.faults import report
from tests.faults.fault import Line
from tests.faults.scene import Scene, running
from tests.stubs.workflow import Finished, Material, Workplace

LINES = pytest.StashKey[list[Line]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-seen", type=Path, help="write what was seen of the faults to this file, a line each")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LINES] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What was seen is written, however the session ended; the page needs all of it."""
    if file := session.config.getoption("--faults-seen", None):
        lines = session.config.stash[LINES]
        file.write_text("".join(json.dumps(line.as_record()) + "\n" for line in lines), encoding="utf-8")
        if session.testsfailed == 0:
            report.write(lines)


@pytest.fixture
def seen(request: pytest.FixtureRequest) -> list[Line]:
    """Where the lines of the report are collected."""
    return request.config.stash.setdefault(LINES, [])


@pytest.fixture
def scene(whole_run: tuple[Workplace, Finished], finished: Workplace) -> Iterator[Scene]:
    """A case that was measured to its end; the scripts of its copied environments name their own interpreters."""
    for file in finished.results.glob("engines/*/env/bin/*"):
        text = b"" if file.is_symlink() else file.read_bytes()
        if (old := str(whole_run[0].folder).encode()) in text:
            times = file.stat()
            file.write_bytes(text.replace(old, str(finished.folder).encode()))
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    with contextlib.ExitStack() as stack:
        stack.callback(end_all, finished.material)
        yield Scene(finished, stack)


def end_all(material: Material) -> None:
    """A fault that ended otherwise than stated may leave processes; they must not be the next fault's."""
    for process in running(material):
        with contextlib.suppress(psutil.Error):
            process.kill()
