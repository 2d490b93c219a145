"""Figures of a verdict: reps, noise, starts, and what the machine did meanwhile.

They are read without colour (markers, hatches and lines tell things apart), and follow from the records
alone: two builds are the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pinproof import records, report, rowtables
from pinproof.layout import Layout
from pinproof.legbook import Legbook
from pinproof.measures import MEASURES

# Text stays text (searchable, small); element ids follow from the drawing alone.
STYLE = {
    "svg.hashsalt": "pinproof",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.5,
}
MARKERS, HATCHES = "osD^vX", ("", "////", "xxxx", "....", "\\\\\\\\", "++++")
INK, GREY, PALE = "black", "0.45", "0.85"
UNLABELLED = "unlabelled"
PANEL = (3.4, 2.4)  # inches
ACROSS = 3  # panels in a line


def draw(places: Layout) -> Iterator[Path]:
    """Draw every figure from the verdict, and from the legs what the machine did; give each file as it is made."""
    verdict = records.read(places.verdict, "verdict")
    makers = {"reps": reps, "noise": noise, report.STARTS: starts}
    for kind, files in report.drawn(places).items():
        for row_id, path in files:
            row = verdict["rows"][row_id]
            if kind == "machine":
                place = places.row(row_id)
                figure = machine(row, Legbook(place.legs, place.row).legs)
            else:
                figure = makers[kind](row)
            save(figure, path)
            yield path


def save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, whole or not at all."""
    with records.replacing(path) as temporary, mpl.rc_context(STYLE):
        figure.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")


def reps(row: Mapping[str, Any]) -> Figure:
    """The reps of a row: a panel for every cell and metric, with baseline, tolerance band and interval."""
    found = rowtables.series(row)["metrics"] if row["decision"] else []
    found = [one for one in found if one["metric"]["scale"] != "exact"]
    figure, panels = _panels(len(found), "no rep was judged")
    for axes, one in zip(panels, found, strict=True):
        _reps(axes, row, one)
    return figure


def _reps(axes: Axes, row: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    metric = found["metric"]
    cell, name, base = metric["cell"], metric["name"], metric["baseline_ratio"]
    axes.axhline(base, color=INK, linewidth=1, linestyle="--", label="baseline")
    end = 2
    for number, (series, by_metric) in enumerate(sorted(row["reps"][cell].items())):
        values = [value for value in by_metric[name] if value is not None]
        end = max(end, len(values) + 1)
        places = range(1, len(values) + 1)
        axes.plot(places, values, MARKERS[number], color=INK, fillstyle="none", label=f"reps of series {series}")
    if found["looks"]:
        look = found["looks"][-1]
        ends = [_absolute(metric, one) for one in look["interval"]]
        if None not in ends:
            middle = sum(ends) / 2
            axes.errorbar([end], [middle], [[middle - ends[0]], [ends[1] - middle]], color=INK, capsize=5, fmt="none",
                          label=f"interval at {look['estimate']['n']} reps")  # fmt: skip
    _band(axes, metric)
    axes.set_title(f"{cell}, {MEASURES[name].title}: {found['outcome'].upper()}", fontsize=9)
    axes.set_xlabel("rep")
    axes.set_ylabel("points better" if metric["scale"] == "linear" else "times better")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize=6, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.22))


def noise(row: Mapping[str, Any]) -> Figure:
    """The A/A band of every metric beside its tolerance: what one arm against itself varies by."""
    found = [one for one in (rowtables.series(row)["metrics"] if row["decision"] else ()) if one["noise"]]
    if not found:
        return _empty("no A/A pair was measured")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 0.8 + 0.45 * len(found)))
        axes = figure.subplots()
    labels = [f"{one['metric']['cell']}, {MEASURES[one['metric']['name']].title}" for one in found]
    places = range(len(found))
    shares = [_share(one) for one in found]
    axes.barh(places, shares, height=0.5, color="white", edgecolor=INK, hatch="////")
    for place, one, share in zip(places, found, shares, strict=True):
        text = (
            f" sd {one['noise']['sd']:.3g} of {one['noise']['pairs']} pairs, tolerance {one['metric']['tolerance']:g}"
        )
        axes.text(share, place, text, va="center", fontsize=7)
    axes.axvline(1, color=INK, linestyle="--", linewidth=1)
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1.05, 1.6 * max(shares)))
    axes.set_xlabel("standard deviation of the A/A pairs, as a share of the tolerance (dashed: all of it)")
    return figure


