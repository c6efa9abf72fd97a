"""E13: CIFAR-10 models under FGSM made on themselves and on the cross-entropy model (elsayed, §4.3.3, Fig. 10)."""

from __future__ import annotations

from widemargin.studies.claims import gap
from widemargin.studies.elsayed import cifar10
from widemargin.studies.elsayed.trained_on_all import EPSILONS, FROM_CROSS_ENTROPY, TOLD, above, over_epsilon
from widemargin.studies.schema import named
from widemargin.studies.settings import Settings

WHITE, BLACK = "fgsm", "fgsm from cross-entropy"


def _measure(epsilons: tuple[float, ...], count: int | None) -> Settings:
    attack = {"kind": "attack", "attack": "fgsm", "epsilons": epsilons, "count": count}
    return {"measure": [attack, {**attack, "curve": BLACK, **FROM_CROSS_ENTROPY}]}


SIZES = ((0.05, *TOLD), EPSILONS, EPSILONS, EPSILONS)
GAP = "at ε = 0.1 from cross-entropy, l_1 margin minus cross-entropy"

E13 = cifar10.study(
    **named("E13", "elsayed, Fig. 10", "FGSM on CIFAR-10, white- and black-box"),
    question="Do margins at training samples protect test samples from one large step?",
    keep=True,
    claims=(
        gap(GAP, "margin l_1", "cross-entropy", 14.0, where={"curve": BLACK, "epsilon": 0.1}),
        *(
            above(f"{arm} above cross-entropy, {box}-box", arm, "cross-entropy", curve, epsilon=(0.05, 0.1))
            for box, curve in (("white", WHITE), ("black", BLACK))
            for arm in ("margin l_1", "margin l_inf")
        ),
    ),
    figures=(
        over_epsilon("Test accuracy under white-box FGSM (elsayed, Fig. 10)", WHITE),
        over_epsilon("Test accuracy under FGSM from the cross-entropy model (elsayed, Fig. 10)", BLACK),
    ),
    scales=cifar10.scales(more=[_measure(*both) for both in zip(SIZES, (10, 100, 2000, None))]),
    deviations=(
        "The paper does not print the sizes of its attacks: here ε is 0 to 0.3; orders are asked for at 0.05 and 0.1.",
        "The cross-entropy model is attacked by itself: white-box.",
    ),
)
