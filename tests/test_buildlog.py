"""What a build log says of its end: the cause above the last lines, and whose failure it is.

The logs have the shape of public reports (field notes B1 to B9), each in the fewest lines.
"""

import pytest

from pinproof import buildlog
from pinproof.buildlog import About
from pinproof.reasons import Owner, Reason, Refusal
from pinproof.staging import Declared

CUTLASS = Declared(
    "cutlass", "https://github.com/nvidia/cutlass.git", "v4.4.2", "CMakeLists.txt", 486, "VLLM_CUTLASS_SRC_DIR"
)
FLASH = Declared(
    "vllm-flash-attn",
    "https://github.com/vllm-project/flash-attention.git",
    "9cd61de",
    "cmake/external_projects/vllm_flash_attn.cmake",
    39,
    "VLLM_FLASH_ATTN_SRC_DIR",
)
ABOUT = About(
    max_jobs=6, nvcc_threads=2, memory_gb=119, declared=(CUTLASS, FLASH), capability="12.1", torch="2.13.0+cu130"
)
PIP_TAIL = """
  error: subprocess-exited-with-error
  x Building wheel for vllm (pyproject.toml) did not run successfully.
  │ exit code: 1
  ERROR: Failed building wheel for vllm
ERROR: Failed to build installable wheels for some pyproject.toml based projects
"""


def failed(text: str, ended: str = "exited with 1", about: About = ABOUT) -> Refusal:
    return buildlog.failed(text, ended, about)


# -- B1, B2: no network at configure time --------------------------------------------------------

B1 = """
-- Enabling cumem allocator extension.
fatal: unable to access 'https://github.com/nvidia/cutlass.git/': Could not resolve host: github.com
-- Had to git clone more than once: 3 times.
CMake Error at cutlass-subbuild/cutlass-populate-prefix/tmp/cutlass-populate-gitclone.cmake:50 (message):
  Failed to clone repository: 'https://github.com/nvidia/cutlass.git'
"""
B2 = """
-- The VLLM_CUTLASS_SRC_DIR is set, using /staged/cutlass for compilation
Submodule 'csrc/cutlass' (https://github.com/NVIDIA/cutlass.git) registered for path 'csrc/cutlass'
fatal: unable to access 'https://github.com/NVIDIA/cutlass.git/': Could not resolve host: github.com
fatal: clone of 'https://github.com/NVIDIA/cutlass.git' into submodule path '/w/vllm-flash-attn-src/csrc/cutlass' failed
Failed to clone 'csrc/cutlass'. Retry scheduled
"""


def test_b1_a_clone_without_network_names_the_repository_its_variable_and_the_siblings() -> None:
    refusal = failed(B1)
    assert (refusal.reason, refusal.reason.owner) == (Reason.BUILD_NETWORK, Owner.ENVIRONMENT)
    assert "cutlass (https://github.com/nvidia/cutlass.git at v4.4.2" in refusal.message
    assert "stage it by VLLM_CUTLASS_SRC_DIR" in refusal.message
    assert "VLLM_FLASH_ATTN_SRC_DIR" in refusal.message


def test_b2_a_submodule_of_a_dependency_is_told_as_what_it_is() -> None:
    refusal = failed(B2)
    assert refusal.reason is Reason.BUILD_NETWORK
    assert "the submodule https://github.com/NVIDIA/cutlass.git of vllm-flash-attn" in refusal.message
    assert "stage it with its submodules by VLLM_FLASH_ATTN_SRC_DIR" in refusal.message
    assert "VLLM_CUTLASS_SRC_DIR" not in refusal.message


def test_a_clone_that_nobody_declared_is_named_by_its_address() -> None:
    refusal = failed(B1.replace("nvidia/cutlass", "someone/tenth"))
    assert "needs the network for https://github.com/someone/tenth.git" in refusal.message


