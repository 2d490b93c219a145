"""The head-pin case as data: its rows, what is published of them, and what the record lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders import case_value
from tests.stubs.workflow import Material, Workplace

from pinproof import case, citations, pin
from pinproof.citations import State

ROOT = Path(__file__).parents[1]
FILE = ROOT / "config" / "headpin-gb10.yaml"
VALUE = yaml.safe_load(FILE.read_text(encoding="utf-8"))
BEFORE = pin.read_pin(ROOT / "config" / "pins" / "vllm-5559679229-gb10.md")
SERVING, SPECULATIVE = "docs/benchmarks/vllm-online-serving.md", "docs/benchmarks/speculative-decoding.md"


def stated(**changes: Any) -> case.Case:
    """The case with stand-ins in the place of what is built, served and fetched on the worker."""
    small = case_value()
    arm, tiny = small["arms"]["oracle"]["engine"], small["checkpoints"]["tiny"]
    pins = VALUE["arms"]["oracle"]["pin"]
    arms = {name: {"pin": pins, "serve": own.get("serve", {}), "engine": arm} for name, own in VALUE["arms"].items()}
    checkpoints = {name: {**tiny, "positions": 8192} for name in VALUE["checkpoints"]}
    return case.parse({**VALUE, "arms": arms, "checkpoints": checkpoints, **changes}, FILE)


def pages(root: Path, shift: int = 0, change: Callable[[str], str] = lambda text: text) -> Path:
    """Pages that hold every quote of the case on its line, all moved down by `shift` lines."""
    lines: dict[str, dict[int, list[str]]] = {}
    for row in VALUE["rows"]:
        for cited in row.get("published", {}).get("cited", []):
            lines.setdefault(cited["file"], {}).setdefault(cited["line"], []).append(cited["quote"])
    for name, held in lines.items():
        text = "\n".join(" | ".join(held.get(number, ["-"])) for number in range(1, max(held) + 1))
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("-\n" * shift + change(text), encoding="utf-8")
    return root


def states(folder: Path) -> dict[State, int]:
    found = [one.state for one in citations.check(stated(pages=str(folder)), ROOT)]
    return {state: found.count(state) for state in dict.fromkeys(found)}


def remarks() -> set[tuple[str, str]]:
    return {(one.row, one.text) for one in citations.remarks(stated(), BEFORE)}


def test_the_case_has_the_seven_row_groups_each_of_its_kind() -> None:
    assert [(row.id, row.kind) for row in stated().rows] == [
        ("C1a-27b", "serving"),
        ("C1a-35b", "serving"),
        ("C1a-bf16", "serving"),
        ("C1a-startup", "startup"),
        ("C1b-mtp", "speculative"),
        ("C1b-dflash", "speculative"),
        ("C1c", "warmup"),
    ]


def test_every_row_compares_ours_with_the_oracle_on_both_sides_of_the_ratio() -> None:
    rows = stated().rows
    assert {(row.numerator, row.denominator, row.direction) for row in rows} == {("ours", "oracle", "two-sided")}


def test_the_pins_are_those_before_and_after_the_advance() -> None:
    after = pin.read_pin(ROOT / VALUE["arms"]["oracle"]["pin"])
    assert (BEFORE.vllm_commit[:10], after.vllm_commit[:10]) == ("5559679229", "e126687a9a")
    assert after.vllm_distribution_version == f"{after.vllm_runtime_version}.precompiled"
    assert VALUE["previous_pin"] == "config/pins/vllm-5559679229-gb10.md"


def test_every_file_of_this_repository_that_the_case_names_is_there() -> None:
    files = [VALUE["previous_pin"], VALUE["arms"]["oracle"]["pin"]]
    assert [file for file in files if not (ROOT / file).is_file()] == []


# -- what is published ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "baselines"),
    [
        (
            "C1a-27b",
            {("c1", "median_tpot"): 0.976, ("c1", "output_throughput"): 0.973, ("c1", "median_ttft"): 0.944}
            | {("c4", "median_tpot"): 0.946, ("c4", "output_throughput"): 0.958, ("c4", "median_ttft"): 0.982},
        ),
        ("C1a-bf16", {("c4", "output_throughput"): 0.963, ("c4", "median_tpot"): 0.98, ("c4", "median_ttft"): 0.881}),
        ("C1a-startup", {("start", "first_health"): 5.46}),
        ("C1b-dflash", {("c1", "output_throughput"): 1.003}),
        ("C1c", {}),
    ],
)
def test_published_ratios_are_gated_cell_by_cell(row: str, baselines: dict[tuple[str, str], float]) -> None:
    assert citations.baselines_of(stated().row(row)) == baselines


def test_a_ratio_of_means_is_not_gated_as_one_of_medians() -> None:
    assert ("c4", "median_ttft") not in citations.baselines_of(stated().row("C1a-35b"))


def test_every_gated_ratio_is_cited_or_follows_from_the_absolutes() -> None:
    assert [text for _, text in remarks() if text.startswith("no citation holds")] == []


def test_the_two_rows_without_absolutes_are_named() -> None:
    lacking = {row for row, text in remarks() if text.startswith("no absolutes are kept")}
    assert lacking == {"C1a-27b", "C1a-35b"}


def test_the_mtp_baseline_is_of_another_pin() -> None:
    assert ("C1b-mtp", "the baselines were measured at 0.25.0, not at the pin 5559679229") in remarks()
    assert [row for row, text in remarks() if "not at the pin" in text] == ["C1b-mtp"]


def test_the_dflash_margin_lies_under_the_tie_band() -> None:
    text = "1.003 (c1, output_throughput) lies inside what is called a tie (0.5 %)"
    assert [row for row, said in remarks() if said == text] == ["C1b-dflash"]
    assert len([said for _, said in remarks() if "called a tie" in said]) == 1


# -- the pages -----------------------------------------------------------------------------------


def test_citations_are_there_have_moved_or_are_gone(tmp_path: Path) -> None:
    assert states(pages(tmp_path / "as-cited")) == {State.THERE: 13}
    assert states(pages(tmp_path / "later", shift=15)) == {State.MOVED: 13}
    changed = pages(tmp_path / "changed", change=lambda text: text.replace("0.976x", "0.975x"))
    assert states(changed) == {State.GONE: 1, State.THERE: 12}


def test_a_moved_citation_is_named_with_its_new_line(tmp_path: Path) -> None:
    found = citations.check(stated(pages=str(pages(tmp_path, shift=15))), ROOT)
    moved = {(one.row, one.citation.place): one.text for one in found}
    assert moved["C1a-27b", f"{SERVING}:66"] == "now on line 81"
    assert moved["C1a-35b", f"{SERVING}:107"] == "now on line 122"
    assert moved["C1b-mtp", f"{SPECULATIVE}:5"] == "now on line 20"


def test_without_a_checkout_of_the_pages_citations_are_unknown() -> None:
    assert {one.state for one in citations.check(stated(), ROOT)} == {State.UNKNOWN}


# -- the preflight --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def preflight(material: Material, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a preflight of the case says on a machine without its device, its weights and its pages' old lines.

    Its arms are stub engines, as everywhere in these tests.
    """
    folder = tmp_path_factory.mktemp("headpin")
    arm = material.case()["arms"]["oracle"]["engine"]
    arms = {
        name: {"pin": str(ROOT / VALUE["arms"]["oracle"]["pin"]), "serve": own.get("serve", {}), "engine": arm}
        for name, own in VALUE["arms"].items()
    }
    changes = {"arms": arms, "pages": str(pages(folder / "pages", shift=15))}
    place = Workplace(folder, material).write({**VALUE, **changes, "previous_pin": str(ROOT / VALUE["previous_pin"])})
    return place.run("preflight").output


