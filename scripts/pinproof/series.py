"""The series of a row: legs in their order under one lease, until the decision needs no more.

Legs already on disk count if they were taken in this boot, so that an interrupted series goes on at
its next rep. A RED of the first series is followed by a second: new lease, new server lives, fresh
caches.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pinproof import bench, corpus, decision, device, lease, lives, plan, processes, records, weights
from pinproof.claims import Serving, Speculative, Startup
from pinproof.decision import RowDecision, SeriesDecision
from pinproof.equivalence import Outcome
from pinproof.layout import Layout, RowPlace
from pinproof.legbook import FIRST, SECOND, Legbook, LegId, Phase, damaged, set_aside
from pinproof.progress import Progress, waiting
from pinproof.reasons import Reason, Refusal

Say = Callable[[str], None]


def measure(places: Layout, row_id: str, say: Say) -> dict[str, Any]:
    """Measure a row as far as its plan asks for, and return the body of series.json; see also `leases`.

    A refusal ends the attempt: it is kept under attempts/ with the logs, and the body says
    `failed` with its reason. Nothing that was measured before is lost.
    """
    place = places.row(row_id)
    asked = asked_for(places, row_id)
    attempt = _attempt_folder(place)
    try:
        _Measuring(places, place, attempt, say).run()
    except Refusal as refusal:
        say(f"failed: {refusal}")
        failure = places.refused(refusal)
        records.write(attempt / "failed.json", "attempt", {"failure": failure})
    else:
        failure = None
    body = {**_body(places, place, failure), "asked_for": asked}
    records.write(_told(place), "told", {name: body[name] for name in ("legs", "asked_for")})
    return body


def leases(place: RowPlace) -> list[dict[str, Any]]:
    """Every lease that was held for a row: when, by which proof, and what the time was spent on."""
    files = sorted(place.attempts.glob("*/series*/lease.json"))
    return [{"series": str(file.relative_to(place.attempts).parent), **records.read(file, "spent")} for file in files]


def failed_attempts(place: RowPlace) -> int:
    """Number of attempts at a row that failed; each makes the next call try again."""
    return len(list(place.attempts.glob("*/failed.json")))


def asked_for(places: Layout, row_id: str) -> str:
    """What makes the next call measure on although nothing else changed: a result that stays open
    and wants more reps under the plan that it was decided under (that of the row, or of a warm-up row
    which looks at its lives), or an A/A band of fewer pairs than the plan says. Once they are there it
    stays the same.
    """
    place, noise_pairs = places.row(row_id), places.case.decision_of(places.case.row(row_id)).noise_pairs
    if lost := _damaged(place):
        attempt = sum(1 for _ in place.attempts.glob("*"))  # the same leg may be damaged once more
        return f"damaged in attempt {attempt}: {', '.join(lost)}"
    for judged in (place, *(places.row(one.id) for one in places.case.warmups(place.row))):
        if wanted := _wanted(judged):
            return wanted
    try:
        before = _last(place).get("asked_for", "")
        bands = [band for cell in records.read(place.noise, "noise")["cells"].values() for band in cell.values()]
    except Refusal:
        return ""
    few = [band for band in bands if band and band["pairs"] < noise_pairs]
    return f"{noise_pairs} A/A pairs" if few else before


def _wanted(place: RowPlace) -> str | None:
    """The look that a row's result asks for, and the plan that it was decided under."""
    try:
        found = records.read(place.result, "row")
    except Refusal:
        return None
    look = (found["decision"] or {}).get("next_look")
    if look is None or found["measured"]["digest"] != place.folder.name:
        return None
    return f"{found['plan']['decided_under'][:16]}:{look}"


def _damaged(place: RowPlace) -> list[str]:
    """Legs that the last series named and that are no longer what it named."""
    try:
        return damaged(place.legs, _last(place)["legs"])
    except (Refusal, KeyError):
        return []


def _told(place: RowPlace) -> Path:
    """What the last series told, where a call that measures again still finds it: its output is removed first."""
    return place.folder / "told.json"


def _last(place: RowPlace) -> dict[str, Any]:
    told = _told(place)
    return records.read(told, "told") if told.exists() else records.read(place.series, "series")


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
        "plan_digest": _plan_digest(place),
        "warmup_plans": {one.id: _plan_digest(places.row(one.id)) for one in places.case.warmups(place.row)},
        "legs": book.digests(),
        "failed_attempts": failed_attempts(place),
    }


