"""The report: Snakemake's own, of a verdict's pages and figures, in one file that needs no network."""

from __future__ import annotations

import sys
from pathlib import Path

from pinproof import commands, records
from pinproof.artifacts import Artifacts
from pinproof.claims import Startup
from pinproof.layout import Layout
from pinproof.reasons import Reason, Refusal

KINDS = ("reps", "noise", "machine")  # a figure of each for every row
STARTS = "starts"  # for rows that are starts
TITLES = {"reps": "reps", "noise": "noise band", "machine": "clock and load", STARTS: "start-up"}


def drawn(places: Layout) -> dict[str, list[tuple[str, Path]]]:
    """The figures of a case: kind -> row and file of each."""
    rows = places.case.rows
    found = {kind: [(row.id, Artifacts(places).figure(row.id, kind)) for row in rows] for kind in KINDS}
    starts = [row for row in rows if isinstance(row, Startup)]
    return found | {STARTS: [(row.id, Artifacts(places).figure(row.id, STARTS)) for row in starts]}


def make(places: Layout, target: Path, log: Path) -> None:
    """Let Snakemake write its report of everything that is there. Refusal REPORT_FAILED with its last lines.

    It is a call inside the call that made all that, which holds the lock; a report writes nothing else.
    """
    words = ["-s", places.root / "Snakefile", "--configfile", places.case_file, "--cores", "1"]
    with records.replacing(target) as temporary:
        html = temporary.with_suffix(".html")
        finished = commands.run(
            [sys.executable, "-m", "snakemake", *words, "--report", html, "--nolock", "figures"], log=log
        )
        if finished.status != 0 or not html.is_file():
            raise Refusal(Reason.REPORT_FAILED, f"snakemake {finished.ended}:\n{finished.tail}", file=log)
        html.replace(temporary)
