"""Patches of a pin's block, for `git apply` in the user's repository: written, never applied."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

from pinproof import history
from pinproof import pin as pins
from pinproof.pin import Pin
from pinproof.reasons import Reason, Refusal


def revert(file: Path, previous: Path | None) -> str:
    """A patch that takes the pin of a page back, with the advance that it takes back named above it.

    The block goes back to that of the file `previous`; without one, to what it was before its last
    change. Refusals: PIN_INVALID when there is nothing to go back to, or no checkout.
    """
    now, where = pins.read_pin(file), history.page(file)
    before, told = _before(file, previous)
    if before.fields == now.fields:
        raise Refusal(Reason.PIN_INVALID, "already declares what it would be taken back to", file=file)
    text = restated(now, before.fields)
    if pins.parse_pin(text).fields != before.fields:
        raise Refusal(Reason.PIN_INVALID, "its block cannot be rewritten line by line", file=file)
    return (
        f"Revert of the pin in {where.path}: from {now.vllm_runtime_version} back to {before.vllm_runtime_version}.\n\n"
        f"{told}\n\n{_changes(now, before.fields)}\n"
        "This patch changes the block alone; what else the advance changed is not in it. pinproof wrote\n"
        "it and does not apply it (git apply FILE, in the root of the repository).\n\n"
        f"{diff(now.text, text, where.path)}"
    )


def _before(file: Path, previous: Path | None) -> tuple[Pin, str]:
    """The block to go back to, and the advance that is taken back, in words."""
    try:
        made = history.advance(file)
    except Refusal:
        if previous is None:
            raise
        made = None
    if previous is None:
        return made.before, f"It takes back the advance {made.words}."
    before = pins.read_pin(previous)
    if made is not None and made.before.fields == before.fields:
        return before, f"It takes back the advance {made.words}."
    if made is None:
        return before, f"It goes back to the block of {previous.name}; no commit of the page made this advance."
    return before, (
        f"It goes back to the block of {previous.name}. The last change of the page's block, {made.words},\n"
        f"was another: before it the block said {made.before.vllm_runtime_version}."
    )


def restated(pin: Pin, fields: Mapping[str, str]) -> str:
    """The page's text with exactly these fields declared, every other byte as it was."""
    text = pins.replaced(pin, {name: value for name, value in fields.items() if name in pin.lines})
    lines = text.split("\n")
    last = max(pin.lines.values()) - 1
    ending = "\r" if lines[last].endswith("\r") else ""
    lines[last + 1 : last + 1] = [
        f"{name} = {value}{ending}" for name, value in fields.items() if name not in pin.lines
    ]
    gone = {number - 1 for name, number in pin.lines.items() if name not in fields}
    return "\n".join(line for at, line in enumerate(lines) if at not in gone)


def diff(before: str, after: str, path: str) -> str:
    """A unified diff of one file; `path` is its place below the root of the repository."""
    mark = "\t" if " " in path else ""
    old, new = (re.findall(r"[^\n]*\n|[^\n]+\Z", text) for text in (before, after))
    changed = difflib.unified_diff(old, new, f"a/{path}{mark}", f"b/{path}{mark}", lineterm="\n")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in changed)


def _changes(now: Pin, fields: Mapping[str, str]) -> str:
    names = dict.fromkeys([*now.fields, *fields])
    pairs = [(name, now.fields.get(name, "-"), fields.get(name, "-")) for name in names]
    return "".join(f"  {name}: {old} -> {new}\n" for name, old, new in pairs if old != new)
