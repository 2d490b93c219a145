"""The bench: both servers and the load client of one series, up under one lease, and one leg on them."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from pinproof import leg, processes, records, sampling, serverlog
from pinproof.case import Placement
from pinproof.client import Client, Load
from pinproof.layout import Layout, RowPlace
from pinproof.legbook import Legbook, LegId
from pinproof.reasons import Reason, Refusal
from pinproof.server import Counters, Server, ServerSpec, ready

T = TypeVar("T")

MODEL = "subject"
GRACE_S = 20.0
# When a server counts as idle: this share of a core over one step, and how long to wait for it.
DYING_S = 2.0  # a server whose streams broke may take so long to end
IDLE_SHARE, SETTLE_STEP_S, SETTLE_S = 0.1, 0.25, 5.0
# What a server inherits from whoever runs the workflow; all else is said by the case.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
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

    servers: Mapping[str, Server]
    client: Client
    sampler: sampling.Sampler
    corpus: Path
    tokenizer: Path
    device_digest: str  # of the device's identity, as read in the first seconds of the lease


@contextlib.contextmanager
def up(places: Layout, place: RowPlace, run: str, folder: Path, say: Callable[[str], None]) -> Iterator[Bench]:
    """Start the client and both servers at once, and yield when all have served; gone when left.

    `run` names this run in every marker; `folder` takes the logs and caches of the lives. Caches are
    fresh for every series, equal on both arms, and removed at the end.
    """
    row = place.row
    checkpoint = places.checkpoint(row.checkpoint).with_suffix("").absolute()
    caches = (folder / "caches").absolute()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, caches, ignore_errors=True)
        servers = {}
        for arm in (row.numerator, row.denominator):
            spec = server_spec(places, place, arm, checkpoint, caches / arm, (folder / f"server-{arm}.log").absolute())
            servers[arm] = stack.enter_context(Server.start(spec, f"{run}/{arm}/1"))
        client_env = environment(caches / ".client")
        client = stack.enter_context(
            Client(
                places.engine(places.case.client).python.absolute(),
                env=client_env,
                log=(folder / "client.log").absolute(),
                marker=f"{run}/.client/1",  # no arm can be called so
            )
        )
        ready(*servers.values(), progress=every(15, say))
        client.wait_ready()
        markers = [f"{run}/{name}/1" for name in (*servers, ".client")]
        if cores := places.case.device.placement:
            place_on_cores(servers.values(), markers[-1], cores)
        source = sampling.CpuSource(lambda: [one.pid for marker in markers for one in processes.members(marker)])
        sampler = stack.enter_context(sampling.Sampler(source))
        yield Bench(
            servers,
            client,
            sampler,
            place.folder / "corpus",
            checkpoint,
            records.read(places.device, "device")["digest"],
        )


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
    argv = (
        *(str(engine.python.absolute()), "-P", str((engine.env / "bin" / "vllm").absolute())),
        *("serve", str(checkpoint), "--served-model-name", MODEL),
        *("--host", "127.0.0.1", "--port", "{port}", *row.serve.args, *own.args),
    )
    return ServerSpec(
        argv=argv,
        env={**environment(cache), **row.serve.env, **own.env},
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


def warm_up(bench: Bench, place: RowPlace, folder: Path, say: Callable[[str], None]) -> None:
    """Untimed requests of every cell to every arm. Refusal: what is wrong with them."""
    row = place.row
    for cell in row.cells:
        for arm in bench.servers:
            say(f"warm-up {cell.id} {arm}")
            asked = leg.Asked(row.recipe.warmup_prompts, row.recipe.input_tokens, row.recipe.output_tokens)
            result = (folder / f"warmup-{cell.id}-{arm}.raw.json").absolute()
            load = _load(bench, arm, f"warmup-{cell.id}", asked, cell.concurrency, result)
            server = bench.servers[arm]
            _drive(bench.client, load, server, row.leg_timeout_s)
            if found := leg.objections(leg.read_raw(result), asked, {}):
                raise Refusal(found[0].reason, f"warm-up of {arm} at {cell.id}: {found[0].message}", file=result)


def run_leg(bench: Bench, places: Layout, place: RowPlace, book: Legbook, which: LegId) -> dict:
    """Run one timed leg and write its record, valid or not."""
    row = place.row
    cell = next(cell for cell in row.cells if cell.id == which.cell)
    asked = leg.Asked(cell.prompts, row.recipe.input_tokens, row.recipe.output_tokens)
    server = bench.servers[which.arm]
    result = book.path(which, ".raw.json").absolute()
    _settle(bench, which.arm)
    load = _load(bench, which.arm, which.corpus, asked, cell.concurrency, result)
    before, offset, begun = server.metrics(), server.log_offset(), time.monotonic()
    _drive(bench.client, load, server, row.leg_timeout_s)
    ended = time.monotonic()
    server.check_alive()
    window, counters = server.log_since(offset), _difference(before, server.metrics())
    records.write_text(book.path(which, ".log"), window)
    raw = leg.read_raw(result)
    found = leg.objections(raw, asked, counters) + leg.compiled(serverlog.kernels_compiled(window))
    found += _foreign(server)
    body = {
        "asked": vars(asked),
        "metrics": leg.metrics(raw),
        "reported": leg.reported(raw),
        "counters": counters,
        "valid": not found,
        "objections": [one.as_record() for one in found],
        "raw_sha256": records.file_sha256(result),
        "corpus_sha256": records.file_sha256(load.corpus),
        "engine": places.engine(which.arm).folder.name,
        "device_digest": bench.device_digest,
        "version_digest": records.content_digest(records.read(places.engine(which.arm).version, "version")),
    }
    provenance = {
        "seconds": ended - begun,
        "boot_id": processes.boot_id(),
        "life": server.marker,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "samples": bench.sampler.summary(begun, ended).as_record(),
    }
    return book.add(which, body, provenance)


def _settle(bench: Bench, arm: str) -> None:
    """Wait until the servers that this leg is not about are idle.

    An engine goes on polling for a second after its last request; on a shared device that second
    would be taken from the other arm's leg. Bounded: a server that never idles is the leg's to tell.
    """
    others = [server for name, server in bench.servers.items() if name != arm]
    spent, end = _cpu_seconds(others), time.monotonic() + SETTLE_S
    while time.monotonic() < end:
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


def _drive(client: Client, load: Load, server: Server, timeout_s: float) -> None:
    """Run one leg's load. When the client fails because its server died, the server's end is the cause."""
    try:
        client.run(load, timeout_s=timeout_s, check=server.check_alive)
    except Refusal:
        end = time.monotonic() + DYING_S
        while time.monotonic() < end:
            server.check_alive()
            time.sleep(SETTLE_STEP_S)
        raise


def _load(bench: Bench, arm: str, corpus: str, asked: leg.Asked, concurrency: int, result: Path) -> Load:
    server = bench.servers[arm]
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


def _difference(before: Counters | None, after: Counters | None) -> dict[str, float | None]:
    if before is None or after is None:
        return dict.fromkeys(_COUNTERS)
    delta = after.since(before)
    return {name: delta.total(counter) for name, counter in _COUNTERS.items()}


def _foreign(server: Server) -> list[leg.Objection]:
    """The listener must still be of our tree: a restarted or foreign server has other numbers."""
    ours = {process.pid for process in processes.members(server.marker)}
    others = sorted({one.pid for one in processes.listener_owner(server.port) if one.pid not in ours} - {None})
    if not others:
        return []
    return [leg.Objection(Reason.SERVER_FOREIGN, f"port {server.port} is listened on by other processes: {others}")]


def every(seconds: float, say: Callable[[T], None]) -> Callable[[T], None]:
    """Pass on a line at most once in so many seconds: progress in a log without a terminal."""
    last = -seconds

    def tell(text: T) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            say(text)

    return tell
