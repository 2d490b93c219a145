"""A leg: one timed run of one arm at one cell, and whether it counts.

Nothing is trusted for exiting 0. The raw output of the load client is read strictly: a value that
is missing, NaN, infinite or not positive is unknown, never 0.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinproof.reasons import Owner, Reason, Refusal

# Metric of a leg -> key of the client's raw output, in the unit that `measures` says.
METRICS = {"output_throughput": "output_throughput", "median_tpot": "median_tpot_ms", "median_ttft": "median_ttft_ms"}
# Reported beside the gated metrics, never gated.
# A first gap of so many TTFTs and so many usual gaps means that the first chunk held no token.
FIRST_GAP_TTFTS, FIRST_GAP_GAPS = 5, 4
REPORTED = ("total_token_throughput", "duration", "p99_tpot_ms", "p99_ttft_ms", "median_itl_ms", "median_e2el_ms")


@dataclass(frozen=True)
class Asked:
    """What a leg was asked for: requests, prompt tokens and generated tokens of each."""

    prompts: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Objection:
    """One reason why a leg does not count."""

    reason: Reason
    message: str

    def as_record(self, *, of_the_pin: bool = True) -> dict:
        """As JSON values. Only the pinned engine can fail as the target: what another arm does wrong is an input."""
        owner = self.reason.owner
        if owner is Owner.TARGET and not of_the_pin:
            owner = Owner.INPUT
        return {"reason": self.reason.code, "owner": str(owner), "message": self.message}


def read_raw(path: Path) -> dict[str, Any]:
    """The client's raw output, one JSON object with NaN and infinity read as null.

    Refusals: CLIENT_FAILED when there is no file, it is not whole, or it holds several objects.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except FileNotFoundError:
        raise Refusal(Reason.CLIENT_FAILED, "the client wrote no result", file=path) from None
    except (ValueError, RecursionError) as error:
        raise Refusal(Reason.CLIENT_FAILED, f"not one whole JSON object: {error}", file=path) from None
    if not isinstance(raw, dict):
        raise Refusal(Reason.CLIENT_FAILED, "not a JSON object", file=path)
    return raw


def metrics(raw: Mapping[str, Any]) -> dict[str, float | None]:
    """The gated metrics of a leg; null where the client gives no positive number."""
    return {name: _positive(raw.get(key)) for name, key in METRICS.items()}


def reported(raw: Mapping[str, Any]) -> dict[str, float | None]:
    """Figures that stand beside the gated ones on the page."""
    return {name: _positive(raw.get(name)) for name in REPORTED}


def objections(raw: Mapping[str, Any], asked: Asked, counters: Mapping[str, float | None]) -> list[Objection]:
    """Why a leg does not count, by the client's own output and by the server's counters.

    `counters` are differences over the leg's window; null is unknown and is no objection by itself
    (a server without /metrics cannot witness), a known value that disagrees is one.
    """
    found = _requests(raw, asked)
    found += _lengths(raw, asked)
    found += _missing(raw)
    found += _first_chunk(raw)
    found += _witness(raw, counters)
    return found


def compiled(kernels: Sequence[str]) -> list[Objection]:
    """The objection against kernels that were compiled inside the window."""
    if not kernels:
        return []
    return [Objection(Reason.COMPILED_IN_WINDOW, f"compiled in the window: {', '.join(sorted(set(kernels)))}")]


def _requests(raw: Mapping[str, Any], asked: Asked) -> list[Objection]:
    completed, failed = _count(raw.get("completed")), _count(raw.get("failed"))
    if completed is None:
        return [Objection(Reason.REQUESTS_MISSING, "the client does not say how many requests completed")]
    derived = ""
    if failed is None:  # clients before October 2025 print successes only
        failed, derived = asked.prompts - completed, " (derived: the client does not say)"
    if completed == asked.prompts and failed == 0:
        return []
    errors = raw.get("errors")
    texts = [str(text) for text in errors if text] if isinstance(errors, list) else []
    counts = ", ".join(f"{texts.count(text)} x {text[:200]!r}" for text in sorted(set(texts))) or "no error text"
    message = f"{completed} of {asked.prompts} requests completed, {failed} failed{derived}: {counts}"
    return [Objection(Reason.REQUESTS_FAILED, message)]


