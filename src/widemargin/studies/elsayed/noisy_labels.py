"""E3: MNIST with flipped labels (elsayed, §4.2.1, Fig. 2 and 12).

With 60 % of the labels flipped or more, no label is right more often than not. There a hinge of the score difference to
the strongest other class is smallest, in expectation, where all scores are equal (Liu 2007 on Crammer and Singer's
hinge), so that little but the cross-entropy term teaches the network which class is right.
"""

from __future__ import annotations

from widemargin.studies.claims import gap, order, value
from widemargin.studies.elsayed import mnist
from widemargin.studies.schema import Study, axis, named, scales

AT_80 = {"flips": 0.8}
ONE_CLASS = mnist.one_class(mnist.OF_LOGITS)
SOME = ("cross-entropy", *mnist.ALL_LAYER, "ours l_2")

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
        *(
            order(f"{everywhere} (all layers) above {at}", everywhere, at)
            for everywhere, at in zip(mnist.ALL_LAYER, mnist.INPUT_ONLY)
        ),
    ),
    figures=(mnist.over_flips("Fig. 12"),),
    scales=scales(
        minutes=(0.1, 15, 15, 12_000),
        settings=(mnist.SMALL, mnist.QUICK, {"steps": 3000}),
        of_arms=(ONE_CLASS,) * 3,
        seeds=(1, 2),
        cells=(1, 2, 3, 16),
        search_seeds=(1, 1, 2),
        search_at=(None, {"flips": 0.8}),
        only=({"flips": (0.0, 0.8)}, {"flips": (0.0, 0.4, 0.8)}, {"flips": (0.0, 0.4, 0.8)}),
        arms=(None, SOME, SOME),
        note=(
            "digits of 8 × 8 pixels, a small network, 2 steps, one other class",
            "2,000 images of mnist-5k; then steps, widths, other classes (1), noise levels, arms; two cores",
            "cut in this order: margins against one other class instead of 9, 3,000 steps instead of 50,000, the "
            "input-only arms, 3 search cells instead of 16, each with 2 seeds, 3 noise levels, hinge and two of our "
            "arms; one H200, with the engine workers",
            "nothing is cut; one GPU",
        ),
    ),
    deviations=(
        "Hyperparameters are chosen on 5,000 held-out samples whose labels are not flipped; the paper does not say.",
        *mnist.LOGITS_DEVIATIONS,
    ),
)
