"""O1 to O4: test accuracy of the losses on all or a small share of MNIST and CIFAR-10 (odn, §4.1, 4.2, Table 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from widemargin.studies.claims import Claim, gap, value
from widemargin.studies.odn import data, losses
from widemargin.studies.schema import Arm, Figure, Study, accuracy, effort, grid, named, scales
from widemargin.studies.settings import Settings, overlay, sgd

_REPORTED = {
    "MNIST": {"Xent": 99.09, "hinge": 98.95, "soft hinge": 99.14, "ODN": 99.16},
    "CIFAR-10": {"Xent": 83.51, "hinge": 82.15, "soft hinge": 81.96, "ODN": 84.61},
}


Q_ALL = (
    "… the baseline cross-entropy model achieves a test accuracy of 99.09%; the hinge loss model achieves 98.95% on "
    "MNIST dataset; the soft-hinge loss model achieves 99.14% and the ODN model achieves 99.16%. On the CIFAR-10 "
    "dataset, the baseline cross-entropy model … achieves a test accuracy of 83.51% …"
)


def _claims(name: str) -> tuple[Claim, ...]:
    where = {"set": name}
    values = [
        value(f"{name}, {arm}", arm, reported, where=where, quote=Q_ALL) for arm, reported in _REPORTED[name].items()
    ]
    return (*values, *losses.above_each(f"{name}: ODN above {{}}", where=where, quote=Q_ALL))


O1 = losses.study(
    **named("O1", "odn, §4.1", "Accuracy on all data"),
    question="How do the four losses compare where there are as many samples as there can be?",
    axes={"set": {"MNIST": data.MNIST, "CIFAR-10": data.CIFAR10}, "fraction": data.FRACTIONS},
    conditions=grid(set=("MNIST", "CIFAR-10"), fraction=(1.0,)),
    claims=(*_claims("MNIST"), *_claims("CIFAR-10")),
    figures=(accuracy("set", "Test accuracy of every loss (odn, §4.1)", "data", kind="bars"),),
    scales=scales(
        "digits of 8 × 8 pixels, synthetic images for CIFAR-10, small networks, 3 steps, no search",
        "MNIST alone, as mnist-5k; then steps, widths, the search (2 cells); two cores",
        "CIFAR-10 is left out, then steps are cut from 20,000 to 5,000, then the search to 4 cells; the "
        "networks are those of O7; one GPU",
        "as the paper; one GPU",
        **effort(minutes=(0.1, 8, 10, 900), seeds=(2, 2, 3, 5), cells=(1, 2, 4, 6), search_seeds=(1, 1, 3, 3)),
        of_values=(
            {"set": {"MNIST": data.SMOKE_MNIST, "CIFAR-10": data.SMOKE_CIFAR10}},
            {"set": {"MNIST": data.QUICK_MNIST}},
            {"set": {"MNIST": data.BUDGET}},
        ),
        only=({}, {"set": ("MNIST",)}, {"set": ("MNIST",)}),
        arms=(losses.FEW, losses.FEW),
    ),
)

Q_FEW = "… the less training data there are, the larger performance gain the ODN model can have."
Q_CONSTANTLY = (
    "Obviously, the ODN models proposed by our paper outperform all the other models constantly across different "
    "datasets and different fractions."
)
QUESTION = "Does the optimal margin distribution loss do better than the others where there are few samples?"


def _few(least: float, words: str, reported: Mapping[str, float]) -> tuple[Claim, ...]:
    """ODN is above each of the others by `reported` points at the smallest share, and above them at every share."""
    gaps = [
        gap(f"at {words}, ODN minus {other}", losses.ODN, other, points, where={"fraction": least}, quote=Q_FEW)
        for other, points in reported.items()
    ]
    return (*gaps, *losses.above_each("ODN above {} at every fraction", quote=Q_CONSTANTLY))


def _figure(panel: str) -> Figure:
    title = f"Test accuracy over the share of the training set that is used (odn, Fig. {panel})"
    return accuracy("fraction", title, "share of the training set", log_x=True)


O2 = losses.study(
    **named("O2", "odn, Fig. 2a", "Small training sets of MNIST"),
    question=QUESTION,
    settings=data.MNIST,
    axes={"fraction": data.FRACTIONS},
    claims=_few(0.00125, "0.125 % of the training set (68 samples)", {"Xent": 4.95, "hinge": 6.84, "soft hinge": 3.03}),
    figures=(_figure("2a"),),
    scales=scales(
        "digits of 8 × 8 pixels, a small network, 3 steps, no search",
        "68 and 550 images of mnist-5k; then steps, widths, the search (2 cells, at 550 images); two cores",
        "steps cut from 20,000 to 5,000, then fractions to two of nine, then the search to 4 cells, each with 5 seeds; "
        "one GPU",
        "all fractions, each with its own search; one GPU, as populations",
        **effort(minutes=(0.1, 12, 50, 900), seeds=(2, 2, 20, 5), cells=(1, 2, 4, 6), search_seeds=(1, 1, 5, 3)),
        settings=(data.SMOKE_MNIST, data.QUICK_MNIST, data.BUDGET),
        search_at=(None, data.BUDGET_SEARCH),
        only=({"fraction": (0.00125, 0.01)},) * 3,
        arms=(losses.FEW, losses.FEW),
    ),
)
_STEPS: dict[float, Settings] = {
    0.005: {"steps": 2000},
    0.01: {"steps": 2000},
    0.1: {"steps": 3000},
    1.0: {"steps": 6300},
}
"""Of the budget: AlexNet without batch norm stays at chance for some hundred steps, however few samples there are."""

IN_BFLOAT16 = (
    "At budget scale networks train in bfloat16 (autocast; weights, losses and measurements are float32). The paper "
    "does not say how long it trained."
)

O3 = losses.study(
    **named("O3", "odn, Fig. 2b", "Small training sets of CIFAR-10", "augmented"),
    question=QUESTION,
    of=losses.for_alexnet(),
    settings=data.ALEXNET,
    axes={"fraction": data.FRACTIONS_OF_CIFAR10},
    claims=_few(0.005, "0.5 % of the training set (225 samples)", {"Xent": 9.9, "hinge": 10.1, "soft hinge": 13.4}),
    figures=(_figure("2b"),),
    scales=scales(
        "synthetic images, a small network, 3 steps, no search",
        "synthetic images of CIFAR-10's shape, since there are none in any package: nothing is learnt of the "
        "claims; two cores",
        "bfloat16 instead of float32, as a CUDA graph; steps cut from 40,000 to 2,000 for 0.5 and 1 % of the training "
        "set, 3,000 for 10 % and 6,300 (14 epochs) for all, then fractions to four of seven, then the search to 4 "
        "cells at 1 % of the training set for all fractions, then arms that no claim names, but WideMargin; one GPU",
        "all fractions, each with its own search; one GPU",
        **effort(minutes=(0.1, 12, 12, 3000), seeds=(1, 2, 3, 5), cells=(1, 2, 4, 6), search_seeds=(1, 1, 3, 3)),
        settings=(data.SMOKE_CIFAR10, data.QUICK_CIFAR10, data.IN_BFLOAT16),
        of_values=({"fraction": {0.005: {"data.train": 40}}}, {}, {"fraction": _STEPS}),
        search_at=(None, {"fraction": 0.01}, {"fraction": 0.01}),
        only=({"fraction": (0.005, 1.0)}, {"fraction": (0.005, 0.01)}, {"fraction": tuple(_STEPS)}),
        arms=(losses.FEW, losses.FEW, (*losses.PAPER, "WideMargin")),
    ),
    deviations=(
        "How AlexNet was adapted to 32 × 32 pixels is not described: see the network's own words.",
        "The images are not augmented; the paper does not say.",
        data.HE,
        IN_BFLOAT16,
    ),
)


def _switch(setting: str) -> dict[str, Settings]:
    return {"with": {setting: True}, "without": {setting: False}}


def _band(r: float, **more: Any) -> Settings:
    return {"name": "odn", "r": r, "theta": 0.7, "mu": 0.1, **more}


_PRINTED: Settings = {"stabilize": None, "epsilon": 1.0}


def _arm(name: str, loss: Settings, rates: tuple[float, ...], **options: Any) -> Arm:
    return Arm(name, {"loss": loss, "optimizer": sgd(rates[0])}, {"optimizer.lr": rates}, **options)


ARMS = (
    _arm("Xent", {"name": "cross-entropy"}, (0.01, 0.03, 0.003)),
    _arm("ODN, r 30", _band(30.0, **_PRINTED), (0.03, 0.1, 0.01), only={"batch norm": ("with",)}),
    _arm("ODN, r 1.2", _band(1.2, **_PRINTED), (0.001, 0.003, 0.0003), only={"batch norm": ("without",)}),
    _arm("ours ODN", _band(1.2, stabilize="scale-free"), (0.01, 0.03, 0.003), ours=True),
    _arm("WideMargin", {"name": "wide-margin"}, (0.01, 0.03, 0.003), ours=True),
)
"""The paper's r, θ and μ: 30/0.7/0.1 with batch norm, 1.2/0.7/0.1 without.

