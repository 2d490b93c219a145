"""The version gate: the declared pin against what the installed engine reports.

A pure function of records. Unknown is never a pass, and a difference that our own build or
installation explains (a suffix of the build mode, missing tags, a dependency of the lock) is not
laid at the engine's door. The pin is never edited: `correction` writes what would have to change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from packaging.version import InvalidVersion, Version

from pinproof import patches, records
from pinproof import pin as pins
from pinproof.engines import BuiltEngine
from pinproof.layout import EnginePlace
from pinproof.pin import Pin
from pinproof.reasons import Reason, Refusal

OWN = ("vllm_runtime_version", "vllm_distribution_version")  # what vLLM says of itself
# A second witness, read from the module.
MODULES = {"flashinfer_version": "flashinfer_module_version", "nvidia_cutlass_dsl_version": "cutlass_module_version"}
IMPORTED = ("nvidia_cutlass_dsl_version",)  # engines go on without it: an import that fails must be seen here
LACKING = (
    r"cannot open shared object file|version `GLIBC\w*_[\d.]+' not found|failed to map segment|"
    r"[Cc]annot allocate memory|No space left|Permission denied|Illegal instruction"
)
CORRECTABLE = (Reason.IDENTITY_MISMATCH, Reason.PIN_DISAGREES)


class Verdict(StrEnum):
    """What one row of the gate found."""

    EQUAL = "equal"
    DIFFERS = "differs"
    UNKNOWN = "unknown"
    AMBIGUOUS = "ambiguous"
    UNDECLARED = "undeclared"


class Outcome(StrEnum):
    """What the gate says as a whole; `unknown` when nothing differs but something could not be read."""

    PASS = "pass"  # nosec B105 # the word of an outcome
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class FieldVerdict:
    """One row: a field, what was declared and measured (and by which API), and what follows.

    `reason` is None when the row does not refuse; `flavour` is the local part of a measured version.
    """

    field: str
    verdict: Verdict
    declared: str | None = None
    measured: str | None = None
    api: str | None = None
    mode: str | None = None
    flavour: str | None = None
    text: str = ""
    reason: Reason | None = None

    def as_record(self) -> dict:
        """The row as JSON values."""
        reason = None if self.reason is None else self.reason.code
        return {**vars(self), "verdict": str(self.verdict), "reason": reason}


@dataclass(frozen=True)
class Build:
    """How the engine came to be: what its version record cannot know.

    `wheel_sha256` is the digest by which the case pins a wheel of mode index or file; `commit` and
    `describe` are a clone's; `installed` is false when the case declares an engine used from a tree.
    """

    mode: str
    wheel_sha256: str | None = None
    commit: str | None = None
    describe: str | None = None
    installed: bool = True

    @classmethod
    def of(cls, place: EnginePlace) -> Build:
        """What the case says of it, and of what is built here the record of its source. Refusals: `records.read`."""
        engine = place.arm.engine
        if not isinstance(engine, BuiltEngine):
            return cls(engine.mode, engine.sha256)
        facts = records.read(place.source, "source")["facts"]
        return cls(engine.mode, commit=facts["commit"], describe=facts["describe"])


def compare(pin: Pin, version: Mapping[str, Any], modes: Mapping[str, str], build: Build) -> list[FieldVerdict]:
    """Compare a pin with the body of a version record, one row a field, in the order of a page.

    `modes` says per field "exact" (the default) or "release".
    """
    fields = version.get("fields") or {}
    rows = [_commit(pin, fields, build) if pin.vllm_commit else _undeclared("vllm_commit", fields, build.mode)]
    for name in pin.fields:
        if name.endswith("_version"):
            row = _version(pin, name, fields, modes.get(name, "exact"), build.mode)
            rows.append(_owned(row, version, build) if name == "vllm_distribution_version" else row)
    rows += [_undeclared(name, fields, build.mode) for name in pins.OPTIONAL if name not in pin.fields]
    if pin.build_mode is not None:
        rows.append(_build_mode(pin.build_mode, build.mode))
    if build.describe:
        rows.append(_describe(build.describe, fields))
    return [*rows, _import(version, build), _script(version), _extensions(version), *_reader(version)]


def foresee(pin: Pin, metadata: Mapping[str, Any], modes: Mapping[str, str], build_mode: str) -> list[FieldVerdict]:
    """The fields that a build's metadata tells before anything is built: vLLM's own version, and its commit.

    `metadata` is the body of a metadata record. What it does not tell (a module version that is only
    written by the build) gets no row: it is compared after the install.
    """
    told = {
        "vllm_distribution_version": (metadata["version"], "METADATA Version"),
        "vllm_runtime_version": (metadata["module_version"], "vllm/_version.py"),
    }
    fields = {name: {"value": value, "api": api} for name, (value, api) in told.items() if value is not None}
    rows = [_version(pin, name, fields, modes.get(name, "exact"), build_mode) for name in OWN if name in fields]
    commit = {"vllm_commit": {"value": metadata["commit"], "api": "__commit_id__ in vllm/_version.py"}}
    return [*rows, _commit(pin, commit, Build(build_mode))] if pin.vllm_commit and metadata["commit"] else rows


def by_mode(pin: Pin, build_mode: str) -> list[FieldVerdict]:
    """What contradicts the build mode alone, while there is no source to ask: only mode precompiled adds
    `.precompiled`. That it lacks proves nothing, since builds for a CPU do without it."""
    own = [name for name in OWN if "precompiled" in _segments(Version(pin.fields[name]))]
    if build_mode == "precompiled":
        return []
    text = f"only a build by mode precompiled calls itself `.precompiled`, and this one is by mode {build_mode}"
    return [
        FieldVerdict(name, Verdict.DIFFERS, pin.fields[name], text=text, reason=Reason.PIN_DISAGREES) for name in own
    ]


def outcome(rows: Sequence[FieldVerdict]) -> Outcome:
    """The gate's answer: `pass` only when no row carries a reason."""
    bad = [row for row in rows if row.reason is not None]
    if not bad:
        return Outcome.PASS
    return Outcome.UNKNOWN if all(row.verdict is Verdict.UNKNOWN for row in bad) else Outcome.REFUSED


