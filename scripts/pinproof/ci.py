"""What a CI asks of a verdict: an exit status, a JUnit report, and a comment that a pull request takes."""

from __future__ import annotations

import xml.etree.ElementTree as ET  # nosec B405 # it writes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinproof import overview
from pinproof.markdown import item

# 1 is what a call ends with that came to no verdict, 2 what a wrong command line ends with.
STATUS = {"HOLD": 0, "REVERT": 10, "UNDECIDED": 20}
COMMENT = 30_000  # characters; the narrowest of the common forges takes 32,768


def asked_for(file: Path, begun: float) -> int:
    """The exit status that a gate asked for since `begun` (seconds since the epoch); 0 when none did, or it held."""
    try:
        return int(file.read_text()) if file.stat().st_mtime >= begun else 0
    except FileNotFoundError:
        return 0


@dataclass(frozen=True)
class Checked:
    """A gate or a row; `against` and `open` are the causes that name it."""

    suite: str
    name: str
    against: tuple[Mapping[str, Any], ...]
    open: tuple[Mapping[str, Any], ...]


def tests(verdict: Mapping[str, Any]) -> list[Checked]:
    """Every gate, then every row; whatever else speaks against the pin or is open is a gate of its own."""
    found = dict.fromkeys(_gates(verdict), "gates") | dict.fromkeys(sorted(verdict["rows"]), "rows")
    for cause in (*verdict["against"], *verdict["open"]):
        found.setdefault(cause["subject"], "gates")

    def of(causes: list[Mapping[str, Any]], name: str) -> tuple[Mapping[str, Any], ...]:
        return tuple(cause for cause in causes if cause["subject"] == name)

    made = [
        Checked(suite, name, of(verdict["against"], name), of(verdict["open"], name)) for name, suite in found.items()
    ]
    return sorted(made, key=lambda test: test.suite)


def junit(verdict: Mapping[str, Any]) -> str:
    """JUnit XML: what speaks against the pin is a failure, what is open an error (nothing was shown)."""
    every = tests(verdict)
    root = ET.Element("testsuites", _counts(f"pinproof {verdict['case']}", every))
    for suite in ("gates", "rows"):
        chosen = [test for test in every if test.suite == suite]
        element = ET.SubElement(root, "testsuite", _counts(suite, chosen))
        for test in chosen:
            case = ET.SubElement(element, "testcase", {"classname": f"{verdict['case']}.{suite}", "name": test.name})
            _told(case, "failure", test.against)
            _told(case, "error", () if test.against else test.open)
            if row := verdict["rows"].get(test.name):
                ET.SubElement(case, "system-out").text = _xml("  ".join(map(str, overview.line(row))))
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def comment(verdict: Mapping[str, Any], limit: int = COMMENT) -> str:
    """Markdown of at most `limit` characters: the answer, why, and the rows, failures before passes.

    Lines that have no room are counted, passes first; the answer always stands.
    """
    rows = overview.ordered(verdict["rows"].values())
    head = f"## {verdict['verdict']}: {_line(verdict['question'])}\n\n{overview.counts(rows)}\n"
    causes = [
        item(f"**{cause['subject']}**: {cause['reason']} ({cause['owner']}'s failure). {_line(cause['needs'])}")
        for cause in (*verdict["against"], *verdict["open"])
    ]
    heading, rule, *lines = overview.of(rows).splitlines()
    kept = _fitting([line + "\n" for line in causes], limit // 2)
    left = limit - len(head) - sum(map(len, kept)) - len(heading) - len(rule) - 200
    table = _fitting([line + "\n" for line in lines], left)
    parts = [head, "".join(kept) + _more(len(causes) - len(kept), "causes")]
    if table:
        parts.append(f"{heading}\n{rule}\n{''.join(table)}")
    parts.append(_more(len(lines) - len(table), "rows"))
    return "\n".join(part for part in parts if part)[:limit]


def _gates(verdict: Mapping[str, Any]) -> Iterator[str]:
    """The subjects of the hard gates, as the verdict's causes name them."""
    yield from (f"identity of {arm}" for arm in sorted(verdict["arms"]))
    yield from (f"discharge {one['id']}" for one in verdict["discharges"])
    for row_id, row in sorted(verdict["rows"].items()):
        for gate in (row["warmup"] or {"gates": []})["gates"]:
            yield f"{row_id}: {gate['callable']} of {gate['arm']}"


def _counts(name: str, chosen: list[Checked]) -> dict[str, str]:
    failures = sum(bool(test.against) for test in chosen)
    errors = sum(bool(test.open and not test.against) for test in chosen)
    return {"name": name, "tests": str(len(chosen)), "failures": str(failures), "errors": str(errors), "skipped": "0"}


def _told(case: ET.Element, kind: str, causes: tuple[Mapping[str, Any], ...]) -> None:
    for cause in causes:
        text = f"{cause['reason']} ({cause['owner']}'s failure)"
        ET.SubElement(case, kind, {"type": cause["reason"], "message": text}).text = _xml(cause["needs"])


def _xml(text: str) -> str:
    """Text that XML 1.0 can hold: no control characters but white space."""
    return "".join(
        letter if letter >= " " or letter in "\n\t" else "?" for letter in text if letter not in "\ufffe\uffff"
    )


def _fitting(lines: list[str], room: int) -> list[str]:
    """The first lines that have room."""
    kept: list[str] = []
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return kept


def _line(text: str) -> str:
    return " ".join(text.split())


def _more(number: int, what: str) -> str:
    return f"… and {number} more {what}: see verdict.md.\n" if number else ""
