"""One server life: started, ready, watched, stopped, and proven gone.

Ready means served: the port's listener belongs to our process tree, it serves our model, and one
tiny completion has finished. A thread follows each start from its spawn, so that servers that
start at the same time all get true marks, whichever is waited for first.
"""

from __future__ import annotations

import contextlib
import math
import queue
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

from pinproof import processes, serverlog, simulation
from pinproof.processes import Teardown
from pinproof.reasons import Reason, Refusal

PORT = "{port}"

_POLL_S = 0.05
_LOOK_S = 0.25  # between two looks at the log
_PENDING = ("vllm:num_requests_running", "vllm:num_requests_waiting")  # gauges

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ServerSpec:
    """How a server is started. `argv` holds the placeholder "{port}".

    `env` is its whole environment, but for VLLM_API_KEY and PYTHONFAULTHANDLER (a crash of native
    code must leave a word in the log: without one, an engine process was killed from outside).
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    model_name: str
    log: Path  # this life's alone
    start_timeout_s: float  # from the spawn to the first finished completion
    stall_timeout_s: float  # without progress in the log; and for the first completion
    grace_s: float  # between TERM and KILL
    health_path: str = "/health"
    cwd: Path = Path("/")
    port: int | None = None  # None: a free one
    fatal_grace_s: float = 10.0  # from an engine's death in the log to giving up


@dataclass(frozen=True)
class Marks:
    """Seconds since the spawn, on the monotonic clock; None until seen."""

    spawned: float | None = None  # the process is up
    first_health_200: float | None = None
    first_completion: float | None = None

    def as_record(self) -> dict:
        """The marks as JSON values."""
        return asdict(self)


Series = tuple[str, tuple[tuple[str, str], ...]]  # the name of a sample and its labels in order


@dataclass(frozen=True)
class Counters:
    """The counters of a server at one moment, by series."""

    series: Mapping[Series, float]

    @classmethod
    def parse(cls, text: str) -> Counters:
        """Read Prometheus' text format; only counters are kept, not the times of their creation."""
        series = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                untyped = family.type in ("unknown", "untyped") and sample.name.endswith("_total")
                counter = untyped or (family.type == "counter" and not sample.name.endswith("_created"))
                if counter and math.isfinite(sample.value):  # NaN is no count: it stays unknown
                    series[sample.name, tuple(sorted(sample.labels.items()))] = float(sample.value)
        return cls(series)

    def total(self, name: str, **labels: str) -> float | None:
        """The sum over all series (all engines) of a name that have these labels; None when there is none."""
        wanted = set(labels.items())
        values = [value for (sample, own), value in self.series.items() if sample == name and wanted <= set(own)]
        return sum(values) if values else None

    def since(self, before: Counters) -> Counters:
        """What was counted after `before`. Refusal: METRICS_DISAGREE when any single series went down or is gone."""
        for (name, labels), value in before.series.items():
            if self.series.get((name, labels), -1.0) < value:
                raise Refusal(
                    Reason.METRICS_DISAGREE, f"{_series(name, labels)} went down: a part of the server restarted"
                )
        return Counters({key: value - before.series.get(key, 0.0) for key, value in self.series.items()})

    def as_record(self) -> dict[str, float]:
        """`name{label="value"}` -> value."""
        return {_series(name, labels): value for (name, labels), value in sorted(self.series.items())}