def as_record(rows: Sequence[FieldVerdict], build_mode: str) -> dict:
    """The body of a gate record."""
    return {"outcome": str(outcome(rows)), "build_mode": build_mode, "rows": [row.as_record() for row in rows]}


def correction(pin: Pin, rows: Sequence[FieldVerdict], build_mode: str, *, path: str) -> str | None:
    """A patch that would make the pin say what was measured; None when no measured value may stand there.

    `path` is the pin file's place below the root of its repository. Only fields that differ and were
    measured change. The patch is for `git apply`; nothing here applies it.
    """
    values = {
        row.field: row.measured
        for row in rows
        if row.verdict is Verdict.DIFFERS
        and row.reason in CORRECTABLE
        and row.field in pin.fields
        and row.measured is not None
        and pins.wrong_value(row.field, row.measured) is None
    }
    corrected = pins.replaced(pin, values)
    try:
        pins.parse_pin(corrected)
    except Refusal:  # the measured values do not make a consistent block, for instance without the full commit
        return None
    if not values:
        return None
    changes = "".join(f"  {name}: {pin.fields[name]} -> {value}\n" for name, value in values.items())
    return (
        f"Correction of {path}: what a build by mode `{build_mode}` really reports.\n\n{changes}\n"
        "This must be a change of its own: it says that the declared block was wrong, not that the\n"
        "pin holds. pinproof wrote it and does not apply it (git apply FILE).\n\n"
        f"{patches.diff(pin.text, corrected, path)}"
    )


# -- the declared fields -------------------------------------------------------------------------


