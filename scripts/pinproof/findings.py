"""Findings: what is wrong with a value that a person wrote, key by key, in words.

A model is checked as a whole and every finding is told, each with what is allowed and what was given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union

from pydantic import BaseModel, ConfigDict, Discriminator, Tag, ValidationError

from pinproof.reasons import Reason, Refusal

Finding = tuple[str, str]  # dotted key, message
Model = TypeVar("Model", bound="Strict")

# Tags of alternatives begin with this, so that they are told from keys that a person wrote.
TAG = "\N{SECTION SIGN}"
_ALTERNATIVE = "alternative"
_KINDS = {"model_type": "a mapping of keys", "dict_type": "a mapping of keys", "list_type": "a list"}


class Strict(BaseModel):
    """A model at the border: nothing is converted, no key is ignored, no number is NaN or infinite."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def check(model: type[Model], value: Any, path: Path, *, patterns: Mapping[str, str] | None = None) -> Model:
    """The model of a value. Refusal CASE_INVALID names every wrong key; `path` is named in it.

    `patterns` says in words what a regular expression of the model allows.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        schema = model.model_json_schema()
        found = [_finding(one, schema, patterns or {}) for one in error.errors(include_url=False)]
        raise refusal(path, found) from None


def alternatives(key: str, /, **models: type[Strict]) -> Any:
    """The type of a value that is one of several models; which one, its own `key` says."""

    def which(value: Any) -> str | None:
        chosen = value.get(key) if isinstance(value, dict) else getattr(value, key, None)
        return None if chosen is None else f"{TAG}{chosen}"

    known = Discriminator(
        which,
        custom_error_type=_ALTERNATIVE,
        custom_error_message="{key} must be {allowed}",
        custom_error_context={"key": key, "allowed": _listed(models)},
    )
    tagged = tuple(Annotated[model, Tag(f"{TAG}{name}")] for name, model in models.items())
    return Annotated[Union[tagged], known]  # noqa: UP007 - made of a tuple


def refusal(path: Path, findings: Sequence[Finding]) -> Refusal:
    """One refusal for everything that was found, a line each."""
    (key, message), *others = findings
    more = "".join(f"\n{path}: {key}: {message}" for key, message in others)
    return Refusal(Reason.CASE_INVALID, message + more, file=path, key=key)


def dotted(location: Sequence[int | str]) -> str:
    """The key as a person would write it: rows[0].cells[1].prompts."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else "" if part.startswith(TAG) else f".{part}"
    return re.sub(r"\.\[key\]$", " (name)", text.lstrip(".")) or "(the whole file)"


def _finding(found: Mapping[str, Any], schema: dict, patterns: Mapping[str, str]) -> Finding:
    if found["type"] == _ALTERNATIVE and isinstance(found["input"], dict):
        key, allowed = found["ctx"]["key"], found["ctx"]["allowed"]
        given = found["input"]
        text = f"must be {allowed} (got {_given(given[key])})" if key in given else f"this key is required: {allowed}"
        return dotted((*found["loc"], key)), text
    return dotted(found["loc"]), _plain(found, schema, patterns)


def _plain(found: Mapping[str, Any], schema: dict, patterns: Mapping[str, str]) -> str:
    """What is wrong with one key, what is allowed, and what was given."""
    kind, given = found["type"], found["input"]
    if kind == "extra_forbidden":
        return f"unknown key; allowed are {', '.join(_allowed(schema, found['loc'])) or 'none'}"
    if kind == "missing":
        return "this key is required"
    if kind == "string_pattern_mismatch" and found["ctx"]["pattern"] in patterns:
        message = f"must be {patterns[found['ctx']['pattern']]}"
    elif kind == _ALTERNATIVE:
        message = "must be a mapping of keys"
    elif kind in _KINDS:
        several = str(found["loc"][-1:]).startswith(f"('{TAG}")
        message = f"must be {'a list or a mapping of keys' if several else _KINDS[kind]}"
    else:
        message = re.sub(r"^(Input|String|List|Dictionary|Keys) should", "must", found["msg"])
        message = re.sub(r"^Value error, | after validation, not [0-9]+$", "", message)
    if kind == "value_error":  # a rule of ours about several keys says all there is to say
        return message
    return f"{message} (got {_given(given)}{_hint(kind, given)})"


def _listed(names: Iterable[str]) -> str:
    """'a', 'b' or 'c', as pydantic says it of a Literal."""
    *first, last = (f"'{name}'" for name in names)
    return f"{', '.join(first)} or {last}" if first else last


def _given(given: Any) -> str:
    if given is None:
        return "nothing"
    if isinstance(given, dict | list):
        return "a mapping" if isinstance(given, dict) else "a list" if given else "an empty list"
    text = repr(given) if isinstance(given, str | bool | int | float) else str(given)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _hint(kind: str, given: Any) -> str:
    """Why a value is of another type than it looks: YAML reads words by their form."""
    if kind == "string_type" and not isinstance(given, dict | list | None):
        what = "a number" if isinstance(given, int | float) else "a date"
        what = "true or false" if isinstance(given, bool) else what
        return f", which YAML reads as {what}: write it in quotes"
    if kind in ("int_type", "float_type") and isinstance(given, str):
        return ", which YAML reads as text: write a plain number without quotes, such as 16 or 0.1 (not 1e-1)"
    return ""


def _allowed(schema: dict, location: Sequence[int | str]) -> list[str]:
    """The keys allowed at the place of an unknown key, read from the model itself."""
    nodes = list(_shapes(schema, schema))
    for part in location[:-1]:
        if isinstance(part, int) or not part.startswith(TAG):
            nodes = [shape for node in nodes for shape in _shapes(schema, _step(node, part))]
        else:
            nodes = [node for node in nodes if _is_chosen(node, part.removeprefix(TAG))] or nodes
    return sorted({key for node in nodes for key in node.get("properties", {})})


def _is_chosen(node: dict, tag: str) -> bool:
    """Whether a shape is the alternative that a value has chosen by its key."""
    return any(field.get("const") == tag for field in node.get("properties", {}).values())


def _step(node: dict, part: int | str) -> dict:
    if isinstance(part, int):
        return node.get("items", {})
    pattern = next(iter(node.get("patternProperties", {}).values()), {})
    return node.get("properties", {}).get(part) or node.get("additionalProperties") or pattern


def _shapes(schema: dict, node: dict) -> Iterator[dict]:
    """What a place may hold, its references followed and its alternatives apart."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
    options = [*node.get("anyOf", []), *node.get("oneOf", [])]
    for option in options:
        yield from _shapes(schema, option)
    if not options:
        yield node
