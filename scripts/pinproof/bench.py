"""The bench: the servers and the load client of one series, up under one lease, and one leg on them."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from pinproof import applied, clocks, leg, processes, records, serverlog, speculation
from pinproof.case import ORACLE
from pinproof.claims import Serving, Speculative
from pinproof.client import Client, Load
from pinproof.hardware import Placement
from pinproof.layout import Layout, RowPlace
from pinproof.lease import Lease
from pinproof.legbook import Legbook, LegId
from pinproof.progress import every
from pinproof.reasons import Reason, Refusal
from pinproof.residents import Residents, blaming, speaking, wait_ready
from pinproof.server import Counters, Server, ServerSpec
from pinproof.watch import StallWatch

Say = Callable[[str], None]

MODEL = "subject"
GRACE_S = 20.0
# When a server counts as idle: this share of a core over one step, and how long to wait for it.
DYING_S = 2.0  # a server whose streams broke may take so long to end
IDLE_SHARE, SETTLE_STEP_S, SETTLE_S = 0.1, 0.25, 5.0
# What a server inherits from whoever runs the workflow; all else is said by the case.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME")
# Counter of a leg -> name in vLLM's /metrics.
_COUNTERS = {
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "requests_finished": "vllm:request_success_total",
    "prefix_cache_hits": "vllm:prefix_cache_hits_total",
    "preemptions": "vllm:num_preemptions_total",
}


@dataclass
class Bench:
    """What is up while a series runs."""

    residents: Residents
    client: Client
    eyes: clocks.Eyes
    corpus: Path
    tokenizer: Path
    device_digest: str  # of the device's identity, as read in the first seconds of the lease
    lease: Lease
    says: dict[str, dict[str, Any]] = field(default_factory=dict)  # what each arm's engine says of itself


@contextlib.contextmanager
def up(
    places: Layout, place: RowPlace, run: str, folder: Path, lease: Lease, say: Say, *, speculating: bool = True
) -> Iterator[Bench]:
    """Start the client and, where they are up together, both servers; gone when left.

    `run` names this run in every marker; `folder` takes the logs and caches of the lives. Caches are
    fresh for every series, equal on both arms, and removed at the end. `speculating` False leaves a
    speculative row's configuration out.
    """
    row = place.row
    checkpoint = places.subject(row.checkpoint)
    caches = (folder / "caches").absolute()
    marker = f"{run}/.client/1"  # no arm can be called so

    def start(arm: str, life: int) -> Server:
        log = (folder / f"server-{arm}-{life}.log").absolute()
        spec = server_spec(places, place, arm, checkpoint, caches / arm, log)
        if speculating and isinstance(row, Speculative):
            spec = replace(spec, argv=(*spec.argv, "--speculative-config", records.canonical(row.config)))
        return Server.start(spec, f"{run}/{arm}/{life}")

    def pids() -> list[int]:
        markers = [marker, *(server.marker for server in list(residents.up.values()))]  # asked in another thread
        return [one.pid for name in markers for one in processes.members(name)]

    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, caches, ignore_errors=True)
        residents = stack.enter_context(Residents(start, lease, together=row.residency == "shared"))
        client = stack.enter_context(
            Client(
                places.engine(places.case.client).python.absolute(),
                env=environment(caches / ".client"),
                log=(folder / "client.log").absolute(),
                marker=marker,
            )
        )
        eyes = stack.enter_context(clocks.watching(places.case.device, pids))
        digest = records.read(places.device, "device")["digest"]
        bench = Bench(residents, client, eyes, place.folder / "corpus", checkpoint, digest, lease)
        residents.prepare = lambda servers: _prepare(bench, places, place, servers, marker, folder, say)
        if residents.together:
            residents.bring((row.numerator, row.denominator))
        yield bench


def _prepare(
    bench: Bench, places: Layout, place: RowPlace, servers: Mapping[str, Server], client: str, folder: Path, say: Say
) -> None:
    """Lives that were just started: wait until they have served, place them on their cores, warm them up."""
    with bench.lease.spending("server starts"):
        wait_ready(servers, every(15, say))
        if bench.client.import_s is None:  # it is resident: later lives find it ready
            bench.client.wait_ready()
        for arm, server in servers.items():
            with blaming({arm: server}, arm):
                bench.says[arm] = _applied(place.row, arm, server)
        if cores := places.case.device.placement:
            place_on_cores(servers.values(), client, cores)
    with bench.lease.spending("warm-up"):
        warm_up(bench, place, servers, folder, say)


def place_on_cores(servers: Iterable[Server], client: str, cores: Placement) -> None:
    """Keep API servers and the client on the front's cores, engines and workers on the engine's.

    Left alone on few cores, an engine's polling starves its own API server: tokens then arrive in
    bursts, and the median TPOT of a leg is anything between 0 and the true one. Refusal
    CASE_INVALID when the machine has no such core.
    """
    front = {process.pid for process in processes.members(client)}
    for server in servers:
        front.add(server.pid)
        engine = {process.pid for process in processes.members(server.marker)} - front
        _pin(engine, cores.engine)
    _pin(front, cores.front)


def _pin(pids: set[int], cores: Sequence[int]) -> None:
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            try:
                os.sched_setaffinity(int(task.name), cores)
            except ProcessLookupError:
                continue  # a thread that ended meanwhile
            except OSError as error:
                message = f"cannot compute on cores {list(cores)}: {error.strerror}"
                raise Refusal(Reason.CASE_INVALID, message, key="device.placement") from None


def server_spec(places: Layout, place: RowPlace, arm: str, checkpoint: Path, cache: Path, log: Path) -> ServerSpec:
    """How an arm's server is started for a row: the arm's own interpreter, no shell, a key, loopback."""
    engine, row = places.engine(arm), place.row
    own = places.case.arms[arm].serve
    # As in an activated environment: an engine that compiles a kernel calls the ninja of its own.
    path = os.pathsep.join([str((engine.env / "bin").absolute()), os.environ.get("PATH", os.defpath)])
    argv = (
        *(str(engine.python.absolute()), "-P", str((engine.env / "bin" / "vllm").absolute())),
        *("serve", str(checkpoint), "--served-model-name", MODEL),
        *("--host", "127.0.0.1", "--port", "{port}", *row.serve.args, *own.args),
    )
    return ServerSpec(
        argv=argv,
        env={**environment(cache), "PATH": path, **row.serve.env, **own.env},
        model_name=MODEL,
        log=log,
        start_timeout_s=row.start_timeout_s,
        stall_timeout_s=row.stall_timeout_s,
        grace_s=GRACE_S,
    )


def environment(cache: Path) -> dict[str, str]:
    """The environment of a child that imports vLLM, before the case adds to it."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
    }