class Server:
    """A server that was started; as a context manager it always tears down."""

    def __init__(self, spec: ServerSpec, marker: str, port: int, api_key: str, began: float) -> None:
        """Use `start`."""
        self.spec, self.marker, self.port, self.api_key = spec, marker, port, api_key
        self.base_url = f"http://127.0.0.1:{port}"
        self.marks = Marks()
        self.addresses: tuple[str, ...] = ()  # where it listens; anything but loopback deserves a word
        self.teardown: Teardown | None = None
        self._began = began
        self._log_begin = self.log_offset()
        self._stop_lock = threading.RLock()
        self._client = _client(self)
        self._process: subprocess.Popen[bytes]
        self._start: _Start

    def __repr__(self) -> str:
        return f"Server({self.marker!r}, {self.base_url})"

    @classmethod
    def start(cls, spec: ServerSpec, marker: str) -> Self:
        """Spawn a server and begin to watch its start; `wait_ready` tells how that went.

        The key of the run goes to the server in VLLM_API_KEY only. Refusals: SERVER_FOREIGN (the
        port is not free), ENV_BROKEN (the program cannot be started).
        """
        port = processes.free_port() if spec.port is None else spec.port
        if not processes.port_is_free(port):
            raise Refusal(Reason.SERVER_FOREIGN, f"port {port} is taken before the start ({_holders(port)})")
        argv = [part.replace(PORT, str(port)) for part in spec.argv]
        server = cls(spec, marker, port, f"sk-{secrets.token_urlsafe(24)}", time.monotonic())
        env = {"PYTHONFAULTHANDLER": "1", **spec.env, "VLLM_API_KEY": server.api_key}
        try:
            with processes.shielded():
                server._process = processes.spawn(argv, env=env, cwd=spec.cwd, log=spec.log, marker=marker)
                server.mark(spawned=server.seconds())
                server._start = _Start(server)
                server._start.thread.start()
        except BaseException:
            processes.end(marker, spec.grace_s)  # a signal may have come between the spawn and here
            raise
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except Refusal as refusal:
            if error is None:
                raise
            error.add_note(str(refusal))  # the first failure stays the failure

    @property
    def headers(self) -> dict[str, str]:
        """What every request must carry."""
        return {"Authorization": f"Bearer {self.api_key}"}

    @property
    def pid(self) -> int:
        """The pid of its first process."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status of its first process, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def refusal(self) -> Refusal | None:
        """Why its start failed; None while it has not."""
        return self._start.refusal

    @property
    def began(self) -> float:
        """The monotonic clock at the spawn, seconds."""
        return self._began

    def seconds(self) -> float:
        """Since the spawn."""
        return time.monotonic() - self._began

    def mark(self, **marks: float) -> None:
        """Set a mark; each is set once, by the start."""
        self.marks = replace(self.marks, **{name: round(value, 4) for name, value in marks.items()})

    def wait_ready(self, progress: Progress | None = None) -> Marks:
        """Wait until it has served one completion; otherwise stop it and refuse.

        `progress` gets a line at every change of phase and about every second. Refusals: what the
        first error of the log means (SERVER_EXITED, SERVER_KILLED, SERVER_MEMORY …), SERVER_STALLED,
        SERVER_TIMEOUT, SERVER_FOREIGN, CONFIG_NOT_APPLIED, REQUESTS_FAILED.
        """
        ready(self, progress=progress)
        return self.marks

    def alive(self) -> bool:
        """Whether its first process runs."""
        return self.teardown is None and self.status is None

    def check_alive(self) -> None:
        """Refuse with the cause when it no longer runs."""
        if self.teardown is not None:
            raise Refusal(Reason.SERVER_KILLED, f"{self.marker} was stopped by us", file=self.spec.log)
        if self.status is not None:
            self.refuse_ended("while it served")

    def refuse_ended(self, when: str) -> NoReturn:
        """Refuse with the cause of its end, as log and exit status tell it."""
        cause = serverlog.exit_cause(self.log_since(self._log_begin), self.status)
        left = [process.pid for process in processes.members(self.marker)]
        outlived = f"; processes that outlived it: {left}" if left else ""
        self.refuse(cause, f"ended with status {self.status} {when}{outlived}")

    def refuse(self, cause: serverlog.Cause, words: str) -> NoReturn:
        """Refuse with a cause from the log."""
        key = f"line {cause.number}" if cause.number is not None and self._log_begin == 0 else None
        raise Refusal(cause.reason, f"{self.marker} {words}; {cause}", file=self.spec.log, key=key)

    def metrics_text(self) -> str | None:
        """What /metrics says; None when there is none, or no answer."""
        with contextlib.suppress(httpx.HTTPError):
            answer = self._client.get("/metrics", timeout=30)
            return answer.text if answer.status_code == 200 else None
        return None

    def metrics(self) -> Counters | None:
        """The server's counters; None when it has no /metrics, or something else stands there."""
        text = self.metrics_text()
        with contextlib.suppress(ValueError):
            return None if text is None else Counters.parse(text)
        return None

    def pending(self) -> int | None:
        """Requests that it says it works on or holds back; None when it does not say."""
        with contextlib.suppress(ValueError, OverflowError):
            families = text_string_to_metric_families(self.metrics_text() or "")
            named = [sample for family in families for sample in family.samples if sample.name in _PENDING]
            return int(sum(sample.value for sample in named)) if named else None
        return None

    def log_offset(self) -> int:
        """The size of the log now, in bytes: where a window begins."""
        with contextlib.suppress(OSError):
            return self.spec.log.stat().st_size
        return 0

    def log_since(self, offset: int) -> str:
        """The log from an offset on."""
        with contextlib.suppress(OSError), self.spec.log.open("rb") as stream:
            stream.seek(offset)
            return stream.read().decode(errors="replace")
        return ""

    def stop(self) -> Teardown:
        """End it and prove it gone: no process of it is left, so none listens on the port.

        A second call returns the first one's result. Refusal: SERVER_SURVIVED when even KILL left something.
        """
        with self._stop_lock, processes.shielded():
            if self.teardown is None:
                self._start.stopping.set()
                self.teardown = processes.end(self.marker, self.spec.grace_s)
                self._process.poll()
                self._start.thread.join(5)
                self._client.close()
        if not self.teardown.empty:
            raise Refusal(Reason.SERVER_SURVIVED, f"{self.marker} is not gone: pids {list(self.teardown.left)}")
        return self.teardown


