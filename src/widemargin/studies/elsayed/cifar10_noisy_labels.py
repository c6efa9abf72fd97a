"""E11: CIFAR-10 with flipped labels (elsayed, §4.3.1, Fig. 8)."""

from __future__ import annotations

from widemargin.studies.claims import gap, order
from widemargin.studies.elsayed import cifar10, mnist
from widemargin.studies.schema import axis, named

BETTER = ("margin l_inf", "margin l_2")
MEAN = "minus cross-entropy, mean over the noise levels (the paper: 4 to 10)"

E11 = cifar10.study(
    **named("E11", "elsayed, Fig. 8", "Flipped training labels, CIFAR-10"),
    question="Does a margin at several layers help where a share of the training labels is wrong?",
    axes={"flips": axis("data.flips", mnist.FLIPS)},
    claims=(
        *(gap(f"{arm} {MEAN}", arm, "cross-entropy", 7.0, tolerance=3.0) for arm in BETTER),
        *(order(f"{arm} above cross-entropy everywhere", arm, "cross-entropy") for arm in BETTER),
    ),
    figures=(mnist.over_flips("Fig. 8"),),
    scales=cifar10.scales(
        hours=2, only=({"flips": (0.8,)}, {"flips": (0.0, 0.8)}, {"flips": (0.0, 0.4, 0.8)}), search_at={"flips": 0.8}
    ),
    deviations=(
        "Hyperparameters are chosen on 5,000 held-out samples whose labels are not flipped; the paper does not say.",
    ),
)
