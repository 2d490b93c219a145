"""Speculation: what was drafted and accepted, by the server's counters and by its client."""

from __future__ import annotations

from typing import Any

import pytest
from tests.test_claims import parsed

from pinproof import applied, serverlog, speculation
from pinproof.reasons import Reason, Refusal
from pinproof.server import Counters
from pinproof.speculation import Counts

ROW = parsed().row("ngram")
GOOD = Counts(drafts=10, draft_tokens=30, accepted_tokens=15, accepted_by_position=(9, 5, 1))


def metrics(**engines: tuple[int, int, tuple[int, ...]]) -> Counters:
    """What two engines of one server say."""
    lines = []
    for engine, (drafts, drafted, positions) in engines.items():
        labels = f'engine="{engine}",model_name="m"'
        counts = {"drafts": drafts, "draft_tokens": drafted, "accepted_tokens": sum(positions)}
        for name, value in counts.items():
            lines += [
                f"# TYPE vllm:spec_decode_num_{name} counter",
                f"vllm:spec_decode_num_{name}_total{{{labels}}} {value}",
            ]
        lines.append("# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter")
        for at, value in enumerate(positions):
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            lines.append(f'{name}{{{labels},position="{at}"}} {value}')
    return Counters.parse("\n".join(lines) + "\n")


def told(counts: Counts, **raw: Any) -> list[str]:
    return [one.message for one in speculation.objections(ROW, counts, raw)]


def test_counts_are_summed_over_engines() -> None:
    found = Counts.of(metrics(e0=(6, 18, (6, 3, 0)), e1=(4, 12, (3, 2, 1))))
    assert found == GOOD
    assert Counts.from_record(found.as_record()) == found


def test_length_rate_and_positions() -> None:
    assert GOOD.metrics == {"acceptance_length": 2.5, "acceptance_rate": 0.5}
    assert GOOD.as_record()["rates_by_position"] == [0.9, 0.5, 0.1]


def test_counts_that_agree_are_no_objection() -> None:
    client = {"spec_decode_num_drafts": 10, "spec_decode_draft_tokens": 30, "spec_decode_accepted_tokens": 15}
    assert told(GOOD, **client) == []
    assert told(GOOD) == []  # a client that does not say


def test_more_positions_than_nine_are_in_order() -> None:
    many = tuple(range(20, 4, -1))
    assert Counts.of(metrics(e0=(20, 320, many))).accepted_by_position == many


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (Counts(10, 31, 15, (9, 5, 1)), "31 drafted tokens in 10 drafts of at most 30 together"),
        (Counts(10, 30, 31, (10, 11, 10)), "31 accepted tokens of 30 drafted ones"),
        (Counts(10, 30, 16, (9, 5, 1)), "16 accepted tokens, 15 by position"),
        (Counts(10, 30, 15, (5, 9, 1)), "more tokens accepted at a later position than before it: [5, 9, 1]"),
        (Counts(10, 30, 15, (11, 3, 1)), "more tokens accepted at a later position than before it: [11, 3, 1]"),
        (Counts(10, None, 15, ()), "the engine counts drafts, but not what was drafted or accepted"),
    ],
)
def test_counts_that_contradict_each_other_are_told(counts: Counts, words: str) -> None:
    assert words in told(counts)
    assert {one.reason for one in speculation.objections(ROW, counts, {})} == {Reason.METRICS_DISAGREE}


def test_a_client_s_rates_by_position_are_held_against_the_server_s_counts() -> None:
    rates = {"spec_decode_per_position_acceptance_rates": [0.9, 0.5, 0.1]}
    assert told(GOOD, **rates) == []
    rates["spec_decode_per_position_acceptance_rates"] = [0.9, 0.4, 0.2]
    assert told(GOOD, **rates) == ["by position: the client counts [9, 4, 2], the server [9, 5, 1]"]


def test_a_client_that_counted_otherwise_is_told() -> None:
    assert told(GOOD, spec_decode_accepted_tokens=14) == ["accepted_tokens: the client counts 14, the server 15"]


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (Counts.of(None), "counts no drafts at all"),
        (Counts.of(metrics()), "counts no drafts at all"),
        (Counts(0, 0, 0, (0, 0, 0)), "drafted nothing"),
    ],
)
def test_a_speculation_that_is_declared_and_not_active_is_told(counts: Counts, words: str) -> None:
    (one,) = speculation.objections(ROW, counts, {})
    assert one.reason is Reason.CONFIG_NOT_APPLIED
    assert words in one.message
    assert counts.metrics == {"acceptance_length": None, "acceptance_rate": None}


def test_drafts_in_a_leg_without_speculation_are_told() -> None:
    assert speculation.not_off(Counts.of(None)) == []
    (one,) = speculation.not_off(GOOD)
    assert one.message == "10 drafts in a leg that is without speculation"


def config(said: str) -> serverlog.ResolvedConfig:
    return serverlog.resolved_config(
        f"(EngineCore pid=1) INFO 12-01 03:57:05 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
        f"model='m', speculative_config={said}, dtype=bfloat16\n"
        "(Worker pid=2) INFO 12-01 03:57:05 [cuda.py:1] Using FLASHINFER attention backend out of potential backends.\n"
    )


def test_an_engine_that_says_that_it_does_not_speculate_is_refused_before_a_leg() -> None:
    with pytest.raises(Refusal) as refused:
        speculation.require_applied(ROW, config("None"), "oracle")
    assert refused.value.reason is Reason.CONFIG_NOT_APPLIED
    assert refused.value.message == "speculation is declared (ngram), and oracle says speculative_config=None"


def test_what_the_engine_says_of_drafts_and_backends_is_kept() -> None:
    found = config("SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)")
    speculation.require_applied(ROW, found, "oracle")
    said = applied.said(found)
    assert said["speculative_config"] == "SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)"
    assert said["backends"] == ["Using FLASHINFER attention backend out of potential backends."]


def test_a_log_that_says_nothing_of_it_refuses_nothing() -> None:
    speculation.require_applied(ROW, serverlog.resolved_config(""), "oracle")
