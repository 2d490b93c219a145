"""The history of a pin's block: which commit of the user's repository made it what it is.

git is only asked; nothing in the repository changes, and none of its hooks or settings run.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pinproof import pin as pins
from pinproof.pin import Pin
from pinproof.reasons import Reason, Refusal

_SETTINGS = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false"),
    *("-c", "safe.directory=*"),
)
_MOST = 2000  # commits of one page


@dataclass(frozen=True)
class Page:
    """A Markdown page in a Git checkout."""

    root: Path  # of the checkout
    path: str  # of the page below it


@dataclass(frozen=True)
class Advance:
    """The change of the block from `before` to what the page says now.

    `commit` is None when it is not committed yet; `when` is its author date, `subject` its first line.
    """

    before: Pin
    commit: str | None
    when: str | None
    subject: str | None

    @property
    def words(self) -> str:
        """The advance in words."""
        return f"{self.commit} of {self.when} ({self.subject})" if self.commit else "a change that is not committed yet"


def page(file: Path) -> Page:
    """Where a page lies in its checkout. Refusal PIN_INVALID when it lies in none."""
    folder = file.resolve().parent
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None:
        raise Refusal(Reason.PIN_INVALID, "is in no Git checkout, so no patch of it can be written", file=file)
    return Page(Path(root), file.resolve().relative_to(Path(root).resolve()).as_posix())


def advance(file: Path) -> Advance:
    """The last change of the block of a page. Refusal PIN_INVALID when its history holds no other block."""
    where, now = page(file), pins.read_pin(file)
    made: tuple[str, str, str] | None = None
    for commit, when, subject in _commits(where):
        block = _block(where, commit)
        if block is None:
            continue
        if block.fields != now.fields:
            return Advance(block, *(made or (None, None, None)))
        made = (commit, when, subject)
    raise Refusal(Reason.PIN_INVALID, "its history holds no other block than the one that it has now", file=file)


def _commits(where: Page) -> list[tuple[str, str, str]]:
    """Commit, author date and subject of every change of the page, the newest first."""
    shown = _git(where.root, "log", f"--max-count={_MOST}", "-z", "--format=%H%x09%as%x09%s", "--", where.path) or ""
    return [tuple(entry.split("\t", 2)) for entry in shown.split("\0") if entry.count("\t") >= 2]


def _block(where: Page, commit: str) -> Pin | None:
    """The block of the page at a commit; None when there was none that can be read."""
    text = _git(where.root, "show", f"{commit}:{where.path}")
    try:
        return None if text is None else pins.parse_pin(text)
    except Refusal:
        return None


def _git(folder: Path, *words: str) -> str | None:
    """What git prints, without the last line break; None when it refuses."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *_SETTINGS, *words], cwd=folder, env=kept | quiet, capture_output=True, check=False
        )
    except OSError as error:
        raise Refusal(Reason.PIN_INVALID, f"git cannot be started: {error.strerror}", file=folder) from None
    return done.stdout.decode("utf-8", errors="replace").rstrip("\n") if done.returncode == 0 else None
