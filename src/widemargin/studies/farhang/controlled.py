"""F7 to F9: accuracy over the margin, of single networks and of averages (farhang, §5, §6, Fig. 5, 6 and 10, A.5)."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence

from widemargin.studies.claims import custom, gap, positive
from widemargin.studies.farhang.points import EMBEDDED, MNIST, NERO, SMALL, SPHERE, decay, mlp
from widemargin.studies.rows import Row, by_seed
from widemargin.studies.schema import Arm, Figure, Study, accuracy, axis, effort, named, scales
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

Q_OVERLAP = (
    "The close overlap suggests that Frobenius-normalized margin may largely explain the behavior in the first two "
    "plots."
)
Q_LARGER = (
    "… for a given network that can generalize, it tends to generalize better when it targets a larger normalized "
    "margin."
)
Q_RANDOM = (
    "Figure 10. Train and test performance of networks trained to target specified Frobenius-normalized margins (true "
    "or random data)."
)
OVERLAP = "mean distance of the three registered curves of test accuracy (they overlap)"
CORRELATION = "rank correlation of test accuracy with the targeted normalized margin, Recipe 1"
CHANCE = "random labels: test accuracy stays at chance, whatever the margin"
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
    settings={"data": MNIST, "network": mlp(2048, 2), "schedule": decay(0.99998), "steps": 50_000},
    axes={"alpha": axis("alpha", (*ALPHAS, ONE)), "sigma": {sigma: _first_weights(sigma) for sigma in (*SIGMAS, ONE)}},
    conditions=(
        *({"alpha": ONE, "sigma": sigma} for sigma in (*SIGMAS, ONE)),
        *({"alpha": alpha, "sigma": ONE} for alpha in ALPHAS if alpha != ONE),
    ),
    claims=(
        custom(OVERLAP, distance_of_curves, 0.0, tolerance=5.0, one_draw=False, quote=Q_OVERLAP),
        custom(CORRELATION, rank_correlation, 1.0, baseline=0.0, relative=True, quote=Q_LARGER),
        positive(RISE, rise, "rise of test accuracy", quote=Q_LARGER),
        gap(CHANCE, RANDOM, RANDOM, 0.0, where=_LAST, against_where=_FIRST, tolerance=3.0, quote=Q_RANDOM),
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
        **effort(minutes=(0.1, 15, 20, 600), seeds=(2, 2, 3)),
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

SIZES = (1, 2, 4, 8, 16)
MARGINS = (0.001, 0.003162, 0.01, 0.03162, 0.1, 0.3162, 1.0, 3.162, 10.0)
_PARITY: Settings = {**MNIST, "parity": True}


def _single_and_averaged(rows: Sequence[Row]) -> Iterator[list[dict[float, float]]]:
    """For every seed margin → accuracy, of single functions and of averages of the most draws."""
    for some in by_seed(rows, "accuracy", curve="draws"):
        most = max(row["draws"] for row in some)
        yield [{row["alpha"]: row["accuracy"] for row in some if row["draws"] == count} for count in (1, most)]


def averaging_against_margin(rows: Sequence[Row]) -> list[float]:
    """For every seed the largest |acc(α, m) − acc(α√m, 1)|: averages of m against single functions of √m the margin.

    By eq. 3 both have one distribution, up to scale. The curve of single functions is interpolated (monotone cubic,
    over log α); pairs whose α√m is beyond the largest margin are left out.
    """
    from scipy.interpolate import PchipInterpolator

    largest = []
    for some in by_seed(rows, "accuracy", curve="draws"):
        single = sorted((math.log(row["alpha"]), row["accuracy"]) for row in some if row["draws"] == 1)
        curve = PchipInterpolator(*zip(*single))
        moved = [(math.log(row["alpha"]) + math.log(row["draws"]) / 2, row["accuracy"]) for row in some]
        largest.append(max(abs(accuracy - float(curve(x))) for x, accuracy in moved if x <= single[-1][0]))
    return largest


def gain_of_averaging(rows: Sequence[Row]) -> list[float]:
    """For every seed the gain of the largest average, at the margin where it is largest."""
    return [max(many[alpha] - single[alpha] for alpha in single) for single, many in _single_and_averaged(rows)]


def rise_with_margin(rows: Sequence[Row]) -> list[float]:
    """For every seed Spearman's correlation of a single function's accuracy with its margin."""
    return [spearman(*zip(*sorted(single.items()))) for single, _ in _single_and_averaged(rows)]


def fall_of_spread(rows: Sequence[Row]) -> list[float]:
    """For every seed Spearman's correlation of the relative spread with the margin."""
    seeds = by_seed((row for row in rows if row.get("alpha") is not None), "spread")
    curves = [sorted({row["alpha"]: row["spread"] for row in some}.items()) for some in seeds]
    return [spearman(*zip(*curve)) for curve in curves]


