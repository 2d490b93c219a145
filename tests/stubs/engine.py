#!/usr/bin/env python3
"""A TEST DOUBLE of an OpenAI-compatible vLLM server. It is a stub: no model, no device, no meaning.

It serves /health, /version, /v1/models, /v1/completions (streamed or not) and /metrics on a fixed
schedule of tokens, writes log lines of the shape that vLLM writes, and misbehaves on demand. It
needs nothing but the standard library. One token is one character: a prompt of n characters (or n
token ids) counts n tokens, and an answer of n tokens is n characters.

Faults are given as `--fault KIND` or `--fault KIND=NUMBER`, as often as wanted.

With STUB_CLOCK_MS in its environment it states its start on a clock of its own (see Clock) and says with
every answer when that came.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# kind -> (what NUMBER means and its default, what it does); None: takes no number
FAULTS: dict[str, tuple[int | None, str]] = {
    # start
    "never-listens": (None, "loads for ever without a word"),
    "exits-at-start": (1, "a traceback, the lines that follow from it, exit status NUMBER"),
    "exits-silently": (1, "exit status NUMBER without a word of the cause"),
    "parent-exits": (1, "exit status NUMBER; an engine process lives on"),
    "bare-child": (None, "with parent-exits: the engine process has wiped its environment, as setproctitle does"),
    "waits-after-traceback": (None, "a worker's traceback, then the waiting line for ever"),
    "out-of-memory": (None, "the line about less free memory than desired, then exit status 1"),
    "killed": (None, "kills itself with SIGKILL before it listens"),
    "stopped": (None, "the lines of a server that got SIGTERM from outside, exit status 0"),
    "wrong-model": (None, "serves another model name"),
    "halves-length": (None, "says half of the longest sequence that it was told"),
    "any-address": (None, "listens on every address instead of 127.0.0.1"),
    "hung-post": (None, "every GET is well; completions get headers and then nothing"),
    "compile-raises": (None, "its warm-up raises; a traceback, exit status 1"),
    "compile-is-skipped": (None, "its warm-up returns without a compile"),
    "keeps-no-cache": (None, "leaves nothing in its compile cache, so that every start is a cold one"),
    # end
    "ignores-term": (None, "does not end at SIGTERM"),
    "hard-second-term": (None, "a second SIGTERM ends it at once and leaves its child behind"),
    # legs; the completion that makes the server ready counts as a request
    "dies-mid-run": (1, "ends in the middle of the answer to request NUMBER + 1"),
    "stalls": (1, "request NUMBER + 1 and later ones stop after their first token"),
    "short-outputs": (1, "NUMBER tokens fewer than asked, and says stop"),
    "extra-prompt-tokens": (1, "counts NUMBER prompt tokens more"),
    "fewer-prompt-tokens": (1, "counts NUMBER prompt tokens fewer"),
    "error-500": (2, "status 500 for every NUMBERth request"),
    "error-200": (2, "status 200 with an error in the body for every NUMBERth request"),
    "cut-stream": (2, "the stream of every NUMBERth request ends half-way, without [DONE]"),
    "empty-first-chunk": (None, "a chunk without text comes at once, before the first token"),
    "slow-first": (500, "the first request takes NUMBER ms longer"),
    "jit-line": (1, "a kernel is compiled during request NUMBER + 1"),
    "prefix-hits": (1, "NUMBER tokens of every prompt come from the prefix cache"),
    "preemptions": (1, "every request is preempted NUMBER times"),
    "no-metrics": (None, "has no /metrics"),
    "miscounts": (1, "counts NUMBER generated tokens a request too many in /metrics"),
    "does-not-speculate": (None, "says speculative_config=None and counts no drafts, whatever it was told"),
    "drafts-nothing": (None, "speculates, and never drafts a token"),
    "accepts-fewer": (1, "accepts NUMBER drafted tokens a step fewer than it would"),
}


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line; what stands after `--` is shown in the log as engine arguments, and else ignored."""
    kinds = "\n".join(
        f"  {kind + ('' if default is None else f'[={default}]'):26} {text}" for kind, (default, text) in FAULTS.items()
    )
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"faults:\n{kinds}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="stub", help="the served model name")
    parser.add_argument("--version", default="0.0.0+stub", help="what /version answers")
    parser.add_argument("--start-ms", type=int, default=0, help="time until it listens")
    parser.add_argument("--ttft-ms", type=float, default=1.0, help="time to the first token of a request")
    parser.add_argument("--tpot-ms", type=float, default=0.5, help="time to each further token")
    parser.add_argument("--max-model-len", type=int, default=1 << 20, help="prompt and answer together; 400 above it")
    parser.add_argument(
        "--eos-after", type=int, default=0, help="tokens after which an answer ends by itself; 0: never"
    )
    parser.add_argument(
        "--speculate", metavar="METHOD:TOKENS", help="draft so many tokens a step; all but one are taken"
    )
    parser.add_argument("--fault", action="append", default=[], metavar="KIND[=NUMBER]", type=_fault)
    parser.add_argument("engine_args", nargs="*", metavar="-- ENGINE_ARG")
    args = parser.parse_args(argv)
    args.faults = dict(args.fault)
    return args