def _commit(pin: Pin, fields: Mapping[str, Any], build: Build) -> FieldVerdict:
    """The commit: from the build's metadata, from the clone, or the `+g<hex>` of a version; whole or its beginning."""
    name, declared = "vllm_commit", pin.vllm_commit
    witnesses = [(_value(fields, name), _api(fields, name)), (build.commit, "git rev-parse HEAD")]
    witnesses += [(pins.commit_in(_value(fields, own) or ""), f"+g of {_api(fields, own)}") for own in OWN]
    found = [(value.removeprefix("g").lower(), api) for value, api in witnesses if value]
    if not found:
        return _no_commit(declared, fields, build)
    value, api = max(found, key=lambda item: len(item[0]))
    text, verdict, reason = f"the engine was built from {value}", Verdict.DIFFERS, Reason.IDENTITY_MISMATCH
    if any(not value.startswith(other) for other, _ in found):
        text = "the witnesses name different commits: " + ", ".join(f"{other} ({whose})" for other, whose in found)
        verdict, reason = Verdict.AMBIGUOUS, Reason.IDENTITY_AMBIGUOUS
    elif declared.startswith(value):
        text = "" if value == declared else f"equal in the {len(value)} digits that the build recorded"
        verdict, reason = Verdict.EQUAL, None
    return FieldVerdict(name, verdict, declared, value, api, text=text, reason=reason)


def _no_commit(declared: str, fields: Mapping[str, Any], build: Build) -> FieldVerdict:
    """Unknown; a refusal unless nothing could know it and the wheel's bytes are pinned instead."""
    if build.mode in ("index", "file") and build.wheel_sha256:
        reason = None
        text = (
            f"unknown: the wheel carries no commit, and mode {build.mode} has no clone to ask; "
            f"its bytes are pinned by sha256 {build.wheel_sha256}, so this does not refuse"
        )
    else:
        reason, text = Reason.IDENTITY_UNKNOWN, _why(fields, "vllm_commit", "the build recorded no commit")
    api = _api(fields, "vllm_commit")
    return FieldVerdict("vllm_commit", Verdict.UNKNOWN, declared, None, api, text=text, reason=reason)


def _version(pin: Pin, name: str, fields: Mapping[str, Any], mode: str, build_mode: str) -> FieldVerdict:
    declared, measured, api = pin.fields[name], _value(fields, name), _api(fields, name)
    want, have = Version(declared), _parsed(measured or "")
    flavour = None if have is None else have.local
    if measured is None:
        found = Verdict.UNKNOWN, _why(fields, name, "reported nothing"), Reason.IDENTITY_UNKNOWN
    elif have is None:
        found = Verdict.DIFFERS, _unparsable(name, measured, fields), Reason.IDENTITY_MISMATCH
    elif doubt := _doubt(name, want, have, fields):
        found = doubt
    elif want == have:
        found = Verdict.EQUAL, "", None
    elif mode == "release" and Version(want.base_version) == Version(have.base_version):
        found = (
            Verdict.EQUAL,
            f"same release line {want.base_version}" + (f"; flavour {flavour}" if flavour else ""),
            None,
        )
    elif name in OWN:
        found = Verdict.DIFFERS, *_own_difference(pin, want, have, build_mode)
    else:
        found = Verdict.DIFFERS, _difference(want, have), Reason.PIN_DISAGREES
    verdict, text, reason = found
    return FieldVerdict(name, verdict, declared, measured, api, mode, flavour, text, reason)


def _doubt(name: str, want: Version, have: Version, fields: Mapping[str, Any]) -> tuple[Verdict, str, Reason] | None:
    """Why a measured version says nothing by itself, before it is compared; None when it does."""
    witness = _value(fields, MODULES.get(name, ""))
    if witness is not None and _parsed(witness) != have:
        text = f"the distribution says {have}, its module says {witness}"
        return Verdict.AMBIGUOUS, text, Reason.IDENTITY_AMBIGUOUS
    if name in IMPORTED and witness is None and (error := (fields.get(MODULES[name]) or {}).get("error")):
        # Whose fault that is, the message does not tell: our own lock may lack a part of it.
        reason = Reason.LIBRARY_MISSING if re.search(LACKING, error) else Reason.IDENTITY_UNKNOWN
        return Verdict.UNKNOWN, f"it is installed as {have} and cannot be imported: {error}", reason
    if name in OWN and "empty" in _segments(have) - _segments(want):
        number = "the number matches" if want.public == have.public else "the number differs"
        text = f"{number}, and the flavour `empty` means that this build has no kernels at all"
        return Verdict.DIFFERS, text, Reason.EXTENSION_FAILED
    if name in OWN and want != have and have.release == (0, 1) and have.dev is not None:
        return Verdict.UNKNOWN, _untagged(str(have)), Reason.SOURCE_UNTAGGED
    return None


