"""A generated `_version.py`: what it assigns as literals, read without running it."""

from __future__ import annotations

import ast
from pathlib import Path

from packaging.utils import canonicalize_name

_VERSION = ("__version__", "version")
_COMMIT = ("__commit_id__", "commit_id")
# What Python's parser ends in for text that is no Python; the last two: it is nested more deeply than it parses.
UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def assigned(text: str) -> dict[str, object]:
    """What a module assigns as literals, by name; nothing when it is not Python."""
    try:
        tree = ast.parse(text)
    except UNPARSABLE:
        return {}
    values = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            values.update({target.id: statement.value.value for target in targets if isinstance(target, ast.Name)})
    return values


def literals(text: str) -> tuple[str | None, str | None]:
    """Version and commit id (with its leading g) that a `_version.py` assigns; None where it does not."""
    values = {name: value for name, value in assigned(text).items() if isinstance(value, str)}
    version, commit = ([values.get(name) for name in names] for names in (_VERSION, _COMMIT))
    return version[0] or version[1], commit[0] or commit[1]


def find(tree: Path, name: str) -> Path | None:
    """The `_version.py` of a source tree: the one there is, or the one of the distribution's own package."""
    found = sorted([*tree.glob("*/_version.py"), *tree.glob("src/*/_version.py")])
    own = [path for path in found if canonicalize_name(path.parent.name) == canonicalize_name(name)]
    return found[0] if len(found) == 1 else own[0] if own else None


def read(tree: Path, name: str) -> tuple[str | None, str | None]:
    """Version and commit id of a source tree's `_version.py`; None where it has none."""
    path = find(tree, name)
    return (None, None) if path is None else literals(path.read_text(encoding="utf-8", errors="replace"))
