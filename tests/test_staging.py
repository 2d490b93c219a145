"""Staged sources: what a build would clone is named before it starts, and so is what was staged in vain."""

from pathlib import Path

import pytest
from tests import fixture_project as fixture

from pinproof import cmake, staging
from pinproof.reasons import Reason, Refusal

CMAKE = "cmake_minimum_required(VERSION 3.26)\nproject(x)\n"


def scan(tmp_path: Path, files: dict[str, str], values: dict[str, str] | None = None) -> staging.Scan:
    fixture.write(tmp_path, files)
    return staging.scan(tmp_path, values)


def wanted(found: staging.Scan) -> list[tuple[str, str | None]]:
    return [(one.name, one.variable) for one in found.wanted]


def refused(found: staging.Scan, staged: dict[str, Path], **how: object) -> str:
    with pytest.raises(Refusal) as caught:
        staging.require_staged(found, staged, **{"network": False, **how})
    assert caught.value.reason is Reason.SOURCE_MISSING
    return caught.value.message


# -- what CMake declares -------------------------------------------------------------------------


def test_a_declaration_has_name_repository_tag_place_and_the_variable_that_redirects_it(tmp_path: Path) -> None:
    (found,) = staging.scan(fixture.project(tmp_path / "project")).wanted
    assert found == staging.Declared(
        name="tiny",
        repository=fixture.TINY_URL,
        tag="v1.2",
        file="cmake/tiny.cmake",
        line=9,
        variable="TINY_SRC_DIR",
        applies=True,
    )


