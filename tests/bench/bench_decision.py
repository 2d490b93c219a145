"""What the decision rule does in simulation, beside the figures its design states.

Run as `python tests/bench/bench_decision.py [RUNS]` (default 20,000 runs a cell). It calls the
module's own arithmetic, one run at a time; normal noise, an A/A band of 8 pairs drawn anew for
every run. Error rates are printed with the figure of the design; the exit status is 1 when one
is off by more than four standard errors of the simulation, or above the bound that the design
states by as much (ABOVE), or mean reps off by more than 5 %.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from pinproof.boundaries import Spending
from pinproof.decision import decide_metric
from pinproof.equivalence import MetricPlan, NoiseBand, Outcome, Plan, noise_share, spending_for, walk

PAIRS = 8
NOTE = (
    'Note: the design\'s "1 %, 1 %" is Pocock-type spending, as printed here; at a noise that is as large as the '
    'tolerance the rule itself spends late ("1 %, 1 %: late spending": another row of figures).'
)
# One-sided budgets in percent, false PASS and false RED; beyond the planned noise only false PASS is bounded.
BUDGETS, BEYOND_PLANNED_NOISE, UNBOUNDED = (5.0, 1.0), (5.7, 100.0), (100.0, 100.0)
# A rule takes the plan, the A/A band and a run's x values, and gives outcome and reps used.
Rule = Callable[[Plan, NoiseBand, Sequence[float]], tuple[Outcome, int]]


@dataclass(frozen=True)
class Cell:
    """A cell of the table in the design: percentages, and mean reps at no shift."""

    label: str
    sd: float
    tolerance: float
    rule: Rule
    design: tuple[float | None, ...]  # false PASS at t, false RED at 0, false RED at t, PASS at 0, mean reps at 0
    looks: tuple[int, ...] = (3, 4, 6, 8, 12)
    today: float = 1.0  # today's noise over that of the A/A band
    published_reps: int | None = None  # the baseline was drawn with this many reps
    declared_reps: int | None = None  # and the plan says so, or says it is exact
    bounds: tuple[float, float] = BUDGETS  # most false PASS and most false RED that the design allows, percent


def fixed_kind(kind: Spending) -> Rule:
    """The looks with one kind of spending, whatever the A/A band of the run says."""

    def rule(plan: Plan, noise: NoiseBand, shifts: Sequence[float]) -> tuple[Outcome, int]:
        last = walk(plan, plan.metrics[0], noise, shifts, kind)[-1]
        return last.outcome, last.n

    return rule


def as_written(plan: Plan, noise: NoiseBand, shifts: Sequence[float]) -> tuple[Outcome, int]:
    """The whole rule: the kind of spending, and whether to measure at all, from the A/A band of the run."""
    decision = decide_metric(plan, plan.metrics[0], noise, [math.exp(x) for x in shifts])
    return decision.outcome, decision.looks[-1].n if decision.looks else 0


def by_true_noise(sd: float) -> Rule:
    """The kind of spending that the rule names for the true noise."""

    def rule(plan: Plan, noise: NoiseBand, shifts: Sequence[float]) -> tuple[Outcome, int]:
        kind = spending_for(noise_share(plan, plan.metrics[0], NoiseBand(sd, PAIRS)))
        return fixed_kind(kind)(plan, noise, shifts)

    return rule


def median_of_three(plan: Plan, _noise: NoiseBand, shifts: Sequence[float]) -> tuple[Outcome, int]:
    """The old practice, for comparison: no test at all."""
    middle = sorted(shifts[:3])[1]
    return (Outcome.PASS if abs(middle) <= plan.metrics[0].margin else Outcome.RED), 3


def own_variance_only(plan: Plan, _noise: NoiseBand, shifts: Sequence[float]) -> tuple[Outcome, int]:
    """A fixed-n test with today's variance alone: an A/A band of no spread never sets the floor."""
    last = walk(plan, plan.metrics[0], NoiseBand(0.0, PAIRS), shifts, Spending.POCOCK)[-1]
    return last.outcome, last.n


