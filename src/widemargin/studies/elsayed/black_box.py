"""E7, E8: attacks on MNIST models that were made on another model (elsayed, §4.2.3 and A.1, Fig. 6, 14 to 16)."""

from __future__ import annotations

from collections.abc import Sequence

from widemargin.studies.claims import custom, value
from widemargin.studies.elsayed import mnist
from widemargin.studies.elsayed.trained_on_all import (
    FROM_CROSS_ENTROPY,
    above,
    against_cross_entropy,
    attack,
    declare,
    over_epsilon,
)
from widemargin.studies.rows import Row, select
from widemargin.studies.schema import named

BLACK = "fgsm from cross-entropy"
AT_TENTH = {"curve": BLACK, "epsilon": 0.1}


def best_margin(rows: Sequence[Row]) -> list[float]:
    """The accuracy of the margin model that is best on average, seed by seed."""
    by_arm = {
        arm: {row["seed"]: row["accuracy"] for row in select(rows, "accuracy", arm, AT_TENTH)}
        for arm in (*mnist.ALL_LAYER, *mnist.INPUT_ONLY)
    }
    known = [values for values in by_arm.values() if values]
    return list(max(known, key=lambda values: sum(values.values()) / len(values)).values()) if known else []


def best_margin_over_cross_entropy(rows: Sequence[Row]) -> list[float]:
    """The same, minus cross-entropy's."""
    own = [row["accuracy"] for row in select(rows, "accuracy", "cross-entropy", AT_TENTH)]
    return [a - b for a, b in zip(best_margin(rows), own)]


E7 = declare(
    **named("E7", "elsayed, Fig. 6", "Black-box FGSM from the cross-entropy model"),
    question="Do images that were made to fool the cross-entropy model fool the margin models?",
    measure=(attack("fgsm", BLACK, **FROM_CROSS_ENTROPY),),
    claims=(
        value("at ε = 0.1, cross-entropy", "cross-entropy", 67.0, where=AT_TENTH),
        custom("at ε = 0.1, the best margin model", best_margin, 90.0),
        custom(
            "at ε = 0.1, the best margin model minus cross-entropy", best_margin_over_cross_entropy, 23.0, baseline=0.0
        ),
        *against_cross_entropy(BLACK),
    ),
    figures=(over_epsilon("Test accuracy under FGSM from the cross-entropy model (elsayed, Fig. 6)", BLACK),),
    deviations=("The cross-entropy model is attacked by itself, as in the paper's figure: white-box.",),
)
E8 = declare(
    **named("E8", "elsayed, Fig. 14, 15 and 16", "Black-box IFGSM; margin models as attackers"),
    question="The same for IFGSM; and do images that were made to fool a margin model fool the cross-entropy model?",
    measure=(
        attack("ifgsm", "ifgsm from cross-entropy", **FROM_CROSS_ENTROPY),
        attack("fgsm", "fgsm on cross-entropy", target={"arm": "cross-entropy"}),
        attack("ifgsm", "ifgsm on cross-entropy", target={"arm": "cross-entropy"}),
    ),
    claims=(
        *against_cross_entropy("ifgsm from cross-entropy"),
        *(
            above(f"cross-entropy stands {name.upper()} from {arm} better than its own", arm, "cross-entropy", curve)
            for name in ("fgsm", "ifgsm")
            for curve in (f"{name} on cross-entropy",)
            for arm in mnist.ALL_LAYER
        ),
    ),
    figures=tuple(
        over_epsilon(f"{title} (elsayed, Fig. {number})", curve)
        for number, title, curve in (
            (14, "Test accuracy under IFGSM from the cross-entropy model", "ifgsm from cross-entropy"),
            (15, "Accuracy of the cross-entropy model under FGSM from each model", "fgsm on cross-entropy"),
            (16, "Accuracy of the cross-entropy model under IFGSM from each model", "ifgsm on cross-entropy"),
        )
    ),
    deviations=("The paper does not give α: here it is ε/10, in 10 steps; orders are asked for at ε = 0.1 and 0.2.",),
)
