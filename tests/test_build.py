"""Building from source: the version before the build, the wheel, and what is told when it cannot be built.

The fixture project is built for real, from a git clone, by its own backend. Its build requirements
(setuptools, setuptools-scm) are fetched once a session; nothing else comes from an index.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from tests import fixture_project as fixture

from pinproof import binaries, build, buildenv, buildlog, pin, source, staging, wheel
from pinproof.build import BuildSpec
from pinproof.reasons import Reason, Refusal


class Workshop:
    """A project, the repository it fetches, and the build environments of this session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.tree = fixture.project(folder / "project")
        self.tiny = fixture.tiny(folder / "tiny")
        self.staged = {fixture.TINY_VARIABLE: self.tiny}
        self.version = f"0.29.1.dev2+g{fixture.git(self.tree, 'rev-parse', '--short=9', 'HEAD')}"

    def spec(self, mode: build.Mode = "source", target: str = "cuda", **how: object) -> BuildSpec:
        return BuildSpec(**{"tree": self.tree, "mode": mode, "target_device": target, "cache": self.cache, **how})


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Made once; a test that changes the project takes its own clone."""
    return Workshop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def built(shop: Workshop) -> Path:
    """A wheel of mode source, its fetched repository staged."""
    return build.wheel(shop.spec(staged=shop.staged, max_jobs=1), shop.folder / "built", log=shop.folder / "built.log")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def clone(shop: Workshop, folder: Path, *words: str) -> Path:
    fixture.git(shop.tree, "clone", "--quiet", *words, f"file://{shop.tree}", str(folder))
    return folder


def asked(shop: Workshop, tmp_path: Path, **how: object) -> dict:
    return build.metadata(shop.spec(**how), tmp_path / "metadata", log=tmp_path / "log")


# -- metadata first ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "target", "suffix"),
    [
        ("source", "cuda", ""),
        ("source", "cpu", ".cpu"),
        ("source", "empty", ".empty"),
        ("precompiled", "cuda", ".precompiled"),
        ("precompiled", "cpu", ".cpu"),
    ],
)
def test_the_version_before_the_build_carries_what_mode_and_target_add(
    mode: build.Mode, target: str, suffix: str, shop: Workshop, tmp_path: Path
) -> None:
    named = {"precompiled_wheel": tmp_path / "named.whl"} if mode == "precompiled" else {}
    (tmp_path / "named.whl").touch()
    told = asked(shop, tmp_path, mode=mode, target=target, **named)
    assert (told["name"], told["version"]) == ("vllm", shop.version + suffix)
    assert (told["module_version"], told["commit"]) == (shop.version, f"g{pin.commit_in(shop.version)}")
    assert told["requires_dist"] == ["packaging>=24"]


def test_the_metadata_and_the_wheel_say_the_same(shop: Workshop, built: Path, tmp_path: Path) -> None:
    told, facts = asked(shop, tmp_path), wheel.verify(built)
    assert (told["name"], told["version"], told["commit"]) == (facts.name, facts.version, facts.commit_id)


def test_the_version_is_known_long_before_the_wheel(shop: Workshop, tmp_path: Path) -> None:
    asked(shop, tmp_path)
    begun = time.monotonic()
    asked(shop, tmp_path)
    told = time.monotonic() - begun
    begun = time.monotonic()
    build.wheel(shop.spec(staged=shop.staged), tmp_path / "wheel", log=tmp_path / "log")
    assert told < (time.monotonic() - begun)


def test_the_tree_is_left_as_it_was(shop: Workshop, built: Path, tmp_path: Path) -> None:
    asked(shop, tmp_path)
    assert fixture.git(shop.tree, "status", "--porcelain", "--ignored") == ""


def test_a_shallow_clone_would_invent_a_version_and_is_refused_before(shop: Workshop, tmp_path: Path) -> None:
    tree = clone(shop, tmp_path / "shallow", "--depth=1")
    assert asked(shop, tmp_path, tree=tree)["version"].startswith("0.1.dev1+g")
    with pytest.raises(Refusal) as caught:
        source.require_sound(source.facts(tree), tree)
    assert caught.value.reason is Reason.SOURCE_SHALLOW


def test_a_clone_without_tags_would_invent_a_version_and_is_refused_before(shop: Workshop, tmp_path: Path) -> None:
    tree = clone(shop, tmp_path / "untagged", "--no-tags")
    assert asked(shop, tmp_path, tree=tree)["version"].startswith("0.1.dev3+g")
    with pytest.raises(Refusal) as caught:
        source.require_sound(source.facts(tree), tree)
    assert caught.value.reason is Reason.SOURCE_UNTAGGED


def test_a_foreign_tag_makes_a_plausible_wrong_version_and_is_refused_before(shop: Workshop, tmp_path: Path) -> None:
    tree = clone(shop, tmp_path / "foreign")
    fixture.git(tree, "tag", "proto-v0.3.0", "HEAD~1")
    assert asked(shop, tmp_path, tree=tree)["version"].startswith("0.3.1.dev1+g")
    with pytest.raises(Refusal) as caught:
        source.require_sound(source.facts(tree), tree)
    assert caught.value.reason is Reason.SOURCE_FOREIGN_TAG


def test_a_bundle_and_a_clone_of_the_same_commit_tell_the_same(shop: Workshop, tmp_path: Path) -> None:
    tree = source.take(fixture.bundle(shop.tree, tmp_path / "vllm.bundle"), tmp_path / "taken")
    assert asked(shop, tmp_path, tree=tree)["version"] == shop.version


def test_a_released_archive_tells_its_version_without_git(shop: Workshop, tmp_path: Path) -> None:
    tree = source.take(shop.tree, tmp_path / "release")
    (tree / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: vllm\nVersion: 0.32.0\n")
    subprocess.run(["rm", "-rf", tree / ".git", tree.parent / "pinproof-source.json"], check=True)
    told = asked(shop, tmp_path, tree=tree, target="cpu")
    assert (told["version"], told["module_version"], told["commit"]) == ("0.32.0+cpu", "0.32.0", None)


def test_a_repository_around_an_archive_has_no_say_in_its_version(shop: Workshop, tmp_path: Path) -> None:
    around = clone(shop, tmp_path / "around")
    tree = source.take(shop.tree, around / "release")
    (tree / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: vllm\nVersion: 0.32.0\n")
    subprocess.run(["rm", "-rf", tree / ".git", tree.parent / "pinproof-source.json"], check=True)
    told = build.metadata(shop.spec(tree=tree), around / "results", log=tmp_path / "log")
    assert told["version"] == "0.32.0"


def test_the_backend_is_asked_once_what_else_it_needs(shop: Workshop, tmp_path: Path) -> None:
    asked(shop, tmp_path)
    (tmp_path / "log").unlink()
    asked(shop, tmp_path)
    (command,) = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("$ ")]
    assert "prepare_metadata" in command


# -- the environment of the build ----------------------------------------------------------------


def test_nothing_of_the_caller_s_shell_can_change_the_bytes(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("SETUPTOOLS_SCM_PRETEND_VERSION", "VLLM_VERSION_OVERRIDE", "CFLAGS", "TORCH_CUDA_ARCH_LIST", "MAX_JOBS")
    for name in (*names, "VLLM_PRECOMPILED_WHEEL_LOCATION", "PYTHONPATH"):
        monkeypatch.setenv(name, "9.9.9")
    environment = build.build_environment(shop.spec())
    assert {*names, "VLLM_PRECOMPILED_WHEEL_LOCATION", "PYTHONPATH"} & set(environment) == set()
    assert (environment["VLLM_TARGET_DEVICE"], environment["VLLM_USE_PRECOMPILED"]) == ("cuda", "0")


def test_what_the_case_orders_is_there(shop: Workshop, tmp_path: Path) -> None:
    named = tmp_path / "named.whl"
    spec = shop.spec(
        "precompiled", env={"TORCH_CUDA_ARCH_LIST": "12.1a"}, staged=shop.staged, max_jobs=4, nvcc_threads=1,
        precompiled_wheel=named,
    )  # fmt: skip
    environment = build.build_environment(spec)
    expected = {
        "VLLM_USE_PRECOMPILED": "1",
        "VLLM_PRECOMPILED_WHEEL_LOCATION": str(named),
        "TORCH_CUDA_ARCH_LIST": "12.1a",
        "TINY_SRC_DIR": str(shop.tiny),
        "MAX_JOBS": "4",
        "NVCC_THREADS": "1",
    }
    assert expected.items() <= environment.items()


def test_a_version_made_by_hand_is_used_and_recorded(shop: Workshop, tmp_path: Path) -> None:
    told = asked(shop, tmp_path, env={"SETUPTOOLS_SCM_PRETEND_VERSION": "1.2.3"}, target="cpu")
    assert told["version"] == "1.2.3+cpu"
    assert told["overrides"] == {"SETUPTOOLS_SCM_PRETEND_VERSION": "1.2.3"}


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"env": {"VLLM_USE_PRECOMPILED": "1"}}, "set by the build itself"),
        ({"env": {"TINY_SRC_DIR": "x"}, "staged": {"TINY_SRC_DIR": Path("y")}}, "TINY_SRC_DIR"),
        ({"mode": "precompiled"}, "needs the wheel"),
        ({"precompiled_wheel": Path("x.whl")}, "takes no wheel"),
    ],
)
def test_orders_that_contradict_each_other_are_refused(how: dict, what: str, shop: Workshop) -> None:
    with pytest.raises(Refusal, match=what) as caught:
        shop.spec(**how)
    assert caught.value.reason is Reason.CASE_INVALID


# -- identity ------------------------------------------------------------------------------------


def test_what_leaves_no_trace_in_the_bytes_is_no_part_of_the_identity(shop: Workshop, tmp_path: Path) -> None:
    there = build.identity(shop.spec(staged=shop.staged, max_jobs=4, nvcc_threads=1))
    subprocess.run(["cp", "-a", shop.tiny, tmp_path / "elsewhere"], check=True)
    moved = {fixture.TINY_VARIABLE: tmp_path / "elsewhere"}
    how = {"staged": moved, "max_jobs": 1, "env": {"VERBOSE": "1"}, "network": False, "cache": tmp_path}
    assert build.identity(shop.spec(**how)) == there


@pytest.mark.parametrize(
    "how",
    [
        {"env": {"TORCH_CUDA_ARCH_LIST": "12.1a"}},
        {"env": {"CFLAGS": "-O1"}},
        {"target": "cpu"},
        {"mode": "precompiled", "precompiled_wheel": Path(__file__)},
        {"without": ("zeromq",)},
    ],
)
def test_what_changes_the_bytes_is(how: dict, shop: Workshop) -> None:
    assert build.identity(shop.spec(**how)) != build.identity(shop.spec())


def test_a_staged_source_counts_by_its_contents(shop: Workshop, tmp_path: Path) -> None:
    other = {fixture.TINY_VARIABLE: fixture.tiny(tmp_path / "tiny", answer=43)}
    assert build.identity(shop.spec(staged=other)) != build.identity(shop.spec(staged=shop.staged))


def test_what_cargo_has_at_hand_is_fixed_by_the_tree(shop: Workshop, tmp_path: Path) -> None:
    assert build.identity(shop.spec(staged={"CARGO_HOME": tmp_path}))["staged"] == {}


def test_the_compilers_are_named(shop: Workshop, log: Path) -> None:
    env = build.environment_for(shop.spec(), log=log)
    tools = build.toolchain(shop.spec(), env, log=log)
    assert "gcc" in tools["cc"]
    assert set(tools) == {"cc", "cxx", "nvcc", "cmake", "rustc"}


# -- the wheel -----------------------------------------------------------------------------------


def answer_of(file: Path, folder: Path) -> str:
    """What the wheel's extension computes, in a process of its own."""
    with zipfile.ZipFile(file) as packed:
        packed.extractall(folder)
    text = "import vllm, vllm._C as c; print(vllm.__version__, c.answer(), c.built_for())"
    done = subprocess.run([sys.executable, "-c", text], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_wheel_is_whole_has_its_own_name_and_its_extension_computes(
    shop: Workshop, built: Path, tmp_path: Path
) -> None:
    facts = wheel.verify(built)
    assert built.name.startswith(f"vllm-{shop.version}-cp311-cp311-linux_")
    assert [one.path for one in facts.extensions] == ["vllm/_C.abi3.so"]
    assert answer_of(built, tmp_path) == f"{shop.version} 42"
    assert sorted(path.name for path in built.parent.iterdir()) == sorted(["built.json", built.name])


def test_a_finished_build_is_not_built_again_whatever_leaves_no_trace(shop: Workshop, built: Path, log: Path) -> None:
    before = built.stat().st_mtime_ns
    again = build.wheel(shop.spec(staged=shop.staged, max_jobs=2), built.parent, log=log)
    assert (again, again.stat().st_mtime_ns) == (built, before)


def test_a_changed_architecture_list_is_another_build(shop: Workshop, built: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-a", built.parent, tmp_path / "store"], check=True)
    spec = shop.spec(staged=shop.staged, env={"TORCH_CUDA_ARCH_LIST": "12.1a"})
    other = build.wheel(spec, tmp_path / "store", log=tmp_path / "log")
    assert answer_of(other, tmp_path / "unpacked") == f"{shop.version} 42 12.1a"


def test_a_damaged_wheel_is_built_again(shop: Workshop, built: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-a", built.parent, tmp_path / "store"], check=True)
    (tmp_path / "store" / built.name).write_bytes(b"cut")
    again = build.wheel(shop.spec(staged=shop.staged), tmp_path / "store", log=tmp_path / "log")
    wheel.verify(again)


def test_the_record_of_a_build_says_how_it_was_made(shop: Workshop, built: Path) -> None:
    record = build.built(built.parent)
    assert record["key"]["source"]["describe"].startswith("v0.29.0-2-g")
    assert any(one.startswith("setuptools-scm==") for one in record["key"]["installed"])
    assert record["provenance"]["max_jobs"] == 1
    assert record["provenance"]["seconds"] > 0
    assert (record["binaries"], record["skipped"], record["staged_changed"], record["overrides"]) == (None, [], [], {})


def test_mode_precompiled_takes_the_binaries_of_the_named_wheel_and_says_so(
    shop: Workshop, built: Path, tmp_path: Path
) -> None:
    spec = shop.spec("precompiled", precompiled_wheel=built, network=False)
    made = build.wheel(spec, tmp_path / "wheel", log=tmp_path / "log")
    assert wheel.verify(made).version == f"{shop.version}.precompiled"
    assert answer_of(made, tmp_path / "unpacked") == f"{shop.version} 42"
    taken = build.built(tmp_path / "wheel")["binaries"]
    assert (taken["file"], taken["sha256"]) == (built.name, wheel.inspect(built).sha256)
    assert (taken["copied"], taken["left"], taken["own"]) == (["vllm/_C.abi3.so"], [], [])


def test_a_binary_of_the_named_wheel_that_was_left_is_told(tmp_path: Path) -> None:
    elf = b"\x7fELF"
    members = {"vllm/_C.abi3.so": elf + b"1", "vllm/_C_AVX512.abi3.so": elf + b"2", "vllm/vllm-rs": elf + b"3"}
    named = fixture.wheel(tmp_path / "named", "vllm", "1.0", members)
    own = {"vllm/_C.abi3.so": elf + b"1", "vllm/spinloop.abi3.so": elf + b"4"}
    taken = binaries.taken(fixture.wheel(tmp_path / "made", "vllm", "1.0", own), named)
    assert taken.copied == ("vllm/_C.abi3.so",)
    assert taken.left == ("vllm/_C_AVX512.abi3.so", "vllm/vllm-rs")
    assert taken.own == ("vllm/spinloop.abi3.so",)
    assert "cannot be served" in taken.said


# -- the network ---------------------------------------------------------------------------------


def test_a_build_that_would_clone_is_named_before_it_starts(shop: Workshop) -> None:
    found = staging.scan(shop.tree)
    with pytest.raises(Refusal, match="tiny") as caught:
        staging.require_staged(found, {}, network=False)
    assert caught.value.reason is Reason.SOURCE_MISSING
    staging.require_staged(found, shop.staged, network=False)


def test_a_build_without_network_and_without_staging_fails_as_what_it_is(shop: Workshop, tmp_path: Path) -> None:
    about = buildlog.About(declared=staging.scan(shop.tree).wanted)
    with pytest.raises(Refusal, match="stage it by TINY_SRC_DIR") as caught:
        build.wheel(shop.spec(network=False), tmp_path / "wheel", log=tmp_path / "log", about=about)
    assert caught.value.reason is Reason.BUILD_NETWORK
    assert not list((tmp_path / "wheel").glob("*.whl"))


def test_a_reachable_repository_is_fetched_at_configure_time(shop: Workshop, tmp_path: Path) -> None:
    spec = shop.spec(env=fixture.reachable(shop.tiny))
    made = build.wheel(spec, tmp_path / "wheel", log=tmp_path / "log")
    assert answer_of(made, tmp_path / "unpacked") == f"{shop.version} 42"


CUT = ["unshare", "--net", "--map-root-user"]


@pytest.mark.skipif(
    subprocess.run([*CUT, "true"], check=False, capture_output=True).returncode != 0,
    reason="no network namespaces here",
)
def test_metadata_and_a_staged_build_need_no_network_at_all(shop: Workshop, built: Path, tmp_path: Path) -> None:
    program = f"""
import pathlib, sys
from pinproof import build
from pinproof.reasons import Refusal
tree, cache = pathlib.Path({str(shop.tree)!r}), pathlib.Path({str(shop.cache)!r})
spec = lambda **how: build.BuildSpec(tree, "source", "cuda", cache, **how)
here = pathlib.Path({str(tmp_path)!r})
print(build.metadata(spec(), here / "metadata", log=here / "log")["version"])
print(build.wheel(spec(staged={{"TINY_SRC_DIR": pathlib.Path({str(shop.tiny)!r})}}), here / "a", log=here / "log").name)
try:
    build.wheel(spec(), here / "b", log=here / "log")
except Refusal as refusal:
    print(refusal.reason.code)
"""
    done = subprocess.run(
        [*CUT, sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split() == [shop.version, built.name, "build-network"]


# -- builds that do not count --------------------------------------------------------------------


def changed(shop: Workshop, folder: Path, name: str, old: str, new: str) -> Path:
    """A clone of the project with one text replaced in one file, committed."""
    tree = clone(shop, folder)
    text = (tree / name).read_text()
    assert old in text
    (tree / name).write_text(text.replace(old, new))
    return fixture.commit(tree, "changed")


def refused(shop: Workshop, tmp_path: Path, tree: Path, **how: object) -> Refusal:
    spec = shop.spec(tree=tree, staged=shop.staged, **how)
    with pytest.raises(Refusal) as caught:
        build.wheel(spec, tmp_path / "wheel", log=tmp_path / "log", about=buildlog.About(capability="12.1"))
    assert not list((tmp_path / "wheel").glob("*.whl"))
    return caught.value


def test_a_compile_error_is_quoted(shop: Workshop, tmp_path: Path) -> None:
    tree = changed(shop, tmp_path / "tree", "csrc/ext.c", "TINY_ANSWER", "TINY_QUESTION")
    refusal = refused(shop, tmp_path, tree)
    assert refusal.reason is Reason.BUILD_FAILED
    assert "TINY_QUESTION" in refusal.message


def test_a_child_that_is_killed_is_told_as_killed(shop: Workshop, tmp_path: Path) -> None:
    kill = "subprocess.check_call([sys.executable, '-c', 'import os; os.kill(os.getpid(), 9)'])\n        place = "
    refusal = refused(shop, tmp_path, changed(shop, tmp_path / "tree", "setup.py", "place = ", kill))
    assert refusal.reason is Reason.BUILD_KILLED


def test_a_build_that_left_the_device_out_is_kept_aside_and_refused(shop: Workshop, tmp_path: Path) -> None:
    said = 'include(cmake/tiny.cmake)\nmessage(STATUS "CUDA supported target architectures: 12.0a")'
    tree = changed(shop, tmp_path / "tree", "CMakeLists.txt", "include(cmake/tiny.cmake)", said)
    assert refused(shop, tmp_path, tree).reason is Reason.BUILD_ARCHITECTURE
    assert len(list((tmp_path / "wheel/refused").glob("*.whl"))) == 1


def test_a_setup_py_that_imports_what_nobody_brings_names_it(shop: Workshop, tmp_path: Path) -> None:
    tree = changed(shop, tmp_path / "tree", "setup.py", "import os\n", "import os\nimport setuptools_rust\n")
    refusal = refused(shop, tmp_path, tree)
    assert refusal.reason is Reason.BUILD_REQUIREMENT
    assert "setuptools_rust" in refusal.message


def test_a_backend_that_cannot_be_used_is_told(shop: Workshop, tmp_path: Path) -> None:
    tree = changed(shop, tmp_path / "tree", "pyproject.toml", '"setuptools.build_meta"', '"no_such_backend"')
    assert refused(shop, tmp_path, tree).reason in (Reason.SOURCE_INVALID, Reason.BUILD_REQUIREMENT)


@pytest.mark.parametrize(
    ("target", "torch", "said"),
    [
        ("cuda", {"version": "2.13.0+cpu"}, "target cuda needs a CUDA build of torch"),
        ("rocm", {"version": "2.13.0+cu130", "cuda": "13.0"}, "a build for CUDA 13.0"),
        ("cpu", {"version": "2.13.0+cpu"}, None),
        ("cuda", {"version": "2.13.0+cu130", "cuda": "13.0"}, None),
    ],
)
def test_a_target_needs_a_torch_that_was_built_for_it(
    target: str, torch: dict, said: str | None, shop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buildenv.BuildEnv, "torch", buildenv.Torch(**torch))
    if said is None:
        asked(shop, tmp_path, target=target)
        return
    with pytest.raises(Refusal, match=said) as caught:
        asked(shop, tmp_path, target=target)
    assert caught.value.reason is Reason.BUILD_TORCH
