"""What an installed vLLM really reports; run by the engine environment's own interpreter.

    cd / && ENV/bin/python -I -P read_version.py OUTPUT.json

Standard library only. Every value is read by the API named beside it, in an attempt of its own:
`value` is null and `error` says why when it could not be read. OUTPUT.json is written before each
step that might end the process, and `unfinished` names that step. Nothing is printed by this
script, but what it imports may print: the caller keeps stdout and stderr.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import math
import os
import re
import sys
import tempfile
import time
import urllib.parse
import warnings
from importlib import metadata
from pathlib import Path

NOT_READ = "not read: the process ended before"
OP_TOLERANCE = 1e-4

# field -> (distribution, API)
DISTRIBUTIONS = {
    "vllm_distribution_version": "vllm",
    "flashinfer_version": "flashinfer-python",
    "nvidia_cutlass_dsl_version": "nvidia-cutlass-dsl",
    "torch_distribution_version": "torch",
    "transformers_version": "transformers",
    "triton_version": "triton",
    "pandas_version": "pandas",
}
# field -> (module, attribute), in the order of the imports
ATTRIBUTES = {
    "torch_version": ("torch", "__version__"),
    "torch_cuda_version": ("torch", "version.cuda"),
    "vllm_runtime_version": ("vllm", "__version__"),
    "vllm_commit": ("vllm._version", "__commit_id__"),
    "platform": ("vllm.platforms", "current_platform.device_type"),
    "flashinfer_module_version": ("flashinfer", "__version__"),
    "cutlass_module_version": ("cutlass", "__version__"),
}


class Reading:
    """The readings so far, and the file they go to."""

    def __init__(self, output):
        self.output = Path(output)
        self.body = {"unfinished": None, "provenance": {"seconds": {}}}
        self.notes = []

    def entry(self, section, api, **empty):
        """Put an empty entry in place; `read` fills it."""
        self.body[section] = {**empty, "api": api, "error": NOT_READ}

    def save(self):
        """Write everything read so far: whole, or not at all."""
        self.body["import_failures"] = [text for text in dict.fromkeys(self.notes) if _is_import_failure(text)]
        self.body["provenance"]["warnings"] = list(dict.fromkeys(self.notes))[:200]
        text = json.dumps(self.body, sort_keys=True, indent=1, allow_nan=False) + "\n"
        handle, name = tempfile.mkstemp(dir=self.output.parent, prefix=f".{self.output.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).replace(self.output)

    def read(self, entry, function, *, step=None):
        """Fill one entry from `function`; a step that may end the process is saved first."""
        if step is not None:
            self.body["unfinished"] = step
            self.save()
        start = time.monotonic()
        try:
            entry.update(function() or {})
            entry["error"] = None
        except (Exception, SystemExit) as error:
            entry["error"] = f"{type(error).__name__}: {error}"
        if step is not None:
            self.body["unfinished"] = None
            self.body["provenance"]["seconds"][step] = round(time.monotonic() - start, 3)


def main(output):
    """Read everything and write it to `output`."""
    reading = Reading(output)
    body = reading.body
    body["provenance"].update(executable=sys.executable, prefix=sys.prefix, cwd=str(Path.cwd()), path=sys.path)
    body["interpreter"] = {"safe_path": bool(getattr(sys.flags, "safe_path", 0)), "isolated": bool(sys.flags.isolated)}
    body["fields"] = fields = {"python_version": {"value": sys.version.split()[0], "api": "sys.version", "error": None}}
    for field, name in DISTRIBUTIONS.items():
        fields[field] = {"value": None, "api": f'importlib.metadata.version("{name}")', "error": NOT_READ}
    for field, place in ATTRIBUTES.items():
        fields[field] = {"value": None, "api": ".".join(place), "error": NOT_READ}
    reading.entry("owners", 'importlib.metadata.packages_distributions()["vllm"]', value=None)
    reading.entry("distributions", "importlib.metadata.distributions()", value=None)
    reading.entry("module", "vllm.__file__ and RECORD", file=None, recorded=None, equal=None, editable=None)
    reading.entry("script", "first line of bin/vllm and sys.executable", interpreter=None, equal=None)
    reading.entry("extensions", "RECORD, stat and /proc/self/maps", value=None)
    op = {"op": "rms_norm", "ok": None, "device": None, "max_abs_error": None, "tolerance": OP_TOLERANCE}
    reading.entry("op", "vllm._custom_ops.rms_norm against torch", **op)
    capture(reading.notes)

    for field, name in DISTRIBUTIONS.items():
        reading.read(fields[field], lambda name=name: {"value": metadata.version(name)})
    for section, function in (("owners", owners), ("distributions", distributions)):
        reading.read(body[section], lambda function=function: {"value": function()})
    reading.read(body["script"], script)
    reading.read(body["extensions"], lambda: {"value": extensions()})
    for field, place in ATTRIBUTES.items():
        reading.read(fields[field], lambda place=place: {"value": attribute(*place)}, step=field)
    reading.read(body["module"], lambda: module_place(body["module"]), step="module")
    reading.read(body["op"], lambda: execute_op(body["op"], fields["platform"]["value"]), step="op")
    reading.read(body["extensions"], lambda: {"value": extensions()})
    reading.save()


def capture(notes):
    """Keep the text of every warning that Python code gives, whatever its logger does with it."""
    make = logging.getLogRecordFactory()
    show = warnings.showwarning

    def noting(*args, **kwargs):
        record = make(*args, **kwargs)
        if record.levelno >= logging.WARNING:
            with contextlib.suppress(Exception):
                notes.append(f"{record.levelname} {record.name}: {record.getMessage()}")
        return record

    def showing(message, category, *args, **kwargs):
        notes.append(f"{category.__name__}: {message}")
        show(message, category, *args, **kwargs)

    logging.setLogRecordFactory(noting)
    warnings.showwarning = showing


def _is_import_failure(text):
    return re.search(r"Failed to import from vllm|undefined symbol|cannot open shared object file", text) is not None


def _place(path):
    """A path as it stands in this environment: below sys.prefix when it is."""
    path = str(path)
    for prefix in (sys.prefix, os.path.realpath(sys.prefix)):
        if path.startswith(prefix + os.sep):
            return os.path.relpath(path, prefix)
    return path


# -- what the installer left ---------------------------------------------------------------------


def owners():
    """Every distribution that owns the import name `vllm`, shadowed ones too."""
    rows = set()
    for name in set(metadata.packages_distributions().get("vllm", [])):
        for dist in metadata.distributions(name=name):
            rows.add((dist.metadata["Name"], dist.version, _place(os.path.realpath(dist.locate_file("")))))
    return [{"name": name, "version": version, "place": place} for name, version, place in sorted(rows)]


def distributions():
    """Name and version of everything installed."""
    rows = set()
    for dist in metadata.distributions():
        name = version = None
        with contextlib.suppress(Exception):
            name, version = dist.metadata["Name"], dist.version
        rows.add((name or f"(no name: {getattr(dist, '_path', '?')})", version or ""))
    return [[name, version or None] for name, version in sorted(rows, key=lambda row: (row[0].lower(), row[1]))]


def distribution():
    """The distribution that holds vLLM: the one of that name, else the first owner of the import name."""
    try:
        return metadata.distribution("vllm")
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get("vllm")
        if not names:
            raise
        return metadata.distribution(names[0])


def extensions():
    """Each compiled extension that RECORD names: is it there, how large, is it loaded now."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        loaded = {line.split(None, 5)[5] for line in maps.splitlines() if line.count("/")}
    except OSError:
        loaded = None
    rows = []
    for file in distribution().files or ():
        if re.search(r"\.so(\.\d+)*$", file.name):
            path = Path(os.path.realpath(file.locate()))
            size = path.stat().st_size if path.is_file() else None
            seen = None if loaded is None else str(path) in loaded
            rows.append({"path": str(file), "recorded": file.size, "size": size, "loaded": seen})
    return sorted(rows, key=lambda row: row["path"])