def _plan_digest(place: RowPlace) -> str | None:
    return records.content_digest(records.read(place.plan, "plan")) if place.plan.exists() else None


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
        weights.require_same(self.places, row.checkpoint)
        self.kind = lives if isinstance(row, Startup) else bench
        self.rows = [one for one in (row, *case.warmups(row)) if one.metrics]
        self.plans = [plan.of(case, one) for one in self.rows]
        self.looks = self.plans[0].looks
        self._set_aside_damaged()
        self._set_aside_other_boots()
        self.book = Legbook(self.place.legs, row)
        self.book.set_aside_interrupted(self.attempt / "interrupted")
        if not self.book.legs:  # before data; a plan that no leg was taken under is no plan yet
            for one in (row, *case.warmups(row)):
                records.write(self.places.row(one.id).plan, "plan", plan.body(case, self.places.row(one.id)))
        if isinstance(row, Serving):
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
        if series == FIRST and (self._noise_missing() or self._off_missing()):
            return True
        return self._next_look(series) is not None

    def _judged(self) -> list[RowDecision]:
        """What the row is by its legs so far, and every warm-up row that is judged by them."""
        return [self.book.of(row).decide(plan) for row, plan in zip(self.rows, self.plans, strict=True)]

    def _next_look(self, series: int) -> int | None:
        """The number of reps that a series goes on to for some row; None when it is at its end."""
        looks = [self._look_of(series, judged) for judged in self._judged()]
        return min((look for look in looks if look is not None), default=None)

    def _look_of(self, series: int, judged: RowDecision) -> int | None:
        if series == FIRST:
            return judged.first.next_look
        if judged.first.outcome is not Outcome.RED:
            return None
        return self.looks[0] if judged.second is None else judged.next_look

    def _run_series(self, series: int) -> None:
        folder = self.attempt / f"series{series}"
        run = f"{self.places.case.case}.{self.place.row.id}.{uuid.uuid4().hex[:8]}"
        who = lease.Who(case=self.places.case.case, row=self.place.row.id)
        lock = lease.device_lock(self.places.case.device.kind)
        with contextlib.ExitStack() as stack:
            held = stack.enter_context(lease.granted(self.places.case.lease, lock, who, waiting(self.say)))
            stack.callback(self._keep_account, held, folder)
            self.say(f"series {series}: lease taken; starting {' and '.join(self._arms())}")
            self._probe(run)
            self._progress = Progress(self.say, held.progress)
            if self._noise_missing() or self._next_look(series) is not None:
                with self.kind.up(self.places, self.place, run, folder, held, self.say) as self.bench:
                    if series == FIRST:
                        self._run_noise()
                    self._run_reps(series)
            if series == FIRST and self._off_missing():
                off = folder / "off"
                self.say("without speculation")
                with bench.up(self.places, self.place, f"{run}.off", off, held, self.say, speculating=False) as here:
                    self.bench = here
                    self._run_off()

    @staticmethod
    def _keep_account(held: lease.Lease, folder: Path) -> None:
        """What the lease was spent on, a moment before it is given back."""
        held.account.close()
        records.write(folder / "lease.json", "spent", held.as_record())

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
        facts = device.identify(declared["kind"], gpu=declared.get("uuid"))
        device.require(declared, facts)
        device.require_free(facts)
        if found := device.differences(recorded["identity"], facts.identity, ("recorded", "here")):
            raise Refusal(Reason.DEVICE_OTHER, "; ".join(found), file=self.places.device)

    def _run_noise(self) -> None:
        """The A/A band: pairs of one arm against itself, in the same lease.

        Where lives are not shared, so are not those of a pair: what differs from life to life is in the band.
        """
        wanted = self.places.case.decision_of(self.place.row).noise_pairs
        arms = (self.place.row.denominator,) * 2
        while cells := self._lacking("noise", wanted):
            self._run_round(FIRST, "noise", dict.fromkeys(cells, arms), wanted)

    def _noise_missing(self) -> bool:
        return bool(self._lacking("noise", self.places.case.decision_of(self.place.row).noise_pairs))

    def _lacking(self, phase: Phase, wanted: int) -> list[str]:
        """Cells with fewer pairs of this phase that count than are wanted; both phases are of the first series."""
        return [cell.id for cell in self.place.row.cells if len(self.book.valid(FIRST, phase, cell.id)) < wanted]

    def _run_reps(self, series: int) -> None:
        while (look := self._next_look(series)) is not None:
            orders = {}
            for cell in self.place.row.cells:
                if (counted := len(self.book.valid(series, "rep", cell.id))) < look:
                    orders[cell.id] = plan.order(self.places.case, self.place.row, counted)
            self._run_round(series, "rep", orders, look)
        for row, judged in zip(self.rows, self._judged(), strict=True):
            self.say(f"series {series} ends: {row.id} {_of_series(judged, series)}")

    def _off_missing(self) -> bool:
        row = self.place.row
        return isinstance(row, Speculative) and bool(self._lacking("off", row.off_legs))

    def _run_off(self) -> None:
        """Legs of both arms without speculation; they gate nothing, so too few that count end no row."""
        row = self.place.row
        while cells := self._lacking("off", row.off_legs):
            if any(self.book.next_index(FIRST, "off", cell) >= self._most_pairs(row.off_legs) for cell in cells):
                self.say(f"without speculation too few legs of {', '.join(cells)} count: that figure is left out")
                return
            self._run_round(FIRST, "off", dict.fromkeys(cells, self._arms()), row.off_legs)

    def _run_round(self, series: int, phase: Phase, orders: Mapping[str, tuple[str, str]], wanted: int) -> None:
        """One pair of legs in each of these cells; `orders` says which arm comes first in it."""
        indices = {cell: self._next_attempt(series, phase, cell, wanted) for cell in orders}
        residents = self.bench.residents
        for group in in_time(orders, together=residents.together, up=tuple(residents.up)):
            for number, (cell, position) in enumerate(group):
                if phase == "noise" and position == 1 and group[number - 1][1] == 0 and not residents.together:
                    residents.end()
                which = LegId(series, phase, cell, indices[cell], position, orders[cell][position])
                self._progress.before(which, wanted, len(self.place.row.cells))
                self._progress.after(self.kind.run_leg(self.bench, self.places, self.place, self.book, which))

    def _next_attempt(self, series: int, phase: Phase, cell: str, wanted: int) -> int:
        index = self.book.next_index(series, phase, cell)
        if index >= self._most_pairs(self.looks[-1] if phase == "rep" else wanted):
            raise Refusal(
                Reason.INVALID_REPS, f"{index} attempts at {phase} pairs of {cell} and still too few that count"
            )
        return index

    def _most_pairs(self, wanted: int) -> int:
        """Attempts after which too large a share of them did not count; those that are discarded come on top."""
        discarded = self.place.row.discard_first if isinstance(self.place.row, Serving) else 0
        return int(wanted / (1 - self.plans[0].max_invalid_share)) + 2 + discarded

    def _write_corpus(self) -> None:
        """Prompts for every leg that the plan may come to, made once."""
        folder = self.place.folder / "corpus"
        row = self.place.row
        tokenizer = self.places.subject(row.checkpoint) / weights.TOKENIZER
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
            for index in range(self._most_pairs(self.places.case.decision_of(self.place.row).noise_pairs)):
                for position in (0, 1):
                    legs[LegId(FIRST, "noise", cell.id, index, position, "").prompts(row)] = cell.prompts
            for index in range(self._most_pairs(self.looks[-1])):
                for series in (FIRST, SECOND):
                    legs[LegId(series, "rep", cell.id, index, 0, "").corpus] = cell.prompts
            if isinstance(row, Speculative) and row.off_legs:
                for index in range(self._most_pairs(row.off_legs)):
                    legs[LegId(FIRST, "off", cell.id, index, 0, "").corpus] = cell.prompts
        return legs

    def _set_aside_damaged(self) -> None:
        """A leg that a fault of the disk spoiled is kept with the attempt, and its rep is taken again."""
        if lost := damaged(self.place.legs):
            set_aside(self.place.legs, lost, self.attempt / "damaged")
            self.say(f"damaged on disk, taken again: {', '.join(lost)}; kept in {self.attempt / 'damaged'}")

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


def _of_series(judged: RowDecision, series: int) -> str:
    """How a series ended for a row, in a word."""
    found: SeriesDecision | None = judged.first if series == FIRST else judged.second
    return "asked for nothing" if found is None else str(found.outcome)


def in_time(
    orders: Mapping[str, tuple[str, str]], *, together: bool, up: tuple[str, ...]
) -> list[list[tuple[str, int]]]:
    """The legs of a round in time: groups of (cell, position in its pair).

    With both servers up a pair is taken at once, cell by cell. One at a time, all cells that begin with
    the same arm go through the first life and then through the second; cells that begin with the arm
    that is up come first. In serpentine order two neighbouring rounds then share a life.
    """
    if together:
        return [[(cell, 0), (cell, 1)] for cell in orders]
    groups: dict[tuple[str, str], list[str]] = {}
    for cell, arms in orders.items():
        groups.setdefault(arms, []).append(cell)
    first = sorted(groups, key=lambda arms: arms[0] not in up)
    return [[(cell, position) for position in (0, 1) for cell in groups[arms]] for arms in first]
