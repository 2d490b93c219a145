"""Ids and digests as a person writes them in a case."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

# Ids become file names and pass through the shell of a rule, so they are held to this pattern.
_ID, _SHA256, _LOCAL, _COMMIT, _CALLABLE = (
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
    r"^[0-9a-f]{64}$",
    r"^[a-z0-9.]+$",
    r"^[0-9a-f]{40}$",
    r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$",
)
VARIABLE = r"^[A-Z][A-Z0-9_]*$"
REPOSITORY = r"^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*$"
# What each pattern allows, in words.
PATTERNS = {
    VARIABLE: "the name of an environment variable, such as VLLM_CUTLASS_SRC_DIR",
    REPOSITORY: "owner/name of a repository, such as Qwen/Qwen3-0.6B",
    _ID: "at most 64 letters, digits, dots, hyphens and underscores, the first a letter or a digit",
    _SHA256: "64 hex digits in lower case",
    _LOCAL: "lower-case letters, digits and dots",
    _COMMIT: "40 hex digits in lower case",
    _CALLABLE: "module:name or module:Class.method, such as package.module:Worker.load_model",
}
Variable = Annotated[str, StringConstraints(pattern=VARIABLE)]
Id = Annotated[str, StringConstraints(pattern=_ID)]
Sha256 = Annotated[str, StringConstraints(pattern=_SHA256)]
Local = Annotated[str, StringConstraints(pattern=_LOCAL)]
Commit = Annotated[str, StringConstraints(pattern=_COMMIT)]
CallableName = Annotated[str, StringConstraints(pattern=_CALLABLE)]
