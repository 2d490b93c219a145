"""Lives: the legs of a start-up row, one fresh server life each, alone on the device.

It is the bench of `series` for such a row: `up` and `run_leg`. What is to be warm is filled by a
first life of each arm, which is kept as a leg of its own phase and compared with nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinproof import bench, clocks, processes, records, spans, starts
from pinproof.bench import Say
from pinproof.caches import Cabinet, Pages, page_difference
from pinproof.layout import Layout, RowPlace
from pinproof.lease import Lease
from pinproof.legbook import Legbook, LegId
from pinproof.progress import every
from pinproof.reasons import Reason, Refusal
from pinproof.residents import speaking
from pinproof.server import Server, ready

FAILURES = 2  # lives of an arm that may fail in a series: one failure recurs, or it was a moment's
_MARKS = ("spawned", "first_health_200", "first_completion")


class Alone:
    """In the place of servers that stay up: no life outlasts its leg."""

    together = False

    def __init__(self) -> None:
        self.up: dict[str, Server] = {}
        self.marker: str | None = None  # of the life that is up

    def end(self) -> None:
        """Nothing is up."""

    def pids(self) -> list[int]:
        """The processes of the life that is up."""
        return [] if self.marker is None else [one.pid for one in processes.members(self.marker)]


@dataclass
class Start:
    """What is needed for the lives of a series."""

    run: str
    folder: Path
    device_digest: str
    lease: Lease
    say: Say
    eyes: clocks.Eyes
    cabinets: dict[str, Cabinet]
    pages: dict[str, Pages]
    residents: Alone
    begun: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    filled: set[str] = field(default_factory=set)


@contextlib.contextmanager
def up(places: Layout, place: RowPlace, run: str, folder: Path, lease: Lease, say: Say) -> Iterator[Start]:
    """Everything but a server. Caches are of this series alone, and removed at its end."""
    row = place.row
    checkpoint = places.subject(row.checkpoint)
    shelf = (folder / "caches").absolute()
    arms = (row.numerator, row.denominator)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, shelf, ignore_errors=True)
        current = Alone()
        eyes = stack.enter_context(clocks.watching(places.case.device, current.pids))
        yield Start(
            run=run,
            folder=folder,
            device_digest=records.read(places.device, "device")["digest"],
            lease=lease,
            say=say,
            eyes=eyes,
            cabinets={arm: Cabinet(shelf / arm) for arm in arms},
            residents=current,
            pages={arm: Pages([places.engine(arm).env.absolute(), checkpoint]) for arm in arms},
        )


def run_leg(start: Start, places: Layout, place: RowPlace, book: Legbook, which: LegId) -> dict:
    """Run one life and write its leg, valid or not.

    Refusals: what made a life fail, when it is the second of its arm; CACHE_STATE for a page cache that
    cannot be set; STARTS_DIFFER for a cold start where the row asks for warm ones; LEASE_LOST.
    """
    if place.row.caches.needs_a_first_life:
        arms = (which.arm,) if which.phase == "noise" else (place.row.numerator, place.row.denominator)
        for arm in arms:
            _fill(start, places, place, book, which.series, arm)
    return _life(start, places, place, book, which)


def _fill(start: Start, places: Layout, place: RowPlace, book: Legbook, series: int, arm: str) -> None:
    """A first life of an arm, cold, for what it leaves in the caches."""
    position = (place.row.numerator, place.row.denominator).index(arm)
    while arm not in start.filled:
        index = book.next_index(series, "first", "start")
        start.say(f"first life of {arm}: it fills the caches")
        record = _life(start, places, place, book, LegId(series, "first", "start", index, position, arm))
        if record["valid"]:
            start.cabinets[arm].keep()
            start.filled.add(arm)


def _life(start: Start, places: Layout, place: RowPlace, book: Legbook, which: LegId) -> dict:
    row, arm = place.row, which.arm
    fills = which.phase == "first"
    start.begun[arm] += 1
    start.residents.marker = f"{start.run}/{arm}/{start.begun[arm]}"
    cabinet, pages = start.cabinets[arm], start.pages[arm]
    with start.lease.spending("caches"):
        cabinet.set(row.caches.model_copy(update={"compile": "fresh", "jit": "fresh"}) if fills else row.caches)
        pages.set(row.caches.page)
        before = {**cabinet.state(), "page": pages.state()}
        if told := page_difference(row.caches, before["page"]):
            raise Refusal(Reason.CACHE_STATE, f"{told[0]} before a start of {arm}")
    with start.lease.spending("server starts"):
        server, refusal = _serve(start, places, place, book, which)
        ended = time.monotonic()
    start.lease.check()
    after = {**cabinet.state(), "page": pages.state()}
    raw = {
        "marks": {name: getattr(server.marks, name) for name in _MARKS},
        "fills": fills,
        "caches": {"before": before, "after": after},
        "ended": refusal and places.refused(refusal),
        "marker": server.marker,
        "spawned": server.began,
        "boot": processes.boot_id(),
    }
    record = _write(start, places, place, book, which, raw, ended)
    if refusal is not None:
        start.failed[arm] += 1
        start.say(f"life {start.begun[arm]} of {arm} failed: {refusal.message}")
        if start.failed[arm] >= FAILURES:
            raise speaking(refusal, arm) from refusal
    starts.refuse_unlike(record, arm)
    return record


def _serve(start: Start, places: Layout, place: RowPlace, book: Legbook, which: LegId) -> tuple[Server, Refusal | None]:
    """Start a server, wait until it has served, and end it; and why it failed, if it did."""
    spec = bench.server_spec(
        places,
        place,
        which.arm,
        places.subject(place.row.checkpoint),
        start.folder.absolute(),
        book.path(which, ".log").absolute(),
    )
    more = start.cabinets[which.arm].environment()
    if place.row.spans:
        folder = book.path(which, starts.SPANS)
        folder.mkdir(parents=True)
        more |= spans.environment(folder, wrapped(place))
    server = Server.start(dataclasses.replace(spec, env={**spec.env, **more}), start.residents.marker)
    with server:
        try:
            ready(server, progress=every(15, start.say))
        except Refusal as refusal:
            if server.refusal is not refusal:
                raise
            return server, refusal
    return server, None


def wrapped(place: RowPlace) -> list[str]:
    """Every callable that the plugin is to wrap for a row: those named, and the inner ones."""
    return [name for span in place.row.spans for name in (span.callable, span.inside) if name]


def _write(
    start: Start, places: Layout, place: RowPlace, book: Legbook, which: LegId, raw: dict[str, Any], ended: float
) -> dict:
    file = book.path(which, ".raw.json")
    records.write(file, "life", raw)
    log = book.path(which, ".log")
    body = starts.leg(place.row, which.arm, raw, book.path(which, starts.SPANS), log.read_text(errors="replace"))
    body |= {
        "raw_sha256": records.file_sha256(file),
        "log_sha256": records.file_sha256(log),
        **bench.taken_of(places, which.arm, start.device_digest),
    }
    return book.add(which, body, bench.provenance(raw["marker"], start.eyes, raw["spawned"], ended))
