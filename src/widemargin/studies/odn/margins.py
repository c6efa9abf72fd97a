"""O7, O8: the density of the margins, and the generalization bound with its terms (odn, §4.5, Fig. 5, Theorem 1)."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Sequence

from widemargin.studies.claims import BySeed, Claim, custom, order, value
from widemargin.studies.odn import data, losses
from widemargin.studies.rows import Row, by_seed
from widemargin.studies.schema import Figure, bars, effort, grid, named, scales
from widemargin.studies.settings import Settings, overlay

ON_ALL = {"fraction": 1.0}
ALL: Settings = {"where": ON_ALL, "share": False}
SPREAD: Settings = {"metric": "margin sd", **ALL}
Q_LEAST = "… our ODN model derives a large margin mean with a smallest margin variance in all these four models."
Q_RATIO = (
    "… the ratio in our ODN model is 3.20 which is significantly larger than 2.38 in the cross-entropy loss, 2.35 in "
    "the hinge loss and 2.63 in the soft hinge loss."
)
REPORTED = (("Xent", 2.38), ("hinge", 2.35), ("soft hinge", 2.63), ("ODN", 3.20))
ratio = functools.partial(value, metric="margin mean/sd", where=ON_ALL, relative=True)


def _density(points: int, count: int | None = None) -> Settings:
    return {"measure": [{"kind": "density", "grid": (-1.0, 5.0, points), "count": count}]}


def _figure(fraction: float, words: str) -> Figure:
    title = f"Density of the margins of test images, trained on {words} (odn, Fig. 5)"
    at = {"curve": "density", "fraction": fraction}
    return Figure("margin", "density", title, "distance to the decision boundary, l_2, linearised", "density", where=at)


O7 = losses.study(
    **named("O7", "odn, Fig. 5 and §4.5", "Distribution of the margins"),
    question="Has ODN a large mean margin with a small spread, compared with the other losses?",
    settings=data.MNIST,
    axes={"fraction": data.FRACTIONS},
    conditions=grid(fraction=(1.0, 0.01)),
    claims=(
        *(
            ratio(f"mean over standard deviation of the margins, {arm}", arm, reported, quote=Q_RATIO)
            for arm, reported in REPORTED
        ),
        *losses.above_each("mean over standard deviation: ODN above {}", metric="margin mean/sd", quote=Q_RATIO, **ALL),
        *(
            order(f"standard deviation of the margins: {other} above ODN", other, losses.ODN, quote=Q_LEAST, **SPREAD)
            for other in losses.OTHERS
        ),
    ),
    figures=(_figure(1.0, "all images"), _figure(0.01, "1 % of them")),
    scales=scales(
        "digits of 8 × 8 pixels, a small network, 3 steps, no search",
        "mnist-5k; then steps, widths, the search (2 cells, at 550 images); two cores",
        "steps cut from 20,000 to 5,000, then the search to 4 cells; the networks are those of O1, O2, O5, O6 "
        "and O8; one GPU",
        "one GPU",
        **effort(minutes=(0.1, 12, 12, 600), seeds=(1, 2, 5, 5), cells=(1, 2, 4, 6), search_seeds=(1, 1, 3, 3)),
        settings=(
            overlay(data.SMOKE_MNIST, _density(5, 50)),
            overlay(data.QUICK_MNIST, _density(61)),
            overlay(data.BUDGET, _density(121)),
            _density(121),
        ),
        search_at=(None, data.BUDGET_SEARCH),
        arms=(losses.FEW, losses.FEW),
    ),
    deviations=(
        "The paper does not say which images the margins are of, nor how many its models were trained on: here test "
        "images, models trained on all of MNIST for the claims, and on 1 % beside them.",
    ),
)

_R = 2.0
_THETAS = (0.7, 0.2, 0.4, 1.0, 1.4, 1.8)
"""The first one is the losses' own; the others show how the bound grows with θ/r."""


def _bounds(count: int, probes: int | None) -> Settings:
    return {"measure": [{"kind": "bounds", "r": _R, "thetas": _THETAS, "count": count, "probes": probes}]}


def bartlett_is_larger(rows: Sequence[Row]) -> list[float]:
    """Per seed, the share of networks whose Bartlett bound is above odn's."""
    return _shares(rows, lambda row: row["bartlett bound"] > row["odn bound"], "odn bound")


def larger_complexity(rows: Sequence[Row]) -> list[float]:
    """Per seed, the share of networks whose R_w, eq. (3), is above the root of odn's complexity term."""
    return _shares(rows, lambda row: row["bartlett complexity"] > row["odn complexity"] ** 0.5, "odn complexity")


