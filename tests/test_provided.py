"""What a worker has already is linked into an environment, and is what the case says, or is refused."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.builders import put_text, refusal_of

from pinproof import provided
from pinproof.provided import Distribution, chosen, link, links
from pinproof.reasons import Reason

HERE = f"python{sys.version_info.major}.{sys.version_info.minor}"


def have(name: str, version: str = "1.0", requires: tuple[str, ...] = (), **changes: object) -> Distribution:
    return Distribution(name, version, requires, Path("/there"), (f"{name}/__init__.py",), **changes)


def there(*found: Distribution) -> dict[str, Distribution]:
    return {one.name: one for one in found}


def install(site: Path, name: str, version: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> None:
    """Put a distribution into a site folder as an installer does."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    all_files = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"}
    record = "".join(f"{place},,\n" for place in (*all_files, f"{info}/RECORD", "../../../bin/tool"))
    for place, text in {**all_files, f"{info}/RECORD": record}.items():
        put_text(site / place, text)


@pytest.fixture
def worker(tmp_path: Path) -> SimpleNamespace:
    """An interpreter that has a torch with its libraries in a shared namespace, and an empty environment."""
    venv.create(tmp_path / "worker", symlinks=True)
    venv.create(tmp_path / "env", symlinks=True)
    base, site = (tmp_path / name / "lib" / HERE / "site-packages" for name in ("worker", "env"))
    torch = {"torch/__init__.py": "from torch.version import __version__\n", "torch/lib/a.so": "a"}
    torch["torch/version.py"] = "__version__ = '2.11.0+cu130'\n"
    install(base, "torch", "2.11.0", torch, ("toolkit[blas]==13; python_version > '3'", "numpy"))
    install(base, "toolkit", "13", {}, ('nvidia-blas; extra == "blas"', 'nvidia-fft; extra == "fft"'))
    install(base, "nvidia-blas", "13.1", {"nvidia/cu13/lib/libblas.so": "blas"})
    install(base, "nvidia-fft", "12", {"nvidia/cu13/lib/libfft.so": "fft"})
    install(base, "numpy", "2.5.2", {"numpy/__init__.py": ""})
    install(base, "paths", "1", {"paths.pth": "inner_of_paths\n", "inner_of_paths/hidden_module.py": "here = 1\n"})
    return SimpleNamespace(python=tmp_path / "worker/bin/python", site=site, env=tmp_path / "env", log=tmp_path / "log")


def python(worker: SimpleNamespace, code: str) -> str:
    done = subprocess.run(
        [worker.env / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def linked(worker: SimpleNamespace, wanted: dict[str, str], installed: set[str]) -> dict[str, Distribution]:
    found = provided.read(worker.python, log=worker.log)
    which = chosen(wanted, found, installed)
    link(worker.site, links(found, which))
    return which


def test_what_is_named_is_linked_with_what_only_it_needs(worker: SimpleNamespace) -> None:
    which = linked(worker, {"torch": "2.11.0+cu130"}, {"numpy"})
    assert set(which) == {"torch", "toolkit", "nvidia-blas"}
    assert python(worker, "import torch; print(torch.__version__)") == "2.11.0+cu130"
    assert (worker.site / "torch").is_symlink()
    assert (worker.site / "nvidia/cu13/lib/libblas.so").read_text() == "blas"


def test_nothing_else_of_the_worker_can_be_imported(worker: SimpleNamespace) -> None:
    linked(worker, {"torch": "2.11.0+cu130"}, {"numpy"})
    assert python(worker, "import numpy").startswith("ModuleNotFoundError")
    assert not (worker.site / "nvidia/cu13/lib/libfft.so").exists()


def test_path_configuration_files_work_in_the_environment(worker: SimpleNamespace) -> None:
    linked(worker, {"paths": "1"}, set())
    assert python(worker, "import hidden_module; print(hidden_module.here)") == "1"


def test_what_the_environment_has_of_its_own_stays(worker: SimpleNamespace) -> None:
    put_text(worker.site / "nvidia/cu13/lib/own.so", "own")
    put_text(worker.site / "torch/__init__.py", "__version__ = 'own'\n")
    linked(worker, {"torch": "2.11.0"}, {"numpy"})
    assert python(worker, "import torch; print(torch.__version__)") == "own"
    assert (worker.site / "torch/lib/a.so").read_text() == "a"
    assert (worker.site / "nvidia/cu13/lib/libblas.so").read_text() == "blas"
    assert not (worker.env.parent / "worker/lib" / HERE / "site-packages/nvidia/cu13/lib/own.so").exists()


@pytest.mark.parametrize("version", ["2.11.0", "2.11.0+cu130"])
def test_the_local_part_is_the_modules_where_the_metadata_has_none(worker: SimpleNamespace, version: str) -> None:
    assert "torch" in chosen({"torch": version}, provided.read(worker.python, log=worker.log), set())


@pytest.mark.parametrize("version", ["2.11.0+cu128", "2.12.0", "2.11"])
def test_another_version_or_build_is_refused_with_what_is_there(worker: SimpleNamespace, version: str) -> None:
    found = provided.read(worker.python, log=worker.log)
    refusal = refusal_of(chosen, {"torch": version}, found, set())
    assert refusal.reason is Reason.PROVIDED_OTHER
    assert refusal.message == f"torch {version} is declared, here is 2.11.0 or 2.11.0+cu130"


def test_what_is_not_there_is_refused() -> None:
    refusal = refusal_of(chosen, {"torch": "2.11.0"}, {}, set())
    assert (refusal.reason, refusal.message) == (Reason.PROVIDED_OTHER, "torch is not there, declared is 2.11.0")


def test_requirements_that_do_not_hold_here_are_not_followed() -> None:
    found = there(
        have("torch", requires=("wanted", "other; python_version < '3'", "odd; extra == 'x'")), have("wanted")
    )
    found |= there(have("other"), have("odd"))
    assert set(chosen({"torch": "1.0"}, found, set())) == {"torch", "wanted"}


def test_an_interpreter_that_cannot_be_read_is_a_refusal(tmp_path: Path) -> None:
    refusal = refusal_of(lambda: provided.read(tmp_path / "python", log=tmp_path / "log"))
    assert refusal.reason is Reason.PROVIDED_OTHER