def _own_difference(pin: Pin, want: Version, have: Version, build_mode: str) -> tuple[str, Reason]:
    """In words how vLLM's own version differs, and whether vLLM is another one or the block is wrong of it."""
    short = pins.commit_in(str(have))
    same_commit = short is not None and (pin.vllm_commit or short).startswith(short)
    if want.public == have.public and _segments(want) ^ _segments(have) == {"precompiled"}:
        text = "only `.precompiled` differs, a property of the build mode and not of the engine: "
        return f"{text}this build is by mode {build_mode}", Reason.PIN_DISAGREES
    if want.public == have.public and (same_commit or short is None):
        return _difference(want, have), Reason.PIN_DISAGREES
    if short is None or have.dev is None:
        # the case pins the bytes of a released wheel by digest: here block and case contradict each other
        released = build_mode in pins.RELEASED_MODES
        return _difference(want, have), Reason.PIN_DISAGREES if released else Reason.IDENTITY_MISMATCH
    if same_commit:
        text = f"the commit is the pinned one ({short}), but its number was counted from a tag on {have.base_version}: "
        return f"{text}version tags are missing or foreign", Reason.SOURCE_FOREIGN_TAG
    text = f"a dev build of commit {short}; its number only says that the nearest tag is on {have.base_version}: "
    return f"{text}pin the commit, not the number", Reason.IDENTITY_MISMATCH


def _difference(want: Version, have: Version) -> str:
    if want.epoch != have.epoch:
        return f"another epoch ({have.epoch}, declared {want.epoch})"
    if want.public == have.public:
        return f"same number, another flavour: +{have.local or '(none)'}, declared +{want.local or '(none)'}"
    return f"{'older' if have < want else 'newer'} than declared"


def _untagged(measured: str) -> str:
    commit = pins.commit_in(measured)
    return (
        "version cannot be trusted: built without tags (a shallow clone, or a fork that has none); "
        + (f"the commit is {commit}; " if commit else "")
        + "git fetch --unshallow --tags, or set SETUPTOOLS_SCM_PRETEND_VERSION and record it"
    )


def _unparsable(name: str, measured: str, fields: Mapping[str, Any]) -> str:
    if name == "vllm_runtime_version" and measured == "dev":
        other = _value(fields, "vllm_distribution_version") or "unknown"
        return f"the package has no _version.py, so the module says `dev`; the distribution says {other}: they disagree"
    return f"not a version (PEP 440): {measured}"


def _build_mode(declared: str, measured: str) -> FieldVerdict:
    if declared == measured:
        return FieldVerdict("build_mode", Verdict.EQUAL, declared, measured, "case")
    text = f"the block is of a build by mode {declared}, this one is by mode {measured}"
    return FieldVerdict(
        "build_mode", Verdict.DIFFERS, declared, measured, "case", text=text, reason=Reason.PIN_DISAGREES
    )


def _undeclared(name: str, fields: Mapping[str, Any], build_mode: str) -> FieldVerdict:
    if name == "build_mode":
        return FieldVerdict(name, Verdict.UNDECLARED, None, build_mode, "case")
    measured = _value(fields, name)
    parsed = _parsed(measured or "")
    text = "" if measured else _why(fields, name, "reported nothing")
    flavour = parsed.local if parsed else None
    return FieldVerdict(name, Verdict.UNDECLARED, None, measured, _api(fields, name), flavour=flavour, text=text)


# -- the engine around the fields ----------------------------------------------------------------