def ready(*servers: Server, progress: Progress | None = None) -> None:
    """Wait until all of these servers are ready; the first one that cannot be is stopped and refused."""
    told: dict[str, str] = {}
    when = 0.0
    while waiting := [server for server in servers if not server._start.settled.is_set()]:
        _refuse_failed(servers)
        for server in waiting if progress is not None else ():
            phase = server._start.phase
            if told.get(server.marker) != phase or time.monotonic() - when >= 1:
                told[server.marker], when = phase, time.monotonic()
                last = serverlog.last_line(server.log_since(max(0, server.log_offset() - 4096)))
                progress(f"{server.marker}: {phase}, {server.seconds():.0f} s: {last[:200]}")
        waiting[0]._start.settled.wait(_POLL_S)
    _refuse_failed(servers)


def stop_all(servers: Sequence[Server]) -> None:
    """End servers at the same time, each within its own grace. Refusal: SERVER_SURVIVED, when all are through."""

    def stop(server: Server) -> None:
        try:
            server.stop()
        except Refusal as refusal:
            survived.append(refusal)

    survived: list[Refusal] = []
    with processes.shielded():
        threads = [threading.Thread(target=stop, args=(server,)) for server in servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for refusal in survived:
        raise refusal


def _refuse_failed(servers: tuple[Server, ...]) -> None:
    for server in servers:
        if (refusal := server._start.refusal) is not None:
            try:
                server.stop()
            except Refusal as survived:
                refusal.add_note(str(survived))
            raise refusal


class _StoppedError(Exception):
    """The start was told to stop."""


class _Start:
    """Follows one start in a thread of its own: sets the marks, or finds the refusal."""

    def __init__(self, server: Server) -> None:
        self.server, self.spec = server, server.spec
        self.settled, self.stopping = threading.Event(), threading.Event()
        self.refusal: Refusal | None = None
        self.phase = "starting"
        self.thread = threading.Thread(target=self._run, name=f"start of {server.marker}", daemon=True)
        self._log = ""
        self._progress = self._looked = time.monotonic()
        self._stuck: tuple[serverlog.Cause, float] | None = None  # the cause, since when

    def _run(self) -> None:
        try:
            with _client(self.server) as client:
                self._until_healthy(client)
                self._check_model(client)
                self._complete_once()
            self._check_listener()
            self.phase = "ready"
        except Refusal as refusal:
            self.refusal = refusal
        except _StoppedError:
            self.refusal = Refusal(Reason.SERVER_KILLED, f"{self.server.marker} was stopped by us before it was ready")
        except Exception as error:  # a thread that dies in silence would be waited for in vain
            self.refusal = Refusal(Reason.CLIENT_FAILED, f"watching {self.server.marker} failed: {error!r}")
        finally:
            self.settled.set()

    def _until_healthy(self, client: httpx.Client) -> None:
        seen = False
        while True:
            self._tick()
            with contextlib.suppress(httpx.HTTPError):
                answer = client.get(self.spec.health_path, timeout=5)
                at = self.server.seconds()
                if not seen:
                    self._check_listener()
                    seen, self.phase = True, "answering"
                if answer.status_code == 200:
                    self.server.mark(first_health_200=simulation.answered(answer.headers, at))
                    return
            self.stopping.wait(_POLL_S)

    def _check_listener(self) -> None:
        ours = {process.pid for process in processes.members(self.server.marker)}
        listeners = processes.listener_owner(self.server.port)
        if not listeners or any(listener.pid not in ours for listener in listeners):
            self._tick()  # if ours has just ended, that is the cause
            holders = _holders(self.server.port)
            raise Refusal(
                Reason.SERVER_FOREIGN, f"not {self.server.marker} answers on port {self.server.port} ({holders})"
            )
        self.server.addresses = tuple(sorted({listener.address for listener in listeners}))

    def _check_model(self, client: httpx.Client) -> None:
        self.phase = "asking for the model"
        try:
            answer = client.get("/v1/models", timeout=max(1.0, min(30.0, self.spec.stall_timeout_s)))
            names = [entry["id"] for entry in answer.json()["data"]] if answer.status_code == 200 else []
        except httpx.HTTPError as error:
            self._tick()
            raise Refusal(Reason.SERVER_STALLED, f"{self.server.marker}: /v1/models: {error!r}") from None
        except (ValueError, KeyError, TypeError):
            names = []
        if self.spec.model_name not in names:
            said = f"serves {names}" if names else f"answers {answer.status_code} to /v1/models"
            words = f"{self.server.marker} {said}, not {self.spec.model_name!r}"
            raise Refusal(Reason.CONFIG_NOT_APPLIED, words, file=self.spec.log)

    def _complete_once(self) -> None:
        self.phase = "first completion"
        answers: queue.SimpleQueue[tuple[float, httpx.Response | httpx.HTTPError]] = queue.SimpleQueue()
        threading.Thread(target=self._post, args=(answers,), daemon=True).start()
        deadline = time.monotonic() + self.spec.stall_timeout_s
        while answers.empty():
            self._tick(quiet=True)  # an engine may compile without a word here; the deadline is the watch
            if time.monotonic() > deadline:
                words = f"answers {self.spec.health_path}, but no completion in {self.spec.stall_timeout_s:g} s"
                self._refuse_hanging(Reason.SERVER_STALLED, words)
            self.stopping.wait(_POLL_S)
        at, answer = answers.get()
        if isinstance(answer, httpx.HTTPError):
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:  # most likely it died: then its log says more
                self._tick(quiet=True)
                self.stopping.wait(_POLL_S)
            raise Refusal(Reason.REQUESTS_FAILED, f"{self.server.marker}: the first completion failed: {answer!r}")
        if answer.status_code != 200 or "choices" not in answer.text or not answer.json().get("choices"):
            words = f"{self.server.marker}: the first completion got {answer.status_code}: {answer.text[:300]}"
            raise Refusal(Reason.REQUESTS_FAILED, words, file=self.spec.log)
        self.server.mark(first_completion=simulation.answered(answer.headers, at))

    def _post(self, answers: queue.SimpleQueue) -> None:
        body = {"model": self.spec.model_name, "prompt": "a", "max_tokens": 1, "temperature": 0}
        try:
            with _client(self.server) as client:
                answer = client.post("/v1/completions", json=body, timeout=None)
            answers.put((self.server.seconds(), answer))
        except httpx.HTTPError as error:
            answers.put((self.server.seconds(), error))

    def _tick(self, *, quiet: bool = False) -> None:
        """Stop waiting when nothing good can come any more."""
        if self.stopping.is_set():
            raise _StoppedError
        if self.server.status is not None:
            self.server.refuse_ended("before it was ready")
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._look(now)
            if self._stuck is not None and now - self._stuck[1] >= self.spec.fatal_grace_s:
                self.server.refuse(self._stuck[0], "will not become ready")
            if not quiet and now - self._progress >= self.spec.stall_timeout_s:
                words = f"made no progress for {self.spec.stall_timeout_s:g} s"
                self._refuse_hanging(Reason.SERVER_STALLED, words)
        if self.server.seconds() >= self.spec.start_timeout_s:
            self._refuse_hanging(Reason.SERVER_TIMEOUT, f"is not ready after {self.spec.start_timeout_s:g} s")

    def _look(self, now: float) -> None:
        self._looked = now
        log = self.server.log_since(self.server._log_begin)
        log = log[: max(log.rfind("\n"), log.rfind("\r")) + 1]  # whole lines; a progress bar ends its own in \r
        if len(log) != len(self._log):
            if not serverlog.is_waiting(log[len(self._log) :]):
                self._progress = now
            self._log = log
            cause = serverlog.stuck(log)
            since = now if self._stuck is None else self._stuck[1]
            self._stuck = None if cause is None else (cause, since)

    def _refuse_hanging(self, reason: Reason, words: str) -> NoReturn:
        log = self.server.log_since(self.server._log_begin)
        cause = serverlog.first_error(log)
        if cause is not None and cause.sure:
            self.server.refuse(cause, words)
        words = f"{self.server.marker} {words}; the last line of its log: {serverlog.last_line(log)[:300]!r}"
        raise Refusal(reason, words, file=self.spec.log)


def _client(server: Server) -> httpx.Client:
    """A client that no proxy setting of the machine diverts, with a connection a request."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(
        base_url=server.base_url,
        headers=server.headers,
        trust_env=False,
        verify=False,  # nosec B501 # http on the loopback address; certificates would be read for nothing
        limits=limits,
    )


def _holders(port: int) -> str:
    listeners = processes.listener_owner(port)
    return ", ".join(f"pid {one.pid or 'unknown'} on {one.address}" for one in listeners) or "no listener is seen"


def _series(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels) + "}"
