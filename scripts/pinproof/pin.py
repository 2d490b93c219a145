"""The pin: the declared identity of an engine, read from one fenced block of a Markdown page.

    ```parity-pin
    vllm_commit = <40 hex digits>
    vllm_runtime_version = 0.32.0
    vllm_distribution_version = 0.32.0+cpu
    ```

Blank lines and lines that begin with `#` are comments. Fences are CommonMark's: a block that is
shown inside another fence, in indented code, in a quote or in an HTML comment is not the pin. (A
fence that follows an HTML tag without a blank line does count: then a second block is refused.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from packaging.version import InvalidVersion, Version

from pinproof.reasons import Reason, Refusal

INFO = "parity-pin"
BUILD_MODES = ("source", "precompiled", "index", "file")
REQUIRED = ("vllm_commit", "vllm_runtime_version", "vllm_distribution_version")
# A released wheel need not carry its commit: under these modes the block may leave it out, and the
# digest of the wheel, which the case names, is the identity.
RELEASED_MODES = ("index", "file")
OPTIONAL = ("flashinfer_version", "torch_version", "transformers_version", "nvidia_cutlass_dsl_version", "build_mode")

_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_ENTRY = re.compile(r"(?P<head>[ \t]*(?P<name>\w+)[ \t]*=[ \t]*)(?P<value>[^\s=]\S*)(?P<tail>[ \t]*\r?)")
# HTML blocks that may hold anything up to their end mark (CommonMark 4.6, kinds 1 to 5).
_HTML = (
    (re.compile(r" {0,3}<!--"), re.compile(r"-->")),
    (
        re.compile(r" {0,3}<(?:pre|script|style|textarea)(?:[\s>]|$)", re.I),
        re.compile(r"</(?:pre|script|style|textarea)>", re.I),
    ),
    (re.compile(r" {0,3}<\?"), re.compile(r"\?>")),
    (re.compile(r" {0,3}<!\[CDATA\["), re.compile(r"\]\]>")),
    (re.compile(r" {0,3}<![A-Za-z]"), re.compile(r">")),
)


@dataclass(frozen=True)
class Pin:
    """A declared identity; an optional field is None when the block does not declare it."""

    vllm_commit: str | None
    vllm_runtime_version: str
    vllm_distribution_version: str
    flashinfer_version: str | None = None
    torch_version: str | None = None
    transformers_version: str | None = None
    nvidia_cutlass_dsl_version: str | None = None
    build_mode: str | None = None
    text: str = field(default="", compare=False, repr=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def fields(self) -> Mapping[str, str]:
        """What the block declares, by name."""
        values = {name: getattr(self, name) for name in (*REQUIRED, *OPTIONAL)}
        return MappingProxyType({name: value for name, value in values.items() if value is not None})

    def as_record(self) -> dict:
        """The declared fields as JSON values; where they stand on the page does not matter."""
        return {"fields": dict(self.fields)}


def read_pin(path: Path) -> Pin:
    """Read the one parity-pin block of a Markdown file; refusal PIN_INVALID names file and line."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise Refusal(Reason.PIN_INVALID, f"cannot be read: {error.strerror}", file=path) from None
    except UnicodeDecodeError as error:
        raise Refusal(Reason.PIN_INVALID, f"is not UTF-8 text: {error.reason}", file=path) from None
    return parse_pin(text, file=path)


def parse_pin(text: str, *, file: object = None) -> Pin:
    """The pin in a Markdown text; `file` is named in refusals."""
    opening, block = _the_block(text, file)
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in block:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise _bad(file, number, f"not of the form `name = value`: {line.strip()!r}")
        name, value = entry["name"], entry["value"]
        if name not in REQUIRED and name not in OPTIONAL:
            raise _bad(file, number, f"unknown field {name}; known are {', '.join((*REQUIRED, *OPTIONAL))}")
        if name in values:
            raise _bad(file, number, f"{name} is declared twice, first on line {lines[name]}")
        if wrong := wrong_value(name, value):
            raise _bad(file, number, wrong)
        values[name], lines[name] = value, number
    required = REQUIRED[1:] if values.get("build_mode") in RELEASED_MODES else REQUIRED
    if missing := [name for name in required if name not in values]:
        raise _bad(file, opening, f"the block does not declare {', '.join(missing)}")
    for name in ("vllm_runtime_version", "vllm_distribution_version"):
        short = commit_in(values[name])
        if short and not values.get("vllm_commit", short).startswith(short):
            raise _bad(file, lines[name], f"{name} carries +g{short}, which is not the start of vllm_commit")
    return Pin(**{"vllm_commit": None, **values}, text=text, lines=MappingProxyType(lines))