AVERAGING = "largest difference of acc(α, m) from acc(α√m, 1): averaging m does what √m times the margin does"
Q_SAME = (
    "As shown in Figure 6, individual large-margin classifiers attain the same test accuracy as an ensemble-average of "
    "small-margin classifiers. (Eq. 3: an average of m draws has the distribution N(γ·C_1, σ^{2L}·C_2/m).)"
)
Q_RISES = (
    "For both ensembles of networks and GP draws, test performances increases as a function of both ensemble size and "
    "targeted normalized margin."
)
Q_SPREAD = (
    "… if one is not careful and trains each deep ensemble member to large normalized margin, the trained ensemble "
    "members may collapse on to the same function."
)
RISES = "rank correlation of a single function's accuracy with its normalized margin"
GAIN = "averaging helps where the margin is small (the largest gain over margins)"
SPREAD = "§7.3: rank correlation of the members' relative spread with their margin"
CLAIMS = (
    custom(AVERAGING, averaging_against_margin, 0.0, tolerance=2.0, one_draw=False, quote=Q_SAME),
    custom(RISES, rise_with_margin, 1.0, baseline=0.0, relative=True, quote=Q_RISES),
    positive(GAIN, gain_of_averaging, "largest gain of averaging", quote=Q_RISES),
    custom(SPREAD, fall_of_spread, -1.0, baseline=0.0, relative=True, quote=Q_SPREAD),
)


def _figures(what: str) -> tuple[Figure, ...]:
    averages = f"Test accuracy of averages of {what} (farhang, Fig. 6)"
    spread = f"Relative spread of {what} (farhang, §7.3)"
    where = {} if what == "networks" else {"curve": "draws", "draws": 1}
    x_title = "targeted normalized margin"
    return (
        accuracy("alpha", averages, x_title, where={"curve": "draws"}, split="draws", log_x=True),
        Figure("alpha", "spread", spread, x_title, "spread / prediction", where=where, log_x=True, log_y=True),
    )


GROUPS = "Groups of m of the 16 networks are averaged in order, and the accuracies of the groups averaged."
SIGN = "The paper gives its curves as pictures only: of the gain of averaging its sign is judged."


def _shape(samples: int, width: int) -> Settings:
    return {"data.train": samples, "network.width": width, "network.depth": 3}


F8 = Study(
    **named("F8", "farhang, Fig. 6 left", "Averages of networks", "ensembles"),
    question="Does averaging networks of small margin do the same as a large margin?",
    arms=(Arm(name="networks"),),
    settings={"data": _PARITY, "network": mlp(2048, 5, outputs=1), "optimizer": NERO, "schedule": decay(0.99)}
    | {"steps": 500, "members": 16, "sizes": SIZES},
    axes={"alpha": axis("alpha", MARGINS)},
    claims=CLAIMS,
    figures=_figures("networks"),
    scales=scales(
        "40 digits of 8 × 8 pixels, width 16, depth 3, 15 steps, 4 networks, three margins; one core",
        "200 points of mnist-5k, then width 128, depth 3, 300 steps, 8 networks, five margins; two cores",
        "width cut to 1024; everything else as the paper; one GPU",
        "as the paper; one GPU",
        **effort(minutes=(0.1, 10, 10, 60), seeds=(2, 2, 3)),
        settings=(
            {**SMALL, **_shape(40, 16), "steps": 15, "schedule.factor": 0.9, "members": 4, "sizes": (1, 4)},
            {**EMBEDDED, **_shape(200, 128), "steps": 300, "schedule.factor": 0.985, "members": 8, "sizes": SIZES[:4]},
            {"network.width": 1024},
        ),
        only=({"alpha": (0.01, 0.1, 1.0)}, {"alpha": (0.001, 0.01, 0.1, 1.0, 10.0)}),
    ),
    deviations=(SPHERE, GROUPS, SIGN),
)
F9 = Study(
    **named("F9", "farhang, Fig. 6 right and §6.1", "Averages of draws of the NN-GP posterior", "nngp"),
    question="Does the Gaussian process of wide networks show the same curves?",
    arms=(Arm(name="NN-GP"),),
    settings={"data": _PARITY, "depth": 5, "margins": MARGINS, "sizes": SIZES},
    claims=CLAIMS,
    figures=_figures("draws"),
    scales=scales(
        "60 digits of 8 × 8 pixels, three margins; one core",
        "mnist-5k in place of MNIST; one core",
        "as the paper; one core",
        "as the paper; one core",
        **effort(minutes=(0.1, 1, 2, 2), seeds=(2,)),
        settings=({"data.name": "digits", "data.test": 200, "data.train": 60, "margins": (0.01, 0.1, 1.0)}, EMBEDDED),
    ),
    deviations=(SPHERE, "Accuracies are expectations over draws, in closed form, in place of single draws.", SIGN),
)
