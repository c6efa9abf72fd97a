"""F7: accuracy over the first weights' scale, the margin, and the normalized margin (farhang, §5, Fig. 5, 10)."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Sequence

from widemargin.studies.claims import custom, positive
from widemargin.studies.effects import Gap
from widemargin.studies.farhang.points import EMBEDDED, MNIST, NERO, SMALL, SPHERE
from widemargin.studies.rows import Row, by_seed
from widemargin.studies.schema import Arm, Claim, Figure, Study, accuracy, axis, effort, named, scales
from widemargin.studies.settings import Settings

SCALE, MARGIN, RECIPE = "initialization scale", "margin", "normalized margin"
RANDOM = "normalized margin, random labels"
CURVES = (SCALE, MARGIN, RECIPE)
SIGMAS = tuple(round(1e-4 * 2.0**i, 4) for i in range(15))
ALPHAS = tuple(float(f"{10 ** (-4 + 5 * i / 24):.4g}") for i in range(25))
ONE = 1.0
FEW_SIGMAS = SIGMAS[8::2]
FEW_ALPHAS = ALPHAS[4::5]
FIT = 0.9


def _curve(rows: Sequence[Row], arm: str, least: float = -1.0) -> list[tuple[float, float]]:
    """(log targeted normalized margin, accuracy) of the networks whose training accuracy is above `least`."""
    mine = [row for row in rows if row["arm"] == arm and row.get("targeted") and row["train accuracy"] > least]
    return sorted((math.log10(row["targeted"]), row["accuracy"]) for row in mine)


def _at(curve: list[tuple[float, float]], x: float) -> float:
    """The curve at x, by straight lines."""
    for (a, low), (b, high) in itertools.pairwise(curve):
        if a <= x <= b:
            return low if a == b else low + (high - low) * (x - a) / (b - a)
    return curve[0][1] if x < curve[0][0] else curve[-1][1]


def _seeds(rows: Sequence[Row]) -> list[list[Row]]:
    return by_seed((row for row in rows if "curve" not in row), "accuracy")


def distance_of_curves(rows: Sequence[Row]) -> list[float]:
    """For every seed the mean distance of the three registered curves, over the margins that all of them have."""
    distances = []
    for some in _seeds(rows):
        curves = [_curve(some, arm, FIT) for arm in CURVES]
        if any(len(curve) < 2 for curve in curves):
            curves = [_curve(some, arm) for arm in CURVES]  # too few that fit: all networks
        if any(len(curve) < 2 for curve in curves):
            continue
        low, high = max(c[0][0] for c in curves), min(c[-1][0] for c in curves)
        marks = [low + (high - low) * i / 20 for i in range(21)]
        gaps = [max(v) - min(v) for v in ([_at(curve, x) for curve in curves] for x in marks)]
        distances.append(statistics.fmean(gaps))
    return distances


def rank_correlation(rows: Sequence[Row]) -> list[float]:
    """For every seed Spearman's correlation of test accuracy with the targeted normalized margin, by Recipe 1."""
    curves = [_curve(some, RECIPE) for some in _seeds(rows)]
    return [spearman(*zip(*curve)) for curve in curves if len(curve) > 1]


def rise(rows: Sequence[Row]) -> list[float]:
    """For every seed the gain of test accuracy by Recipe 1 from the smallest margin that was run to margin 1."""
    seeds = [{row["alpha"]: row["accuracy"] for row in some if row["arm"] == RECIPE} for some in _seeds(rows)]
    return [at[ONE] - at[min(at)] for at in seeds if ONE in at and min(at) < ONE]


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """The correlation of ranks; 0 where one of them is constant."""
    from scipy.stats import spearmanr

    return 0.0 if len(set(x)) == 1 or len(set(y)) == 1 else float(spearmanr(x, y).statistic)


_RATE, _LARGEST = 0.0005, 0.005
_DESCENT: Settings = {"name": "sgd", "lr": _RATE}
_LONG: Settings = {"steps": 5000, "schedule.factor": 0.9999, "optimizer.momentum": 0.9}


def _first_weights(sigma: float) -> Settings:
    """First weights of scale σ, and the rate of descent to go with them.

    Rates are stable up to 2 over the largest eigenvalue of the tangent kernel, which is 2372 for 1000 points, width
    2048 and σ = 1, and grows with σ². Its median is 0.73: hence the tens of thousands of steps.
    """
    rate = {} if sigma == ONE else {"optimizer.lr": min(_LARGEST, float(f"{_RATE / sigma**2:.3g}"))}
    return {"network.sigma": sigma, **rate}


_LAST, _FIRST = {"alpha": ONE, "sigma": ONE}, {"alpha": FEW_ALPHAS[0], "sigma": ONE}

