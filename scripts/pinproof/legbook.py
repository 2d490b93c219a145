"""The legs of a row on disk, and what they add up to: ratios, noise bands, a decision.

A leg is one file, written once and never changed. Pairs are put together here: a pair counts when
both of its legs do. A pair with one leg (an interruption came between) is kept and counts neither
way: legs that are not adjacent in time are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pinproof import decision, equivalence, leg, records
from pinproof.claims import Row
from pinproof.reasons import Reason, Refusal

SCHEMA = "leg"
FIRST, SECOND = 1, 2  # series: a RED of the first must recur in the second

Phase = Literal["noise", "rep"]
Pair = dict[int, dict]  # position in time (0, 1) -> leg


@dataclass(frozen=True)
class LegId:
    """Which leg: of which series, for the A/A band or a rep, at which cell, which attempt, first or second."""

    series: int
    phase: Phase
    cell: str
    index: int
    position: int
    arm: str

    @property
    def name(self) -> str:
        """The leg's file name without its ending."""
        return f"s{self.series}-{self.phase}-{self.cell}-{self.index:02d}-{self.position}-{self.arm}"

    @property
    def corpus(self) -> str:
        """The key of the leg's prompts. Both arms of a rep get the same; the legs of an A/A pair,
        which one server answers, get prompts of their own."""
        own = f"-{self.position}" if self.phase == "noise" else ""
        return f"s{self.series}-{self.phase}-{self.cell}-{self.index:02d}{own}"

    def as_record(self) -> dict[str, Any]:
        return dict(vars(self))


class Legbook:
    """All legs of one row."""

    def __init__(self, folder: Path, row: Row) -> None:
        self._folder = folder
        self._row = row
        self._legs = dict(self._read())

    def _read(self) -> Iterable[tuple[str, dict]]:
        for path in sorted(self._folder.glob("s*.json")):
            if not path.name.endswith(".raw.json"):
                record = records.read(path, SCHEMA)
                try:
                    own = LegId(**record["id"]).name
                except (KeyError, TypeError):
                    raise Refusal(Reason.RECORD_DAMAGED, "not a whole leg", file=path) from None
                if own != path.stem:
                    raise Refusal(Reason.RECORD_FOREIGN, f"this is the leg {own}", file=path)
                yield path.stem, record

    def path(self, leg_id: LegId, ending: str) -> Path:
        """A file of a leg: `.json` its record, `.raw.json` the client's output, `.log` the server's window."""
        return self._folder / f"{leg_id.name}{ending}"

    def add(self, leg_id: LegId, body: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict:
        """Write a leg's record and count it."""
        record = records.write(
            self.path(leg_id, ".json"), SCHEMA, {"id": leg_id.as_record(), **body}, provenance=provenance
        )
        self._legs[leg_id.name] = record
        return record

    @property
    def legs(self) -> list[dict]:
        """Every leg's record, in the order of names."""
        return [self._legs[name] for name in sorted(self._legs)]

    def digests(self) -> dict[str, str]:
        """Content digest of every leg, by name."""
        return {name: records.content_digest(self._legs[name]) for name in sorted(self._legs)}

    def pairs(self, series: int, phase: Phase, cell: str) -> dict[int, Pair]:
        """Attempts at pairs by index; one with a single leg was interrupted."""
        found: dict[int, Pair] = {}
        for record in self._legs.values():
            which = record["id"]
            if (which["series"], which["phase"], which["cell"]) == (series, phase, cell):
                found.setdefault(which["index"], {})[which["position"]] = record
        return dict(sorted(found.items()))

    def valid(self, series: int, phase: Phase, cell: str) -> list[Pair]:
        """Pairs that count, in the order of their attempts."""
        whole = self._whole(series, phase, cell)
        return [pair for pair in whole if all(one["valid"] for one in pair.values())]

    def invalid(self, series: int, phase: Phase, cell: str) -> int:
        """Number of whole pairs that do not count."""
        return len(self._whole(series, phase, cell)) - len(self.valid(series, phase, cell))

    def next_index(self, series: int, phase: Phase, cell: str) -> int:
        """Index of the next attempt; an interrupted one is not gone back to."""
        return max(self.pairs(series, phase, cell), default=-1) + 1

    def _whole(self, series: int, phase: Phase, cell: str) -> list[Pair]:
        return [pair for pair in self.pairs(series, phase, cell).values() if len(pair) == 2]

    def set_aside_interrupted(self, folder: Path) -> None:
        """Move legs whose pair was interrupted to `folder`: they are kept, and their place is taken again."""
        lone = [one for one in self._legs.values() if not self._pair_is_whole(one["id"])]
        for record in lone:
            which = LegId(**record["id"])
            folder.mkdir(parents=True, exist_ok=True)
            for ending in (".raw.json", ".log", ".json"):
                if (path := self.path(which, ending)).exists():
                    path.rename(folder / path.name)
            del self._legs[which.name]

    def _pair_is_whole(self, which: Mapping[str, Any]) -> bool:
        return len(self.pairs(which["series"], which["phase"], which["cell"])[which["index"]]) == 2

    def noise(self) -> dict[str, dict[str, equivalence.NoiseBand | None]]:
        """The A/A bands by cell and metric. They belong to the first series and serve the second too."""
        return {
            cell.id: {
                metric.name: equivalence.NoiseBand.from_ratios(
                    [
                        leg.ratio(metric.name, pair[0]["metrics"][metric.name], pair[1]["metrics"][metric.name])
                        for pair in self.valid(FIRST, "noise", cell.id)
                    ]
                )
                for metric in self._row.metrics
            }
            for cell in self._row.cells
        }

    def ratios(self, series: int, cell: str, metric: str) -> list[float | None]:
        """Times better, one a valid rep, in order."""
        return [self._ratio(pair, metric) for pair in self.valid(series, "rep", cell)]

    def _ratio(self, pair: Pair, metric: str) -> float | None:
        values = {one["id"]["arm"]: one["metrics"][metric] for one in pair.values()}
        return leg.ratio(metric, values[self._row.numerator], values[self._row.denominator])

    def cells(self, series: int) -> dict[str, decision.CellSeries]:
        """What the decision takes of one series."""
        noise = self.noise()
        return {
            cell.id: decision.CellSeries(
                ratios={metric.name: self.ratios(series, cell.id, metric.name) for metric in self._row.metrics},
                noise=noise[cell.id],
                invalid_reps=self.invalid(series, "rep", cell.id),
            )
            for cell in self._row.cells
        }

    def has(self, series: int) -> bool:
        """Whether a rep of the series was begun."""
        return any(
            record["id"]["series"] == series and record["id"]["phase"] == "rep" for record in self._legs.values()
        )

    def decide(self, plan: equivalence.Plan) -> decision.RowDecision:
        """Judge the row by all legs so far.

        A second series is asked only about a RED of the first: under a plan that was changed after
        the data there may be none.
        """
        first = self.cells(FIRST)
        asked = self.has(SECOND) and decision.decide_series(plan, first).outcome is equivalence.Outcome.RED
        return decision.decide(plan, first, self.cells(SECOND) if asked else None)