@pytest.mark.workflow
@pytest.mark.parametrize(
    "said",
    [
        "unknown: device: NVIDIA GB10 is not here",
        "unknown: clock lock: whether the SM clock may be locked at 2190 MHz is not known before",
        "blocks: checkpoint qwen3.6-27b-nvfp4: ",
        "weights of 9965652512, 9985757032, 1970287640 bytes",
        "row C1a-27b, baseline: no absolutes are kept",
        "row C1a-35b, baseline: no absolutes are kept",
        "row C1b-mtp, baseline: the baselines were measured at 0.25.0, not at the pin 5559679229",
        "row C1b-dflash, baseline: 1.003 (c1, output_throughput) lies inside what is called a tie (0.5 %)",
        "now on line 81",
    ],
)
def test_a_preflight_without_the_device_names(preflight: str, said: str) -> None:
    assert said in preflight


# -- what is argued away, and what is not owed ---------------------------------------------------


def test_both_discharges_are_about_the_oracle_alone() -> None:
    assert [(one.id, one.kind, one.arms) for one in stated().discharges] == [
        ("transformers-floor", "floor", ["oracle"]),
        ("allreduce-flashinfer", "inert", ["oracle"]),
    ]


def test_what_is_not_owed_is_listed() -> None:
    assert [one.what.split()[1] for one in stated().not_owed] == ["token-exact", "four"]
