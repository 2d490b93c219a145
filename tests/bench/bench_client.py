"""How true the load client measures: against a synthetic server whose schedule is known.

    python tests/bench/bench_client.py [--case CASE.yaml] [--concurrency N ...] [--rounds N] [--waves N]
        [--output-tokens N]

The server (tests/stubs/metronome.py, a double) sends the first token 100 ms after a request and one each
10 ms. At every concurrency the resident client and the command line `vllm bench serve` of the same
environment measure it by turns, with the same prompts; client and server have a core each. Deviations
are those of the median over all rounds from the schedule. The environment is that of the case
(the default one unless said), made before. Exit status 1: the resident client was off by more than 1 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from pinproof import bench, case, corpus, layout, leg, processes, server
from pinproof.client import Client, Load

ROOT = Path(__file__).parents[2]
METRONOME = ROOT / "tests/stubs/metronome.py"
TTFT_MS, TPOT_MS, GOAL = 100.0, 10.0, 0.01
INPUT_TOKENS = 128
CORES = {"client": {0}, "server": {1}}


@dataclass(frozen=True)
class Seen:
    """Medians of one leg, milliseconds: what the client reports, and what the server says that it served."""

    ttft: float
    tpot: float
    served_ttft: float
    served_tpot: float


class Workplace:
    """One synthetic server, one resident client, and the command line of the same environment."""

    def __init__(self, case_file: Path, folder: Path) -> None:
        places = layout.Layout(case.load(case_file), case_file, ROOT)
        name = next(iter(places.case.checkpoints))
        self.folder = folder
        self.engine = places.engine(places.case.client)
        self.tokenizer = places.subject(name)
        self.environment = bench.environment((folder / "caches").absolute())

    def start_server(self) -> server.Server:
        argv = (sys.executable, str(METRONOME), "--port", server.PORT)
        spec = server.ServerSpec(argv, dict(os.environ), "metronome", self.folder / "server.log", 60, 60, 2)
        started = server.Server.start(spec, f"bench-client.{os.getpid()}/server")
        started.wait_ready()
        settle(started.marker, CORES["server"])
        return started

    def start_client(self) -> Client:
        marker = f"bench-client.{os.getpid()}/client"
        python = self.engine.python.absolute()
        return Client(python, env=self.environment, log=self.folder / "client.log", marker=marker)

    def load(self, up: server.Server, concurrency: int, waves: int, tokens: int) -> Load:
        asked = leg.Asked(concurrency * waves, INPUT_TOKENS, tokens)
        key = f"c{concurrency}"
        made = corpus.make_corpus(
            self.tokenizer / "tokenizer.json", seed=0, legs={key: asked.prompts}, input_tokens=INPUT_TOKENS
        )
        made.write(self.folder / "corpus")
        return Load(
            base_url=up.base_url,
            api_key=up.api_key,
            model="metronome",
            tokenizer=self.tokenizer,
            corpus=(self.folder / "corpus" / f"{key}.jsonl").absolute(),
            asked=asked,
            concurrency=concurrency,
            result=self.folder / f"{key}.json",
        )

    def command_line(self, load: Load) -> None:
        argv = [self.engine.python.absolute(), "-P", self.engine.env.absolute() / "bin/vllm", "bench", "serve"]
        environment = {**self.environment, "OPENAI_API_KEY": load.api_key}
        with (self.folder / "command-line.log").open("wb") as log:
            subprocess.run(
                ["taskset", "-c", "0", *argv, *load.argv()],
                env=environment,
                cwd="/",
                stdout=log,
                stderr=log,
                check=True,
            )


def settle(marker: str, cores: set[int]) -> None:
    """Keep a process tree on its cores."""
    for process in processes.members(marker):
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)


def schedule(up: server.Server) -> dict:
    """What the server served since it was last asked."""
    with urllib.request.urlopen(f"{up.base_url}/schedule", timeout=10) as answer:
        return json.loads(answer.read())


def measured(load: Load, up: server.Server, run: object) -> Seen:
    """One leg by one of the two clients; all requests must have what they asked for."""
    schedule(up)
    run(load)
    raw, served = leg.read_raw(load.result), schedule(up)
    if found := leg.objections(raw, load.asked, {}):
        raise SystemExit(f"the leg does not count: {found[0].message}")
    return Seen(raw["median_ttft_ms"], raw["median_tpot_ms"], served["ttft_ms"], served["tpot_ms"])


def off(values: list[float], truth: float) -> float:
    """By how much the median of some values is off, as a share."""
    return statistics.median(values) / truth - 1


def deviations(seen: list[Seen], prefix: str = "") -> tuple[float, float]:
    """Those of TTFT and TPOT from the schedule."""
    return tuple(
        off([getattr(one, prefix + what) for one in seen], truth)
        for what, truth in (("ttft", TTFT_MS), ("tpot", TPOT_MS))
    )


def line(name: str, seen: list[Seen]) -> str:
    (ttft, tpot), own = deviations(seen), deviations(seen, "served_")
    itself = f"(the server itself: TTFT {own[0]:+.2%}, TPOT {own[1]:+.2%})"
    return f"  {name:13} TTFT {ttft:+7.2%}  TPOT {tpot:+7.2%}   {itself}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", type=Path, default=ROOT / "config/config.yaml")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--rounds", type=int, default=3, help="legs of each client at a concurrency")
    parser.add_argument("--waves", type=int, default=8, help="requests of a leg for each one in flight")
    parser.add_argument("--output-tokens", type=int, default=96)
    parser.add_argument("--only-resident", action="store_true", help="leave the command line out")
    arguments = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="pinproof-client-") as folder, processes.terminating():
        place = Workplace(arguments.case, Path(folder))
        with place.start_client() as client, place.start_server() as up:
            client.wait_ready()
            settle(f"bench-client.{os.getpid()}/client", CORES["client"])
            clients = {"resident": lambda load: client.run(load, timeout_s=600, check=up.check_alive)}
            clients |= {} if arguments.only_resident else {"command line": place.command_line}
            for concurrency in arguments.concurrency:
                load = place.load(up, concurrency, arguments.waves, arguments.output_tokens)
                seen: dict[str, list[Seen]] = {name: [] for name in clients}
                for number in range(arguments.rounds):
                    for name in sorted(clients, reverse=bool(number % 2)):
                        seen[name].append(measured(load, up, clients[name]))
                print(f"concurrency {concurrency}, {load.asked.prompts} requests a leg, {arguments.rounds} legs each")
                for name, legs in seen.items():
                    print(line(name, legs), flush=True)
                worst = max(worst, *map(abs, deviations(seen["resident"])))
    print(f"the resident client is off by {worst:.2%} at most (goal {GOAL:.0%})")
    sys.exit(0 if worst <= GOAL else 1)


if __name__ == "__main__":
    main()
