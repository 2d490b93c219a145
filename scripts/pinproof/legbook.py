"""The legs of a row on disk, and what they add up to: ratios, noise bands, a decision.

A leg is one file, written once and never changed. Pairs are put together here: a pair counts when
both of its legs do. A pair with one leg (an interruption came between) is kept and counts neither
way: legs that are not adjacent in time are not compared. Nor do pairs count that the row's recipe
discards, the first of every cell and series.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pinproof import decision, equivalence, measures, outcomes, records
from pinproof.claims import Row, Serving, Speculative, Warmup
from pinproof.originals import AS_THEY_ARE, Originals
from pinproof.reasons import Reason, Refusal

SCHEMA = "leg"
FIRST, SECOND = 1, 2  # series: a RED of the first must recur in the second

# The A/A band, what is judged, legs without speculation, and lives that fill caches.
Phase = Literal["noise", "rep", "off", "first"]
_ALONE = "first"  # is compared with nothing, so it is no half of a pair
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

    def prompts(self, row: Row) -> str:
        """The key of the leg's prompts in a row, which may give both legs of an A/A pair the same."""
        same = isinstance(row, Speculative) and row.noise_prompts == "same"
        return replace(self, position=0).corpus if same else self.corpus

    def as_record(self) -> dict[str, Any]:
        return dict(vars(self))


def damaged(folder: Path, named: Mapping[str, str] | None = None) -> list[str]:
    """Names of legs that cannot be trusted: not a whole record, or not with the output that it was read from.

    With `named` (content digests by name) also those that are gone or say something else.
    """
    whole: dict[str, str] = {}
    bad: set[str] = set()
    for path in sorted(folder.glob("s*.json")):
        if path.name.endswith(".raw.json"):
            continue
        try:
            record = records.read(path, SCHEMA)
            if LegId(**record["id"]).name == path.stem and _has_its_output(path, record):
                whole[path.stem] = records.content_digest(record)
                continue
        except (Refusal, KeyError, TypeError):
            pass
        bad.add(path.stem)
    return sorted(bad | {name for name, digest in (named or {}).items() if whole.get(name) != digest})


def _has_its_output(path: Path, record: Mapping[str, Any]) -> bool:
    """Whether the client's output is the one that a leg was read from; a start has none."""
    if "raw_sha256" not in record:
        return True
    raw = path.with_suffix(".raw.json")
    return raw.is_file() and records.file_sha256(raw) == record["raw_sha256"]


def set_aside(folder: Path, names: Iterable[str], aside: Path) -> None:
    """Move all files of these legs to `aside`."""
    for name in names:
        for path in sorted(folder.glob(f"{name}.*")):
            aside.mkdir(parents=True, exist_ok=True)
            path.rename(aside / path.name)


class Legbook:
    """All legs of one row."""

    def __init__(self, folder: Path, row: Row, originals: Originals = AS_THEY_ARE) -> None:
        self._folder = folder
        self._row = row
        self.originals = originals
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

    def of(self, row: Row) -> Legbook:
        """The same legs, as another row looks at them: a warm-up row at the lives of its start-up row."""
        if row is self._row:
            return self
        other = Legbook.__new__(Legbook)
        other._folder, other._row, other._legs, other.originals = self._folder, row, self._legs, self.originals
        return other

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
        return {
            name: self.originals.content(self._folder / f"{name}.json", self._legs[name]) for name in sorted(self._legs)
        }

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
        return [pair for pair in self._counted(series, phase, cell) if all(one["valid"] for one in pair.values())]

    def invalid(self, series: int, phase: Phase, cell: str) -> int:
        """Number of whole pairs that do not count."""
        return len(self._counted(series, phase, cell)) - len(self.valid(series, phase, cell))

    def discarded(self, series: int, phase: Phase, cell: str) -> list[Pair]:
        """Pairs that were run first and are not counted, as the row's recipe says."""
        return self._whole(series, phase, cell)[: self._discard(phase)]

    def next_index(self, series: int, phase: Phase, cell: str) -> int:
        """Index of the next attempt; an interrupted one is not gone back to."""
        return max(self.pairs(series, phase, cell), default=-1) + 1

    def _counted(self, series: int, phase: Phase, cell: str) -> list[Pair]:
        return self._whole(series, phase, cell)[self._discard(phase) :]

    def _discard(self, phase: Phase) -> int:
        return self._row.discard_first if isinstance(self._row, Serving) and phase in ("noise", "rep") else 0

    def _whole(self, series: int, phase: Phase, cell: str) -> list[Pair]:
        return [pair for pair in self.pairs(series, phase, cell).values() if len(pair) == 2]

    def set_aside_interrupted(self, folder: Path) -> None:
        """Move legs whose pair was interrupted to `folder`: they are kept, and their place is taken again."""
        lone = [one for one in self._legs.values() if not self._pair_is_whole(one["id"])]
        names = [LegId(**record["id"]).name for record in lone]
        set_aside(self._folder, names, folder)
        for name in names:
            del self._legs[name]

    def _pair_is_whole(self, which: Mapping[str, Any]) -> bool:
        pairs = self.pairs(which["series"], which["phase"], which["cell"])
        return which["phase"] == _ALONE or len(pairs[which["index"]]) == 2

    def noise(self) -> dict[str, dict[str, equivalence.NoiseBand | None]]:
        """The A/A bands by cell and metric. They belong to the first series and serve the second too."""
        return {
            cell.id: {
                metric.name: equivalence.NoiseBand.from_ratios(
                    [
                        measures.better(metric.name, self.value(pair[0], metric.name), self.value(pair[1], metric.name))
                        for pair in self.valid(FIRST, "noise", cell.id)
                    ],
                    measures.MEASURES[metric.name].scale,
                )
                for metric in self._row.metrics
            }
            for cell in self._row.cells
        }

    def ratios(self, series: int, cell: str, metric: str) -> list[float | None]:
        """Times better (points better, for a share), one a valid rep, in order."""
        return [self._ratio(pair, metric) for pair in self.valid(series, "rep", cell)]

    def _ratio(self, pair: Pair, metric: str) -> float | None:
        values = {one["id"]["arm"]: self.value(one, metric) for one in pair.values()}
        return measures.better(metric, values[self._row.numerator], values[self._row.denominator])

    def value(self, record: Mapping[str, Any], metric: str) -> float | None:
        """A metric of one leg; for a warm-up row, its share of that life's start."""
        if isinstance(self._row, Warmup):
            return outcomes.share(record, self._row.callables)
        return record["metrics"][metric]

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
