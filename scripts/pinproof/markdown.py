"""Markdown that reads well as plain text: tables and items that no text of a record breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tabulate import tabulate


def table(lines: Sequence[Sequence[Any]], heads: Sequence[str]) -> str:
    """A GitHub table."""
    cells = [[cell(value) for value in line] for line in lines]
    return tabulate(cells, [cell(head) for head in heads], tablefmt="github", disable_numparse=True)


def item(text: str) -> str:
    """An item of a list; what has several lines stays inside it."""
    return "- " + text.strip().replace("\n", "\n  ")


def cell(value: Any) -> str:
    """A text as a cell of a GitHub table: on one line, its pipes escaped."""
    return " ".join(str(value).split()).replace("|", "\\|")
