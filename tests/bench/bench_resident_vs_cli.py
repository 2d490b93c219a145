"""The resident client against the command line `vllm bench serve`, on the same real server.

    python tests/bench/bench_resident_vs_cli.py agree [--case CASE.yaml] [--rounds N]
    python tests/bench/bench_resident_vs_cli.py recorded PLACE     PLACE: results/CASE/rows/ROW/DIGEST

`agree` starts the oracle of a case (the default one unless said) once and lets both clients load it at every
cell of the case, by turns: a round is resident, command line, command line, resident, and the next one the other
way around. Two legs of the same client in a round are an A/A pair. The difference of the two clients'
medians is held against the standard deviation of the log ratio of A/A pairs, the band that a row's
reps are held against as well. Every leg has prompts of its own. Exit status 1: outside of the band.

`recorded` counts the tokens of every request of the legs that a row kept, against the corpus.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from pinproof import bench, case, corpus, layout, leg, processes
from pinproof.claims import Cell
from pinproof.client import Client, Load
from pinproof.server import Server

ROOT = Path(__file__).parents[2]
METRICS = tuple(leg.METRICS)
CLIENTS = ("resident", "command line")
RUN = f"bench-clients.{os.getpid()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    agree = commands.add_parser("agree")
    agree.add_argument("--case", type=Path, default=ROOT / "config/config.yaml")
    agree.add_argument("--rounds", type=int, default=3)
    commands.add_parser("recorded").add_argument("place", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "recorded":
        sys.exit(0 if recorded(arguments.place) else 1)
    with tempfile.TemporaryDirectory(prefix="pinproof-clients-") as folder, processes.terminating():
        sys.exit(0 if Agreement(arguments.case, Path(folder)).run(arguments.rounds) else 1)


class Agreement:
    """One server of a case's oracle, and both clients of its environment."""

    def __init__(self, case_file: Path, folder: Path) -> None:
        self.folder = folder
        self.places = layout.Layout(case.load(case_file), case_file, ROOT)
        self.place = next(place for place in self.places.rows() if place.row.kind == "serving")
        self.checkpoint = self.places.subject(self.place.row.checkpoint)
        self.engine = self.places.engine(self.places.case.client)
        self.environment = bench.environment((folder / "caches/client").absolute())

    def run(self, rounds: int) -> bool:
        """All rounds of all cells; whether every metric of every cell agrees."""
        spec = bench.server_spec(
            self.places, self.place, case.ORACLE, self.checkpoint, self.folder / "caches/oracle", self.folder / "log"
        )
        python, log = self.engine.python.absolute(), self.folder / "client.log"
        with (
            Client(python, env=self.environment, log=log, marker=f"{RUN}/.client") as client,
            Server.start(spec, f"{RUN}/oracle") as up,
        ):
            up.wait_ready(), client.wait_ready()
            bench.place_on_cores([up], f"{RUN}/.client", self.places.case.device.placement)
            agree = [self.cell(cell, rounds, up, client) for cell in self.place.row.cells]
            return all(agree)

    def cell(self, cell: Cell, rounds: int, up: Server, client: Client) -> bool:
        orders = [CLIENTS + CLIENTS[::-1] if number % 2 == 0 else CLIENTS[::-1] + CLIENTS for number in range(rounds)]
        seen: dict[str, list[dict]] = {name: [] for name in CLIENTS}
        self.write_corpus(cell, 4 * rounds)
        self.drive(CLIENTS[0], self.load(cell, 0, up), up, client)  # warm
        for number, name in enumerate([name for order in orders for name in order]):
            seen[name].append(self.drive(name, self.load(cell, number + 1, up), up, client))
        print(f"{cell.id}: {len(seen[CLIENTS[0]])} legs of {cell.prompts} requests by each client, by turns")
        agree = [self.compare(metric, seen) for metric in METRICS]  # all of them, not up to the first that does not
        return all(agree)

    def compare(self, metric: str, seen: dict[str, list[dict]]) -> bool:
        """Print a metric of both clients side by side."""
        values = {name: [raw[leg.METRICS[metric]] for raw in legs] for name, legs in seen.items()}
        pairs = [math.log(own[at] / own[at + 1]) for own in values.values() for at in range(0, len(own), 2)]
        band = math.sqrt(statistics.fmean(one * one for one in pairs))  # a pair of one client has mean 0
        medians = {name: statistics.median(own) for name, own in values.items()}
        difference = math.log(medians["command line"] / medians["resident"])
        sides = "  ".join(f"{name} {median:9.3f}" for name, median in medians.items())
        verdict = "within" if abs(difference) <= band else "OUTSIDE"
        print(
            f"  {metric:17} {sides}  difference {difference:+.2%}  A/A band {band:.2%} ({len(pairs)} pairs): {verdict}"
        )
        return abs(difference) <= band

    def write_corpus(self, cell: Cell, legs: int) -> None:
        made = corpus.make_corpus(
            self.checkpoint / "tokenizer.json",
            seed=0,
            legs={f"{cell.id}-{number}": cell.prompts for number in range(legs + 1)},
            input_tokens=self.place.row.recipe.input_tokens,
        )
        made.write(self.folder / "corpus")

    def load(self, cell: Cell, number: int, up: Server) -> Load:
        recipe = self.place.row.recipe
        return Load(
            base_url=up.base_url,
            api_key=up.api_key,
            model=bench.MODEL,
            tokenizer=self.checkpoint,
            corpus=self.folder / "corpus" / f"{cell.id}-{number}.jsonl",
            asked=leg.Asked(cell.prompts, recipe.input_tokens, recipe.output_tokens),
            concurrency=cell.concurrency,
            result=self.folder / "result.json",
        )

    def drive(self, name: str, load: Load, up: Server, client: Client) -> dict:
        """One leg; the client's raw output, of which every request must count."""
        before = up.metrics()
        if name == "resident":
            client.run(load, timeout_s=600, check=up.check_alive)
        else:
            self.command_line(load)
        counted = up.metrics().since(before)
        raw = leg.read_raw(load.result)
        if found := leg.objections(
            raw, load.asked, {"prefix_cache_hits": counted.total("vllm:prefix_cache_hits_total")}
        ):
            raise SystemExit(f"a leg of the {name} does not count: {found[0].message}")
        return raw

    def command_line(self, load: Load) -> None:
        argv = [self.engine.python.absolute(), "-P", self.engine.env.absolute() / "bin/vllm", "bench", "serve"]
        front = ",".join(map(str, self.places.case.device.placement.front))
        environment = {**self.environment, "OPENAI_API_KEY": load.api_key}
        with (self.folder / "command-line.log").open("wb") as log:
            command = ["taskset", "-c", front, *argv, *load.argv()]
            subprocess.run(command, env=environment, cwd="/", stdout=log, stderr=log, check=True)


