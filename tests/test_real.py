"""The default case on real engines, with fewer reps and shorter legs than a measurement takes.

Its start-up and warm-up rows are left out: the fewest lives that they can do with take twelve minutes.

It asserts on what must be true of every run (identity, token counts, structure), never on which way a
noisy measurement fell. Engines are made in, or taken from, the repository's own results folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

ROOT = Path(__file__).parents[1]
SNAKEMAKE = Path(sys.executable).with_name("snakemake")

pytestmark = [pytest.mark.real, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the default case, shortened."""
    folder = tmp_path_factory.mktemp("real")
    case = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    case["decision"] |= {"noise_pairs": 3, "looks": [3]}
    rows = {row["id"]: row for row in case["rows"]}
    case["rows"] = [rows["serving"], rows["speculative"] | {"off_legs": 0}]
    rows["serving"]["cells"] = [{"concurrency": 1, "prompts": 4}, {"concurrency": 4, "prompts": 8}]
    case["rows"][1]["cells"] = [{"concurrency": 1, "prompts": 4}]
    (folder / "case.yaml").write_text(yaml.safe_dump(case))
    run(folder)
    return folder


def run(folder: Path) -> str:
    """Call the workflow as a user would; what it printed."""
    environment = os.environ | {"PINPROOF_STORE": str(ROOT / "results")}
    argv = [SNAKEMAKE, "-s", ROOT / "Snakefile", "-d", folder, "--cores", "1", "verdict", "--configfile", "case.yaml"]
    done = subprocess.run(
        argv, check=False, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def legs(folder: Path, row: str = "serving") -> list[dict]:
    paths = (folder / f"results/cpu/rows/{row}").glob("*/legs/*.json")
    return [json.loads(path.read_text()) for path in paths if not path.name.endswith(".raw.json")]


@pytest.fixture(scope="module")
def verdict(folder: Path) -> dict:
    return json.loads((folder / "results/cpu/verdict.json").read_text())


def test_it_ends_in_a_verdict_with_a_page(folder: Path, verdict: dict) -> None:
    assert verdict["verdict"] in {"HOLD", "REVERT", "UNDECIDED"}
    page = (folder / "results/cpu/verdict.md").read_text()
    assert page.startswith(f"# {verdict['verdict']}: {verdict['question']}")


@pytest.mark.parametrize(
    ("arm", "release", "transformers"), [("oracle", "0.32.0", "5.19.0"), ("previous", "0.31.0", "5.17.0")]
)
def test_the_engines_are_the_declared_ones(verdict: dict, arm: str, release: str, transformers: str) -> None:
    gate = verdict["arms"][arm]["gate"]
    read = {row["field"]: row["measured"] for row in gate["rows"]}
    assert gate["outcome"] == "pass"
    assert read["vllm_runtime_version"] == release
    assert read["vllm_distribution_version"] == f"{release}+cpu"
    assert read["transformers_version"] == transformers
    assert read["torch_version"].startswith("2.13.0")
    assert read["compiled_extensions"].endswith("rms_norm ok: True")


def test_every_request_of_every_leg_that_counts_had_the_asked_tokens(folder: Path) -> None:
    counted = [leg for leg in legs(folder) if leg["valid"]]
    assert counted
    for leg in counted:
        prompts = leg["asked"]["prompts"]
        assert leg["counters"]["prompt_tokens"] == prompts * 128
        assert leg["counters"]["generation_tokens"] == prompts * 96
        assert leg["counters"]["requests_finished"] == prompts
        assert leg["counters"]["prefix_cache_hits"] == 0


def test_the_band_has_its_pairs_in_every_cell(verdict: dict) -> None:
    for metric in verdict["rows"]["serving"]["decision"]["first"]["metrics"]:
        assert metric["noise"]["pairs"] == 3
        assert metric["noise"]["sd"] > 0


def test_the_page_is_made_from_the_legs(folder: Path, verdict: dict) -> None:
    row = verdict["rows"]["serving"]
    assert row["failure"] is None
    assert row["legs"]["count"] == len(legs(folder))
    assert row["plan"]["changed_after_data"] is False
    for cell, metrics in row["absolutes"].items():
        reps = [leg for leg in legs(folder) if leg["id"]["phase"] == "rep" and leg["id"]["cell"] == cell]
        for metric in metrics.values():
            assert all((metric[arm] is not None) == bool(reps) for arm in ("oracle", "previous"))


def test_what_was_drafted_and_accepted_is_counted(folder: Path, verdict: dict) -> None:
    assert verdict["rows"]["speculative"]["failure"] is None
    counted = [leg for leg in legs(folder, "speculative") if leg["valid"] and leg["id"]["phase"] in ("noise", "rep")]
    assert counted
    for leg in counted:
        counts = leg["speculation"]
        assert counts["drafts"] > 0
        assert counts["draft_tokens"] <= 3 * counts["drafts"]
        assert counts["accepted_tokens"] == sum(counts["accepted_by_position"])
        assert leg["metrics"]["acceptance_length"] == pytest.approx(1 + counts["accepted_tokens"] / counts["drafts"])


def test_nothing_is_left_running_and_a_second_call_has_nothing_to_do(folder: Path) -> None:
    engines = str(ROOT / "results" / "engines")
    running = [one.info["cmdline"] for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"]]
    assert not [words for words in running if any(word.startswith(engines) for word in words)]
    assert "Nothing to be done" in run(folder)
