"""Citations: whether the figures that a baseline names still stand where it says, and what its record lacks.

The pages are someone else's files: any size, any bytes, any links. What cannot be read is not there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pinproof import records
from pinproof.baselines import Citation, Published
from pinproof.case import Case
from pinproof.claims import Row, Warmup, baseline_of
from pinproof.pin import Pin
from pinproof.reasons import Reason

LARGEST = 16 * 1024 * 1024  # bytes of a page; nothing of this size is read by people
_NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?")


class State(StrEnum):
    """What became of a citation."""

    THERE = "there"
    MOVED = "moved"
    AMBIGUOUS = "ambiguous"  # not on its line, and on several others
    GONE = "gone"
    UNKNOWN = "unknown"  # no pages were given


@dataclass(frozen=True)
class Checked:
    """One citation of a row, and where its quote was found."""

    row: str
    citation: Citation
    state: State
    lines: tuple[int, ...]
    text: str

    def as_record(self) -> dict[str, Any]:
        """As JSON values."""
        cited = self.citation.model_dump()
        return {"row": self.row, **cited, "state": str(self.state), "found": list(self.lines), "text": self.text}


@dataclass(frozen=True)
class Remark:
    """What the record behind a row's baselines lacks, or is about something else than the row."""

    row: str
    text: str

    def as_record(self) -> dict[str, str]:
        """As JSON values."""
        return dict(vars(self))


def wanted(case: Case) -> bool:
    """Whether the case names anything published."""
    return any(row.published or baselines_of(row) for row in case.rows)


def cited_files(case: Case, root: Path) -> list[str]:
    """The pages that the case's baselines cite and that are there, as the case names them, each once, sorted."""
    if case.pages is None:
        return []
    files = {str(Path(case.pages, citation.file)) for row in case.rows for citation in _cited(row)}
    return sorted(file for file in files if (root / file).is_file())


def check(case: Case, root: Path) -> list[Checked]:
    """Every citation of the case, in the order of its rows. `root` is what `pages` is relative to."""
    folder = None if case.pages is None else root / case.pages
    return [_checked(row.id, citation, folder) for row in case.rows for citation in _cited(row)]


def body(case: Case, root: Path, pin: Pin | None) -> dict[str, Any]:
    """The body of citations.json: the citations, the bytes that were looked at, and what the records lack."""
    return {
        "citations": [one.as_record() for one in check(case, root)],
        "pages": {_name(case, file): records.file_sha256(root / file) for file in cited_files(case, root)},
        "remarks": [one.as_record() for one in remarks(case, pin)],
    }


def foreseen(case: Case, root: Path, pin: Pin | None) -> Iterator[tuple[str, str, str, Reason | None]]:
    """What a preflight says of the baselines: subject, state (ready, blocks, unknown), text, reason.

    A baseline whose figure is gone blocks: no lease is spent on a row that could not be judged.
    """
    states = {State.THERE: "ready", State.GONE: "blocks"}
    for one in check(case, root):
        state = states.get(one.state, "unknown")
        text = f"{one.citation.place}, {one.citation.quote!r}: {one.state}" + (f", {one.text}" if one.text else "")
        yield f"row {one.row}, citation", state, text, Reason.CITATION_GONE if state == "blocks" else None
    for remark in remarks(case, pin):
        yield f"row {remark.row}, baseline", "unknown", remark.text, None


def find(text: str, quote: str) -> tuple[int, ...]:
    """Numbers of the lines, from 1, that hold the quote."""
    wanted = _plain(quote)
    before = r"(?<![0-9])(?<![0-9][.,])" if wanted[:1].isdigit() else ""
    after = r"(?![0-9])(?![.,][0-9])" if wanted[-1:].isdigit() else ""
    pattern = re.compile(before + re.escape(wanted) + after)
    return tuple(number for number, line in enumerate(text.split("\n"), start=1) if pattern.search(_plain(line)))


def remarks(case: Case, pin: Pin | None) -> list[Remark]:
    """What stands against the baselines of every row; `pin` is the one that they are said to be of."""
    return [Remark(row.id, text) for row in case.rows for text in _remarks(case, row, pin)]