def script():
    """The interpreter behind bin/vllm; equal when it is this environment's."""
    path = Path(sys.prefix, "bin", "vllm")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[:3]
    if not lines or not lines[0].startswith("#!"):
        raise ValueError("bin/vllm has no #! line")
    words = lines[0][2:].split()
    if words[:1] == ["/bin/sh"] and len(lines) > 1:  # the form for long paths: '''exec' "/long/python" "$0" "$@"
        long = re.match(r"'''exec'\s+(?:\"([^\"]+)\"|'([^']+)'|(\S+))", lines[1])
        interpreter = next(filter(None, long.groups()), "") if long else ""
    else:
        interpreter = lines[0][2:].strip()
    if not interpreter or Path(words[0]).name == "env":
        return {"interpreter": lines[0][2:].strip(), "equal": None}
    # Two environments can be links to one base interpreter, so the folders must be the same too.
    here, there = ((Path(path).parent.resolve(), Path(path).resolve()) for path in (sys.executable, interpreter))
    return {"interpreter": _place(interpreter), "equal": here == there}


# -- what the running modules say ----------------------------------------------------------------


def attribute(module, path):
    """An attribute of an imported module as text; None stays None, and empty text is unknown."""
    value = importlib.import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    return None if value is None or not str(value) else str(value)


def module_place(entry):
    """Where `vllm` was imported from, and where RECORD says it lies."""
    found = sys.modules.get("vllm") or importlib.util.find_spec("vllm")
    file = getattr(found, "__file__", None) or getattr(found, "origin", None)
    entry["file"] = None if file is None else _place(file)
    if file is None:
        raise ImportError("vllm cannot be found, or has no file of its own")
    dist = distribution()
    entry["editable"] = False
    with contextlib.suppress(TypeError, ValueError):
        origin = json.loads(dist.read_text("direct_url.json"))
        if origin.get("dir_info", {}).get("editable"):
            entry["editable"] = True
            entry["recorded"] = urllib.parse.unquote(urllib.parse.urlsplit(origin["url"]).path)
            tree = os.path.realpath(entry["recorded"])
            return {"equal": os.path.realpath(file).startswith(tree + os.sep)}
    recorded = [item.locate() for item in dist.files or () if item.as_posix() == "vllm/__init__.py"]
    if not recorded:
        return {"equal": False}
    entry["recorded"] = _place(recorded[0])
    return {"equal": os.path.realpath(recorded[0]) == os.path.realpath(file)}


def execute_op(entry, platform):
    """Run one compiled op on a small tensor, where vLLM would run it, and compare it with plain torch."""
    if platform is None:
        raise RuntimeError("vLLM detects no platform here, so the op was not tried")
    torch = importlib.import_module("torch")
    device = entry["device"] = platform
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 256, generator=generator).to(device)
    weight = torch.randn(256, generator=generator).to(device)
    expected = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    entry["ok"] = False  # from here on a failure is the engine's
    out = torch.empty_like(x)
    importlib.import_module("vllm._custom_ops").rms_norm(out, x, weight, 1e-6)
    worst = float((out - expected).abs().max())
    if not worst <= OP_TOLERANCE:
        entry["max_abs_error"] = worst if math.isfinite(worst) else None
        raise ValueError(f"rms_norm differs from torch by {worst}")
    return {"ok": True, "max_abs_error": worst}


if __name__ == "__main__":
    main(sys.argv[1])
