"""The series of a row: legs in their order under one lease, until the decision needs no more.

Legs already on disk count if they were taken in this boot, so that an interrupted series goes on at
its next rep. A RED of the first series is followed by a second: new lease, new server lives, fresh
caches.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pinproof import bench, corpus, decision, device, equivalence, lease, plan, processes, records
from pinproof.layout import Layout, RowPlace
from pinproof.legbook import FIRST, SECOND, Legbook, LegId
from pinproof.reasons import Reason, Refusal

Say = Callable[[str], None]


def measure(places: Layout, row_id: str, say: Say) -> dict[str, Any]:
    """Measure a row as far as its plan asks for, and return the body of series.json.

    A refusal ends the attempt: it is kept under attempts/ with the logs, and the body says
    `failed` with its reason. Nothing that was measured before is lost.
    """
    place = places.row(row_id)
    asked = asked_for(place, places.case.decision.noise_pairs)
    attempt = _attempt_folder(place)
    try:
        _Measuring(places, place, attempt, say).run()
    except Refusal as refusal:
        say(f"failed: {refusal}")
        failure = refusal.as_record()
        records.write(attempt / "failed.json", "attempt", {"failure": failure})
    else:
        failure = None
    return {**_body(places, place, failure), "asked_for": asked}


def failed_attempts(place: RowPlace) -> int:
    """Number of attempts at a row that failed; each makes the next call try again."""
    return len(list(place.attempts.glob("*/failed.json")))


def asked_for(place: RowPlace, noise_pairs: int) -> str:
    """What makes the next call measure on although nothing else changed: a result that stays open
    and wants more reps under the plan that it was decided under, or an A/A band of fewer pairs than the
    plan says. Once they are there it stays the same.
    """
    try:
        found = records.read(place.result, "row")
    except Refusal:
        found = None
    if found and found["measured"]["digest"] == place.folder.name and (look := found["decision"]["next_look"]):
        return f"{found['plan']['decided_under'][:16]}:{look}"
    try:
        before = records.read(place.series, "series").get("asked_for", "")
        bands = [band for cell in records.read(place.noise, "noise")["cells"].values() for band in cell.values()]
    except Refusal:
        return ""
    few = [band for band in bands if band and band["pairs"] < noise_pairs]
    return f"{noise_pairs} A/A pairs" if few else before


def _attempt_folder(place: RowPlace) -> Path:
    number = sum(1 for _ in place.attempts.glob("*")) if place.attempts.exists() else 0
    folder = place.attempts / f"{number:03d}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _body(places: Layout, place: RowPlace, failure: dict | None) -> dict[str, Any]:
    book = Legbook(place.legs, place.row)
    noise = {
        cell: {name: band and {"sd": decision.rounded(band.sd), "pairs": band.pairs} for name, band in bands.items()}
        for cell, bands in book.noise().items()
    }
    records.write(place.noise, "noise", {"cells": noise, "arm": place.row.denominator})
    return {
        "row": place.row.id,
        "outcome": "failed" if failure else "measured",
        "failure": failure,
        "plan_digest": records.content_digest(records.read(place.plan, "plan")) if place.plan.exists() else None,
        "legs": book.digests(),
        "failed_attempts": failed_attempts(place),
    }


@dataclass
class _Measuring:
    """One attempt at a row."""

    places: Layout
    place: RowPlace
    attempt: Path
    say: Say

    def run(self) -> None:
        case, row = self.places.case, self.place.row
        self._require_gates()
        self.plan = plan.of(case, row)
        self._set_aside_other_boots()
        self.book = Legbook(self.place.legs, row)
        self.book.set_aside_interrupted(self.attempt / "interrupted")
        if not self.book.legs:  # before data; a plan that no leg was taken under is no plan yet
            records.write(self.place.plan, "plan", plan.body(case, self.place))
        self._write_corpus()
        for series in (FIRST, SECOND):
            if self._needs(series):
                self._run_series(series)

    def _require_gates(self) -> None:
        """No lease for engines that are not what their pins declare."""
        for arm in self._arms():
            gate = records.read(self.places.gate(arm), "gate")
            if gate["outcome"] != "pass":
                row = next(row for row in gate["rows"] if row["reason"])
                read = f"{row['field']} declared {row['declared']}, read {row['measured']}"
                text = f"identity of {arm}: {read}: {row['text']}"
                raise Refusal(Reason.from_code(row["reason"]), text, file=self.places.gate(arm))

    def _needs(self, series: int) -> bool:
        if series == FIRST:
            return self._noise_missing() or self.book.decide(self.plan).next_look is not None
        judged = self.book.decide(self.plan)
        first_red = judged.first.outcome is equivalence.Outcome.RED
        return first_red and (judged.second is None or judged.next_look is not None)

    def _run_series(self, series: int) -> None:
        folder = self.attempt / f"series{series}"
        run = f"{self.places.case.case}.{self.place.row.id}.{uuid.uuid4().hex[:8]}"
        who = lease.Who(case=self.places.case.case, row=self.place.row.id)
        with lease.held(lease.device_lock(self.places.case.device.kind), who, bench.every(10, self._waiting)) as held:
            self.say(f"series {series}: lease taken; starting {' and '.join(self._arms())}")
            self._probe(run)
            with bench.up(self.places, self.place, run, folder, self.say) as self.bench:
                bench.warm_up(self.bench, self.place, folder, self.say)
                self._progress = _Progress(self.say, held.progress)
                if series == FIRST:
                    self._run_noise()
                self._run_reps(series)

    def _probe(self, run: str) -> None:
        """The first seconds of a lease: is it the device, and is it ours alone?

        What an earlier run left behind when it was killed is ours: it is reported, then ended. A
        process of a run that cannot be looked up is reported only: that run may be alive.
        """
        left = [one for one in processes.survivors(run) if not one.owner_alive]
        if unknown := [one for one in left if one.owner_alive is None]:
            text = "; ".join(f"pid {one.pid} ({one.marker})" for one in unknown)
            raise Refusal(Reason.SURVIVORS, f"processes of a run that left no record here: {text}")
        for marker in sorted({one.marker for one in left}):
            pids = ", ".join(str(one.pid) for one in left if one.marker == marker)
            self.say(f"an earlier run was killed and left {marker} behind (pids {pids}): ending it")
            try:
                teardown = processes.end(marker, bench.GRACE_S)
            except psutil.AccessDenied:
                raise Refusal(Reason.SURVIVORS, f"processes of another account's run: {pids} ({marker})") from None
            if not teardown.empty:
                raise Refusal(Reason.SURVIVORS, f"processes of an earlier run could not be ended: {teardown.left}")
        recorded = records.read(self.places.device, "device")
        declared = self.places.case.device.declared
        facts = device.identify(declared["kind"])
        device.require(declared, facts)
        if found := device.differences(recorded["identity"], facts.identity, ("recorded", "here")):
            raise Refusal(Reason.DEVICE_OTHER, "; ".join(found), file=self.places.device)

    def _run_noise(self) -> None:
        """The A/A band: pairs of one arm against itself, in the same lease."""
        wanted = self.places.case.decision.noise_pairs
        for _ in range(self._most_pairs(wanted)):
            for cell in self.place.row.cells:
                if len(self.book.valid(FIRST, "noise", cell.id)) < wanted:
                    self._run_pair(FIRST, "noise", cell.id, (self.place.row.denominator,) * 2, wanted)
            if not self._noise_missing():
                return

    def _noise_missing(self) -> bool:
        wanted = self.places.case.decision.noise_pairs
        return any(len(self.book.valid(FIRST, "noise", cell.id)) < wanted for cell in self.place.row.cells)

    def _run_reps(self, series: int) -> None:
        while True:
            judged = self.book.decide(self.plan)
            of_series = judged.first if series == FIRST else judged.second
            look = judged.next_look if of_series else self.plan.looks[0]
            if judged.outcome is not equivalence.Outcome.CONTINUE and not (series == SECOND and of_series is None):
                self.say(f"series {series} ends: {judged.outcome}")
                return
            for cell in self.place.row.cells:
                if len(self.book.valid(series, "rep", cell.id)) < look:
                    counted = len(self.book.valid(series, "rep", cell.id))
                    arms = plan.order(self.places.case, self.place.row, counted)
                    self._run_pair(series, "rep", cell.id, arms, look)

    def _run_pair(self, series: int, phase: str, cell: str, arms: tuple[str, str], wanted: int) -> None:
        index = self.book.next_index(series, phase, cell)
        if index >= self._most_pairs(wanted if phase == "noise" else self.plan.looks[-1]):
            raise Refusal(
                Reason.INVALID_REPS, f"{index} attempts at {phase} pairs of {cell} and still too few that count"
            )
        for position, arm in enumerate(arms):
            which = LegId(series, phase, cell, index, position, arm)
            self._progress.before(which, wanted, len(self.place.row.cells))
            record = bench.run_leg(self.bench, self.places, self.place, self.book, which)
            self._progress.after(record)

    def _most_pairs(self, wanted: int) -> int:
        """Attempts after which too large a share of them did not count."""
        return int(wanted / (1 - self.plan.max_invalid_share)) + 2

    def _write_corpus(self) -> None:
        """Prompts for every leg that the plan may come to, made once."""
        folder = self.place.folder / "corpus"
        row = self.place.row
        tokenizer = self.places.checkpoint(row.checkpoint).with_suffix("") / "tokenizer.json"
        wanted = self._corpus_legs()
        if (folder / corpus.MANIFEST).exists() and corpus.verify(folder, tokenizer).legs.keys() >= wanted.keys():
            return
        self.say(f"writing the prompts of {len(wanted)} legs")
        corpus.make_corpus(tokenizer, seed=0, legs=wanted, input_tokens=row.recipe.input_tokens).write(folder)

    def _corpus_legs(self) -> dict[str, int]:
        """Number of prompts of every leg that the plan may come to, by the key of its file."""
        row = self.place.row
        legs: dict[str, int] = {f"warmup-{cell.id}": row.recipe.warmup_prompts for cell in row.cells}
        for cell in row.cells:
            for index in range(self._most_pairs(self.places.case.decision.noise_pairs)):
                for position in (0, 1):
                    legs[LegId(FIRST, "noise", cell.id, index, position, "").corpus] = cell.prompts
            for index in range(self._most_pairs(self.plan.looks[-1])):
                for series in (FIRST, SECOND):
                    legs[LegId(series, "rep", cell.id, index, 0, "").corpus] = cell.prompts
        return legs

    def _set_aside_other_boots(self) -> None:
        """Legs of two boots are not mixed: those of another boot are kept with the attempt."""
        boot = processes.boot_id()
        found = list(Legbook(self.place.legs, self.place.row).legs)
        if self._complete() or all(record[records.PROVENANCE]["boot_id"] == boot for record in found):
            return
        aside = self.attempt / "legs-of-another-boot"
        self.place.legs.rename(aside)
        self.say(f"starting anew: the machine was booted since the last leg; those legs are kept in {aside}")

    def _complete(self) -> bool:
        self.book = Legbook(self.place.legs, self.place.row)
        return not (self._needs(FIRST) or self._needs(SECOND))

    def _arms(self) -> tuple[str, str]:
        return self.place.row.numerator, self.place.row.denominator

    def _waiting(self, wait: lease.Wait) -> None:
        self.say(f"waiting for the device: {wait}")


class _Progress:
    """Which leg of how many, and about how long to the next look."""

    def __init__(self, say: Say, publish: Callable[[str], None]) -> None:
        self._say, self._publish = say, publish
        self._seconds: dict[str, list[float]] = {}

    def before(self, which: LegId, wanted: int, cells: int) -> None:
        known = [value for values in self._seconds.values() for value in values]
        pairs_left = max(wanted - which.index, 1)
        left = f", about {_minutes(pairs_left * 2 * cells * sum(known) / len(known))} to go" if known else ""
        what = "A/A pair" if which.phase == "noise" else "rep"
        text = f"series {which.series}: {what} {which.index + 1} of {wanted}, {which.cell}, {which.arm}{left}"
        self._say(text)
        self._publish(text)

    def after(self, record: dict) -> None:
        self._seconds.setdefault(record["id"]["cell"], []).append(record[records.PROVENANCE]["seconds"])
        for objection in record["objections"]:
            self._say(f"does not count: {objection['message']} [{objection['reason']}]")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
