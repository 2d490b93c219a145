"""The load client: `vllm bench serve` of one fixed environment for both arms.

The client imports vLLM once a series (children/load_client.py) and serves legs on request. The
arguments are those of the command line, which stays the reference.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from pinproof import processes
from pinproof.leg import Asked
from pinproof.reasons import Reason, Refusal

PROGRAM = Path(__file__).parent / "children" / "load_client.py"
START_TIMEOUT_S = 300
_CHECK_S = 0.2


@dataclass(frozen=True)
class Load:
    """One leg's load: a closed loop over a corpus file."""

    base_url: str
    api_key: str
    model: str
    tokenizer: Path
    corpus: Path
    asked: Asked
    concurrency: int
    result: Path

    def argv(self) -> list[str]:
        """The arguments of `vllm bench serve`. Everything that a default could change is said."""
        return [
            *("--backend", "vllm", "--endpoint", "/v1/completions", "--base-url", self.base_url),
            *("--model", self.model, "--served-model-name", self.model, "--tokenizer", str(self.tokenizer)),
            *("--dataset-name", "custom", "--dataset-path", str(self.corpus), "--disable-shuffle"),
            *("--skip-chat-template", "--custom-output-len", str(self.asked.output_tokens)),
            *("--num-prompts", str(self.asked.prompts), "--max-concurrency", str(self.concurrency)),
            *("--request-rate", "inf", "--seed", "0", "--temperature", "0", "--ignore-eos"),
            *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,99"),
            *("--save-result", "--save-detailed", "--disable-tqdm"),
            *("--result-dir", str(self.result.parent), "--result-filename", self.result.name),
        ]


class Client:
    """A resident client; a context manager that is gone when it is left."""

    def __init__(self, python: Path, *, env: Mapping[str, str], log: Path, marker: str) -> None:
        self._requests, requests = os.pipe()
        replies, self._replies = os.pipe()
        self._marker = marker
        self._log = log
        self._child = (python, dict(env))
        self._ends = (requests, replies)
        self._out = os.fdopen(requests, "w", buffering=1)
        self._in = os.fdopen(replies, "r", buffering=1)
        self._process: subprocess.Popen[bytes] | None = None
        self.import_s: float | None = None

    def __enter__(self) -> Client:
        python, env = self._child
        argv = [str(python), "-P", str(PROGRAM), str(self._requests), str(self._replies)]
        ends = (self._requests, self._replies)
        self._process = processes.spawn(argv, env=env, cwd=Path("/"), log=self._log, marker=self._marker, pass_fds=ends)
        for end in ends:
            os.close(end)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        processes.end(self._marker, grace_s=5)
        with contextlib.suppress(OSError):
            self._out.close()
        self._in.close()

    def wait_ready(self) -> None:
        """Wait until vLLM is imported. Refusal CLIENT_FAILED when the client ends or takes too long."""
        reply = self._reply(START_TIMEOUT_S, lambda: None)
        self.import_s = reply["import_s"]

    def run(self, load: Load, *, timeout_s: float, check: Callable[[], None]) -> None:
        """Run one leg; the raw output is in `load.result` then.

        `check` is called a few times a second and raises when the leg is lost (the server died).
        Refusals: CLIENT_FAILED when the client fails, CLIENT_STALLED after `timeout_s` seconds.
        """
        load.result.parent.mkdir(parents=True, exist_ok=True)
        load.result.unlink(missing_ok=True)
        try:
            self._out.write(json.dumps({"argv": load.argv(), "api_key": load.api_key}) + "\n")
        except BrokenPipeError:
            raise self._ended() from None
        reply = self._reply(timeout_s, check)
        if not reply["ok"]:
            raise Refusal(Reason.CLIENT_FAILED, reply["error"], file=self._log)

    def _reply(self, timeout_s: float, check: Callable[[], None]) -> dict:
        for _ in _until(timeout_s):
            if select.select([self._in], [], [], _CHECK_S)[0]:
                line = self._in.readline()
                if not line:
                    raise self._ended()
                return json.loads(line)
            check()
        raise Refusal(Reason.CLIENT_STALLED, f"the leg did not end within {timeout_s:.0f} s", file=self._log)

    def _ended(self) -> Refusal:
        return Refusal(Reason.CLIENT_FAILED, "the load client ended by itself", file=self._log)


def _until(timeout_s: float) -> Iterator[None]:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        yield