OVERLAP = "mean distance of the three registered curves of test accuracy (they overlap)"
CORRELATION = "rank correlation of test accuracy with the targeted normalized margin, Recipe 1"
RISE = "Recipe 1: test accuracy at margin 1 is above that at the smallest margin"
TITLES = (
    "Test accuracy over the targeted normalized margin (farhang, Fig. 5, last panel, and Fig. 10)",
    "Test accuracy over the initialization scale (farhang, Fig. 5)",
    "Test accuracy over the targeted margin (farhang, Fig. 5)",
)
over = functools.partial(Figure, percent=True, log_x=True)

F7 = Study(
    **named("F7", "farhang, Fig. 5 and 10", "Initialization scale, margin, normalized margin", "targeted"),
    question="Does the normalized margin explain what the initialization scale and the margin do to test accuracy?",
    arms=(
        Arm(name=SCALE, settings={"optimizer": _DESCENT}, only={"alpha": (ONE,)}),
        Arm(name=MARGIN, settings={"optimizer": _DESCENT}, only={"sigma": (ONE,)}),
        Arm(name=RECIPE, settings={"optimizer": NERO}, only={"sigma": (ONE,)}),
        Arm(name=RANDOM, settings={"optimizer": NERO, "data.labels": "random"}, only={"sigma": (ONE,)}),
    ),
    settings={
        "data": MNIST,
        "network": {"name": "farhang-mlp", "inputs": 784, "width": 2048, "depth": 2},
        "schedule": {"name": "exponential", "factor": 0.99998, "unit": "steps"},
        "steps": 50_000,
    },
    axes={"alpha": axis("alpha", (*ALPHAS, ONE)), "sigma": {sigma: _first_weights(sigma) for sigma in (*SIGMAS, ONE)}},
    conditions=(
        *({"alpha": ONE, "sigma": sigma} for sigma in (*SIGMAS, ONE)),
        *({"alpha": alpha, "sigma": ONE} for alpha in ALPHAS if alpha != ONE),
    ),
    claims=(
        custom(OVERLAP, distance_of_curves, 0.0, tolerance=5.0),
        custom(CORRELATION, rank_correlation, 1.0, baseline=0.0, relative=True),
        positive(RISE, rise, "rise of test accuracy"),
        Claim(
            text="random labels: test accuracy stays at chance, whatever the margin",
            effect=Gap(metric="accuracy", arm=RANDOM, against=RANDOM, where=_LAST, against_where=_FIRST),
            reported=0.0,
            tolerance=3.0,
        ),
    ),
    figures=(
        accuracy("targeted", TITLES[0], "targeted margin / product of Frobenius norms", log_x=True, kind="scatter"),
        over("sigma", "accuracy", TITLES[1], arms=(SCALE,), where={"alpha": ONE}),
        over("alpha", "accuracy", TITLES[2], arms=(MARGIN, RECIPE, RANDOM), where={"sigma": ONE}),
    ),
    scales=scales(
        "100 digits of 8 × 8 pixels, width 32, 30 steps, three values each; one core",
        "200 points of mnist-5k, then width 256, 1,000 steps (descent: 2,000 with a momentum of 0.9), a "
        "quarter of the values; two cores",
        "Nero's steps cut to 3,000 with a decay to match; descent's to 5,000 with a momentum of 0.9, which do "
        "the work of 50,000 without; then half of the values; one GPU",
        "as the paper, with 50,000 steps; one GPU",
        **effort(minutes=(0.1, 15, 20, 600), seeds=(2, 2, 2)),
        settings=(
            {**SMALL, "data.train": 100, "network.width": 32, "steps": 30, "schedule.factor": 0.97},
            {**EMBEDDED, "data.train": 200, "network.width": 256, "steps": 1000, "schedule.factor": 0.997},
            {"steps": 3000, "schedule.factor": 0.999},
        ),
        of_arms=({}, {arm: {**_LONG, "steps": 2000} for arm in (SCALE, MARGIN)}, {SCALE: _LONG, MARGIN: _LONG}),
        only=(
            {"sigma": (*FEW_SIGMAS[-2:], ONE), "alpha": (FEW_ALPHAS[0], FEW_ALPHAS[3], ONE)},
            {"sigma": (*FEW_SIGMAS, ONE), "alpha": (*FEW_ALPHAS, ONE)},
            {"sigma": (*SIGMAS[6::2], ONE), "alpha": (*ALPHAS[4::2], ONE)},
        ),
    ),
    deviations=(
        SPHERE,
        "The paper trains for 50,000 to 250,000 steps, with decays of 0.9998 to 0.999998; here all take as many.",
        "Descent's learning rate is 0.0005/σ² on the sum over the outputs, at most 0.005; the paper gives none. Twice "
        "as much is beyond what the tangent kernel's largest eigenvalue allows: networks die or change their norms.",
        "With 3,000 plain steps and rates of up to 0.005 descent did not fit small margins (10 % training accuracy), "
        "and the three curves lay 43 points apart.",
        "Networks that do not fit 90 % of their points are kept and shown (the authors' code drops them); curves are "
        "compared on those that do, or on all where fewer than two of an arm do.",
        "The paper gives its curves as pictures only: of the rise of test accuracy its sign is judged.",
    ),
)
