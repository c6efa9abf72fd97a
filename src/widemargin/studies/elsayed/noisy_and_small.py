"""E3, E4: MNIST with flipped labels, and from few samples (elsayed, §4.2.1 and 4.2.2, Fig. 2, 3, 12 and 13).

E3: with 60 % of the labels flipped or more, no label is right more often than not. There a hinge of the score
difference to the strongest other class is smallest, in expectation, where all scores are equal (Liu 2007 on Crammer and
Singer's hinge), so that little but the cross-entropy term teaches the network which class is right.
"""

from __future__ import annotations

from widemargin.studies.claims import gap, order, value
from widemargin.studies.elsayed import mnist
from widemargin.studies.schema import Study, axis, effort, named, scales
from widemargin.studies.settings import overlay

AT_80 = {"flips": 0.8}
SOME_OF_E3 = ("cross-entropy", *mnist.ALL_LAYER, "ours l_2")

E3 = Study(
    **named("E3", "elsayed, Fig. 2 and 12", "Flipped training labels"),
    question="Does a margin at all layers help where a share of the training labels is wrong?",
    arms=mnist.OF_LOGITS,
    settings=mnist.SETTINGS,
    axes={"flips": axis("data.flips", mnist.FLIPS)},
    claims=(
        gap("at 80 % flipped labels, l_2 margin minus cross-entropy", "margin l_2", "cross-entropy", 2.5, where=AT_80),
        value("at 80 % flipped labels, l_2 margin", "margin l_2", 96.4, where=AT_80),
        value("at 80 % flipped labels, cross-entropy", "cross-entropy", 93.9, where=AT_80),
        order("l_1 margin above cross-entropy everywhere", "margin l_1", "cross-entropy"),
        order("l_2 margin above cross-entropy everywhere", "margin l_2", "cross-entropy"),
        order("l_inf margin slightly below cross-entropy", "cross-entropy", "margin l_inf"),
        *(order(f"{arm} (all layers) above {arm}, input", arm, f"{arm}, input") for arm in mnist.ALL_LAYER),
    ),
    figures=(mnist.over_flips("Fig. 12"),),
    scales=scales(
        "digits of 8 × 8 pixels, a small network, 2 steps, one other class",
        "2,000 images of mnist-5k; then steps, widths, other classes (1), noise levels, arms; two cores",
        "cut in this order: margins against one other class instead of 9, 3,000 steps instead of 50,000, the "
        "input-only arms, 3 search cells instead of 16, each with 2 seeds, 3 noise levels, hinge and two of our "
        "arms; one H200, with the engine workers",
        "nothing is cut; one GPU",
        **effort(minutes=(0.1, 15, 15, 12_000), seeds=(1, 2), cells=(1, 2, 3, 16), search_seeds=(1, 1, 2)),
        settings=(mnist.SMALL, mnist.QUICK, {"steps": 3000}),
        of_arms=(mnist.one_class(mnist.OF_LOGITS),) * 3,
        search_at=(None, {"flips": 0.8}),
        only=({"flips": (0.0, 0.8)}, {"flips": (0.0, 0.4, 0.8)}, {"flips": (0.0, 0.4, 0.8)}),
        arms=(None, SOME_OF_E3, SOME_OF_E3),
    ),
    deviations=(mnist.UNFLIPPED, *mnist.LOGITS_DEVIATIONS),
)

FRACTIONS = (0.00125, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
"""0.125 % of 55,000 are 68 samples. The paper names the two ends of the axis."""

SMALLEST = {"fraction": 0.00125}
SOME_OF_E4 = ("cross-entropy", *mnist.ALL_LAYER, "ours l_inf")

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
        "digits of 8 × 8 pixels (10 % of them stand for the smallest share), a small network, 2 steps",
        "mnist-5k, of whose images 2 % stand for the smallest share; then steps, widths, other classes (1), "
        "shares, arms; two cores",
        "cut in this order: margins against one other class instead of 9, 3,000 steps instead of 50,000, the "
        "input-only arms, 3 search cells instead of 16, at 1 % only, 3 of 8 shares, hinge and two of our arms; one "
        "H200, with the engine workers",
        "nothing is cut; one GPU",
        **effort(minutes=(0.1, 15, 15, 18_000), seeds=(1, 2, 6), cells=(1, 2, 3, 16)),
        settings=(*(overlay(part, {"data.train": None}) for part in (mnist.SMALL, mnist.QUICK)), {"steps": 3000}),
        of_arms=(mnist.one_class(mnist.EIGHT),) * 3,
        of_values=(
            {"fraction": {0.00125: {"data.fraction": 0.1}}},
            {"fraction": {0.00125: {"data.fraction": 0.02}, 0.1: {"data.fraction": 0.1}}},
        ),
        search_at=(None, SMALLEST, {"fraction": 0.01}),
        only=({"fraction": (0.00125, 1.0)}, {"fraction": (0.00125, 0.1)}, {"fraction": (0.00125, 0.01, 0.1)}),
        arms=(None, SOME_OF_E4, SOME_OF_E4),
    ),
    deviations=(
        "The shares between 0.125 % and 100 % are ours: the paper's text names only the two ends.",
        "The active learning of Gal et al. 2017, which the paper's figure quotes, is not run.",
        "Hyperparameters are chosen on 5,000 held-out samples, however few samples are trained on, as in the paper.",
        *mnist.DEVIATIONS,
    ),
)
