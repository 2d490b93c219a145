"""Boundaries: how small a p must be at each look, so that looking often costs no more than the budget.

A budget (a one-sided error rate) is spent over the looks by a spending function of the information
fraction t = n / N (Lan & DeMets 1983). The boundary of a look is found from the chance of crossing
it first there, by numerical integration from look to look (Armitage, McPherson & Rowe 1969).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from enum import StrEnum

# Beyond this many standard deviations the density carries 1e-12: it is left out of the integration.
_TAIL = 7.0
# Gauss-Legendre nodes on a panel, and a panel's width in standard deviations of one step between two looks.
_NODES = 10
_PANEL = 2.0


class Spending(StrEnum):
    """Kind of spending function: even over the looks, or saved for the last ones."""

    POCOCK = "pocock"
    OBRIEN_FLEMING = "obrien-fleming"


def spent(fraction: float, budget: float, kind: Spending) -> float:
    """Share of a one-sided `budget` (probability) spent at information `fraction` (0 to 1)."""
    if fraction <= 0:
        return 0.0
    if kind is Spending.POCOCK:
        return budget * math.log1p((math.e - 1) * fraction)
    from scipy.special import ndtr, ndtri

    return float(2 * ndtr(ndtri(budget / 2) / math.sqrt(fraction)))


def nominal_p(looks: Sequence[int], budget: float, kind: Spending) -> tuple[float, ...]:
    """Nominal one-sided p of each look: cross when the look's own p is below it.

    `looks` are numbers of reps, rising, the last one the planned end; `budget` is the one-sided
    error rate of the whole procedure. ValueError for looks that do not rise from 1 or more, or a
    budget outside (0, 0.5).
    """
    if not looks or looks[0] < 1 or any(later <= sooner for sooner, later in itertools.pairwise(looks)):
        raise ValueError(f"looks must rise from 1 or more: {tuple(looks)}")
    if not 0 < budget < 0.5:
        raise ValueError(f"a one-sided budget lies between 0 and 0.5: {budget}")
    return _nominal_p(tuple(looks), float(budget), Spending(kind))


@functools.cache
def _nominal_p(looks: tuple[int, ...], budget: float, kind: Spending) -> tuple[float, ...]:
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import ndtr

    fractions = [look / looks[-1] for look in looks]
    steps = [math.sqrt(later - sooner) for sooner, later in itertools.pairwise([0.0, *fractions])]
    # The walk so far, on the scale of Brownian motion (Z times the root of t): where it may stand
    # without having crossed, and the probability at each node. It starts at 0.
    nodes, mass = np.zeros(1), np.ones(1)
    before = 0.0
    boundaries = []
    for index, (fraction, step) in enumerate(zip(fractions, steps, strict=True)):
        root = math.sqrt(fraction)
        now = spent(fraction, budget, kind)
        to_spend, before = now - before, now
        if to_spend <= 0:  # too little to be a number: this look cannot cross
            crossing = math.inf
        else:

            def excess(x: float, nodes=nodes, mass=mass, step=step, to_spend=to_spend) -> float:
                return float(mass @ ndtr((nodes - x) / step)) - to_spend

            crossing = brentq(excess, -10 * root, 40 * root, xtol=1e-12)
        boundaries.append(float(ndtr(-crossing / root)))
        if index + 1 < len(looks):
            ahead, weights = _grid(-_TAIL * root, min(crossing, _TAIL * root), _PANEL * min(step, steps[index + 1]))
            kernel = np.exp(-0.5 * ((ahead[:, None] - nodes[None, :]) / step) ** 2) / (step * math.sqrt(2 * math.pi))
            nodes, mass = ahead, weights * (kernel @ mass)
    return tuple(boundaries)


def _grid(low: float, high: float, width: float):
    """Nodes and weights of a Gauss-Legendre rule on panels of at most `width`."""
    import numpy as np

    edges = np.linspace(low, high, 1 + max(1, math.ceil((high - low) / width)))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = np.diff(edges)[:, None] / 2
    middle = (edges[:-1] + edges[1:])[:, None] / 2
    return (middle + half * nodes).ravel(), (half * weights).ravel()
