"""The parts of a verdict's page about what was published, argued away, and left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pinproof.markdown import item, table
from pinproof.measures import MEASURES


def of(verdict: Mapping[str, Any]) -> Iterator[str]:
    """The parts that this verdict has."""
    yield from _baselines(verdict["baselines"])
    yield from _discharges(verdict["discharges"])
    if verdict["not_owed"]:
        yield "## Not owed here"
        yield "This verdict says nothing about what follows, neither for it nor against it."
        yield "\n".join(item(f"**{one['what']}**: {one['why']}") for one in verdict["not_owed"])


def _baselines(rows: Mapping[str, Any]) -> Iterator[str]:
    if not rows:
        return
    yield "## Baselines, as published"
    lines = [_line(name, row["published"]) for name, row in rows.items()]
    yield table(lines, ["row", "pin", "device", "date", "cited at"])
    if absolutes := [line for name, row in rows.items() for line in _absolutes(name, row["published"])]:
        yield table(absolutes, ["row", "cell", "metric", "numerator", "denominator", "unit"])
    if moved := [_citation(one) for row in rows.values() for one in row["citations"] if one["state"] != "there"]:
        yield "Citations that are not where the case says:\n\n" + "\n".join(moved)
    if remarks := [item(f"{name}: {text}") for name, row in rows.items() for text in row["remarks"]]:
        yield "What the record itself leaves open:\n\n" + "\n".join(remarks)
    if beside := [line for name, row in rows.items() for line in _beside(name, row["published"])]:
        yield table(beside, ["row", "published beside", "figure", "why it is not gated"])


def _line(name: str, published: Mapping[str, Any] | None) -> list[str]:
    if published is None:
        return [name, *["not recorded"] * 3, "nowhere"]
    known = [published[key] or "not recorded" for key in ("pin", "device", "date")]
    cited = ", ".join(f"{one['file']}:{one['line']}" for one in published["cited"])
    return [name, *known, cited or "nowhere"]


def _absolutes(name: str, published: Mapping[str, Any] | None) -> Iterator[list[str]]:
    for one in published["absolutes"] if published else ():
        measure = MEASURES.get(one["metric"])
        title = measure.title if measure else one["metric"]
        cell = f"{one['cell']}, {one['what']}" if one["what"] else one["cell"]
        yield [name, cell, title, f"{one['numerator']:g}", f"{one['denominator']:g}", one["unit"] or "not recorded"]


def _beside(name: str, published: Mapping[str, Any] | None) -> Iterator[list[str]]:
    for one in published["beside"] if published else ():
        yield [name, one["what"], one["figure"], one["why"]]


def _citation(one: Mapping[str, Any]) -> str:
    return item(f"{one['row']}: {one['file']}:{one['line']}, {one['quote']!r}: {one['state'].upper()}, {one['text']}")


def _discharges(found: list[Mapping[str, Any]]) -> Iterator[str]:
    if not found:
        return
    yield "## Discharges"
    for one in found:
        yield f"**{one['id']}: {one['state'].upper()}.** {one['argument']}"
        answers = {True: "agrees", False: "disagrees", None: "unknown"}
        lines = [
            [each["subject"], each["found"] or "unknown", each["wanted"], answers[each["holds"]]]
            for each in one["witnesses"]
        ]
        yield table(lines, ["witness", "found", "wanted", ""])