The slope of the band is 1/(r − θ), 1/29 of r = 30 and 2 of r = 1.2, hence the rates.
"""

# batch norm, share of the data, dropout → Xent and ODN, each mean ± sd
_TABLE_1: dict[tuple[str, float, str], tuple[tuple[float, float], tuple[float, float]]] = {
    ("with", 1.0, "with"): ((85.782, 0.198), (87.644, 0.151)),
    ("with", 1.0, "without"): ((81.491, 0.143), (86.233, 0.244)),
    ("with", 0.05, "with"): ((61.955, 1.945), (67.636, 1.633)),
    ("with", 0.05, "without"): ((57.753, 2.228), (64.173, 1.982)),
    ("without", 1.0, "with"): ((83.517, 0.322), (84.643, 0.255)),
    ("without", 1.0, "without"): ((72.223, 1.284), (76.793, 1.279)),
    ("without", 0.05, "with"): ((50.747, 3.735), (58.739, 1.348)),
    ("without", 0.05, "without"): ((36.293, 4.872), (47.056, 3.927)),
}


Q_TABLE = (
    "As suggested by Table 1, our loss can outperform the baseline loss consistently across different situations, no "
    "matter whether dropout, batch normalization or all the CIFAR-10 dataset are used or not."
)


def _table_claims(key: tuple[str, float, str]) -> tuple[Claim, ...]:
    norm, fraction, dropout = key
    (xent, xent_sd), (odn, odn_sd) = _TABLE_1[key]
    arm = "ODN, r 30" if norm == "with" else "ODN, r 1.2"
    where = {"batch norm": norm, "fraction": fraction, "dropout": dropout}
    words = f"{norm} batch norm, {100 * fraction:g} % of the data, {dropout} dropout"
    both, more = math.hypot(xent_sd, odn_sd), round(odn - xent, 3)
    return (
        gap(f"{words}: ODN minus Xent", arm, "Xent", more, where=where, tolerance=both, quote=Q_TABLE, one_draw=False),
        value(f"{words}: Xent", "Xent", xent, where=where, tolerance=xent_sd, quote=Q_TABLE, one_draw=False),
        value(f"{words}: ODN", arm, odn, where=where, tolerance=odn_sd, quote=Q_TABLE, one_draw=False),
    )


def _bars(norm: str, dropout: str) -> Figure:
    title = f"Test accuracy {norm} batch norm and {dropout} dropout (odn, Table 1)"
    where = {"batch norm": norm, "dropout": dropout}
    return accuracy("fraction", title, "share of the training set", where=where, kind="bars")


O4 = Study(
    **named("O4", "odn, Table 1", "Together with batch norm and dropout", "augmented"),
    question="Does ODN beat cross-entropy with and without batch norm and dropout, and with little data?",
    arms=ARMS,
    settings=data.ALEXNET,
    axes={
        "batch norm": _switch("network.batch_norm"),
        "fraction": {1.0: {"data.train": None}, 0.05: {"data.train": 2250}},
        "dropout": _switch("network.dropout"),
    },
    claims=tuple(claim for key in _TABLE_1 for claim in _table_claims(key)),
    figures=tuple(_bars(norm, dropout) for norm in ("with", "without") for dropout in ("with", "without")),
    scales=scales(
        "synthetic images, a small network, 2 steps, no search",
        "synthetic images of CIFAR-10's shape, since there are none in any package: nothing is learnt of the "
        "claims; two cores",
        "bfloat16 instead of float32, as a CUDA graph; steps cut from 40,000 to 6,750 (15 epochs) for all data and "
        "2,300 (100 epochs) for 5 %, then the search: at 5 % of the data with dropout, for all data and without "
        "dropout too; then arms that no claim names, but for WideMargin; one GPU",
        "with a search of the learning rate for all; one GPU",
        **effort(minutes=(0.1, 15, 15, 3000), seeds=(1, 2, 3, 5), cells=(1, 1, 3, 3), search_seeds=(1, 1, 3, 3)),
        settings=(overlay(data.SMOKE_CIFAR10, {"steps": 2}), data.QUICK_CIFAR10, data.IN_BFLOAT16),
        of_values=(
            {"fraction": {0.05: {"data.train": 40}}},
            {"fraction": {0.05: {"data.train": 100}}},
            {"fraction": {0.05: {"steps": 2300}, 1.0: {"steps": 6750}}},
        ),
        search_at=(None, None, {"fraction": 0.05, "dropout": "with"}),
        arms=(None, None, ("Xent", "ODN, r 30", "ODN, r 1.2", "WideMargin")),
    ),
    deviations=(
        "The learning rate is searched for every arm; the paper takes PyTorch's usual one and does not say which.",
        "How AlexNet was adapted to 32 × 32 pixels is not described; the images are not augmented.",
        "In training, margins are taken through the statistics of the batch; the paper does not say.",
        "Our arm has r = 1.2 with and without batch norm.",
        "ε of the denominators, which the paper does not give, is 1, as in O1; tolerances are the paper's ±.",
        data.HE,
        IN_BFLOAT16,
    ),
)