# The shapes in which vLLM's files redirect a repository, each in the fewest lines.
SHAPES = {
    "a variable set from the environment": """
        if (DEFINED ENV{X_SRC_DIR})
          set(X_SRC_DIR $ENV{X_SRC_DIR})
        endif()
        if(X_SRC_DIR)
          FetchContent_Declare(x SOURCE_DIR ${X_SRC_DIR})
        else()
          FetchContent_Declare(x GIT_REPOSITORY https://host/x.git GIT_TAG abc)
        endif()""",
    "the environment itself": """
        if (DEFINED ENV{X_SRC_DIR})
          FetchContent_Declare(x SOURCE_DIR $ENV{X_SRC_DIR})
        else()
          set(GIT "https://host/x.git")
          FetchContent_Declare(x GIT_REPOSITORY ${GIT} GIT_TAG abc)
        endif()""",
    "a cached variable": """
        set(X_DIR "$ENV{X_SRC_DIR}" CACHE PATH "a local folder")
        if(X_DIR)
          FetchContent_Declare(x SOURCE_DIR ${X_DIR})
        else()
          if(SOMETHING)
            message(STATUS "x")
          else()
            FetchContent_Declare(x GIT_REPOSITORY https://host/x.git GIT_TAG abc)
          endif()
        endif()""",
    "a folder that must be there": """
        if(DEFINED ENV{X_SRC_DIR} AND IS_DIRECTORY "$ENV{X_SRC_DIR}")
          message(STATUS "staged")
        else()
          FetchContent_Populate(x SOURCE_DIR "${BASE}/x" GIT_REPOSITORY https://host/x.git GIT_TAG abc)
        endif()""",
    "an external project behind NOT": """
        if(NOT DEFINED ENV{X_SRC_DIR})
          ExternalProject_Add(x GIT_REPOSITORY https://host/x.git GIT_TAG abc)
        endif()""",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_a_redirection_is_read(shape: str, tmp_path: Path) -> None:
    found = scan(tmp_path, {"CMakeLists.txt": CMAKE + SHAPES[shape]})
    (one,) = found.wanted
    assert (one.name, one.repository, one.tag) == ("x", "https://host/x.git", "abc")
    assert one.variable == "X_SRC_DIR"
    assert "X_SRC_DIR" in found.reads
    assert found.unread == ()


def test_a_declaration_that_nothing_redirects_has_no_variable(tmp_path: Path) -> None:
    found = scan(tmp_path, {"CMakeLists.txt": f"{CMAKE}FetchContent_Declare(y GIT_REPOSITORY https://host/y.git)"})
    assert wanted(found) == [("y", None)]
    assert "CMAKE_ARGS=-DFETCHCONTENT_SOURCE_DIR_Y=PATH" in refused(found, {})


def test_an_archive_and_a_clone_by_command_are_network_too(tmp_path: Path) -> None:
    text = """
        FetchContent_Declare(z URL https://host/z.tar.gz)
        execute_process(COMMAND git clone https://host/tool.git WORKING_DIRECTORY x)
        file(DOWNLOAD https://host/data.bin data.bin)"""
    found = scan(tmp_path, {"CMakeLists.txt": CMAKE + text})
    assert [(one.name, one.kind) for one in found.wanted] == [
        ("z", "archive"),
        ("tool", "git"),
        ("data.bin", "archive"),
    ]


def test_what_stands_in_comments_and_texts_declares_nothing(tmp_path: Path) -> None:
    text = """
        # FetchContent_Declare(a GIT_REPOSITORY https://host/a.git)
        #[[ FetchContent_Declare(b
            GIT_REPOSITORY https://host/b.git) ]]
        message(STATUS "no ) parenthesis ends here; # no comment either")
        FetchContent_Declare(c  # a comment inside
          GIT_REPOSITORY [=[https://host/c.git]=])"""
    assert wanted(scan(tmp_path, {"CMakeLists.txt": CMAKE + text})) == [("c", None)]


# -- which of them a build comes to --------------------------------------------------------------

DEVICES = """
    set(VLLM_TARGET_DEVICE "cuda" CACHE STRING "target")
    include(${CMAKE_CURRENT_LIST_DIR}/cmake/utils.cmake)
    if (NOT VLLM_TARGET_DEVICE STREQUAL "cuda" AND NOT VLLM_TARGET_DEVICE STREQUAL "rocm")
      if (VLLM_TARGET_DEVICE STREQUAL "cpu")
        include(cmake/cpu.cmake)
      endif()
      return()
    endif()
    if (NOT HIP_FOUND)
      set(VLLM_GPU_LANG "CUDA")
    else()
      set(VLLM_GPU_LANG "HIP")
    endif()
    if (VLLM_GPU_LANG STREQUAL "CUDA")
      include(cmake/cuda.cmake)
    endif()"""
TREE = {
    "CMakeLists.txt": CMAKE + DEVICES,
    "cmake/utils.cmake": "function(f)\nendfunction()",
    "cmake/cuda.cmake": "FetchContent_Declare(cutlass GIT_REPOSITORY https://host/cutlass.git)",
    "cmake/cpu.cmake": """
        if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64")
          FetchContent_Declare(onednn GIT_REPOSITORY https://host/onednn.git)
        elseif(ASIMD_FOUND)
          FetchContent_Declare(acl GIT_REPOSITORY https://host/acl.git)
        endif()""",
    "cmake/unused.cmake": "FetchContent_Declare(old GIT_REPOSITORY https://host/old.git)",
}


@pytest.mark.parametrize(
    ("target", "machine", "names"),
    [
        ("cuda", "x86_64", ["cutlass"]),
        ("cpu", "x86_64", ["onednn"]),
        ("cpu", "aarch64", ["acl"]),
        ("empty", "x86_64", []),
    ],
)
def test_a_build_wants_what_its_target_and_machine_lead_to(
    target: str, machine: str, names: list[str], tmp_path: Path
) -> None:
    found = scan(tmp_path, TREE, staging.known(target, machine))
    assert [one.name for one in found.wanted] == names
    assert all(one.applies for one in found.wanted)
    assert len(found.declared) == 4


def test_where_nothing_is_known_everything_may_be_wanted(tmp_path: Path) -> None:
    found = scan(tmp_path, TREE)
    assert {one.name: one.applies for one in found.wanted} == {"cutlass": None, "onednn": None, "acl": None}
    assert "may be cloned" in refused(found, {})


def test_a_way_that_cannot_be_followed_is_told_and_makes_every_file_possible(tmp_path: Path) -> None:
    found = scan(tmp_path, {**TREE, "CMakeLists.txt": f"{CMAKE}include(${{WHERE}}/cuda.cmake)"})
    assert {one.name for one in found.wanted} == {"cutlass", "onednn", "acl", "old"}
    assert any("include(${WHERE}/cuda.cmake) at CMakeLists.txt:3" in text for text in found.unread)


def test_what_a_build_left_behind_is_not_read(tmp_path: Path) -> None:
    text = "FetchContent_Declare(q GIT_REPOSITORY https://host/q.git)"
    left = dict.fromkeys(("build/a.cmake", ".deps/CMakeLists.txt"), text)
    assert scan(tmp_path, {"CMakeLists.txt": CMAKE, **left}).declared == ()


def test_mode_precompiled_does_not_run_cmake(tmp_path: Path) -> None:
    text = "subprocess.run(['git', 'clone', 'https://host/kernels.git'])\n"
    found = scan(tmp_path, {**TREE, "setup.py": text}, staging.known("cuda"))
    assert [one.name for one in found.uncompiled.wanted] == ["kernels"]


# -- what is not CMake ---------------------------------------------------------------------------


def test_a_setup_py_that_clones_is_named(tmp_path: Path) -> None:
    text = "\nsubprocess.run(['git', 'clone', 'https://host/kernels.git'])\nos.system('git submodule update')\n"
    found = scan(tmp_path, {"setup.py": text})
    assert [(one.name, one.line) for one in found.wanted] == [("kernels", 2), ("git submodule update", 3)]


def test_a_build_requirement_by_url_and_a_submodule_that_is_not_there_are_clones_too(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[build-system]\nrequires = ["helper @ git+https://host/helper.git@v1"]\n',
        ".gitmodules": '[submodule "a"]\n path = third/a\n url = https://host/a.git\n[submodule "b"]\n path = b\n',
        "b/file": "",
    }
    found = scan(tmp_path, files)
    assert [(one.name, one.kind, one.tag) for one in found.wanted] == [
        ("helper", "requirement", "v1"),
        ("a", "submodule", None),
    ]


def test_repositories_of_a_rust_part_count_where_the_backend_compiles_rust(tmp_path: Path) -> None:
    rust = {"rust/Cargo.toml": '[workspace.dependencies]\nzeromq = { git = "https://host/zmq.rs", rev = "67d" }\n'}
    assert scan(tmp_path / "a", rust).declared == ()
    found = scan(tmp_path / "b", {**rust, "pyproject.toml": '[build-system]\nrequires = ["setuptools-rust>=1.9"]\n'})
    assert [(one.name, one.tag, one.variable) for one in found.wanted] == [("zeromq", "67d", "CARGO_HOME")]


# -- the positive control ------------------------------------------------------------------------


def test_a_tree_in_which_nothing_is_found_says_how_much_was_read(tmp_path: Path) -> None:
    found = scan(tmp_path, {"CMakeLists.txt": CMAKE})
    assert (found.declared, found.said) == ((), "1 build files read, no repository is declared for this build")
    staging.require_staged(found, {}, network=False)


def test_a_tree_without_build_files_says_so(tmp_path: Path) -> None:
    assert "no CMake, no setup.py" in scan(tmp_path, {}).said


def test_a_mention_of_a_repository_that_was_not_understood_refuses(tmp_path: Path) -> None:
    found = scan(tmp_path, {"CMakeLists.txt": f"{CMAKE}my_fetch(x GIT_REPOSITORY https://host/x.git)"})
    assert found.declared == ()
    assert found.unread == ("CMakeLists.txt (1 mentions of a repository, 0 read)",)
    assert "not understood" in refused(found, {}, network=True, probe=lambda one: None)


# -- staged or reachable -------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> staging.Scan:
    return staging.scan(fixture.project(tmp_path / "project"))


def test_what_is_neither_staged_nor_reachable_is_named_with_place_and_variable(project: staging.Scan) -> None:
    message = refused(project, {})
    assert f"tiny ({fixture.TINY_URL} at v1.2, cmake/tiny.cmake:9) would be cloned" in message
    assert "the network is cut off" in message
    assert "name it by TINY_SRC_DIR" in message


def test_a_staged_repository_is_not_asked_for(project: staging.Scan, tmp_path: Path) -> None:
    staged = {"TINY_SRC_DIR": fixture.tiny(tmp_path / "tiny")}
    staging.require_staged(project, staged, network=False)
    staging.require_staged(project, staged, network=True, probe=lambda one: pytest.fail(f"asked for {one}"))


def test_a_reachable_one_need_not_be_staged_and_an_unreachable_one_is_told_why(project: staging.Scan) -> None:
    staging.require_staged(project, {}, network=True, probe=lambda one: None)
    assert "cannot be reached: 404" in refused(project, {}, network=True, probe=lambda one: "404")


def test_a_tenth_repository_names_itself(tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(10)]
    text = "".join(
        f"if(NOT DEFINED ENV{{{name.upper()}_DIR}})\n"
        f"FetchContent_Declare({name} GIT_REPOSITORY https://host/{name})\nendif()\n"
        for name in names
    )
    found = scan(tmp_path, {"CMakeLists.txt": CMAKE + text})
    folder = fixture.tiny(tmp_path / "staged")
    message = refused(found, {f"{name.upper()}_DIR": folder for name in names[:9]})
    assert "r9 (https://host/r9" in message
    assert "r8" not in message


def test_all_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    text = (
        "FetchContent_Declare(a GIT_REPOSITORY https://host/a)\nFetchContent_Declare(b GIT_REPOSITORY https://host/b)"
    )
    message = refused(scan(tmp_path, {"CMakeLists.txt": CMAKE + text}), {})
    assert "a (https://host/a" in message
    assert "b (https://host/b" in message


def test_what_the_case_says_it_goes_without_is_not_asked_for(project: staging.Scan) -> None:
    staging.require_staged(project, {}, network=False, without=["tiny"])


def test_a_staged_folder_must_be_there_and_hold_something(project: staging.Scan, tmp_path: Path) -> None:
    (tmp_path / "empty/.git").mkdir(parents=True)
    assert "no such folder" in refused(project, {"TINY_SRC_DIR": tmp_path / "gone"})
    assert "the folder is empty" in refused(project, {"TINY_SRC_DIR": tmp_path / "empty"})


def test_a_staged_folder_must_have_its_own_submodules(project: staging.Scan, tmp_path: Path) -> None:
    staged = fixture.tiny(tmp_path / "tiny")
    fixture.write(staged, {".gitmodules": '[submodule "csrc/cutlass"]\n\tpath = csrc/cutlass\n\turl = u\n'})
    assert "submodules are not there: csrc/cutlass" in refused(project, {"TINY_SRC_DIR": staged})
    fixture.write(staged, {"csrc/cutlass/cutlass.h": ""})
    staging.require_staged(project, {"TINY_SRC_DIR": staged}, network=False)


def test_a_variable_that_the_tree_does_not_read_is_named_with_those_it_does(
    project: staging.Scan, tmp_path: Path
) -> None:
    staged = fixture.tiny(tmp_path / "tiny")
    message = refused(project, {"TINY_SRC_DIR": staged, "TINNY_SRC_DIR": staged})
    assert "TINNY_SRC_DIR is staged, but this tree does not read it; it redirects by: TINY_SRC_DIR" in message


def test_git_is_asked_whether_a_repository_is_there(tmp_path: Path) -> None:
    there = staging.Declared("tiny", str(fixture.tiny(tmp_path / "tiny")), None, "f", 1, None)
    assert staging.ask_remote(there) is None
    gone = staging.Declared("tiny", str(tmp_path / "gone"), None, "f", 1, None)
    assert "does not appear to be a git repository" in staging.ask_remote(gone)


def test_a_fingerprint_counts_files_and_bytes_and_leaves_git_out(tmp_path: Path) -> None:
    staged = fixture.tiny(tmp_path / "tiny")
    before = staging.fingerprint(staged)
    assert before.files == 2
    assert before.bytes == sum((staged / name).stat().st_size for name in ("tiny.h", "CHANGES"))
    fixture.git(staged, "tag", "other")
    assert staging.fingerprint(staged) == before
    (staged / "tiny.h").chmod(0o755)
    assert staging.fingerprint(staged).sha256 != before.sha256


# -- conditions of CMake -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "truth"),
    [
        ("ON", True),
        ("NOT OFF", True),
        ("A", None),
        ("A AND OFF", False),
        ("A OR ON", True),
        ("NOT A", None),
        ("D STREQUAL cpu", True),
        ("${D} STREQUAL \"cuda\" OR (D MATCHES \"^c\" AND NOT D STREQUAL rocm)", True),
        ("A STREQUAL cpu", None),
        ("V VERSION_LESS 3", None),
        ("DEFINED ENV{A}", False),
        ("DEFINED D", True),
        ("DEFINED A", None),
        ("EXISTS /x", None),
        ("D", True),
        ("NOT D AND A", False),
        ("x-NOTFOUND", None),
    ],
)  # fmt: skip
def test_a_condition_is_true_false_or_unknown(condition: str, truth: bool | None, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(f"if({condition})\nmark(here)\nendif()")
    (command,) = cmake.walk(tmp_path, {"D": "cpu"}).commands
    assert (command.name, command.certain, command.line) == ("mark", truth, 2)