# -- B3, B4: killed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.CalledProcessError: Command '['cmake', '--build', '.']' returned non-zero exit status 9.",
        "subprocess.CalledProcessError: Command '['cmake']' died with <Signals.SIGKILL: 9>.",
        "g++: fatal error: Killed signal terminated program cc1plus",
        "Killed",
        "ninja: build stopped: subcommand failed, exit code: 137",
    ],
)
def test_b3_a_compiler_that_was_killed_is_told_with_jobs_threads_and_memory(line: str) -> None:
    refusal = failed(f"[3/9] Building CUDA object\nwarning #20012-D: deprecated\n{line}\n{PIP_TAIL.splitlines()[-1]}")
    assert (refusal.reason, refusal.reason.owner) == (Reason.BUILD_KILLED, Owner.ENVIRONMENT)
    assert "MAX_JOBS=6, NVCC_THREADS=2, memory 119 GB" in refusal.message
    assert "signal 9" in refusal.message


def test_b3_the_backend_itself_may_be_the_one_that_was_killed() -> None:
    assert failed("[3/9] Building\n", "was killed by SIGKILL").reason is Reason.BUILD_KILLED


def test_b3_a_status_of_9_after_a_compile_error_is_a_compile_error() -> None:
    refusal = failed("x.cu(3): error: identifier undefined\nmake: *** [x.o] Error 9\n")
    assert refusal.reason is Reason.BUILD_FAILED


def test_b4_a_lone_killed_two_hundred_lines_above_pip_s_tail_is_found() -> None:
    refusal = failed("\n".join(["[1/99] c++", "Killed", *["  copying files"] * 200, PIP_TAIL]))
    assert refusal.reason is Reason.BUILD_KILLED
    assert "'Killed'" in refusal.message


def test_a_word_in_a_sentence_is_not_a_killed_process() -> None:
    refusal = failed("test_Killed.py copied\nx.cu(3): error: identifier undefined\n" + PIP_TAIL)
    assert refusal.reason is Reason.BUILD_FAILED
    assert "x.cu(3): error: identifier undefined" in refusal.message


# -- B5, B6: torch and CUDA ----------------------------------------------------------------------


def test_b5_two_cudas_are_named() -> None:
    text = """RuntimeError:
The detected CUDA version (11.8) mismatches the version that was used to compile
PyTorch (12.1). Please make sure to use the same CUDA versions.
"""
    refusal = failed(text)
    assert refusal.reason is Reason.TOOLCHAIN_MISMATCH
    assert "nvcc is CUDA 11.8" in refusal.message
    assert "compiled with CUDA 12.1" in refusal.message


def test_b6_a_log_that_names_two_torches_tells_both() -> None:
    text = (
        "Collecting torch==2.13.0+cu132\nSuccessfully installed torch-2.13.0+cu132\nRequirement: torch==2.11.0+cu130\n"
    )
    assert buildlog.torch_versions(text) == ["2.13.0+cu132", "2.11.0+cu130"]


def test_a_target_that_torch_was_not_built_for_is_told_in_words() -> None:
    refusal = failed(
        "    raise RuntimeError('Unknown runtime environment')\nRuntimeError: Unknown runtime environment\n"
    )
    assert (refusal.reason, refusal.reason.owner) == (Reason.BUILD_TORCH, Owner.INPUT)
    assert "torch 2.13.0+cu130" in refusal.message


def test_a_missing_nvcc_is_told() -> None:
    refusal = failed("AssertionError: CUDA_HOME is not set\n")
    assert refusal.reason is Reason.TOOLCHAIN_MISMATCH
    assert "needs nvcc" in refusal.message


# -- B7: architectures ---------------------------------------------------------------------------

B7 = """-- CUDA target architectures: {}
-- CUDA supported target architectures: {}
-- Building moe kernels for archs: {}
"""