def warm_up(bench: Bench, place: RowPlace, servers: Mapping[str, Server], folder: Path, say: Say) -> None:
    """Untimed requests of every cell to servers that were just started. Refusal: what is wrong with them."""
    row = place.row
    for cell in row.cells:
        for arm, server in servers.items():
            say(f"warm-up {cell.id} {arm}")
            asked = leg.Asked(row.recipe.warmup_prompts, row.recipe.input_tokens, row.recipe.output_tokens)
            result = (folder / f"warmup-{cell.id}-{arm}.raw.json").absolute()
            load = _load(bench, server, f"warmup-{cell.id}", asked, cell.concurrency, result)
            _drive(bench.client, load, arm, server, row)
            if found := leg.objections(leg.read_raw(result), asked, {}):
                refusal = Refusal(found[0].reason, f"warm-up of {arm} at {cell.id}: {found[0].message}", file=result)
                raise speaking(refusal, arm)


def run_leg(bench: Bench, places: Layout, place: RowPlace, book: Legbook, which: LegId) -> dict:
    """Run one timed leg and write its record, valid or not; not one during which the lease was lost (LEASE_LOST)."""
    row = place.row
    cell = next(cell for cell in row.cells if cell.id == which.cell)
    asked = leg.Asked(cell.prompts, row.recipe.input_tokens, row.recipe.output_tokens)
    server = bench.residents.take(which.arm)
    result = book.path(which, ".raw.json").absolute()
    _settle(bench, which.arm)
    load = _load(bench, server, which.prompts(row), asked, cell.concurrency, result)
    state, before, offset, begun = bench.eyes.state(), server.metrics(), server.log_offset(), time.monotonic()
    with bench.lease.spending("legs"):
        _drive(bench.client, load, which.arm, server, row)
    ended = time.monotonic()
    with blaming({which.arm: server}):
        server.check_alive()
    bench.lease.check()
    seen = bench.eyes.seen(state, begun, ended)
    window, counted = server.log_since(offset), since(before, server.metrics())
    counters = _counters(counted)
    records.write_text(book.path(which, ".log"), window)
    raw = leg.read_raw(result)
    found = leg.objections(raw, asked, counters) + leg.compiled(serverlog.kernels_compiled(window))
    found += _foreign(server) + _clocks(bench, book, which, seen)
    drafted = _speculation(row, which, counted, raw)
    found += drafted.objections
    body = {
        "asked": vars(asked),
        "metrics": leg.metrics(raw) | drafted.metrics,
        "reported": leg.reported(raw),
        "counters": counters,
        "valid": not found,
        "objections": [one.as_record(of_the_pin=which.arm == ORACLE) for one in found],
        "raw_sha256": records.file_sha256(result),
        "corpus_sha256": records.file_sha256(load.corpus),
        "engine_says": bench.says[which.arm],
        **taken_of(places, which.arm, bench.device_digest),
    }
    body |= drafted.facts | ({} if seen is None else {"clocks": seen.as_record()})
    return book.add(which, body, provenance(server.marker, bench.eyes, begun, ended))


