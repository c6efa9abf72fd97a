"""E11: CIFAR-10 with flipped labels (elsayed, §4.3.1, Fig. 8)."""

from __future__ import annotations

from widemargin.studies.claims import gap, order
from widemargin.studies.elsayed import cifar10
from widemargin.studies.figure import accuracy
from widemargin.studies.schema import Study, grid

BETTER = ("margin l_inf", "margin l_2")
MEAN = "minus cross-entropy, mean over the noise levels (the paper: 4 to 10)"
FIGURE = accuracy(
    "flips", "Test accuracy over the share of flipped labels (elsayed, Fig. 8)", "share of flipped training labels"
)

E11 = Study(
    id="E11",
    source="elsayed, Fig. 8",
    title="Flipped training labels, CIFAR-10",
    question="Does a margin at several layers help where a share of the training labels is wrong?",
    arms=cifar10.FIVE,
    settings=cifar10.SETTINGS,
    axes={"flips": "data.flips"},
    conditions=grid(flips=(0.0, 0.2, 0.4, 0.6, 0.8)),
    claims=(
        *(gap(f"{arm} {MEAN}", arm, "cross-entropy", 7.0, tolerance=3.0) for arm in BETTER),
        *(order(f"{arm} above cross-entropy everywhere", arm, "cross-entropy") for arm in BETTER),
    ),
    figures=(FIGURE,),
    scales=cifar10.scales(
        hours=2, only=({"flips": (0.8,)}, {"flips": (0.0, 0.8)}, {"flips": (0.0, 0.4, 0.8)}), search_at={"flips": 0.8}
    ),
    deviations=(
        "Hyperparameters are chosen on 5,000 held-out samples whose labels are not flipped; the paper does not say.",
        *cifar10.DEVIATIONS,
    ),
)
