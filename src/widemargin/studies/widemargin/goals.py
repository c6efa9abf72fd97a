"""Goals as claims: thresholds that were written down before the runs, and how they are read off the rows.

A goal is met, and called "reproduced" like a paper's number, where the measured number is beyond the threshold by more
than half of its 95 % interval over seeds. Numbers are means over the conditions of a study, seed by seed.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from widemargin.studies.claims import BySeed, Claim, Judged, Side, custom
from widemargin.studies.effects import Where
from widemargin.studies.rows import AXES, Row, select
from widemargin.studies.schema import Arm
from widemargin.studies.settings import Settings

CROSS_ENTROPY, WIDE, SHARE, JACOBIAN = "cross-entropy", "WideMargin", "WideMargin, share 1/8", "Jacobian"
GENERALIZED = "generalized cross-entropy"
PGD = "pgd"
RADII = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16)
"""l_2 radii of attacks, as parts of √D, which is the length of a standardised input of D numbers."""

ATTACK: Settings = {"kind": "attack", "attack": PGD, "p": 2.0, "steps": 20, "random_start": False, "relative": True}
"""PGD with 20 steps, from the sample itself, without a range: standardised inputs have none."""

Cell = tuple[object, ...]
Cells = Mapping[int, Mapping[Cell, float]]
"""Seed → condition → number."""


def arms(*names: str, second_order: str = "exact", **of_wide: float) -> tuple[Arm, ...]:
    """The arms of these names, each with one default for everything; `of_wide` are settings of `WideMargin`."""
    jacobian = {"name": "jacobian-frobenius", "weight": 0.03, "second_order": second_order}
    wide: Settings = {"name": "wide-margin", **of_wide}
    settings: dict[str, Settings] = {
        CROSS_ENTROPY: {},
        WIDE: {"loss": wide},
        SHARE: {"loss": {**wide, "share": 0.125}},
        JACOBIAN: {"regularizers": [jacobian]},
        GENERALIZED: {"loss": {"name": "generalized-cross-entropy"}},
    }
    return tuple(Arm(name, settings[name], ours=name in (WIDE, SHARE)) for name in names)


def gain(
    text: str, least: float, *, arm: str = WIDE, against: str = CROSS_ENTROPY, where: Where | None = None
) -> Claim:
    """The accuracy of `arm` is more than `least` points above that of `against`, on average over the conditions."""

    def of(rows: Sequence[Row]) -> list[float]:
        pairs = _pairs(rows, "accuracy", arm, against, where or {})
        return [statistics.fmean(a - b for a, b in of_seed) for of_seed in pairs]

    return _goal(text, of, least, baseline=0.0 if least > 0 else None)


def seldom_below(text: str, points: float, share: float) -> Claim:
    """`WideMargin` is at most `points` below cross-entropy in at least this share of the conditions."""

    def of(rows: Sequence[Row]) -> list[float]:
        pairs = _pairs(rows, "accuracy", WIDE, CROSS_ENTROPY, {})
        return [statistics.fmean(100 * (a - b) >= -points for a, b in of_seed) for of_seed in pairs]

    return _goal(text, of, 100 * share)


def ratio(
    text: str,
    least: float,
    metric: str,
    *,
    arm: str = WIDE,
    against: str = CROSS_ENTROPY,
    where: Where | None = None,
) -> Claim:
    """The metric of `arm` is more than `least` times that of `against`: the geometric mean over the conditions."""

    def of(rows: Sequence[Row]) -> list[float]:
        pairs = _pairs(rows, metric, arm, against, where or {})
        # Where both are 0, as the distances of networks that are never right, they are equal.
        logs = [[math.log(a / b) if a else 0.0 for a, b in some if b or not a] for some in pairs]
        return [math.exp(statistics.fmean(some)) for some in logs if some]

    return _goal(text, of, least, baseline=1.0 if least > 1 else None, relative=True)


def attacked(text: str, least: float, *, arm: str = WIDE, where: Where | None = None) -> Claim:
    """At the ε that halves cross-entropy's accuracy, that of `arm` is more than `least` points above it."""

    def of(rows: Sequence[Row]) -> list[float]:
        base, ours = (curves(rows, name, where or {}) for name in (CROSS_ENTROPY, arm))
        found: list[float] = []
        for seed in sorted(base.keys() & ours.keys()):
            gaps = []
            for cell in base[seed].keys() & ours[seed].keys():
                at = half_radius(base[seed][cell])
                gaps.append(accuracy_at(ours[seed][cell], at) - accuracy_at(base[seed][cell], at))
            found += [statistics.fmean(gaps)] if gaps else []
        return found

    return _goal(text, of, least, baseline=0.0 if least > 0 else None)


