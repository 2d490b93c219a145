"""Rows of every kind as a person writes them: what each refuses, with the key and what is allowed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.builders import FILE, case_value, refusal_of

from pinproof import case
from pinproof.legbook import LegId
from pinproof.reasons import Reason

ARMS = {"numerator": "oracle", "denominator": "previous", "direction": "no-worse"}
SERVING = case_value()["rows"][0]
STARTUP: dict[str, Any] = {
    "id": "startup",
    "kind": "startup",
    "checkpoint": "tiny",
    **ARMS,
    "caches": {"page": "warm", "compile": "warm", "jit": "warm"},
    "metrics": [{"name": "first_health", "tolerance": 0.1}],
    "spans": [{"name": "load", "callable": "vllm.worker:Worker.load_model"}],
}
WARMUP = {"id": "warmup", "kind": "warmup", "of": "startup", **ARMS, "callables": ["load"]}
SPECULATIVE = {
    **SERVING,
    "id": "ngram",
    "kind": "speculative",
    "config": {"method": "ngram", "num_speculative_tokens": 3},
    "metrics": [{"name": "acceptance_length", "exact": True}],
}


def a_case(*changes: tuple[str, Any]) -> dict[str, Any]:
    """All four kinds; a change is (dotted key, value)."""
    value = case_value({"rows": copy.deepcopy([SERVING, STARTUP, WARMUP, SPECULATIVE])})
    for key, new in changes:
        row, *way, last = key.split(".")
        place: Any = value["rows"][["serving", "startup", "warmup", "ngram"].index(row)]
        for part in way:
            place = place[int(part) if part.isdigit() else part]
        place[last] = new
    return value


def refused(*changes: tuple[str, Any]) -> list[str]:
    refusal = refusal_of(case.parse, a_case(*changes), FILE)
    assert refusal.reason is Reason.CASE_INVALID
    return [line.removeprefix("case.yaml: ") for line in str(refusal).splitlines()[:-1]]


def parsed(*changes: tuple[str, Any]) -> case.Case:
    return case.parse(a_case(*changes), FILE)


def test_four_kinds_are_read_as_they_are_written() -> None:
    assert [row.kind for row in parsed().rows] == ["serving", "startup", "warmup", "speculative"]


def test_a_kind_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    (line,) = refused(("serving.kind", "sorting"))
    assert line == "rows[0].kind: must be 'serving', 'startup', 'warmup' or 'speculative' (got 'sorting')"


# -- looks and A/A pairs of a row's own ----------------------------------------------------------


def test_a_row_takes_the_case_s_looks_and_pairs_unless_it_says_others() -> None:
    found = parsed(("startup.looks", [3, 5]), ("startup.noise_pairs", 3))
    assert [found.decision_of(row).looks for row in found.rows] == [[3, 4], [3, 5], [3, 5], [3, 4]]
    assert [found.decision_of(row).noise_pairs for row in found.rows] == [4, 3, 3, 4]


@pytest.mark.parametrize(("looks", "words"), [([2, 3], "start at 3"), ([4, 4], "increase"), ([], "at least 1 item")])
def test_looks_of_a_row_are_held_to_the_same_rule(looks: list[int], words: str) -> None:
    (line,) = refused(("startup.looks", looks))
    assert line.startswith("rows[1].looks: ")
    assert words in line


# -- start-up ------------------------------------------------------------------------------------


def test_less_than_five_per_cent_of_a_start_is_no_claim() -> None:
    (line,) = refused(("startup.metrics.0.tolerance", 0.049))
    assert line == "rows[1].metrics[0].tolerance: must be greater than or equal to 0.05 (got 0.049)"
    assert parsed(("startup.metrics.0.tolerance", 0.05))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("startup.caches", {"page": "warm", "compile": "warm"}, "rows[1].caches.jit: this key is required"),
        ("startup.caches.page", "cold", "rows[1].caches.page: must be 'dropped' or 'warm' (got 'cold')"),
        ("startup.metrics.0.name", "median_tpot", "rows[1].metrics[0].name: must be 'first_health' or "),
        ("startup.recipe", {}, "rows[1].recipe: unknown key; allowed are caches, checkpoint, "),
        ("startup.spans.0.callable", "vllm.worker", "rows[1].spans[0].callable: must be module:name or "),
        ("startup.spans.0.callable", "a:b;rm", "rows[1].spans[0].callable: must be module:name or "),
    ],
)
def test_a_start_up_row_names_its_states_and_callables(key: str, value: Any, message: str) -> None:
    assert refused((key, value))[0].startswith(message)


def test_a_span_has_a_name_of_its_own() -> None:
    spans = [STARTUP["spans"][0], {**STARTUP["spans"][0], "callable": "vllm.worker:Worker.compile"}]
    assert refused(("startup.spans", spans)) == ["rows[1].spans: load is there twice; each is allowed once"]


@pytest.mark.parametrize("name", ["VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"])
def test_nobody_moves_a_cache_whose_state_a_start_up_row_sets(name: str) -> None:
    (line,) = refused(("startup.serve", {"args": [], "env": {name: "/tmp"}}))
    assert line == f"rows[1].serve.env.{name}: row startup sets the caches of every start itself; leave it out"
    value = a_case()
    value["arms"]["previous"]["serve"]["env"][name] = "/tmp"
    assert f"arms.previous.serve.env.{name}: " in str(refusal_of(case.parse, value, FILE))


# -- warm-up -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("warmup.of", "serving", "rows[2].of: no such start-up row: serving; start-up rows are startup"),
        ("warmup.callables", ["loads"], "rows[2].callables: no such span in row startup: loads; its spans are load"),
        ("warmup.callables", ["load", "load"], "rows[2].callables: load is there twice; each is allowed once"),
        ("warmup.arms", ["newest"], "rows[2].arms: newest is not measured by row startup"),
        ("warmup.change", {"tolerance_points": 0.0}, "rows[2].change.tolerance_points: must be greater than 0 "),
    ],
)
def test_a_warm_up_row_fits_its_start_up_row(key: str, value: Any, message: str) -> None:
    (line,) = refused((key, value))
    assert line.startswith(message)


def test_a_warm_up_row_has_the_arms_of_its_start_up_row() -> None:
    lines = refused(("warmup.numerator", "previous"), ("warmup.denominator", "oracle"))
    assert lines[0] == "rows[2].numerator: must be oracle, as in row startup, whose lives are looked at (got previous)"
    assert len(lines) == 2


def test_a_warm_up_row_gates_statistics_only_when_it_says_so() -> None:
    found = parsed()
    assert (found.row("warmup").metrics, found.row("warmup").judged_arms) == ([], ("oracle", "previous"))
    gated = parsed(("warmup.change", {"tolerance_points": 5.0}), ("warmup.arms", ["oracle"])).row("warmup")
    assert [(one.name, one.tolerance, one.baseline) for one in gated.metrics] == [("warmup_share", 5.0, 0.0)]
    assert gated.judged_arms == ("oracle",)


def test_the_lives_of_a_warm_up_row_are_those_of_its_start_up_row() -> None:
    found = parsed()
    assert [found.lives(row).id for row in found.rows] == ["serving", "startup", "startup", "ngram"]
    assert [row.id for row in found.warmups(found.row("startup"))] == ["warmup"]
    assert found.warmups(found.row("serving")) == []


# -- speculative ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"name": "acceptance_length"}, "a metric needs a tolerance, or exact: true; not both"),
        ({"name": "acceptance_rate", "exact": True, "tolerance": 0.1}, "a metric needs a tolerance, or exact: true; "),
        ({"name": "median_tpot", "exact": True}, "only acceptance_length and acceptance_rate can be exact; "),
        (
            {"name": "acceptance_rate", "exact": True, "baseline": 0.9, "baseline_reps": 3},
            "what is exact is equal on both arms: its baseline is 1",
        ),
    ],
)
def test_an_acceptance_is_held_to_a_tolerance_or_exact(claim: dict[str, Any], message: str) -> None:
    (line,) = refused(("ngram.metrics", [claim]))
    assert line.startswith(f"rows[3].metrics[0]: {message}")


@pytest.mark.parametrize(
    "config", [{"method": "ngram"}, {"num_speculative_tokens": "3"}, {"num_speculative_tokens": True}]
)
def test_a_speculative_row_says_how_many_tokens_are_drafted(config: dict[str, Any]) -> None:
    (line,) = refused(("ngram.config", config))
    assert line.startswith("rows[3].config: num_speculative_tokens must be a whole number")


@pytest.mark.parametrize("value", [float("nan"), {1, 2}])
def test_a_speculative_config_is_json(value: Any) -> None:
    (line,) = refused(("ngram.config", {"num_speculative_tokens": 3, "x": value}))
    assert line.startswith("rows[3].config: must hold what JSON can hold")


def test_any_key_of_the_engine_s_speculative_config_goes_through() -> None:
    config = {"method": "eagle3", "model": "x/y", "num_speculative_tokens": 1, "draft_tensor_parallel_size": 1}
    assert parsed(("ngram.config", config)).row("ngram").config == config


def test_the_same_prompts_in_an_a_a_pair_need_prefix_caching_off() -> None:
    (line,) = refused(("ngram.noise_prompts", "same"))
    assert line == (
        "rows[3].noise_prompts: the same prompts again would come from the prefix cache: add --no-enable-prefix-caching"
    )
    off = {"args": ["--no-enable-prefix-caching"], "env": {}}
    row = parsed(("ngram.noise_prompts", "same"), ("ngram.serve", off)).row("ngram")
    legs = [LegId(1, "noise", "c1", 0, position, "previous") for position in (0, 1)]
    assert len({leg.prompts(row) for leg in legs}) == 1
    assert len({leg.prompts(parsed().row("ngram")) for leg in legs}) == 2


def test_a_serving_row_has_no_acceptance() -> None:
    (line,) = refused(("serving.metrics", [{"name": "acceptance_length", "tolerance": 0.1}]))
    assert line.startswith("rows[0].metrics[0].name: must be 'output_throughput', 'median_tpot' or 'median_ttft'")