def _owned(row: FieldVerdict, version: Mapping[str, Any], build: Build) -> FieldVerdict:
    """The distribution row, unless the import name `vllm` has not exactly one owner of that name."""
    owners = (version.get("owners") or {}).get("value")
    if owners is None or [owner["name"].lower() for owner in owners] == ["vllm"]:
        return row
    if owners:
        text = "the import name vllm belongs to " + ", ".join(
            f"{o['name']} {o['version']} ({o['place']})" for o in owners
        )
        text += "; no distribution is called vllm: relabel the wheel" if len(owners) == 1 else ""
        return replace(row, verdict=Verdict.AMBIGUOUS, text=text, reason=Reason.IDENTITY_AMBIGUOUS)
    if (version.get("module") or {}).get("file"):
        text, reason = "no distribution owns the imported package", Reason.IMPORT_FOREIGN if build.installed else None
        return replace(row, verdict=Verdict.UNKNOWN, text=text, reason=reason)
    return row


def _import(version: Mapping[str, Any], build: Build) -> FieldVerdict:
    """Was the installed file imported, or another that shadows it?"""
    module = version.get("module") or {}
    file, recorded = module.get("file"), module.get("recorded")
    unless_declared = Reason.IMPORT_FOREIGN if build.installed else None
    text, verdict, reason = "", Verdict.EQUAL, None
    if file and (version.get("owners") or {}).get("value") == []:
        text, verdict, reason = f"imported from PATH, not installed: {file}", Verdict.DIFFERS, unless_declared
    elif module.get("editable"):
        text = f"an editable install: {file} is imported from the tree {recorded}"
        verdict, reason = Verdict.DIFFERS, unless_declared
    elif module.get("equal") is False:
        text, verdict, reason = f"imported {file}, but RECORD places {recorded}", Verdict.DIFFERS, Reason.IMPORT_FOREIGN
    elif module.get("equal") is not True:
        text, verdict, reason = module.get("error") or "not read", Verdict.UNKNOWN, Reason.IDENTITY_UNKNOWN
    return FieldVerdict("vllm_import", verdict, recorded, file, module.get("api"), text=text, reason=reason)


def _script(version: Mapping[str, Any]) -> FieldVerdict:
    """Does the `vllm` script start this environment's interpreter?"""
    script = version.get("script") or {}
    executable = (version.get("provenance") or {}).get("executable")
    interpreter = script.get("interpreter")
    text, kind, reason = "", Verdict.EQUAL, None
    if script.get("equal") is False:
        text = f"the vllm script starts {interpreter}, the versions were read by {executable}"
        kind, reason = Verdict.DIFFERS, Reason.IMPORT_FOREIGN
    elif script.get("equal") is not True:
        text = script.get("error") or f"the vllm script names no interpreter by path: {interpreter}"
        kind, reason = Verdict.UNKNOWN, Reason.IDENTITY_UNKNOWN
    return FieldVerdict("vllm_script", kind, None, interpreter, script.get("api"), text=text, reason=reason)


def _extensions(version: Mapping[str, Any]) -> FieldVerdict:
    """Are the compiled extensions there by RECORD, and does an op of them compute?"""
    op, listed = version.get("op") or {}, (version.get("extensions") or {}).get("value")
    failures = list(version.get("import_failures") or ())
    broken = [entry["path"] for entry in listed or () if not _is_whole(entry)]
    said = "; ".join([*failures, op.get("error") or ""]).strip("; ")
    if broken:
        text, verdict = f"missing, or not of RECORD's size: {', '.join(broken)}", Verdict.DIFFERS
        reason = Reason.ENV_BROKEN
    elif op.get("ok") is None or listed is None:
        text, verdict, reason = said or "not read", Verdict.UNKNOWN, Reason.IDENTITY_UNKNOWN
    elif op["ok"] and not failures:
        text, verdict, reason = "", Verdict.EQUAL, None
    elif listed == []:
        text, verdict = f"the wheel holds no compiled extension at all; {said}", Verdict.DIFFERS
        reason = Reason.EXTENSION_FAILED
    else:
        verdict = Verdict.DIFFERS
        text, reason = _import_cause(said, version.get("fields") or {})
    measured = None if listed is None else f"{len(listed)} by RECORD, {op.get('op')} ok: {op.get('ok')}"
    return FieldVerdict("compiled_extensions", verdict, None, measured, op.get("api"), text=text, reason=reason)


