"""YAML files of plain values, read strictly: what would silently mean something else is refused."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from pinproof.reasons import Reason, Refusal


def read(path: Path) -> Any:
    """The value of a YAML file. Refusal CASE_INVALID names the file and the line."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # nosec B506 # a SafeLoader
    except FileNotFoundError:
        raise Refusal(Reason.CASE_INVALID, "no such file", file=path) from None
    except OSError as error:
        raise Refusal(Reason.CASE_INVALID, f"cannot be read: {error.strerror}", file=path) from None
    except UnicodeDecodeError as error:
        raise Refusal(Reason.CASE_INVALID, f"not UTF-8 text: {error}", file=path) from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}" if error.problem_mark else None
        problem = (error.problem or "").removeprefix("but ")
        raise Refusal(Reason.CASE_INVALID, f"cannot be read as YAML: {problem}", file=path, key=line) from None
    except yaml.YAMLError as error:
        raise Refusal(Reason.CASE_INVALID, f"cannot be read as YAML: {error}", file=path) from None
    except RecursionError:
        raise Refusal(Reason.CASE_INVALID, "cannot be read as YAML: nested too deeply", file=path) from None


class _StrictLoader(yaml.SafeLoader):
    """YAML of plain values: a key once (the second would silently win), no merge keys, no tags of Python."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise _unread(key_node, "merge keys (<<) are not allowed: write the keys out")
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise _unread(key_node, "a key must be a single word, not a list or a mapping")
            if key in seen:
                raise _unread(key_node, f"key {key!r} is given twice")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError, AttributeError, TypeError):  # what PyYAML makes of 2024-13-45
            raise _unread(node, f"not a value: {str(node.value)[:80]}") from None


def _unread(node: yaml.Node, problem: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
