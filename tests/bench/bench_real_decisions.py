"""The decision on real engines: A/A pairs are never RED, and an engine slowed on purpose is, twice.

    python tests/bench/bench_real_decisions.py aa RESULTS_ROW_FOLDER   # a measured row of the default case
    python tests/bench/bench_real_decisions.py slowed FOLDER           # runs the default case, oracle slowed

Prints what was found; exit status 1 when a decision is not the one that is true.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from pinproof import case, decision, plan  # noqa: E402
from pinproof.legbook import FIRST, Legbook  # noqa: E402

CASE_FILE = ROOT / "config" / "config.yaml"
REPEATS = 10
TIMES_TOLERANCE = 2


def aa(folder: Path) -> bool:
    """Judge the recorded A/A pairs as if they were reps, in ten orders; none may be RED."""
    declared = case.load(CASE_FILE)
    row = declared.row("serving")
    book = Legbook(folder / "legs", row)
    noise, drawn = book.noise(), random.Random(0)
    found: Counter[str] = Counter()
    for _ in range(REPEATS):
        cells = {}
        for cell in row.cells:
            pairs = book.valid(FIRST, "noise", cell.id)
            drawn.shuffle(pairs)
            turned = [pair if drawn.random() < 0.5 else {0: pair[1], 1: pair[0]} for pair in pairs]
            ratios = {metric.name: [decision_ratio(pair, metric.name) for pair in turned] for metric in row.metrics}
            cells[cell.id] = decision.CellSeries(ratios, noise[cell.id])
        found[str(decision.decide(plan.of(declared, row), cells).outcome)] += 1
    print(f"A/A pairs judged {REPEATS} times: {dict(found)} (continue: the eight pairs were not enough)")
    return "red" not in found


def decision_ratio(pair: dict, metric: str) -> float | None:
    """The ratio of an A/A pair."""
    from pinproof import measures

    return measures.better(metric, pair[0]["metrics"][metric], pair[1]["metrics"][metric])


def slowed(folder: Path) -> bool:
    """Run the default case with the oracle's answers stretched in time; it must be RED in two series."""
    value = yaml.safe_load(CASE_FILE.read_text())
    value["rows"] = [row for row in value["rows"] if row["kind"] == "serving"]
    share = TIMES_TOLERANCE * max(metric["tolerance"] for metric in value["rows"][0]["metrics"])
    serve = value["arms"]["oracle"]["serve"]
    serve["args"] = ["--middleware", "tests.stubs.slowed.Slowed"]
    serve["env"] |= {"PYTHONPATH": str(ROOT), "SLOWED_BY": f"{share:.2f}"}
    value |= {"case": "slowed", "question": "Is an oracle that was slowed on purpose called red?"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.yaml").write_text(yaml.safe_dump(value))
    argv = [Path(sys.executable).with_name("snakemake"), "-s", ROOT / "Snakefile", "-d", folder, "--cores", "1"]
    environment = os.environ | {"PINPROOF_STORE": str(ROOT / "results")}
    subprocess.run([*argv, "verdict", "--configfile", "case.yaml"], cwd=folder, env=environment, check=True)
    verdict = json.loads((folder / "results/slowed/verdict.json").read_text())
    row = verdict["rows"]["serving"]
    print(f"slower by {share:.0%}: {verdict['verdict']}, row {row['outcome']}")
    return verdict["verdict"] == "REVERT" and row["decision"]["confirmed"]


if __name__ == "__main__":
    sys.exit(0 if {"aa": aa, "slowed": slowed}[sys.argv[1]](Path(sys.argv[2]).absolute()) else 1)
