"""E2: test accuracy of the eight models trained on all of MNIST (elsayed, §4.2)."""

from __future__ import annotations

from widemargin.studies.effects import Value
from widemargin.studies.elsayed import mnist, trained_on_all
from widemargin.studies.figure import Figure
from widemargin.studies.schema import Claim

REPORTED = {"cross-entropy": 99.5, "hinge": 99.2, **dict.fromkeys((*mnist.ALL_LAYER, *mnist.INPUT_ONLY), 99.4)}

E2 = trained_on_all.declare(
    id="E2",
    source="elsayed, §4.2",
    title="MNIST, all of it",
    question="Do margin losses cost accuracy where data are plenty and clean?",
    measure=({"kind": "margins", "p": 2.0, "at": ["input"]},),
    claims=tuple(
        Claim(
            text=arm if "margin" not in arm else f"{arm} (the paper: 99.3 to 99.5)",
            effect=Value(metric="accuracy", arm=arm),
            reported=reported,
        )
        for arm, reported in REPORTED.items()
    ),
    figures=(
        Figure(
            kind="bars",
            x="arm",
            y="accuracy",
            title="Test accuracy on MNIST (elsayed, §4.2)",
            y_title="test accuracy",
            percent=True,
        ),
    ),
    deviations=("The paper's margin models have 99.3 to 99.5 % between them: the claims take the middle for each.",),
)
STUDIES = {"E2": E2}
