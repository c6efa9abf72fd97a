"""E2: test accuracy of the eight models trained on all of MNIST (elsayed, §4.2)."""

from __future__ import annotations

from widemargin.studies.claims import value
from widemargin.studies.elsayed import mnist, trained_on_all
from widemargin.studies.figure import accuracy
from widemargin.studies.schema import named

REPORTED = {"cross-entropy": 99.5, "hinge": 99.2, **dict.fromkeys((*mnist.ALL_LAYER, *mnist.INPUT_ONLY), 99.4)}

E2 = trained_on_all.declare(
    **named("E2", "elsayed, §4.2", "MNIST, all of it"),
    question="Do margin losses cost accuracy where data are plenty and clean?",
    measure=({"kind": "margins", "p": 2.0, "at": ["input"]},),
    claims=tuple(
        value(arm if "margin" not in arm else f"{arm} (the paper: 99.3 to 99.5)", arm, reported)
        for arm, reported in REPORTED.items()
    ),
    figures=(accuracy("arm", "Test accuracy on MNIST (elsayed, §4.2)", kind="bars"),),
    deviations=("The paper's margin models have 99.3 to 99.5 % between them: the claims take the middle for each.",),
)