def starts(row: Mapping[str, Any]) -> Figure:
    """Where the middle start of each arm went, from the spawn to the first /health 200."""
    arms = [(arm, found) for arm, found in (row["beside"] or {}).items() if found]
    if not arms:
        return _empty("no start was timed from inside")
    named = {_what(piece) for _, found in arms for piece in found["line"]["pieces"]} - {UNLABELLED}
    labels = [UNLABELLED, *sorted(named)]
    looks = {label: HATCHES[number % len(HATCHES)] for number, label in enumerate(labels)}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.2 + 0.8 * len(arms) + 0.15 * len(labels)))
        axes = figure.subplots()
    told = set()
    for place, (_, found) in enumerate(arms):
        for piece in found["line"]["pieces"]:
            what = _what(piece)
            face = "white" if what == UNLABELLED else PALE
            label = None if what in told else what
            told.add(what)
            axes.barh(place, piece["seconds"], left=piece["begin"], height=0.6, color=face, edgecolor=INK,
                      hatch=looks[what], linewidth=0.6, label=label)  # fmt: skip
        total = found["line"]["seconds"]
        axes.text(total, place, f" {total:.1f} s", va="center", fontsize=8)
    axes.set_yticks(range(len(arms)), [arm for arm, _ in arms])
    axes.invert_yaxis()
    axes.set_xlabel("seconds since the spawn")
    axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.35), ncols=2)
    return figure


def machine(row: Mapping[str, Any], taken: Sequence[Mapping[str, Any]]) -> Figure:
    """The machine during the legs of a row, in the order in which they were taken: clock, and load by others."""
    ordered = sorted(taken, key=lambda one: (one["provenance"].get("written", ""), *_order(one["id"])))
    seen = [(one["id"], one["provenance"].get("samples")) for one in ordered]
    seen = [(which, samples) for which, samples in seen if samples]
    if not seen:
        return _empty("no leg was sampled")
    arms = list(row["measured"]["key"]["engines"])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(5, min(14, 0.14 * len(seen))), 4.2))
        above, below = figure.subplots(2, sharex=True)
    _clock(above, seen, arms)
    _load(below, seen)
    return figure


def trend(panels: Mapping[str, Sequence[Mapping[str, Any] | None]], pins: Sequence[str]) -> Figure:
    """Ratios over pins: a panel for every title, with the decision about each pin (None: it has none)."""
    figure, every = _panels(len(panels), "no row of any pin was decided")
    for axes, (title, decided) in zip(every, panels.items(), strict=True):
        for place, one in enumerate(decided):
            if one and one["looks"]:
                _point(axes, place, one)
        axes.set_title(title, fontsize=9)
        axes.set_xticks(range(len(pins)), pins, rotation=30, ha="right", fontsize=7)
        axes.set_xlim(-0.5, len(pins) - 0.5)
    return figure


def _point(axes: Axes, place: int, found: Mapping[str, Any]) -> None:
    """One pin: its ratio (filled: it held), its interval, and the A/A noise around the baseline as a field."""
    metric, look = found["metric"], found["looks"][-1]
    base, linear = metric["baseline_ratio"], metric["scale"] == "linear"
    mean = look["estimate"]["mean"]
    measured = base + mean if linear else base * math.exp(mean)
    sd = (found["noise"] or {}).get("sd") or 0.0
    field = (base - sd, base + sd) if linear else (base * math.exp(-sd), base * math.exp(sd))
    axes.fill_between([place - 0.4, place + 0.4], *field, facecolor=PALE, edgecolor=GREY, hatch="..", linewidth=0.5)
    axes.plot([place - 0.4, place + 0.4], [base, base], "--", color=INK, linewidth=1)
    ends = [_absolute(metric, end) for end in look["interval"]]
    if None not in ends:
        axes.plot([place, place], ends, color=INK, linewidth=1)
    held = found["outcome"] == "pass"
    axes.plot([place], [measured], "o", color=INK, fillstyle="full" if held else "none")