def _remarks(case: Case, row: Row, pin: Pin | None) -> Iterator[str]:
    baselines, published = baselines_of(row), row.published
    if published is None:
        if baselines:
            yield "its baselines are not cited: nothing says where they come from"
        return
    yield from published.remarks
    quoted = [number for citation in published.cited for number in numbers(citation.quote)]
    quoted += _ratios(published)
    for (cell, metric), ratio in baselines.items():
        if not any(math.isclose(ratio, number, rel_tol=1e-9) for number in quoted):
            yield f"no citation holds the figure {ratio:g} ({cell}, {metric})"
        if case.tie_band is not None and 0 < abs(ratio - 1) < case.tie_band:
            yield f"{ratio:g} ({cell}, {metric}) lies inside what is called a tie ({100 * case.tie_band:g} %)"
    if not published.cited:
        yield "no page is cited"
    if not baselines and not published.absolutes:
        yield "no figure is published"
    elif not published.absolutes:
        yield "no absolutes are kept: a ratio that moves cannot be split by arm"
    for one in published.absolutes:
        if one.unit is None:
            yield f"no unit is published for {one.cell}, {one.metric}: {one.numerator:g} and {one.denominator:g}"
    yield from _provenance(case, published, pin)


def _provenance(case: Case, published: Published, pin: Pin | None) -> Iterator[str]:
    if published.pin is None:
        yield "the pin that the baselines were measured at is not recorded"
    elif pin is not None and not _is_pin(published.pin, pin):
        yield f"the baselines were measured at {published.pin}, not at the pin {_short(pin)}"
    if published.device is None:
        yield "the device of the baselines is not recorded"
    elif case.device.name is not None and published.device != case.device.name:
        yield f"the baselines were measured on {published.device}, the case is about {case.device.name}"
    if published.date is None:
        yield "the date of the baselines is not recorded"


def baselines_of(row: Row) -> Mapping[tuple[str, str], float]:
    """The published ratios of a row by cell and metric; a ratio of 1 that nobody stated is none."""
    if isinstance(row, Warmup) and (row.change is None or "baseline_points" not in row.change.model_fields_set):
        return {}
    found = {}
    for cell in row.cells:
        for metric in row.metrics:
            ratio = baseline_of(metric, cell.id)
            if ratio is not None and {"baseline", "baselines"} & metric.model_fields_set:
                found[cell.id, metric.name] = ratio
    return found


def numbers(text: str) -> list[float]:
    """The numbers in a text; a comma between digits groups thousands."""
    found = []
    for word in _NUMBER.findall(text):
        try:
            found.append(float(word.replace(",", "")))
        except ValueError:  # 1.2.3 is a version
            continue
    return found


def _ratios(published: Published) -> list[float]:
    """Ratios that published absolutes give, to the digits of a baseline."""
    pairs = [(one.numerator, one.denominator) for one in published.absolutes]
    return [round(first / second, digits) for a, b in pairs for first, second in ((a, b), (b, a)) for digits in (2, 3)]


def _is_pin(recorded: str, pin: Pin) -> bool:
    commit = pin.vllm_commit or ""
    return recorded in pin.fields.values() or (len(recorded) >= 10 and commit.startswith(recorded))


def _short(pin: Pin) -> str:
    return (pin.vllm_commit or pin.vllm_runtime_version)[:10]


def _cited(row: Row) -> Sequence[Citation]:
    return row.published.cited if row.published else ()


def _checked(row: str, citation: Citation, folder: Path | None) -> Checked:
    if folder is None:
        return Checked(row, citation, State.UNKNOWN, (), "the case names no folder of pages")
    text, problem = _read(folder, citation.file)
    if text is None:
        return Checked(row, citation, State.GONE, (), problem)
    lines = find(text, citation.quote)
    if citation.line in lines:
        return Checked(row, citation, State.THERE, lines, "")
    if not lines:
        return Checked(row, citation, State.GONE, (), "no line of the page holds it")
    where = ", ".join(map(str, lines[:10]))
    if len(lines) == 1:
        return Checked(row, citation, State.MOVED, lines, f"now on line {where}")
    return Checked(row, citation, State.AMBIGUOUS, lines, f"not on its line, but on lines {where}")


def _read(folder: Path, file: str) -> tuple[str | None, str]:
    """The text of a page, or why there is none."""
    path = folder / file
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            return None, "the page is a link that leads out of the folder of pages"
        if not path.is_file():
            return None, "there is no such page"
        if (size := path.stat().st_size) > LARGEST:
            return None, f"the page is too large to be one ({size} bytes)"
        return path.read_bytes().decode("utf-8", errors="replace"), ""
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links that lead to each other
        return None, f"the page cannot be read: {getattr(error, 'strerror', None) or error}"


def _plain(text: str) -> str:
    """A line without marks of emphasis and code, its white space as single blanks."""
    return " ".join(re.sub(r"[*`]", "", text).split())


def _name(case: Case, file: str) -> str:
    return Path(file).relative_to(case.pages or "").as_posix()