POCOCK = fixed_kind(Spending.POCOCK)
DESIGN = (
    Cell("0.3 %, 1 %", 0.003, 0.01, POCOCK, (3.5, 0.0, 0.6, 100, 3.6)),
    Cell("1 %, 2 %", 0.01, 0.02, POCOCK, (3.4, 0.0, 0.6, 99.9, 4.8)),
    Cell("3 %, 5 %", 0.03, 0.05, POCOCK, (3.5, 0.0, 0.6, 99.0, 6.1)),
    Cell("1 %, 1 %: Pocock type", 0.01, 0.01, POCOCK, (2.7, 0.0, 0.6, 62, 8.4)),
    Cell("median of 3, 1 %, 2 %", 0.01, 0.02, median_of_three, (50, 0.4, 50, 99.6, 3), bounds=UNBOUNDED),
    Cell("fixed n = 5, 3 %, 5 %", 0.03, 0.05, own_variance_only, (5.0, 0.0, 1.0, 81, 5), looks=(5,)),
)
NONE = (None,) * 5
BEYOND = (
    Cell("1 %, 1 %: late spending", 0.01, 0.01, by_true_noise(0.01), NONE),
    Cell("0.3 %, 1 %: as written", 0.003, 0.01, as_written, NONE),
    Cell("1 %, 2 %: as written", 0.01, 0.02, as_written, NONE),
    Cell("3 %, 5 %: as written", 0.03, 0.05, as_written, NONE),
    Cell("1 %, 1 %: as written", 0.01, 0.01, as_written, NONE),
    Cell("1 %, 2 %: noise x 1.5", 0.01, 0.02, POCOCK, NONE, today=1.5, bounds=BEYOND_PLANNED_NOISE),
    Cell("1 %, 2 %: noise x 2", 0.01, 0.02, POCOCK, NONE, today=2.0, bounds=BEYOND_PLANNED_NOISE),
    Cell("0.3 %, 1 %: noise x 2", 0.003, 0.01, POCOCK, NONE, today=2.0, bounds=BEYOND_PLANNED_NOISE),
    Cell("0.3 %, 1 %: b = 3 as exact", 0.003, 0.01, POCOCK, NONE, published_reps=3, bounds=UNBOUNDED),
    Cell("0.3 %, 1 %: b = 3 as written", 0.003, 0.01, as_written, NONE, published_reps=3, declared_reps=3),
)


def simulate(cell: Cell, at_margin: bool, runs: int) -> tuple[float, float, float]:
    """Shares of PASS and RED (percent) and mean reps over `runs`, at a true shift of 0 or of the tolerance."""
    draw = random.Random(f"{cell.label} {at_margin}")
    metric = MetricPlan("c1", "output_throughput", cell.tolerance, 1.0, cell.declared_reps)
    plan = Plan((metric,), looks=cell.looks)
    shift = metric.margin if at_margin else 0.0
    passes = reds = used = 0
    for _ in range(runs):
        noise = NoiseBand(cell.sd * math.sqrt(draw.gammavariate((PAIRS - 1) / 2, 2) / (PAIRS - 1)), PAIRS)
        error = draw.gauss(0, cell.sd / math.sqrt(cell.published_reps)) if cell.published_reps else 0.0
        shifts = [draw.gauss(shift - error, cell.sd * cell.today) for _ in range(cell.looks[-1])]
        outcome, reps = cell.rule(plan, noise, shifts)
        passes += outcome is Outcome.PASS
        reds += outcome is Outcome.RED
        used += reps
    return 100 * passes / runs, 100 * reds / runs, used / runs


def measure(cell: Cell, runs: int) -> tuple[float, ...]:
    """The five figures of a cell, in the order of the design's table."""
    pass_at_0, red_at_0, reps = simulate(cell, False, runs)
    pass_at_t, red_at_t, _ = simulate(cell, True, runs)
    return pass_at_t, red_at_0, red_at_t, pass_at_0, reps


def agrees(found: tuple[float, ...], design: tuple[float | None, ...], runs: int) -> bool:
    """Is every figure where the design says? Percentages were printed rounded: half a digit is allowed."""
    for value, stated in zip(found[:4], design[:4], strict=True):
        if stated is not None:
            rounding = 0.5 if stated == round(stated) and stated not in (0, 100) else 0.05
            share = min(max(stated / 100, 1 / runs), 1 - 1 / runs)
            if abs(value - stated) > 400 * math.sqrt(share * (1 - share) / runs) + rounding:
                return False
    return design[4] is None or abs(found[4] - design[4]) <= 0.05 * design[4]


def is_above(found: tuple[float, ...], bounds: tuple[float, float], runs: int) -> bool:
    """Is an error rate above its bound by more than four standard errors of the simulation?"""
    false_pass, _, false_red = found[:3]
    return any(
        rate > bound + 4 * math.sqrt(bound * (100 - bound) / runs)
        for rate, bound in zip((false_pass, false_red), bounds, strict=True)
    )


def main(runs: int) -> int:
    """Print both tables; 1 when the module disagrees with its design."""
    print(f"{runs} runs a cell; found (design)")
    print(f"{NOTE}\n")
    print("| noise sd, tolerance | false PASS at t | false RED at 0 | false RED at t | PASS at 0 | reps at 0 | |")
    print("|---|---|---|---|---|---|---|")
    off = 0
    for cell in DESIGN + BEYOND:
        found = measure(cell, runs)
        units = [" %", " %", " %", " %", ""]
        parts = [
            f"{value:.2f}{unit}" + ("" if stated is None else f" ({stated:g})")
            for value, unit, stated in zip(found, units, cell.design, strict=True)
        ]
        mark = "ABOVE" if is_above(found, cell.bounds, runs) else "" if agrees(found, cell.design, runs) else "OFF"
        off += mark != ""
        print(f"| {cell.label} | {' | '.join(parts)} | {mark} |", flush=True)
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
