"""Evidence: whether what a leg says is borne out by its files and its row; no leg is believed for being there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinproof import leg, records, speculation, starts
from pinproof.claims import Row, Serving, Speculative, Startup
from pinproof.legbook import Legbook, LegId
from pinproof.reasons import Reason, Refusal
from pinproof.speculation import Counts


def check(row: Row, book: Legbook) -> None:
    """Refuse (RECORD_DAMAGED, RECORD_MISSING) legs that their files do not bear out; `row` is whose lives they are."""
    for one in book.legs:
        which = LegId(**one["id"])
        raw = book.path(which, ".raw.json")
        if not raw.is_file():
            raise Refusal(Reason.RECORD_MISSING, "a leg without the output of its client", file=raw)
        if book.originals.sha256(raw) != one.get("raw_sha256"):
            raise Refusal(Reason.RECORD_DAMAGED, "not the output that the leg was read from", file=raw)
        told = _start(row, one, book) if isinstance(row, Startup) else _served(row, one, raw)
        if told:
            raise Refusal(Reason.RECORD_DAMAGED, told, file=book.path(which, ".json"))


def _served(row: Serving, one: dict[str, Any], raw: Path) -> str | None:
    """What a leg under load says that the output of its client, or the row, does not bear out."""
    try:
        cell = next(cell for cell in row.cells if cell.id == one["id"]["cell"])
        asked = leg.Asked(cell.prompts, row.recipe.input_tokens, row.recipe.output_tokens)
        output = leg.read_raw(raw)
        metrics, found = leg.metrics(output), leg.objections(output, asked, one["counters"])
        if isinstance(row, Speculative):
            counts = Counts.from_record(one["speculation"])
            off = one["id"]["phase"] == "off"
            metrics |= {} if off else counts.metrics
            found += speculation.not_off(counts) if off else speculation.objections(row, counts, output)
        if one["asked"] != vars(asked):
            return f"it was asked for {one['asked']}, the row asks for {vars(asked)}"
        if records.canonical(one["metrics"]) != records.canonical(metrics):
            return "its metrics are not those of its client's output"
        if one["valid"] != (not one["objections"]):
            return "valid and objections contradict each other"
    except (KeyError, TypeError, StopIteration):
        return "not a whole leg of this row"
    return f"it counts although {found[0].message}" if found and one["valid"] else None


def _start(row: Startup, one: dict[str, Any], book: Legbook) -> str | None:
    """What a leg of a start says that the record of its life, its spans and its log do not bear out."""
    which = LegId(**one["id"])
    raw, log = book.path(which, ".raw.json"), book.path(which, ".log")
    try:
        if not log.is_file() or book.originals.sha256(log) != one["log_sha256"]:
            return "its log is not the one that it was read from"
        life = records.read(raw, "life")
        again = starts.leg(row, which.arm, life, book.path(which, starts.SPANS), log.read_text(errors="replace"))
        differing = [name for name, value in again.items() if records.digest(one[name]) != records.digest(value)]
    except (KeyError, TypeError):
        return "not a whole leg of this row"
    return f"its {', '.join(differing)} are not what its files say" if differing else None