def _lengths(raw: Mapping[str, Any], asked: Asked) -> list[Objection]:
    found = []
    inputs, outputs = _counts(raw, "input_lens"), _counts(raw, "output_lens")
    if not inputs or not outputs:
        return [Objection(Reason.REQUESTS_MISSING, "the client's output has no token counts of single requests")]
    if {len(inputs), len(outputs)} != {asked.prompts}:
        message = f"{len(inputs)} input and {len(outputs)} output token counts for {asked.prompts} requests"
        found.append(Objection(Reason.REQUESTS_MISSING, message))
    if wrong := [count for count in inputs if count != asked.input_tokens]:
        message = f"{len(wrong)} of {len(inputs)} prompts have not {asked.input_tokens} tokens but {_few(wrong)}"
        found.append(Objection(Reason.INPUT_DIFFERS, message))
    if short := [count for count in outputs if count != asked.output_tokens]:
        message = f"{len(short)} of {len(outputs)} requests got not {asked.output_tokens} tokens but {_few(short)}"
        found.append(Objection(Reason.OUTPUT_SHORT, message))
    total = _count(raw.get("total_output_tokens"))  # what the client's throughput is made from
    if total is not None and total != sum(outputs):
        message = f"the client counts {total} generated tokens in all, {sum(outputs)} request by request"
        found.append(Objection(Reason.METRICS_DISAGREE, message))
    return found


def _missing(raw: Mapping[str, Any]) -> list[Objection]:
    missing = sorted(name for name, value in metrics(raw).items() if value is None)
    return [Objection(Reason.METRIC_MISSING, f"no positive number for {', '.join(missing)}")] if missing else []


def _first_chunk(raw: Mapping[str, Any]) -> list[Objection]:
    """TTFT ends at the first chunk, text or not: an empty one moves the first token into the first gap.

    So does a server that sends a stream in bursts. Either way the TTFT of most streams is not the time
    to a token, and the gap after it tells: it is far longer than the TTFT and than any usual gap.
    """
    ttfts, itls = raw.get("ttfts"), raw.get("itls")
    if not isinstance(ttfts, list) or not isinstance(itls, list):
        return []
    streams = [
        (ttft, gaps)
        for ttft, gaps in zip(ttfts, itls, strict=False)
        if _positive(ttft) and isinstance(gaps, list) and len(gaps) > 2 and all(_positive(gap + 1e-9) for gap in gaps)
    ]
    odd = sum(
        gaps[0] > max(FIRST_GAP_TTFTS * ttft, FIRST_GAP_GAPS * statistics.median(gaps[1:])) for ttft, gaps in streams
    )
    if 2 * odd <= len(streams):
        return []
    message = (
        f"{odd} of {len(streams)} streams began with a chunk long before the next: TTFT is not the time to a token"
    )
    return [Objection(Reason.FIRST_CHUNK, message)]


def _witness(raw: Mapping[str, Any], counters: Mapping[str, float | None]) -> list[Objection]:
    found = []
    if hits := counters.get("prefix_cache_hits"):
        found.append(Objection(Reason.PREFIX_HITS, f"{hits:.0f} prompt tokens came from the prefix cache"))
    if preempted := counters.get("preemptions"):
        message = f"{preempted:.0f} requests were preempted: the leg is about the size of the KV cache"
        found.append(Objection(Reason.PREEMPTED, message))
    pairs = {
        "generation_tokens": sum(_counts(raw, "output_lens")),
        "prompt_tokens": sum(_counts(raw, "input_lens")),
        "requests_finished": _count(raw.get("completed")) or 0,
    }
    for name, client in pairs.items():
        server = counters.get(name)
        if server is not None and server != client:
            reason = Reason.INPUT_DIFFERS if name == "prompt_tokens" else Reason.METRICS_DISAGREE
            found.append(Objection(reason, f"{name}: the client counts {client}, the server {server:.0f}"))
    return found


def _few(counts: Sequence[int]) -> str:
    return ", ".join(str(count) for count in sorted(set(counts))[:5])


def _counts(raw: Mapping[str, Any], key: str) -> list[int]:
    """Token counts of single requests; none at all when one of them is not a number."""
    values = raw.get(key)
    counts = [_count(value) for value in values] if isinstance(values, list) else []
    return [] if None in counts else counts


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _positive(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None
