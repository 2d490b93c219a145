"""What the tests of the workflow share: one whole run on stub engines, and copies of it.

The run is made once a session, from nothing. A copy holds everything that was made, Snakemake's own
records too, with the times it has, so that a test sees what a second call sees; it takes a moment.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.stubs.workflow import Finished, Material, Workplace, marked


def pytest_configure() -> None:
    """Take SIGINT again where it came ignored (a suite started in the background): tests send it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Material]:
    """Wheels, locks and pins of the stub engines; no process of the tests is left at the end."""
    made = Material(tmp_path_factory.mktemp("material")).make()
    yield made
    for call in made.calls:
        call.kill()
    left = marked(made)
    for pid in left:
        psutil.Process(pid).kill()
    assert left == {}


@pytest.fixture(scope="session")
def whole_run(material: Material, tmp_path_factory: pytest.TempPathFactory) -> tuple[Workplace, Finished]:
    """A place where `snakemake verdict` ran from nothing, and what that call said. Not to be changed."""
    place = Workplace(tmp_path_factory.mktemp("whole"), material).write(material.case())
    return place, place.run("verdict")


@pytest.fixture
def finished(whole_run: tuple[Workplace, Finished], tmp_path: Path) -> Workplace:
    """A copy of the whole run."""
    place, call = whole_run
    assert call.status == 0, call.output
    return place.copy(tmp_path / "finished")


@pytest.fixture
def fresh(whole_run: tuple[Workplace, Finished], tmp_path: Path) -> Workplace:
    """A place where nothing was run, with the case of the whole run and its engines."""
    place, call = whole_run
    assert call.status == 0, call.output
    return Workplace(tmp_path / "fresh", place.material, store=place.results).write(place.material.case())
