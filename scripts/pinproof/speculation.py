"""Speculation: what was drafted and accepted during a leg, by the server's counters and by its client.

Counters are differences over the leg's window, summed over engines. Length: tokens a step, one and
those accepted. Rate: accepted of drafted. Position i: the share of drafts whose token i was accepted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pinproof.claims import Speculative
from pinproof.decision import rounded
from pinproof.leg import Objection
from pinproof.reasons import Reason, Refusal
from pinproof.server import Counters
from pinproof.serverlog import ResolvedConfig

_PREFIX = "vllm:spec_decode_num_"
# Our name -> the client's, of the same count.
_CLIENT = {
    "drafts": "spec_decode_num_drafts",
    "draft_tokens": "spec_decode_draft_tokens",
    "accepted_tokens": "spec_decode_accepted_tokens",
}
_CLIENT_RATES = "spec_decode_per_position_acceptance_rates"


@dataclass(frozen=True)
class Counts:
    """What the server counted; None: it has no such counter."""

    drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    accepted_by_position: tuple[int, ...]

    @classmethod
    def of(cls, delta: Counters | None) -> Counts:
        """The counts of a window, summed over engines."""
        if delta is None:
            return cls(None, None, None, ())
        name = f"{_PREFIX}accepted_tokens_per_pos_total"
        positions = sorted(
            {int(dict(labels)["position"]) for (sample, labels), _ in delta.series.items() if sample == name}
        )
        by_position = (delta.total(name, position=str(position)) for position in positions)
        return cls(
            _whole(delta.total(f"{_PREFIX}drafts_total")),
            _whole(delta.total(f"{_PREFIX}draft_tokens_total")),
            _whole(delta.total(f"{_PREFIX}accepted_tokens_total")),
            tuple(int(value) for value in by_position),
        )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Counts:
        """The counts that a leg holds."""
        whole = (record[name] for name in ("drafts", "draft_tokens", "accepted_tokens"))
        return cls(*whole, tuple(record["accepted_by_position"]))

    def as_record(self) -> dict[str, Any]:
        """Counts, and the rates by position."""
        rates = [rounded(one / self.drafts) for one in self.accepted_by_position] if self.drafts else []
        return {**vars(self), "accepted_by_position": list(self.accepted_by_position), "rates_by_position": rates}

    @property
    def metrics(self) -> dict[str, float | None]:
        """Acceptance length and rate; None where nothing was drafted or it is not known."""
        accepted = self.accepted_tokens
        return {
            "acceptance_length": 1 + accepted / self.drafts if self.drafts and accepted is not None else None,
            "acceptance_rate": accepted / self.draft_tokens if self.draft_tokens and accepted is not None else None,
        }


def objections(row: Speculative, counts: Counts, raw: Mapping[str, Any]) -> list[Objection]:
    """Why a leg with speculation does not count; `raw` is the client's output."""
    if not counts.drafts:
        said = "counts no drafts at all" if counts.drafts is None else "drafted nothing"
        message = f"speculation is declared ({_method(row)}) and not active: the engine {said} during the leg"
        return [Objection(Reason.CONFIG_NOT_APPLIED, message)]
    return [Objection(Reason.METRICS_DISAGREE, text) for text in (*_contradictions(row, counts), *_client(counts, raw))]


def not_off(counts: Counts) -> list[Objection]:
    """Why a leg without speculation does not count: there was some."""
    if not counts.drafts:
        return []
    return [Objection(Reason.CONFIG_NOT_APPLIED, f"{counts.drafts} drafts in a leg that is without speculation")]


def require_applied(row: Speculative, resolved: ResolvedConfig, arm: str) -> None:
    """Refuse (CONFIG_NOT_APPLIED) an engine that says of itself that it does not speculate."""
    if "speculative_config" in resolved.engine and resolved.engine["speculative_config"] is None:
        message = f"speculation is declared ({_method(row)}), and {arm} says speculative_config=None"
        raise Refusal(Reason.CONFIG_NOT_APPLIED, message)


def _contradictions(row: Speculative, counts: Counts) -> list[str]:
    """Counts of one engine that cannot all be true."""
    found, by_position = [], counts.accepted_by_position
    if counts.draft_tokens is None or counts.accepted_tokens is None:
        return ["the engine counts drafts, but not what was drafted or accepted"]
    at_most = row.config["num_speculative_tokens"] * counts.drafts
    if counts.draft_tokens > at_most:
        found.append(f"{counts.draft_tokens} drafted tokens in {counts.drafts} drafts of at most {at_most} together")
    if counts.accepted_tokens > counts.draft_tokens:
        found.append(f"{counts.accepted_tokens} accepted tokens of {counts.draft_tokens} drafted ones")
    if by_position and sum(by_position) != counts.accepted_tokens:
        found.append(f"{counts.accepted_tokens} accepted tokens, {sum(by_position)} by position")
    if any(later > earlier for earlier, later in itertools.pairwise((counts.drafts, *by_position))):
        found.append(f"more tokens accepted at a later position than before it: {list(by_position)}")
    return found


def _client(counts: Counts, raw: Mapping[str, Any]) -> list[str]:
    """Where the client's own counts differ; what it does not say contradicts nothing."""
    ours = vars(counts)
    found = [
        f"{name}: the client counts {raw[key]}, the server {ours[name]}"
        for name, key in _CLIENT.items()
        if raw.get(key) is not None and raw[key] != ours[name]
    ]
    rates = raw.get(_CLIENT_RATES)
    if rates and not found:  # shares of the same drafts: whole numbers again
        theirs = [round(rate * counts.drafts) for rate in rates]
        if theirs != list(counts.accepted_by_position):
            found.append(f"by position: the client counts {theirs}, the server {list(counts.accepted_by_position)}")
    return found


def _method(row: Speculative) -> str:
    return str(row.config.get("method") or row.config.get("model") or "a speculative_config")


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
