"""The parts of a verdict's page about one row: what it was judged by, what it showed, and what stands beside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pinproof.markdown import item, table
from pinproof.measures import MEASURES
from pinproof.sidenotes import OFF

NOTE = (
    "Ratios say times better: above 1, the numerator wins. Absolutes are medians over legs. The interval holds "
    "what a PASS at that look does not rule out."
)
POINTS = " Points say how much smaller the numerator's share is: above 0, it wins."


def of(row: Mapping[str, Any]) -> Iterator[str]:
    """A row's parts below its heading and its question."""
    if row["decision"]:
        yield _metrics(row)
        if companions := _companions(row):
            yield companions
    if row["warmup"]:
        yield from _warmup(row["warmup"])
    if row["kind"] == "speculative":
        yield from _speculative(row["beside"])
    if row["kind"] == "startup":
        yield from _starts(row["beside"])
    if row["legs"]["discarded"]:
        yield _discarded(row["legs"]["discarded"])
    if row["legs"]["invalid"]:
        yield _invalid(row["legs"])


# -- the decision --------------------------------------------------------------------------------


def series(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The series that a row's decision rests on."""
    return row["decision"]["second"] or row["decision"]["first"]


def _metrics(row: Mapping[str, Any]) -> str:
    found = series(row)["metrics"]
    arms = list(row["measured"]["key"]["engines"])
    heads = ["cell", "metric", *arms, "baseline", "measured", "interval", "tolerance", "A/A sd", "reps", "outcome"]
    linear = any(one["metric"]["scale"] == "linear" for one in found)
    return table([_metric(row, one, arms) for one in found], heads) + "\n\n" + NOTE + (POINTS if linear else "")


def _metric(row: Mapping[str, Any], found: Mapping[str, Any], arms: Sequence[str]) -> list[Any]:
    metric = found["metric"]
    measure = MEASURES[metric["name"]]
    absolute = row["absolutes"][metric["cell"]][metric["name"]]
    return [
        metric["cell"],
        f"{measure.title} ({measure.unit})",
        *(number(absolute[arm]) for arm in arms),
        *shown(found),
        reps(found),
        found["outcome"].upper() + (f" ({found['reason']})" if found["reason"] else ""),
    ]


def shown(found: Mapping[str, Any]) -> list[str]:
    """Of a metric's decision: baseline, measured, interval, tolerance and A/A band."""
    return _exact(found) if found["metric"]["scale"] == "exact" else _tested(found, last(found))


def reps(found: Mapping[str, Any]) -> int:
    """The number of reps that a metric's decision rests on."""
    look = last(found)
    return look["estimate"]["n"] if look else found["reps"] if found["metric"]["scale"] == "exact" else 0


def last(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Of a metric's decision: what its last look said; None before the first."""
    return found["looks"][-1] if found["looks"] else None


def _tested(found: Mapping[str, Any], look: Mapping[str, Any] | None) -> list[str]:
    metric, noise = found["metric"], found["noise"]
    if metric["scale"] == "linear":
        measured = _points(look["estimate"]["mean"] + metric["baseline_ratio"]) if look else "unknown"
        ends = [_points(end + metric["baseline_ratio"]) for end in look["interval"]] if look else []
        band = f"{noise['sd']:.2g} points" if noise else "unknown"
        tolerance = f"{metric['tolerance']:g} points"
        return [_points(metric["baseline_ratio"]), measured, " to ".join(ends) or "unknown", tolerance, band]
    measured = look and metric["baseline_ratio"] * math.exp(look["estimate"]["mean"])
    ends = [number(end and metric["baseline_ratio"] * end, 3) for end in look["interval"]] if look else []
    return [
        f"{metric['baseline_ratio']:.3f}",
        number(measured, 3),
        " to ".join(ends) or "unknown",
        percent(metric["tolerance"]),
        percent(noise["sd"]) if noise else "unknown",
    ]


def _exact(found: Mapping[str, Any]) -> list[str]:
    different = {"red": "different", "pass": "equal"}.get(found["outcome"], "unknown")  # nosec B105 # outcomes
    return ["equal", different, "-", "exact", "-"]


def _companions(row: Mapping[str, Any]) -> str:
    return "\n".join(
        f"- {found['metric']['cell']}, {MEASURES[found['metric']['name']].title}: {found['companion']}"
        for found in series(row)["metrics"]
        if found["companion"]
    )


# -- what stands beside --------------------------------------------------------------------------


def _warmup(found: Mapping[str, Any]) -> Iterator[str]:
    gates = {(gate["arm"], gate["callable"]): gate for gate in found["gates"]}
    lines = []
    for arm, callables in found["outcomes"].items():
        for name, one in callables.items():
            gate = gates.get((arm, name))
            lives = ", ".join(f"{outcome} in {count}" for outcome, count in one["lives"].items()) or "no life"
            lines.append([arm, name, lives, _range(one["seconds"]), _gate(gate)])
    yield table(lines, ["arm", "callable", "lives", "seconds", "gate"])
    if texts := [
        item(f"{name} of {arm}: {text}")
        for arm, callables in found["outcomes"].items()
        for name, one in callables.items()
        for text in [*one["exceptions"], *one["whys"]]
    ]:
        yield "\n".join(texts)


def _gate(gate: Mapping[str, Any] | None) -> str:
    if gate is None:
        return "not gated"
    words = {True: "PASS", False: "FAIL", None: "UNKNOWN"}[gate["passed"]]
    return f"{words} ({gate['reason']})" if gate["reason"] else words


def _range(seconds: Sequence[float | None]) -> str:
    known = [value for value in seconds if value is not None]
    if not known:
        return "unknown"
    return f"{min(known):.3g} to {max(known):.3g}"


def _speculative(beside: Mapping[str, Any]) -> Iterator[str]:
    lines = [
        [
            cell,
            arm,
            ", ".join(number(rate, 3) for rate in beside["positions"][cell][arm] or ()) or "unknown",
            *(number(off[name], 3) if off[name] else "not measured" for name in OFF),
        ]
        for cell, arms in beside["over_off"].items()
        for arm, off in arms.items()
    ]
    over = [f"{MEASURES[name].title}, on / off" for name in OFF]
    yield "Beside the decision: acceptance by position, and speculation over none on the same arm; neither is gated."
    yield table(lines, ["cell", "arm", "accepted by position", *over])
    for arm, said in beside["engines"].items():
        if said:
            backends = "; ".join(said["backends"]) or "it names none"
            yield item(f"{arm} speculates by {said['speculative_config'] or 'unknown'}; backends: {backends}")


def _starts(beside: Mapping[str, Any]) -> Iterator[str]:
    for arm, found in beside.items():
        if found:
            total = found["line"]["seconds"]
            yield (
                f"Where the middle start of {arm} went: {number(total, 1)} s to the first /health 200, of which "
                f"{number(found['line']['named'], 1)} s named and {number(found['line']['unlabelled'], 1)} s "
                f"({percent(found['unlabelled_share'])}) unlabelled."
            )
            pieces = [_piece(piece, total) for piece in found["line"]["pieces"]]
            yield table(pieces, ["from (s)", "seconds", "share", "what"])
            graphs = found["graphs"]
            yield item(
                f"compiled graphs, as its log tells: {graphs['loaded']} loaded, {graphs['load_failed']} that could not "
                f"be loaded, {graphs['compiled']} compiled"
            )
            yield from (item(f"spans and log disagree: {text}") for text in found["disagreements"])


def _piece(piece: Mapping[str, Any], total: float) -> list[str]:
    what = " + ".join(piece["labels"]) or "unlabelled"
    starting = f" ({', '.join(piece['starting'])} starting)" if piece.get("starting") else ""
    share = percent(piece["seconds"] / total)
    return [number(piece["begin"], 2), number(piece["seconds"], 2), share, what + starting]


def _discarded(legs: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        item(
            f"{_which(one['id'])}: "
            + ", ".join(f"{MEASURES[name].title} {number(value)}" for name, value in one["metrics"].items())
        )
        for one in legs
    ]
    return "Discarded, as the row's recipe says; they were run first and count neither way:\n\n" + "\n".join(lines)


def _invalid(legs: Mapping[str, Any]) -> str:
    lines = [
        item(
            f"{_which(one['id'])}: "
            + "; ".join(f"{found['message']} [{found['reason']}]" for found in one["objections"])
        )
        for one in legs["invalid"]
    ]
    return f"Of {legs['count']} legs these did not count:\n\n" + "\n".join(lines)


def _which(leg: Mapping[str, Any]) -> str:
    return f"series {leg['series']}, {leg['phase']} {leg['index'] + 1}, {leg['cell']}, {leg['arm']}"


def number(value: float | None, digits: int | None = None) -> str:
    """A number for a person; unknown when it is."""
    if value is None:
        return "unknown"
    return f"{value:.{digits}f}" if digits is not None else f"{value:.4g}"


def percent(share: float) -> str:
    """A share for a person."""
    return f"{100 * share:.3g} %"


def _points(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.2f}"