def wrong_value(name: str, value: str) -> str | None:
    """Why `value` cannot be declared for the field `name`; None when it can."""
    if name == "vllm_commit":
        return None if re.fullmatch(r"[0-9a-f]{40}", value) else f"{name} is not 40 lower-case hex digits: {value}"
    if name == "build_mode":
        return None if value in BUILD_MODES else f"build_mode is none of {', '.join(BUILD_MODES)}: {value}"
    try:
        Version(value)
    except InvalidVersion:
        return f"{name} is not a version (PEP 440): {value}"
    return None


def commit_in(version: str) -> str | None:
    """The hex digits of `+g<hex>` in a version string; None when it carries none, or is no version."""
    try:
        local = Version(version).local or ""
    except InvalidVersion:
        return None
    found = [segment[1:] for segment in local.split(".") if re.fullmatch(r"g[0-9a-f]{4,40}", segment)]
    return found[0] if found else None


def replaced(pin: Pin, values: Mapping[str, str]) -> str:
    """The page's text with these declared fields changed, every other byte as it was."""
    lines = pin.text.split("\n")
    for name, value in values.items():
        index = pin.lines[name] - 1
        lines[index] = _ENTRY.sub(
            lambda entry, value=value: entry["head"] + value + entry["tail"], lines[index], count=1
        )
    return "\n".join(lines)


def _bad(file: object, number: int, message: str) -> Refusal:
    return Refusal(Reason.PIN_INVALID, message, file=file, key=f"line {number}")


def _the_block(text: str, file: object) -> tuple[int, list[tuple[int, str]]]:
    """Line number of the opening fence, and the numbered lines inside."""
    blocks = []
    for opening, info, body in _fenced(text):
        if info.split()[:1] != [INFO]:
            continue
        if info != INFO:
            raise _bad(file, opening, f"the info string has more than {INFO}: {info!r}")
        if body is None:
            raise _bad(file, opening, "the block is not closed")
        blocks.append((opening, body))
    if len(blocks) > 1:
        raise _bad(file, blocks[1][0], f"a second {INFO} block; the first is on line {blocks[0][0]}")
    if not blocks:
        shown = re.search(rf"^.*(?:`{{3}}|~{{3}})[ \t]*{INFO}\b.*$", text, re.M | re.I)
        where = f"; line {text.count(chr(10), 0, shown.start()) + 1} only shows one" if shown else ""
        raise Refusal(Reason.PIN_INVALID, f"no fenced block with the info string {INFO}{where}", file=file)
    return blocks[0]


def _fenced(text: str) -> list[tuple[int, str, list[tuple[int, str]] | None]]:
    """Every fenced block: line of its fence, info string, numbered lines (None when it is not closed)."""
    blocks = []
    lines = list(enumerate(text.removeprefix("\ufeff").split("\n"), start=1))
    position = 0
    while position < len(lines):
        number, line = lines[position]
        position += 1
        fence = _FENCE.fullmatch(line.rstrip("\r"))
        if fence and not (fence["fence"][0] == "`" and "`" in fence["info"]):
            closing = re.compile(rf" {{0,3}}{re.escape(fence['fence'][0])}{{{len(fence['fence'])},}}[ \t]*\r?")
            end = next((at for at in range(position, len(lines)) if closing.fullmatch(lines[at][1])), None)
            blocks.append((number, fence["info"].strip(), None if end is None else lines[position:end]))
            position = len(lines) if end is None else end + 1
            continue
        closer = next((closer for opener, closer in _HTML if opener.match(line)), None)
        if closer is not None:
            at = position - 1
            while at < len(lines) and not closer.search(lines[at][1]):
                at += 1
            position = at + 1
    return blocks
