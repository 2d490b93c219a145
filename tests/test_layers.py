"""The house: dependencies point one way, modules stay small, and the pipeline never imports the engine."""

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
LIBRARY = SCRIPTS / "pinproof"

# From left to right: a module imports from its own room and from rooms above it, never from below.
ROOMS = {
    "values": "reasons shortages records originals yamlfile findings ids engines subjects hardware baselines claims "
    "scope case",
    "facts": "pin wheel digests hub checkpoint corpus synthesis nvml simulation device serverlog applied locks layout "
    "leg versionfile source cmake staging architecture buildlog binaries citations history "
    "purewheel spanwheel spans warmuplog",
    "acts": "weights caches commands processes provided environment bundle fetch version allocation wrapper lease "
    "server watch client sampling buildenv build builds",
    "judgements": "measures outcomes boundaries equivalence advice decision question published "
    "waterfall warmup clocks gate plan legbook speculation starts evidence sidenotes "
    "discharges patches corrections finding budget foresight preflight result verdict",
    "measurement": "progress residents bench lives series",  # acts that go on until a judgement says that it is enough
    "pages": "markdown appendix rowtables overview page cli",
    # what leaves the machine, and the way back
    "artifacts": "artifacts documents ci trend figures webpage report packing scrub crate recorded replay archive "
    "attestation",
    "drills": "double stage faults rehearsal",  # a whole case on doubles
}
FOREIGN = {"snakemake", "vllm", "torch"}
LINES = 420
# These were longer when the rule was written; a module leaves the list when it is split, none joins it.
TOO_LONG = {"gate", "processes", "server", "serverlog", "wheel"}

ROOM_OF = {module: room for room, modules in ROOMS.items() for module in modules.split()}
MODULES = sorted(path for path in LIBRARY.glob("*.py") if path.name != "__init__.py")
CHILDREN = sorted([*(LIBRARY / "children").glob("*.py"), *(SCRIPTS / "pinproof_spans").glob("*.py")])
PROGRAMS = sorted(SCRIPTS.glob("*.py"))


def name(path: Path) -> str:
    return path.stem


def imported(path: Path) -> set[str]:
    """Dotted names of everything that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def ours(path: Path) -> set[str]:
    """Modules of the library that a file imports."""
    words = (imported_name.split(".") for imported_name in imported(path))
    return {parts[1] for parts in words if parts[0] == "pinproof"}


def packages(path: Path) -> set[str]:
    return {imported_name.split(".")[0] for imported_name in imported(path)}


def test_every_module_has_a_room() -> None:
    assert sorted(ROOM_OF) == [name(path) for path in MODULES]
    assert sum(len(modules.split()) for modules in ROOMS.values()) == len(ROOM_OF)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_imports_nothing_from_a_room_further_on(path: Path) -> None:
    order = list(ROOMS)
    allowed = order[: order.index(ROOM_OF[path.stem]) + 1]
    assert {module: ROOM_OF[module] for module in ours(path) if ROOM_OF[module] not in allowed} == {}


def test_no_modules_import_each_other() -> None:
    assert list(TopologicalSorter({name(path): ours(path) for path in MODULES}).static_order())


@pytest.mark.parametrize("path", [*MODULES, *PROGRAMS], ids=name)
def test_the_pipeline_never_imports_the_engine_nor_the_library_snakemake(path: Path) -> None:
    assert packages(path) & FOREIGN == set()


@pytest.mark.parametrize("path", CHILDREN, ids=name)
def test_what_runs_in_an_engine_s_interpreter_needs_nothing_of_ours(path: Path) -> None:
    assert packages(path) <= sys.stdlib_module_names | {"vllm", "torch", "uvloop", *({path.parent.name} - {"children"})}


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_is_not_long(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES or path.stem in TOO_LONG


@pytest.mark.parametrize("path", PROGRAMS, ids=name)
def test_a_script_is_thin(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.parametrize("path", [*MODULES, *CHILDREN, *PROGRAMS], ids=name)
def test_a_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", [*MODULES, *CHILDREN, *PROGRAMS], ids=name)
def test_nothing_passes_through_a_shell(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    assert not [word for call in calls for word in call.keywords if word.arg == "shell"]
    assert "os.system" not in {ast.unparse(call.func) for call in calls}