def grows_with_theta(rows: Sequence[Row]) -> list[float]:
    """Per seed, the share of networks whose complexity term grows at every step of θ/r."""
    shares = []
    for some in by_seed(rows, "complexity", curve="theta"):
        curves: dict[str, list[tuple[float, float]]] = {}
        for row in some:
            curves.setdefault(row["arm"], []).append((row["theta/r"], row["complexity"]))
        grown = [all(a[1] < b[1] for a, b in itertools.pairwise(sorted(curve))) for curve in curves.values()]
        shares.append(sum(grown) / len(grown))
    return shares


def _shares(rows: Sequence[Row], holds: Callable[[Row], bool], metric: str) -> list[float]:
    return [statistics.fmean(bool(holds(row)) for row in some) for some in by_seed(rows, metric)]


def all_networks(text: str, function: BySeed, quote: str = "", *, ours: bool = False) -> Claim:
    """A property of all networks."""
    return custom(f"networks on which {text}", function, 100, tolerance=0, one_draw=False, quote=quote, ours=ours)


Q_THETA = (
    "… the factor … ((r + θ)/(r − θ))² … is a monotonicity increasing function with regard to the ratio θ/r ∈ [0, 1)."
)
Q_LARGER = (
    "The product value in equation 3 is extremely large and is hard to control it, but the parameter in our "
    "generalization bound is easy to restrict."
)
Q_SMALLER = "… we can come to the conclusion that smaller θ and larger r make the complexity smaller."
ORDER = "the complexity term of the network trained by cross-entropy is above that of ODN's"
TITLES = (
    "Complexity term of odn's bound over θ/r (odn, remark after Theorem 1)",
    "Share of each layer in the sum: stable rank over cushions (odn, Theorem 1)",
    "Spectral norm of each layer, whose product is in Bartlett's bound (odn, eq. 3)",
)

O8 = losses.study(
    **named("O8", "odn, Theorem 1 and its remark", "The bound and its terms"),
    question="What are odn's bound and its terms on trained networks, and how do they compare with Bartlett's?",
    settings=data.MNIST,
    axes={"fraction": data.FRACTIONS},
    conditions=grid(fraction=(1.0,)),
    claims=(
        all_networks(
            "Bartlett's complexity R_w is larger than the complexity term of odn's bound",
            larger_complexity,
            quote=Q_LARGER,
        ),
        all_networks("the complexity term grows with θ/r at every step", grows_with_theta, quote=Q_THETA),
        order(ORDER, "Xent", losses.ODN, metric="odn complexity", share=False, quote=Q_SMALLER),
        all_networks("Bartlett's bound (eq. 3) is larger than odn's", bartlett_is_larger, ours=True),
    ),
    figures=(
        Figure("theta/r", "complexity", TITLES[0], where={"curve": "theta"}, log_y=True),
        bars("layer", "share", TITLES[1], where={"curve": "layers"}, log_y=True),
        bars("layer", "spectral norm", TITLES[2], where={"curve": "layers"}),
    ),
    scales=scales(
        "digits of 8 × 8 pixels, a small network, 3 steps, 10 samples, no search",
        "mnist-5k, 100 samples; then steps, widths, the search (2 cells, at 550 images); two cores",
        "terms of 500 samples, then steps cut from 20,000 to 5,000, then the search to 4 cells; the "
        "networks are those of O7; one GPU",
        "5,000 samples; one GPU",
        **effort(minutes=(0.1, 8, 12, 600), seeds=(1, 2), cells=(1, 2, 4, 6)),
        settings=(
            overlay(data.SMOKE_MNIST, _bounds(10, 2)),
            overlay(data.QUICK_MNIST, _bounds(100, 16)),
            overlay(data.BUDGET, _bounds(500, 64)),
            _bounds(5000, 64),
        ),
        search_at=(None, data.BUDGET_SEARCH),
        arms=(("Xent", "ODN", "ours ODN"), losses.FEW),
    ),
    deviations=(
        "The paper computes no value of its bound. Here with constant 1, r = 2 and θ = 0.7 for every network, on part "
        "of the training samples, m being their number; interlayer Jacobians by random probes.",
        "The networks have biases, which neither theorem knows: they run with them, and the norms leave them out.",
        "Bartlett's γ is the median output margin, and its reference matrix the identity, as eq. 3 prints it.",
        "That Bartlett's bound is larger than odn's is our comparison: the paper compares the complexities alone, and "
        "the contraction of odn's counts max-pools, Bartlett's side does not.",
    ),
)