def recorded(place: Path) -> bool:
    """Print what was counted of every leg that a row kept; whether all counts that should be equal are."""
    manifest = json.loads((place / "corpus/corpus.json").read_text())
    requests: Counter[str] = Counter()
    inputs: dict[str, Counter[int]] = {}
    outputs: dict[str, Counter[int]] = {}
    odd = 0
    for path in sorted((place / "legs").glob("*.json")):
        if path.name.endswith(".raw.json"):
            continue
        record, raw = (
            json.loads(path.read_text()),
            json.loads(path.with_suffix("").with_suffix(".raw.json").read_text()),
        )
        arm, counters = record["id"]["arm"], record["counters"]
        requests[arm] += len(raw["input_lens"])
        inputs.setdefault(arm, Counter()).update(raw["input_lens"])
        outputs.setdefault(arm, Counter()).update(raw["output_lens"])
        told = (sum(raw["input_lens"]), sum(raw["output_lens"]), raw["completed"])
        odd += told != (counters["prompt_tokens"], counters["generation_tokens"], counters["requests_finished"])
    for arm, count in sorted(requests.items()):
        print(f"{arm}: {count} requests; input tokens {dict(inputs[arm])}, output tokens {dict(outputs[arm])}")
    print(f"corpus: {manifest['input_tokens']} input tokens a prompt; legs where /metrics disagrees: {odd}")
    sets = {frozenset(one) for one in inputs.values()}, {frozenset(one) for one in outputs.values()}
    return odd == 0 and sets[0] == {frozenset({manifest["input_tokens"]})} and len(sets[1]) == 1


if __name__ == "__main__":
    main()
