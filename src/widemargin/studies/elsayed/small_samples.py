"""E4: MNIST from few samples (elsayed, §4.2.2, Fig. 3 and 13)."""

from __future__ import annotations

from widemargin.studies.claims import gap, order
from widemargin.studies.elsayed import mnist
from widemargin.studies.schema import Study, axis, named, scales
from widemargin.studies.settings import overlay

FRACTIONS = (0.00125, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
"""0.125 % of 55,000 are 68 samples. The paper names the two ends of the axis."""

SMALLEST = {"fraction": 0.00125}
SOME = ("cross-entropy", *mnist.ALL_LAYER, "ours l_inf")

E4 = Study(
    **named("E4", "elsayed, Fig. 3 and 13", "Few training samples"),
    question="Do margins help where there are few samples, and the more the fewer there are?",
    arms=mnist.EIGHT,
    settings=mnist.SETTINGS,
    axes={"fraction": axis("data.fraction", FRACTIONS)},
    claims=(
        gap("at 68 samples, l_inf margin minus cross-entropy", "margin l_inf", "cross-entropy", 3.7, where=SMALLEST),
        *(order(f"{arm} above cross-entropy everywhere", arm, "cross-entropy") for arm in mnist.ALL_LAYER),
    ),
    figures=(mnist.over_fraction("Fig. 3 and 13", "55,000"),),
    scales=scales(
        minutes=(0.1, 15, 15, 18_000),
        settings=(*(overlay(part, {"data.train": None}) for part in (mnist.SMALL, mnist.QUICK)), {"steps": 3000}),
        of_arms=(mnist.one_class(mnist.EIGHT),) * 3,
        of_values=(
            {"fraction": {0.00125: {"data.fraction": 0.1}}},
            {"fraction": {0.00125: {"data.fraction": 0.02}, 0.1: {"data.fraction": 0.1}}},
        ),
        seeds=(1, 2, 6),
        cells=(1, 2, 3, 16),
        search_at=(None, SMALLEST, {"fraction": 0.01}),
        only=({"fraction": (0.00125, 1.0)}, {"fraction": (0.00125, 0.1)}, {"fraction": (0.00125, 0.01, 0.1)}),
        arms=(None, SOME, SOME),
        note=(
            "digits of 8 × 8 pixels (10 % of them stand for the smallest share), a small network, 2 steps",
            "mnist-5k, of whose images 2 % stand for the smallest share; then steps, widths, other classes (1), "
            "shares, arms; two cores",
            "cut in this order: margins against one other class instead of 9, 3,000 steps instead of 50,000, the "
            "input-only arms, 3 search cells instead of 16, at 1 % only, 3 of 8 shares, hinge and two of our arms; one "
            "H200, with the engine workers",
            "nothing is cut; one GPU",
        ),
    ),
    deviations=(
        "The shares between 0.125 % and 100 % are ours: the paper's text names only the two ends.",
        "The active learning of Gal et al. 2017, which the paper's figure quotes, is not run.",
        "Hyperparameters are chosen on 5,000 held-out samples, however few samples are trained on, as in the paper.",
        *mnist.DEVIATIONS,
    ),
)
