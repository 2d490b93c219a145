"""What a build log says of its end: the cause, not the last line.

A build that exits with 0 is asked too: one that took other binaries than declared, or whose kernels
cannot run on the declared device, did not succeed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pinproof import architecture
from pinproof.reasons import Reason, Refusal
from pinproof.staging import Declared


@dataclass(frozen=True)
class About:
    """What the message about a build needs besides its log; memory in GB, `capability` such as 12.1."""

    max_jobs: int | None = None
    nvcc_threads: int | None = None
    memory_gb: float | None = None
    declared: Sequence[Declared] = ()
    capability: str | None = None
    torch: str | None = None


def failed(text: str, ended: str, about: About, *, file: object = None) -> Refusal:
    """Why a build failed that ended so ("exited with 1", "was killed by SIGKILL")."""
    for look in (_disk, _killed, _network, _cuda, _no_nvcc, _no_torch, _requirement, _incomplete, _other_binaries):
        if found := look(text, ended, about):
            return Refusal(*found, file=file)
    if found := _architectures(text, about):
        return Refusal(*found, file=file)
    first = _first(r"^.*?\b(?:fatal error|[Ee]rror)\b:? .*$", text) or "no line of the log says error"
    return Refusal(
        Reason.BUILD_FAILED, f"the build {ended}; its first error: {first.strip()}\n{_tail(text)}", file=file
    )


def spoiled(text: str, about: About, *, file: object = None) -> Refusal | None:
    """Why a build that exited with 0 does not count all the same; None when its log says nothing against it."""
    found = _other_binaries(text, "", about) or _architectures(text, about)
    return Refusal(*found, file=file) if found else None


def torch_versions(text: str) -> list[str]:
    """The versions of torch that a log names, in order, each once."""
    return list(dict.fromkeys(re.findall(r"\btorch[-= ]{1,2}(\d+\.\d+\.\d+(?:[+.][\w.+]*\w)?)", text)))


def skipped(text: str) -> list[str]:
    """What a build that went well left out all the same: optional parts that it says could not be built."""
    parts = "falling back to local Rust build|can't find Rust compiler|[Bb]uild optional .*failed|[Oo]ptional .*skipped"
    return list(dict.fromkeys(line.strip() for line in re.findall(rf"^.*(?:{parts}).*$", text, re.M)))


# -- causes, most telling first ------------------------------------------------------------------

_Found = tuple[Reason, str] | None
_Look = Callable[[str, str, About], _Found]


def _disk(text: str, ended: str, about: About) -> _Found:
    line = _first(r"^.*No space left on device.*$", text)
    return (Reason.DISK_SHORT, f"the disk was full during the build: {line.strip()}") if line else None


def _killed(text: str, ended: str, about: About) -> _Found:
    """A compiler or the backend that ended by signal 9: no error line tells it."""
    line = _first(
        r"^\s*Killed\s*$|^.*(?:Killed signal|died with <Signals\.SIGKILL|[Tt]erminated by signal 9|signal: 9).*$", text
    )
    if line is None and not re.search(r"(?m)\berror: ", text):
        line = _first(r"^.*(?:returned non-zero exit status|exited with|exit code:?|Error) (?:-9|9|137)\b.*$", text)
    if line is None and "SIGKILL" not in ended:
        return None
    memory = "unknown" if about.memory_gb is None else f"{about.memory_gb:.0f} GB"
    jobs = "unknown" if about.max_jobs is None else about.max_jobs
    threads = "not set" if about.nvcc_threads is None else about.nvcc_threads
    said = f"killed (signal 9), most likely for memory: MAX_JOBS={jobs}, NVCC_THREADS={threads}, memory {memory}"
    return Reason.BUILD_KILLED, f"{said}; the log says {line.strip()!r}" if line else said


def _network(text: str, ended: str, about: About) -> _Found:
    submodule = re.search(
        r"(?m)^.*clone of '(?P<url>[^']+)' into submodule path '(?P<path>[^']+)' failed"
        r"|^.*Failed to (?:clone|update) submodules? (?:in: )?'(?P<inside>[^']+)'",
        text,
    )
    if submodule:
        inside = submodule["path"] or submodule["inside"]
        owner = next((one for one in about.declared if f"{one.name}-src" in inside), None)
        whose = f"of {owner}" if owner else f"below {inside}"
        how = f"; stage it with its submodules by {owner.variable}" if owner and owner.variable else ""
        what = submodule["url"] or "a repository"
        return Reason.BUILD_NETWORK, f"the submodule {what} {whose} could not be cloned without network{how}"
    line = _first(
        r"^.*(?:Could not resolve host|Failed to clone repository|transport '\w+' not allowed|Network is unreachable"
        r"|Temporary failure in name resolution|Had to git clone more than once).*$",
        text,
    )
    if line is None:
        return None
    names = (r"Failed to clone repository: '([^']+)'", r"unable to access '([^']+?)/?'", r"Cloning into '([^']+)'")
    wanted = next((found[1] for name in names if (found := re.search(name, text))), None)
    owner = next((one for one in about.declared if wanted and _same(one, wanted)), None)
    variables = sorted({one.variable for one in about.declared if one.variable})
    how = f"; the tree is redirected by {', '.join(variables)}" if variables else ""
    if owner and owner.variable:
        how = f": stage it by {owner.variable}{how}"
    return Reason.BUILD_NETWORK, f"configuring needs the network for {owner or wanted or line.strip()}{how}"


def _cuda(text: str, ended: str, about: About) -> _Found:
    found = re.search(
        r"detected CUDA version \(([\d.]+)\) mismatches the version that was used to compile\s+PyTorch \(([\d.]+)\)",
        text,
    )
    if not found:
        return None
    which = f" {about.torch}" if about.torch else ""
    message = f"nvcc is CUDA {found[1]}, the torch{which} of the build environment was compiled with CUDA {found[2]}"
    return Reason.TOOLCHAIN_MISMATCH, message


def _no_nvcc(text: str, ended: str, about: About) -> _Found:
    line = _first(r"^.*(?:CUDA_HOME is not set|nvcc not found|CUDA_HOME environment variable is not set).*$", text)
    return (Reason.TOOLCHAIN_MISMATCH, f"the target needs nvcc, and none was found: {line.strip()}") if line else None


def _no_torch(text: str, ended: str, about: About) -> _Found:
    if "Unknown runtime environment" not in text:
        return None
    which = f" (torch {about.torch})" if about.torch else ""
    return Reason.BUILD_TORCH, f"the torch of the build environment{which} is not a build for this target"


def _requirement(text: str, ended: str, about: About) -> _Found:
    found = re.search(r"(?:ModuleNotFoundError|ImportError): No module named '([\w.]+)'", text)
    message = "the build imports {}, which no build requirement brought"
    return (Reason.BUILD_REQUIREMENT, message.format(found[1])) if found else None


def _incomplete(text: str, ended: str, about: About) -> _Found:
    found = re.search(r"can't copy '([^']+)': doesn't exist or not a regular file", text)
    message = "the build did not make {}: its target was skipped"
    return (Reason.BUILD_INCOMPLETE, message.format(found[1])) if found else None


def _other_binaries(text: str, ended: str, about: About) -> _Found:
    found = re.search(r"VLLM_PRECOMPILED_WHEEL_COMMIT not valid: ?(\S*?)(?:,|\s|$)", text)
    if not found:
        return None
    used = re.search(r"Using precompiled wheel commit (\S+)", text)
    instead = f"binaries of {used[1]} were used instead" if used else "the build looked for others by itself"
    return Reason.BUILD_OTHER_BINARIES, f"the declared commit {found[1] or '(none)'} was not used: {instead}"


def _architectures(text: str, about: About) -> _Found:
    """Does anything that was built run on the declared device? A log without such lines says nothing."""
    device = architecture.capability(about.capability or "")
    if device is None:
        return None
    asked = re.findall(r"CUDA target architectures: *(.*)$", text, re.M)
    supported = re.findall(r"CUDA supported target architectures: *(.*)$", text, re.M)
    kernels = re.findall(r"(?:for archs|(?<!supported target )(?<!target )CUDA [Aa]rchitectures): *(.*)$", text, re.M)
    for what, lists in (("was left of the list", supported), ("was built for", kernels)):
        built = sorted({str(one) for line in lists for one in architecture.parse(line)[0]})
        if lists and not any(architecture.parse(one)[0][0].runs_on(device) for one in built):
            want = f"asked for {'; '.join(asked)}, " if asked else ""
            message = f"{want}but only {', '.join(built) or 'nothing'} {what}: no kernel runs on a {about.capability}"
            return Reason.BUILD_ARCHITECTURE, message
    return None


def _same(one: Declared, url: str) -> bool:
    if url.rsplit("/", 1)[-1] == f"{one.name}-src":  # the folder that CMake clones into
        return True
    ends = [text.rstrip("/").removesuffix(".git").lower() for text in (one.repository, url)]
    return ends[0] == ends[1] or ends[0].rsplit("/", 1)[-1] == ends[1]


def _first(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.M)
    return found[0] if found else None


def _tail(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-12:])