def at_most(text: str, most: float, metric: str, *, arm: str = WIDE, where: Where | None = None) -> Claim:
    """The largest value of a metric over the conditions is below `most`."""

    def of(rows: Sequence[Row]) -> list[float]:
        return [max(cells.values()) for cells in _cells(rows, metric, arm, where or {}).values()]

    return _goal(text, of, most, side="at most", relative=True)


Curve = Sequence[tuple[float, float]]
"""(ε, accuracy), from the smallest ε on."""


def curves(rows: Iterable[Row], arm: str, where: Where) -> dict[int, dict[Cell, Curve]]:
    """The accuracy under PGD over ε, for every seed and condition."""
    found: dict[int, dict[Cell, list[tuple[float, float]]]] = {}
    for row in select(rows, "accuracy", arm, {**where, "curve": PGD}):
        cell = tuple(row[name] for name in row[AXES] if name not in ("curve", "epsilon"))
        found.setdefault(row["seed"], {}).setdefault(cell, []).append((row["epsilon"], row["accuracy"]))
    return {seed: {cell: sorted(points) for cell, points in cells.items()} for seed, cells in found.items()}


def half_radius(curve: Curve) -> float:
    """The ε at which the accuracy falls to one half of that without attack; the largest where it never does."""
    goal = curve[0][1] / 2
    for (r0, a0), (r1, a1) in itertools.pairwise(curve):
        if a1 <= goal < a0:
            return r0 + (r1 - r0) * (a0 - goal) / (a0 - a1)
    return curve[-1][0]


def accuracy_at(curve: Curve, radius: float) -> float:
    """The accuracy at any ε, linear between those of the attacks."""
    for (r0, a0), (r1, a1) in itertools.pairwise(curve):
        if r0 <= radius <= r1:
            return a0 + (a1 - a0) * (radius - r0) / (r1 - r0)
    return curve[-1][1]


def _goal(
    text: str,
    of: BySeed,
    threshold: float,
    *,
    side: Side = "at least",
    baseline: float | None = None,
    relative: bool = False,
) -> Claim:
    judged = Judged(side=side, relative=relative, tolerance=0.0, one_draw=False, goal=True)
    return custom(text, of, threshold, baseline, **judged)


def _pairs(rows: Sequence[Row], metric: str, arm: str, against: str, where: Where) -> list[list[tuple[float, float]]]:
    """The values of both arms under every condition that both have, for every seed."""
    first, second = (_cells(rows, metric, name, where) for name in (arm, against))
    found = []
    for seed in sorted(first.keys() & second.keys()):
        one, two = first[seed], second[seed]
        found.append([(one[cell], two[cell]) for cell in one if cell in two])
    return [pairs for pairs in found if pairs]


def _cells(rows: Sequence[Row], metric: str, arm: str, where: Where) -> Cells:
    found: dict[int, dict[Cell, float]] = {}
    for row in select(rows, metric, arm, where):
        found.setdefault(row["seed"], {})[tuple(row[name] for name in row[AXES])] = float(row[metric])
    return found