def _fault(text: str) -> tuple[str, int]:
    kind, _, number = text.partition("=")
    if kind not in FAULTS:
        raise argparse.ArgumentTypeError(f"no such fault: {kind}")
    default = FAULTS[kind][0]
    if number and default is None:
        raise argparse.ArgumentTypeError(f"{kind} takes no number")
    return kind, int(number) if number else default or 0


def log(text: str, *, process: str = "APIServer", level: str = "INFO", place: str = "stub.py:1") -> None:
    """Write lines the way vLLM's formatter does: every line with the whole prefix."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    for line in text.split("\n"):
        print(f"({process} pid={os.getpid()}) {level} {stamp} [{place}] {line}", flush=True)


def traceback(process: str, place: str, error: str) -> None:
    """Write a traceback as a process of the engine does."""
    frames = 'Traceback (most recent call last):\n  File "/stub/engine.py", line 1, in load\n    raise error'
    log(f"{frames}\n{error}", process=process, level="ERROR", place=place)


AFTERMATH = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


class Clock:
    """The clock of a start that states its schedule: seconds of this process that a busy machine does not stretch.

    Off without STUB_CLOCK_MS, the milliseconds that pass before the first step. While it runs, every clock
    of this process stands still but for `sleep`, so that what a plugin writes is on the schedule, too.
    """

    _TOLD = ("monotonic", "time", "clock_gettime")

    def __init__(self) -> None:
        before = os.environ.get("STUB_CLOCK_MS")
        self.passed = None if before is None else float(before) / 1000  # since the process began
        self._real = {name: getattr(time, name) for name in self._TOLD}

    def sleep(self, seconds: float) -> None:
        """Sleep, and let as much time pass on this clock."""
        time.sleep(seconds)
        if self.passed is not None:
            self.passed += seconds

    def run(self) -> None:
        """Tell the schedule's time to everything in this process, from where the process began."""
        if self.passed is None:
            return
        with open("/proc/self/stat", encoding="ascii", errors="replace") as stat:
            began = int(stat.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - began
        monotonic, wall = time.monotonic() - age, time.time() - age
        time.monotonic = lambda: monotonic + self.passed
        time.time = lambda: wall + self.passed
        time.clock_gettime = lambda which: (began if which == time.CLOCK_BOOTTIME else monotonic) + self.passed

    def stop(self) -> None:
        """Give the process its own clocks back."""
        for name, function in self._real.items():
            setattr(time, name, function)


CLOCK = Clock()


class Engine:
    """The counters and the schedule, shared by all requests."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.faults: dict[str, int] = args.faults
        self.served_name = "another-model" if "wrong-model" in self.faults else args.model
        self.key = os.environ.get("VLLM_API_KEY")
        self.lock = threading.Lock()
        self.requests = 0
        self.running = 0
        self.counters: Counter[str] = Counter()
        active = args.speculate and "does-not-speculate" not in args.faults
        self.drafted = int(args.speculate.partition(":")[2]) if active else 0
        self.finished: Counter[str] = Counter({"stop": 0, "length": 0, "abort": 0, "error": 0})

    def next_request(self) -> int:
        """The number of a new request, from 1; sets off what happens at this one."""
        with self.lock:
            self.requests += 1
            number = self.requests
        if number == self.faults.get("jit-line", -1) + 1:
            log(
                "Triton kernel JIT compilation during inference: _stub_kernel. This causes a latency spike; consider"
                " extending warmup to cover this shape/config.",
                process="EngineCore",
                level="WARNING",
                place="jit_monitor.py:1",
            )
        return number

    def every(self, kind: str, number: int) -> bool:
        """Whether a fault of every nth request strikes this one."""
        return kind in self.faults and number % self.faults[kind] == 0

    def after(self, kind: str, number: int) -> bool:
        """Whether a fault that begins after n requests strikes this one."""
        return kind in self.faults and number > self.faults[kind]

    def prompt_tokens(self, prompt: str | list[int]) -> int:
        """One a character or token id, unless a fault says otherwise."""
        counted = len(prompt) + self.faults.get("extra-prompt-tokens", 0) - self.faults.get("fewer-prompt-tokens", 0)
        return max(0, counted)

    def answer(self, asked: int, ignore_eos: bool) -> tuple[int, str]:
        """How many tokens an answer has, and why it ends."""
        if "short-outputs" in self.faults:
            return max(1, asked - self.faults["short-outputs"]), "stop"
        if self.args.eos_after and not ignore_eos and self.args.eos_after < asked:
            return self.args.eos_after, "stop"
        return asked, "length"

    def count(self, usage: dict, reason: str) -> None:
        """Book a finished request."""
        with self.lock:
            hits = self.faults.get("prefix-hits", 0)
            self.counters["vllm:prompt_tokens_total"] += usage["prompt_tokens"]
            self.counters["vllm:generation_tokens_total"] += usage["completion_tokens"]
            self.counters["vllm:generation_tokens_total"] += self.faults.get("miscounts", 0)
            self.counters["vllm:prefix_cache_queries_total"] += usage["prompt_tokens"]
            self.counters["vllm:prefix_cache_hits_total"] += hits
            self.counters["vllm:num_preemptions_total"] += self.faults.get("preemptions", 0)
            self.finished[reason] += 1
            if self.drafted and "drafts-nothing" not in self.faults:
                self.speculate(usage["completion_tokens"])

    def speculate(self, tokens: int) -> None:
        """Book the steps that so many tokens took."""
        accepted = max(0, self.drafted - 1 - self.faults.get("accepts-fewer", 0))
        steps = -(-tokens // (accepted + 1))
        self.counters["vllm:spec_decode_num_drafts_total"] += steps
        self.counters["vllm:spec_decode_num_draft_tokens_total"] += steps * self.drafted
        self.counters["vllm:spec_decode_num_accepted_tokens_total"] += steps * accepted
        for position in range(accepted):
            self.counters[f"position {position}"] += steps

    def metrics(self) -> str:
        """The counters in the text format of Prometheus."""
        labels = f'engine="0",model_name="{self.served_name}"'
        out = []
        names = ("prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits", "num_preemptions")
        if self.drafted:
            names += tuple(f"spec_decode_num_{what}" for what in ("drafts", "draft_tokens", "accepted_tokens"))
        with self.lock:
            for name in (f"vllm:{name}_total" for name in names):
                out += [
                    f"# HELP {name} A stub.",
                    f"# TYPE {name} counter",
                    f"{name}{{{labels}}} {self.counters[name]}.0",
                ]
                created = name.replace("_total", "_created")
                out += [f"# TYPE {created} gauge", f"{created}{{{labels}}} 1.7e+09"]
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            out += [f"# HELP {name} A stub.", f"# TYPE {name} counter"] if self.drafted else []
            for position in range(self.drafted):
                value = self.counters[f"position {position}"]
                out.append(f'{name}{{{labels},position="{position}"}} {value}.0')
            name = "vllm:request_success_total"
            out += [f"# HELP {name} A stub.", f"# TYPE {name} counter"]
            for reason, number in self.finished.items():
                out.append(
                    f'{name}{{engine="0",finished_reason="{reason}",model_name="{self.served_name}"}} {number}.0'
                )
        out += ["# TYPE vllm:num_requests_running gauge", f"vllm:num_requests_running{{{labels}}} {self.running}.0"]
        return "\n".join(out) + "\n"


@dataclass(frozen=True)
class Answer:
    """What one request will get."""

    number: int
    tokens: int
    reason: str
    begin: float
    usage: dict


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    engine: Engine  # set on the class that serves
    took_ms = 0.0  # what an answer is said to have taken

    def log_message(self, format: str, *args: object) -> None:
        """An access line as uvicorn writes it."""
        print(f"INFO:     {self.client_address[0]}:{self.client_address[1]} - " + format % args, flush=True)

    def do_GET(self) -> None:
        """Everything that is answered without an engine."""
        engine = self.engine
        if self.path == "/health":
            self._send(200, b"", "text/plain")
        elif self.path == "/version":
            self._json(200, {"version": engine.args.version})
        elif self.path == "/metrics" and "no-metrics" not in engine.faults:
            self._send(200, engine.metrics().encode(), "text/plain; version=0.0.4")
        elif self.path == "/v1/models" and self._allowed():
            self._json(200, {"object": "list", "data": [{"id": engine.served_name, "object": "model"}]})
        elif not self.path.startswith("/v1"):
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """Completions."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._allowed():
            return
        if self.path != "/v1/completions":
            self._json(404, {"detail": "Not Found"})
            return
        try:
            wish = json.loads(body)
            prompt, asked = wish["prompt"], int(wish.get("max_tokens", 16))
        except (ValueError, KeyError, TypeError) as error:
            self._error(400, f"bad request: {error!r}")
            return
        engine = self.engine
        if wish.get("model") != engine.served_name:
            self._error(404, f"The model `{wish.get('model')}` does not exist.")
        elif len(prompt) + asked > engine.args.max_model_len:
            self._error(400, f"This model's maximum context length is {engine.args.max_model_len} tokens.")
        else:
            with engine.lock:
                engine.running += 1
            try:
                self._complete(wish, prompt, asked)
            finally:
                with engine.lock:
                    engine.running -= 1

    def _complete(self, wish: dict, prompt: str | list[int], asked: int) -> None:
        begin = time.monotonic()
        engine = self.engine
        number = engine.next_request()
        if "hung-post" in engine.faults:
            self._head(200, "text/event-stream", chunked=True)
            self._hang()
        if engine.every("error-500", number):
            self._error(500, "the stub was told to fail")
            return
        if engine.every("error-200", number):
            self._json(200, {"error": {"message": "the stub was told to fail", "type": "InternalServerError"}})
            return
        tokens, reason = engine.answer(asked, bool(wish.get("ignore_eos")))
        if number == 1:
            begin += engine.faults.get("slow-first", 0) / 1000
        prompt_tokens = engine.prompt_tokens(prompt)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}
        answer = Answer(number, tokens, reason, begin, usage)
        if wish.get("stream"):
            self._stream(answer, bool((wish.get("stream_options") or {}).get("include_usage")))
            return
        for at in range(tokens):
            self._token(answer, at)
        engine.count(usage, reason)
        self.took_ms = engine.args.ttft_ms + (tokens - 1) * engine.args.tpot_ms
        self._json(200, {**self._chunk("".join(_letter(at) for at in range(tokens)), reason), "usage": usage})

    def _stream(self, answer: Answer, include_usage: bool) -> None:
        engine = self.engine
        self._head(200, "text/event-stream", chunked=True)
        if "empty-first-chunk" in engine.faults:
            self._event(self._chunk("", None))
        for at in range(answer.tokens):
            if engine.every("cut-stream", answer.number) and at >= max(1, answer.tokens // 2):
                self.close_connection = True
                engine.count(answer.usage, "abort")
                return
            self._token(answer, at)
            self._event(self._chunk(_letter(at), answer.reason if at == answer.tokens - 1 else None))
        if include_usage:
            self._event({**self._chunk("", None), "choices": [], "usage": answer.usage})
        engine.count(answer.usage, answer.reason)  # before the client can know that it is done, and ask
        self._write(b"data: [DONE]\n\n")
        self._write(b"")

    def _token(self, answer: Answer, at: int) -> None:
        """Wait until a token is due; the answer of one request is on its own schedule whatever else runs."""
        engine = self.engine
        if at >= 1 and engine.after("stalls", answer.number):
            self._hang()
        if at >= 1 and engine.after("dies-mid-run", answer.number):
            log("EngineCore encountered a fatal error.", process="EngineCore", level="ERROR", place="core.py:1")
            traceback("EngineCore", "core.py:1", "RuntimeError: the stub was told to die")
            os._exit(1)
        due = answer.begin + (engine.args.ttft_ms + at * engine.args.tpot_ms) / 1000
        time.sleep(max(0.0, due - time.monotonic()))

    def _chunk(self, text: str, reason: str | None) -> dict:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        created = int(time.time())
        return {
            "id": "cmpl-stub",
            "object": "text_completion",
            "created": created,
            "model": self.engine.served_name,
            "choices": [choice],
        }

    def _allowed(self) -> bool:
        if not self.engine.key or self.headers.get("Authorization") == f"Bearer {self.engine.key}":
            return True
        self._json(401, {"error": "Unauthorized"})
        return False

    def _error(self, status: int, message: str) -> None:
        self._json(status, {"error": {"message": message, "type": "Error", "code": status}})

    def _json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self._head(status, kind, length=len(body))
        self.wfile.write(body)

    def _head(self, status: int, kind: str, *, length: int | None = None, chunked: bool = False) -> None:
        self.send_response(status)
        self.send_header("X-Stub-Ttft-Ms", str(self.engine.args.ttft_ms))
        self.send_header("X-Stub-Tpot-Ms", str(self.engine.args.tpot_ms))
        if CLOCK.passed is not None:
            self.send_header("X-Rehearsed-At-S", f"{CLOCK.passed + self.took_ms / 1000:.6f}")
        self.send_header("Content-Type", kind)
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _event(self, value: object) -> None:
        self._write(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _write(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _hang(self) -> None:
        while True:
            time.sleep(3600)


def _letter(at: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[at % 26]


class Listener(ThreadingHTTPServer):
    """A thread a connection; a client that goes away is no news."""

    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


def child(*, wiped: bool) -> None:
    """An engine process that outlives its parent; `wiped`: nothing is left in its environment."""
    if os.fork() == 0:
        code = "import time\nwhile True: time.sleep(3600)"
        os.execve(sys.executable, [sys.executable, "-c", code], {} if wiped else dict(os.environ))


def fail_to_start(faults: dict[str, int]) -> None:
    """The faults of a start; returns when the start goes well."""
    if "never-listens" in faults:
        signal.pause()
    if "exits-silently" in faults:
        sys.exit(faults["exits-silently"])
    if "exits-at-start" in faults:
        log("EngineCore failed to start.", process="EngineCore", level="ERROR", place="core.py:1")
        traceback("EngineCore", "core.py:1", "ValueError: the stub was told to fail")
        print(AFTERMATH, flush=True)
        sys.exit(faults["exits-at-start"])
    if "out-of-memory" in faults:
        error = (
            "ValueError: Free memory on device cuda:0 (3.2/79.1 GiB) on startup is less than desired GPU memory"
            " utilization (0.9, 71.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by"
            " other processes."
        )
        traceback("EngineCore", "core.py:1", error)
        print(AFTERMATH, flush=True)
        sys.exit(1)
    if "killed" in faults:
        os.kill(os.getpid(), signal.SIGKILL)
    if "stopped" in faults:
        log("[shutdown] API server: shutdown triggered")
        sys.exit(0)
    if "parent-exits" in faults:
        child(wiped="bare-child" in faults)
        log("Timed out waiting for engine core processes to start.", level="ERROR")
        sys.exit(faults["parent-exits"])
    if "waits-after-traceback" in faults:
        traceback("Worker", "worker.py:1", "RuntimeError: Not enough memory for 24 blocks of KV cache")
        while True:
            log("Waiting for 1 local, 0 remote core engine proc(s) to start.", level="DEBUG", place="utils.py:1")
            time.sleep(0.05)


WARM_UP: list = []  # functions of the faults, called before it listens


def warm_up(step: object, faults: dict[str, int]) -> None:
    """A step of the start; what it raises ends the server as an engine's failure does."""
    try:
        step(faults)
    except RuntimeError as error:
        log("EngineCore failed to start.", process="EngineCore", level="ERROR", place="core.py:1")
        traceback("EngineCore", "core.py:1", f"RuntimeError: {error}")
        print(AFTERMATH, flush=True)
        sys.exit(1)


def obey_signals(faults: dict[str, int]) -> None:
    """End at SIGTERM as a server should, unless told otherwise."""
    seen: list[int] = []

    def terminate(_number: int, _frame: object) -> None:
        seen.append(1)
        if "ignores-term" in faults:
            return
        if "hard-second-term" in faults and len(seen) == 1:
            threading.Thread(target=lambda: (time.sleep(0.5), os.killpg(0, signal.SIGKILL))).start()  # it cleans up
            return
        os._exit(143 if len(seen) > 1 else 0)

    signal.signal(signal.SIGTERM, terminate)


def main(argv: list[str] | None = None) -> None:
    """Serve until told to stop."""
    args = arguments(argv)
    obey_signals(args.faults)
    if "hard-second-term" in args.faults:
        child(wiped=False)
    shown = {"model": args.model, "port": args.port, "engine_args": args.engine_args}
    log(f"non-default args: {shown}", place="api_utils.py:1")
    speculative = None
    if args.speculate and "does-not-speculate" not in args.faults:
        method, _, tokens = args.speculate.partition(":")
        speculative = f"SpeculativeConfig(method='{method}', model=None, num_spec_tokens={tokens})"
    length = args.max_model_len // 2 if "halves-length" in args.faults else args.max_model_len
    sizes = f"max_seq_len={length}, seed=0"
    config = f"model='{args.model}', speculative_config={speculative}, {sizes}"
    log(
        f"Initializing a V1 LLM engine (v{args.version}) with config: {config}", process="EngineCore", place="core.py:1"
    )
    log("Using STUB attention backend out of potential backends: ['STUB'].", process="EngineCore", place="stub.py:2")
    fail_to_start(args.faults)
    for step in WARM_UP:
        warm_up(step, args.faults)
    CLOCK.sleep(args.start_ms / 1000)
    CLOCK.stop()
    log("GPU KV cache size: 1,000,000 tokens", process="EngineCore", place="kv_cache_utils.py:1")
    handler = type("Handler", (Handler,), {"engine": Engine(args)})
    address = "" if "any-address" in args.faults else "127.0.0.1"
    with Listener((address, args.port), handler) as listener:
        log(f"Starting vLLM server on http://127.0.0.1:{args.port}")
        print("INFO:     Application startup complete.", flush=True)
        listener.serve_forever()


if __name__ == "__main__":
    main()