def taken_of(places: Layout, arm: str, device_digest: str) -> dict[str, str]:
    """Of what a leg was taken: engine, versions and device, by digest."""
    engine = places.engine(arm)
    versions = records.content_digest(records.read(engine.version, "version"))
    return {"engine": engine.folder.name, "version_digest": versions, "device_digest": device_digest}


def provenance(life: str, eyes: clocks.Eyes, begun: float, ended: float) -> dict[str, Any]:
    """Where and when a leg was taken; the times are of the monotonic clock, seconds."""
    return {
        "seconds": ended - begun,
        "boot_id": processes.boot_id(),
        "life": life,
        "written": records.written(),
        "samples": eyes.sampler.summary(begun, ended).as_record(),
    }


def _clocks(bench: Bench, book: Legbook, which: LegId, seen: clocks.Seen | None) -> list[leg.Objection]:
    """What the device's clocks say against a leg, and against comparing it with the first of its pair."""
    rules = bench.eyes.rules
    if rules is None or seen is None:
        return []
    pair = book.pairs(which.series, which.phase, which.cell).get(which.index, {})
    others = [one["clocks"] for position, one in pair.items() if position != which.position and "clocks" in one]
    return clocks.objections(rules, seen) + [
        one for other in others for one in clocks.between(rules, other, seen.as_record())
    ]


def _settle(bench: Bench, arm: str) -> None:
    """Wait until the servers that this leg is not about are idle.

    An engine goes on polling for a second after its last request; on a shared device that second
    would be taken from the other arm's leg. Bounded: a server that never idles is the leg's to tell.
    A double polls for nothing and states its times, so a rehearsal, which has a minute, does not wait.
    """
    others = [server for name, server in bench.residents.up.items() if name != arm and not records.rehearsing()]
    spent, end = _cpu_seconds(others), time.monotonic() + SETTLE_S
    while others and time.monotonic() < end:
        time.sleep(SETTLE_STEP_S)
        now = _cpu_seconds(others)
        if now - spent <= IDLE_SHARE * SETTLE_STEP_S:
            return
        spent = now


def _cpu_seconds(servers: list[Server]) -> float:
    """CPU time that the servers' trees have used so far, seconds."""
    total = 0.0
    for server in servers:
        for process in processes.members(server.marker):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
    return total


def _drive(client: Client, load: Load, arm: str, server: Server, row: Serving) -> None:
    """Run one leg's load. When the client fails because its server died, the server's end is the cause."""
    watch = StallWatch(server, row.stall_timeout_s)
    with blaming({arm: server}):
        try:
            client.run(load, timeout_s=row.leg_timeout_s, check=watch.check)
        except Refusal:
            end = time.monotonic() + DYING_S
            while time.monotonic() < end:
                server.check_alive()
                time.sleep(SETTLE_STEP_S)
            raise


def _load(bench: Bench, server: Server, corpus: str, asked: leg.Asked, concurrency: int, result: Path) -> Load:
    return Load(
        base_url=server.base_url,
        api_key=server.api_key,
        model=MODEL,
        tokenizer=bench.tokenizer,
        corpus=(bench.corpus / f"{corpus}.jsonl").absolute(),
        asked=asked,
        concurrency=concurrency,
        result=result,
    )


@dataclass(frozen=True)
class _Drafted:
    """What a leg of a speculative row holds besides; of another row nothing."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    objections: Sequence[leg.Objection] = ()


def _speculation(row: Serving, which: LegId, counted: Counters | None, raw: Mapping[str, Any]) -> _Drafted:
    if not isinstance(row, Speculative):
        return _Drafted()
    counts = speculation.Counts.of(counted)
    facts = {"speculation": counts.as_record()}
    if which.phase == "off":
        return _Drafted(facts, {}, speculation.not_off(counts))
    return _Drafted(facts, counts.metrics, speculation.objections(row, counts, raw))


def _applied(row: Serving, arm: str, server: Server) -> dict[str, Any]:
    """What the engine says of itself; one that says it does otherwise than told is refused before a leg is taken."""
    resolved = serverlog.resolved_config(server.log_since(0))
    applied.require(server.spec.argv, resolved, arm)
    if isinstance(row, Speculative) and "--speculative-config" in server.spec.argv:
        speculation.require_applied(row, resolved, arm)
    return applied.said(resolved)


def since(before: Counters | None, after: Counters | None) -> Counters | None:
    """What was counted meanwhile; None where a server does not count."""
    return None if before is None or after is None else after.since(before)


def _counters(counted: Counters | None) -> dict[str, float | None]:
    if counted is None:
        return dict.fromkeys(_COUNTERS)
    return {name: counted.total(counter) for name, counter in _COUNTERS.items()}


def _foreign(server: Server) -> list[leg.Objection]:
    """The listener must still be of our tree: a restarted or foreign server has other numbers."""
    ours = {process.pid for process in processes.members(server.marker)}
    others = sorted({one.pid for one in processes.listener_owner(server.port) if one.pid not in ours} - {None})
    if not others:
        return []
    return [leg.Objection(Reason.SERVER_FOREIGN, f"port {server.port} is listened on by other processes: {others}")]