def _is_whole(entry: Mapping[str, Any]) -> bool:
    return entry["size"] is not None and entry["recorded"] in (None, entry["size"])


def _import_cause(text: str, fields: Mapping[str, Any]) -> tuple[str, Reason]:
    torch = _value(fields, "torch_version") or "unknown"
    if symbol := re.search(r"undefined symbol: (\w+)", text):
        if re.match(r"_ZNK?(?:3c10|2at|5torch)", symbol[1]):
            cause = f"torch ABI: {symbol[1]} is not in torch {torch}, so it was built for another"
            return f"{cause}; {text}", Reason.TOOLCHAIN_MISMATCH
        return f"own symbol missing ({symbol[1]}): a stale or partial build; {text}", Reason.EXTENSION_FAILED
    if library := re.search(r"libcudart\.so\.(\d+): cannot open", text):
        cause = (
            f"built for CUDA {library[1]}, torch {torch} brings CUDA {_value(fields, 'torch_cuda_version') or 'none'}"
        )
        return f"{cause}; {text}", Reason.TOOLCHAIN_MISMATCH
    if re.search(LACKING, text):
        return f"the machine lacks what the extension needs; {text}", Reason.LIBRARY_MISSING
    if missing := re.search(r"No module named '?(vllm[\w.]*)", text):
        return f"{missing[1]} is not in the environment; {text}", Reason.ENV_BROKEN
    return text, Reason.EXTENSION_FAILED


def _describe(describe: str, fields: Mapping[str, Any]) -> FieldVerdict:
    """The number that `git describe --tags --match 'v[0-9]*'` gives, against the one that was built."""
    name = "vllm_distribution_version"
    measured, api = _value(fields, name), _api(fields, name)
    parts = re.fullmatch(r"v?(.*?)(?:-(\d+)-g[0-9a-f]+)?", describe.removesuffix("-dirty"))
    expected = parts[1]
    if parts[2] and parts[2] != "0":  # setuptools_scm: the next version's last number, and the distance as dev
        expected = re.sub(r"\d+$", lambda last: str(int(last[0]) + 1), expected) + f".dev{parts[2]}"
    have, want = _parsed(measured or ""), _parsed(expected)
    text, verdict, reason = "", Verdict.EQUAL, None
    if have is None or want is None:
        text, verdict, reason = "cannot be compared with the version", Verdict.UNKNOWN, Reason.IDENTITY_UNKNOWN
    elif have.public != want.public:
        text = f"git describe makes {expected}, the build says {have.public}: another tag was nearer"
        verdict, reason = Verdict.DIFFERS, Reason.SOURCE_FOREIGN_TAG
    return FieldVerdict("git_describe", verdict, describe, measured, api, text=text, reason=reason)


def _reader(version: Mapping[str, Any]) -> list[FieldVerdict]:
    step = version.get("unfinished")
    if step is None:
        return []
    text = f"the version reader ended while it read {step}"
    return [FieldVerdict("reader", Verdict.UNKNOWN, text=text, reason=Reason.IDENTITY_UNKNOWN)]


# -- small helpers -------------------------------------------------------------------------------


def _value(fields: Mapping[str, Any], name: str) -> str | None:
    return (fields.get(name) or {}).get("value")


def _api(fields: Mapping[str, Any], name: str) -> str | None:
    return (fields.get(name) or {}).get("api")


def _why(fields: Mapping[str, Any], name: str, otherwise: str) -> str:
    return (fields.get(name) or {}).get("error") or otherwise


def _parsed(version: str) -> Version | None:
    try:
        return Version(version)
    except InvalidVersion:
        return None


def _segments(version: Version) -> set[str]:
    return set((version.local or "").split(".")) - {""}
