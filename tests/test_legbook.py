"""The legs of a row on disk: pairs, what counts, noise bands, and the decision from them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.builders import add_leg, small_case

from pinproof import plan, records
from pinproof.case import Case
from pinproof.equivalence import Outcome
from pinproof.legbook import FIRST, SECOND, Legbook, LegId, damaged, set_aside
from pinproof.reasons import Reason

CASE = small_case()
ROW = CASE.rows[0]
ARMS = (ROW.numerator, ROW.denominator)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "legs"


def book(folder: Path) -> Legbook:
    """All that lies on disk now."""
    return Legbook(folder, ROW)


def rep(folder: Path, index: int, better: float = 1.0, *, series: int = FIRST, valid: bool = True) -> None:
    """One rep in which the numerator is this many times better."""
    for position, arm in enumerate(plan.order(CASE, ROW, index)):
        own = better if arm == ROW.numerator else 1.0
        add_leg(book(folder), LegId(series, "rep", "c1", index, position, arm), own, valid=valid or position == 0)


def noise(folder: Path, *ratios: float) -> None:
    for index, ratio in enumerate(ratios):
        for position in (0, 1):
            better = ratio if position == 0 else 1.0
            add_leg(book(folder), LegId(FIRST, "noise", "c1", index, position, ROW.denominator), better)


def decide(folder: Path, case: Case = CASE) -> tuple[Outcome, Reason | None, bool]:
    judged = Legbook(folder, case.rows[0]).decide(plan.of(case, case.rows[0]))
    return judged.outcome, judged.reason, judged.confirmed


# -- legs on disk --------------------------------------------------------------------------------


def test_a_leg_is_found_again(folder: Path) -> None:
    which = LegId(FIRST, "rep", "c1", 3, 1, "oracle")
    written = book(folder).add(which, {"valid": True}, {"seconds": 1.0})
    assert book(folder).legs == [written]
    assert book(folder).digests() == {"s1-rep-c1-03-1-oracle": records.content_digest(written)}
    assert written["id"] == which.as_record()


def test_the_client_s_output_is_not_taken_for_a_leg(folder: Path) -> None:
    rep(folder, 0)
    assert (folder / "s1-rep-c1-00-0-oracle.raw.json").exists()
    assert len(book(folder).legs) == 2


def test_legs_are_named_and_ordered_the_same_whatever_came_first(folder: Path) -> None:
    rep(folder, 1)
    rep(folder, 0)
    assert list(book(folder).digests()) == sorted(book(folder).digests())
    assert [one["id"]["index"] for one in book(folder).legs] == [0, 0, 1, 1]


def test_both_arms_of_a_rep_get_the_same_prompts_and_no_other_leg_does() -> None:
    ids = [
        LegId(s, "rep", c, i, p, a) for s in (1, 2) for c in ("c1", "c4") for i in (0, 1) for p, a in enumerate(ARMS)
    ]
    assert len({one.corpus for one in ids}) == len(ids) / 2
    assert ids[0].corpus == ids[1].corpus


def test_the_legs_of_a_noise_pair_which_one_server_answers_get_prompts_of_their_own() -> None:
    one, other = (LegId(FIRST, "noise", "c1", 0, position, "previous").corpus for position in (0, 1))
    assert one != other


# -- pairs ---------------------------------------------------------------------------------------


def test_a_pair_counts_when_both_legs_do(folder: Path) -> None:
    rep(folder, 0)
    rep(folder, 1, valid=False)
    assert list(book(folder).pairs(FIRST, "rep", "c1")) == [0, 1]
    assert len(book(folder).valid(FIRST, "rep", "c1")) == 1
    assert book(folder).invalid(FIRST, "rep", "c1") == 1


def test_an_interrupted_pair_counts_neither_way_and_is_not_gone_back_to(folder: Path) -> None:
    rep(folder, 0)
    add_leg(book(folder), LegId(FIRST, "rep", "c1", 1, 0, "oracle"))
    found = book(folder)
    assert (len(found.valid(FIRST, "rep", "c1")), found.invalid(FIRST, "rep", "c1")) == (1, 0)
    assert found.next_index(FIRST, "rep", "c1") == 2


def test_series_phases_and_cells_are_kept_apart(folder: Path) -> None:
    rep(folder, 0)
    rep(folder, 0, series=SECOND)
    noise(folder, 1.0)
    add_leg(book(folder), LegId(FIRST, "rep", "c4", 5, 0, "oracle"))
    found = book(folder)
    assert len(found.valid(FIRST, "rep", "c1")) == len(found.valid(FIRST, "noise", "c1")) == 1
    assert found.next_index(FIRST, "rep", "c4") == 6
    assert found.next_index(SECOND, "noise", "c1") == 0


def test_a_series_was_begun_by_its_first_rep_not_by_its_noise(folder: Path) -> None:
    noise(folder, 1.0)
    assert not book(folder).has(FIRST)
    rep(folder, 0)
    assert book(folder).has(FIRST)
    assert not book(folder).has(SECOND)


# -- ratios --------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["output_throughput", "median_tpot"])
def test_a_ratio_is_above_1_where_the_numerator_is_better_whichever_came_first(folder: Path, metric: str) -> None:
    rep(folder, 0, 1.25)
    rep(folder, 1, 1.25)
    assert book(folder).ratios(FIRST, "c1", metric) == pytest.approx([1.25, 1.25])


def test_ratios_come_in_the_order_of_the_reps_without_those_that_do_not_count(folder: Path) -> None:
    for index, better in enumerate((1.1, 1.2, 1.3)):
        rep(folder, index, better, valid=index != 1)
    assert book(folder).ratios(FIRST, "c1", "median_tpot") == pytest.approx([1.1, 1.3])


def test_the_noise_band_is_the_spread_of_log_ratios_of_one_arm_against_itself(folder: Path) -> None:
    noise(folder, 1.1, 1 / 1.1)
    band = book(folder).noise()["c1"]["output_throughput"]
    assert band.pairs == 2
    assert band.sd == pytest.approx(math.sqrt(2) * math.log(1.1))


@pytest.mark.parametrize("ratios", [(), (1.0,)])
def test_without_two_pairs_there_is_no_noise_band(folder: Path, ratios: tuple[float, ...]) -> None:
    noise(folder, *ratios)
    assert book(folder).noise() == {"c1": {"output_throughput": None, "median_tpot": None}}


# -- the decision --------------------------------------------------------------------------------


@pytest.fixture
def quiet(folder: Path) -> Path:
    """A row whose A/A band is narrow."""
    noise(folder, 1.01, 0.99, 1.01, 0.99)
    return folder


def reps(folder: Path, better: float, *, series: int = FIRST, count: int = 3) -> None:
    for index in range(count):
        rep(folder, index, better * (1 + 0.002 * (index - 1)), series=series)


def test_a_row_without_noise_band_is_not_measured(folder: Path) -> None:
    reps(folder, 1.0)
    assert decide(folder) == (Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, False)


def test_a_row_goes_on_until_its_first_look(quiet: Path) -> None:
    reps(quiet, 1.0, count=2)
    assert decide(quiet) == (Outcome.CONTINUE, None, False)


def test_a_row_passes_when_it_is_shown_to_be_inside(quiet: Path) -> None:
    reps(quiet, 1.0)
    assert decide(quiet) == (Outcome.PASS, None, False)


def test_a_red_of_one_series_is_not_confirmed(quiet: Path) -> None:
    reps(quiet, 0.5)
    assert decide(quiet) == (Outcome.RED, Reason.UNCONFIRMED_RED, False)


def test_a_red_that_recurs_is_confirmed(quiet: Path) -> None:
    reps(quiet, 0.5)
    reps(quiet, 0.5, series=SECOND)
    assert decide(quiet) == (Outcome.RED, Reason.REGRESSION, True)


def test_a_red_that_does_not_recur_is_a_series_effect(quiet: Path) -> None:
    reps(quiet, 0.5)
    reps(quiet, 1.0, series=SECOND)
    assert decide(quiet) == (Outcome.INCONCLUSIVE, Reason.SERIES_EFFECT, False)


def test_a_plan_changed_after_a_red_asks_the_second_series_nothing(quiet: Path) -> None:
    """With a tolerance that the first series meets, what came after it says nothing."""
    reps(quiet, 0.8)
    reps(quiet, 0.8, series=SECOND)
    assert decide(quiet)[0] is Outcome.RED
    wide = small_case({"rows[0].metrics[0].tolerance": 0.9, "rows[0].metrics[1].tolerance": 0.9})
    assert decide(quiet, wide) == (Outcome.PASS, None, False)


def test_too_large_a_share_of_invalid_reps_ends_a_row(quiet: Path) -> None:
    reps(quiet, 1.0)
    for index in (3, 4):
        rep(quiet, index, valid=False)
    assert decide(quiet) == (Outcome.INCONCLUSIVE, Reason.INVALID_REPS, False)


def test_a_noisy_row_is_infeasible_before_any_rep(folder: Path) -> None:
    noise(folder, 1.2, 0.8, 1.2, 0.8)
    assert decide(folder) == (Outcome.INCONCLUSIVE, Reason.INFEASIBLE, False)


def test_what_an_interruption_left_is_kept_elsewhere_and_its_place_is_taken_again(folder: Path, tmp_path: Path) -> None:
    rep(folder, 0)
    lone = LegId(FIRST, "rep", "c1", 1, 0, ARMS[0])
    add_leg(book(folder), lone)
    here = book(folder)
    here.set_aside_interrupted(tmp_path / "aside")
    assert here.next_index(FIRST, "rep", "c1") == 1
    assert book(folder).digests().keys() == here.digests().keys()
    assert lone.name not in here.digests()
    assert sorted(path.name for path in (tmp_path / "aside").iterdir()) == [
        f"{lone.name}.json",
        f"{lone.name}.raw.json",
    ]


# -- damage --------------------------------------------------------------------------------------


def spoilt(folder: Path, name: str, how: str) -> None:
    """What a fault of the disk leaves of a leg."""
    record, raw = folder / f"{name}.json", folder / f"{name}.raw.json"
    if how == "half a record":
        record.write_text(record.read_text()[:40])
    elif how == "an empty record":
        record.write_text("")
    elif how == "the record of another leg":
        record.write_text(next(folder.glob("s1-rep-c1-01-0-*[!w].json")).read_text())
    elif how == "other output":
        raw.write_text(raw.read_text() + " ")
    else:
        raw.unlink()


@pytest.mark.parametrize(
    "how", ["half a record", "an empty record", "the record of another leg", "other output", "no output"]
)
def test_a_damaged_leg_is_set_aside_by_name_with_all_its_files_and_its_rep_is_taken_again(
    folder: Path, tmp_path: Path, how: str
) -> None:
    rep(folder, 0)
    rep(folder, 1)
    names = sorted(book(folder).digests())
    first = next(name for name in names if name.startswith("s1-rep-c1-00-0"))
    spoilt(folder, first, how)
    assert damaged(folder) == [first]
    set_aside(folder, damaged(folder), tmp_path / "aside")
    here = book(folder)
    here.set_aside_interrupted(tmp_path / "lone")
    assert {path.name.split(".")[0] for path in (tmp_path / "aside").iterdir()} == {first}
    assert list(here.pairs(FIRST, "rep", "c1")) == [1]


def test_whole_legs_are_not_damaged_unless_something_else_was_named(folder: Path) -> None:
    rep(folder, 0)
    named = book(folder).digests()
    assert damaged(folder, named) == []
    assert damaged(folder, {**named, "s1-rep-c1-07-0-oracle": "0"}) == ["s1-rep-c1-07-0-oracle"]