def test_b7_a_build_whose_kernels_do_not_run_on_the_declared_device_fails_though_it_exits_with_0() -> None:
    refusal = buildlog.spoiled(B7.format("12.1f", "12.0a", "12.0a"), ABOUT)
    assert (refusal.reason, refusal.reason.owner) == (Reason.BUILD_ARCHITECTURE, Owner.TARGET)
    assert "asked for 12.1f" in refusal.message
    assert "no kernel runs on a 12.1" in refusal.message


def test_b7_lines_of_the_kernels_alone_tell_it_too() -> None:
    text = "-- CUDA target architectures: 12.1\n-- Building a for archs: 12.0a\n-- DeepGEMM CUDA architectures: 9.0a\n"
    assert "only 12.0a, 9.0a was built for" in buildlog.spoiled(text, ABOUT).message


def test_b7_nothing_left_of_the_list_is_named() -> None:
    assert "only nothing was left" in buildlog.spoiled(B7.format("12.1", "", ""), ABOUT).message


@pytest.mark.parametrize("built", ["12.0f", "12.1a", "12.0", "12.1"])
def test_b7_code_of_the_family_runs_on_the_device(built: str) -> None:
    assert buildlog.spoiled(B7.format("12.1", built, built), ABOUT) is None


def test_b7_a_log_without_such_lines_or_a_case_without_a_device_says_nothing() -> None:
    assert buildlog.spoiled("copying files\n", ABOUT) is None
    assert buildlog.spoiled(B7.format("9.0", "9.0", "9.0a"), About()) is None


# -- B8, B9, and the rest ------------------------------------------------------------------------

B8 = """VLLM_PRECOMPILED_WHEEL_COMMIT not valid: nightly, trying to fetch base commit in main branch
Using precompiled wheel commit 462fdb097aa0 with variant cu130
Successfully built vllm
"""


def test_b8_a_declared_commit_that_was_not_used_is_not_a_pin() -> None:
    refusal = buildlog.spoiled(B8, ABOUT)
    assert (refusal.reason, refusal.reason.owner) == (Reason.BUILD_OTHER_BINARIES, Owner.INPUT)
    assert "the declared commit nightly was not used: binaries of 462fdb097aa0 were used instead" in refusal.message


def test_b9_the_missing_file_is_named() -> None:
    refusal = failed("error: can't copy 'build/lib/vllm/_core_C.abi3.so': doesn't exist or not a regular file\n")
    assert refusal.reason is Reason.BUILD_INCOMPLETE
    assert "build/lib/vllm/_core_C.abi3.so" in refusal.message


def test_a_missing_build_requirement_is_named() -> None:
    refusal = failed("ModuleNotFoundError: No module named 'setuptools_rust'\n")
    assert refusal.reason is Reason.BUILD_REQUIREMENT
    assert "setuptools_rust" in refusal.message


def test_a_full_disk_is_the_disk_s_fault() -> None:
    refusal = failed("fatal error: error writing to /tmp/x.s: No space left on device\nKilled\n")
    assert (refusal.reason, refusal.reason.owner) == (Reason.DISK_SHORT, Owner.ENVIRONMENT)


def test_anything_else_is_told_by_its_first_error_and_its_last_lines() -> None:
    refusal = failed("a\nx.cpp:3:1: error: no\nb\ny.cpp:4:1: error: neither\n" + PIP_TAIL)
    assert refusal.reason is Reason.BUILD_FAILED
    assert "first error: x.cpp:3:1: error: no\n" in refusal.message
    assert "Failed to build installable wheels" in refusal.message


def test_a_build_without_an_error_line_says_so() -> None:
    assert "no line of the log says error" in failed("a\n").message


def test_an_optional_part_that_was_left_out_is_told_once() -> None:
    text = "Precompiled wheel did not provide x; falling back to local Rust build.\ncan't find Rust compiler\n" * 2
    assert len(buildlog.skipped(text)) == 2
    assert buildlog.skipped("all is well\n") == []
