"""E11: CIFAR-10 with flipped labels (elsayed, §4.3.1, Fig. 8)."""

from __future__ import annotations

from widemargin.studies.effects import Gap, Order
from widemargin.studies.elsayed import cifar10
from widemargin.studies.figure import Figure
from widemargin.studies.schema import Claim, Study, grid

BETTER = ("margin l_inf", "margin l_2")

E11 = Study(
    id="E11",
    source="elsayed, Fig. 8",
    title="Flipped training labels, CIFAR-10",
    question="Does a margin at several layers help where a share of the training labels is wrong?",
    task="classify",
    arms=cifar10.FIVE,
    settings=cifar10.SETTINGS,
    axes={"flips": "data.flips"},
    conditions=grid(flips=(0.0, 0.2, 0.4, 0.6, 0.8)),
    claims=(
        *(
            Claim(
                text=f"{arm} minus cross-entropy, mean over the noise levels (the paper: 4 to 10)",
                effect=Gap(metric="accuracy", arm=arm, against="cross-entropy"),
                reported=7.0,
                tolerance=3.0,
            )
            for arm in BETTER
        ),
        *(
            Claim(
                text=f"{arm} above cross-entropy everywhere",
                effect=Order(metric="accuracy", ordered=(arm, "cross-entropy")),
                kind="order",
            )
            for arm in BETTER
        ),
    ),
    figures=(
        Figure(
            x="flips",
            y="accuracy",
            title="Test accuracy over the share of flipped labels (elsayed, Fig. 8)",
            x_title="share of flipped training labels",
            y_title="test accuracy",
            percent=True,
        ),
    ),
    scales=cifar10.scales(
        hours=2,
        only={"smoke": {"flips": (0.8,)}, "quick": {"flips": (0.0, 0.8)}, "budget": {"flips": (0.0, 0.4, 0.8)}},
        search_at={"flips": 0.8},
    ),
    deviations=(
        "Hyperparameters are chosen on 5,000 held-out samples whose labels are not flipped; the paper does not say.",
        *cifar10.DEVIATIONS,
    ),
)
STUDIES = {"E11": E11}
