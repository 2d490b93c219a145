"""How well leases were used, and what a plain shell loop of the same legs would have taken.

    python tests/bench/bench_lease.py used SERIES.json ...      the share of every lease that was starts and legs
    python tests/bench/bench_lease.py loop CASE.yaml PLACE      PLACE: results/CASE/rows/ROW/DIGEST, measured before

The loop runs the legs that PLACE holds once more, as a script of `vllm serve` and `vllm bench serve`
would: for every leg the arm's server is started with the same arguments, waited for on /health, loaded
by the command line of the same client environment with the same prompts, and stopped. Its time is
compared with the time that the leases of PLACE were held for those legs. Real engines; minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from pinproof import bench, case, layout, leg, processes
from pinproof.client import Load
from pinproof.legbook import Legbook, LegId

GOAL = 0.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("used").add_argument("series", type=Path, nargs="+")
    loop_parser = commands.add_parser("loop")
    loop_parser.add_argument("case", type=Path)
    loop_parser.add_argument("place", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "used":
        for path in arguments.series:
            used(path)
    else:
        with processes.terminating():  # no server is left behind
            compare(arguments.case, arguments.place)


def leases(series: Path) -> list[dict]:
    return json.loads(series.read_text())["provenance"]["leases"]


def used(series: Path) -> None:
    """Print every lease of a series."""
    for one in leases(series):
        spent = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in one["spent_s"].items())
        print(f"{one['series']}: held {one['held_s']:.1f} s ({spent}): starts and legs {one['useful']:.3f}")


def compare(case_file: Path, place_folder: Path) -> None:
    """Run the legs of a place by a plain loop, and print both times."""
    places = layout.Layout(case.load(case_file), case_file, Path(__file__).parents[2])
    (place,) = [place for place in places.rows() if place.folder.name == place_folder.name]
    legs = [LegId(**record["id"]) for record in Legbook(place.legs, place.row).legs]
    held = sum(one["held_s"] for one in leases(place.series))
    begun = time.monotonic()
    for number, which in enumerate(legs, 1):
        seconds = one_leg(places, place, which, place_folder / "loop")
        so_far = held / (time.monotonic() - begun)  # the loop's time only grows: the ratio is below this
        print(f"{number:3} of {len(legs)}: {which.name}: {seconds:.1f} s; ratio below {so_far:.3f}", flush=True)
    loop = time.monotonic() - begun
    ratio = held / loop
    print(f"{len(legs)} legs: workflow {held:.1f} s of lease, loop {loop:.1f} s: ratio {ratio:.3f} (goal {GOAL})")


def one_leg(places: layout.Layout, place: layout.RowPlace, which: LegId, folder: Path) -> float:
    """Start a server, wait for /health, run the client's command line, stop the server; seconds."""
    folder.mkdir(exist_ok=True)
    begun = time.monotonic()
    checkpoint = places.checkpoint(place.row.checkpoint).with_suffix("").absolute()
    cache = (folder / "caches" / which.arm).absolute()  # kept from leg to leg, as a user's home is
    spec = bench.server_spec(places, place, which.arm, checkpoint, cache, folder / "server.log")
    port, key = processes.free_port(), "sk-loop"
    argv = [part.replace("{port}", str(port)) for part in spec.argv]
    with (folder / f"{which.name}.server.log").open("wb") as log:
        environment = {**spec.env, "VLLM_API_KEY": key}
        server = subprocess.Popen(argv, env=environment, cwd="/", stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for(f"http://127.0.0.1:{port}/health", server)
            client(places, place, which, folder, f"http://127.0.0.1:{port}", key)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            server.wait()
    return time.monotonic() - begun


def wait_for(url: str, server: subprocess.Popen) -> None:
    while True:
        assert server.poll() is None, "the server ended"
        try:
            if urllib.request.urlopen(url, timeout=5).status == 200:
                return
        except OSError:
            time.sleep(0.5)


def client(places: layout.Layout, place: layout.RowPlace, which: LegId, folder: Path, base_url: str, key: str) -> None:
    row = place.row
    cell = next(cell for cell in row.cells if cell.id == which.cell)
    checkpoint = places.checkpoint(row.checkpoint).with_suffix("").absolute()
    load = Load(
        base_url=base_url,
        api_key=key,
        model=bench.MODEL,
        tokenizer=checkpoint,
        corpus=(place.folder / "corpus" / f"{which.corpus}.jsonl").absolute(),
        asked=leg.Asked(cell.prompts, row.recipe.input_tokens, row.recipe.output_tokens),
        concurrency=cell.concurrency,
        result=(folder / f"{which.name}.raw.json").absolute(),
    )
    engine = places.engine(places.case.client)
    argv = [engine.python.absolute(), "-P", engine.env.absolute() / "bin" / "vllm", "bench", "serve", *load.argv()]
    environment = {**bench.environment((folder / "caches" / "client").absolute()), "OPENAI_API_KEY": key}
    with (folder / f"{which.name}.client.log").open("wb") as log:
        subprocess.run(argv, env=environment, cwd="/", stdout=log, stderr=log, check=True)
    raw = leg.read_raw(load.result)
    assert raw["completed"] == cell.prompts, raw["completed"]


if __name__ == "__main__":
    main()