def _clock(axes: Axes, seen: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], arms: Sequence[str]) -> None:
    for number, arm in enumerate(arms):
        known = [
            (place, samples["clock_mhz"])
            for place, (which, samples) in enumerate(seen)
            if which["arm"] == arm and samples.get("clock_mhz")
        ]
        if known:
            middle = [one["median"] for _, one in known]
            spread = [
                [one["median"] - one["minimum"] for _, one in known],
                [one["maximum"] - one["median"] for _, one in known],
            ]
            places = [place for place, _ in known]
            axes.errorbar(places, middle, spread, fmt=MARKERS[number], color=INK, fillstyle="none", markersize=4,
                          elinewidth=0.6, label=arm)  # fmt: skip
    if axes.has_data():
        axes.legend(fontsize=7, frameon=False)
    else:
        axes.text(0.5, 0.5, "no clock could be read", ha="center", va="center", transform=axes.transAxes)
        axes.set_yticks([])
    axes.set_ylabel("clock (MHz)\nmedian, ends")


def _load(axes: Axes, seen: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
    lines = {"work": ("by what is measured", "-"), "cpu_others": ("by others", ":"), "cpu_steal": ("stolen", "--")}
    for key, (label, style) in lines.items():
        known = [(place, samples[key]) for place, (_, samples) in enumerate(seen) if samples.get(key) is not None]
        if known:
            axes.plot(*zip(*known, strict=True), style, color=INK, label=label, linewidth=1)
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("use of the machine\n(share)")
    axes.set_xlabel("legs in the order in which they were taken")
    if axes.has_data():
        axes.legend(fontsize=7, frameon=False, ncols=3)


def _panels(number: int, empty: str) -> tuple[Figure, list[Axes]]:
    if not number:
        return _empty(empty), []
    lines = math.ceil(number / ACROSS)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PANEL[0] * min(number, ACROSS), (PANEL[1] + 0.5) * lines), layout="constrained")
        panels = figure.subplots(lines, min(number, ACROSS), squeeze=False).ravel()
    for axes in panels[number:]:
        axes.set_axis_off()
    return figure, list(panels[:number])


def _empty(text: str) -> Figure:
    """What stands where there is nothing to draw."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4, 0.6))
        figure.text(0.5, 0.5, text, ha="center", va="center")
    return figure


def _band(axes: Axes, metric: Mapping[str, Any]) -> None:
    """The tolerance around the baseline; what must only be no worse has no end above."""
    base, tolerance = metric["baseline_ratio"], metric["tolerance"]
    linear = metric["scale"] == "linear"
    low = base - tolerance if linear else base / (1 + tolerance)
    high = base + tolerance if linear else base * (1 + tolerance)
    least, most = axes.get_ylim()
    least, most = min(least, low), max(most, high)
    axes.set_ylim(least - 0.05 * (most - least), most + 0.05 * (most - least))
    top = axes.get_ylim()[1] if metric["direction"] == "no-worse" else high
    axes.axhspan(low, top, facecolor=PALE, edgecolor=GREY, hatch="..", linewidth=0.5, zorder=0, label="tolerance")


def _absolute(metric: Mapping[str, Any], end: float | None) -> float | None:
    """An end of an interval, which is relative to the baseline."""
    if end is None:
        return None
    return end + metric["baseline_ratio"] if metric["scale"] == "linear" else end * metric["baseline_ratio"]


def _share(found: Mapping[str, Any]) -> float:
    """The A/A standard deviation as a share of the tolerance; 0 where that is none."""
    sd, tolerance = found["noise"]["sd"], found["metric"]["tolerance"]
    return sd / tolerance if sd and tolerance else 0.0


def _what(piece: Mapping[str, Any]) -> str:
    return " + ".join(piece["labels"]) or UNLABELLED


def _order(which: Mapping[str, Any]) -> tuple[Any, ...]:
    return which["series"], which["phase"], which["index"], which["cell"], which["position"]
