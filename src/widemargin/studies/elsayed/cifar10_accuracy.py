"""E10: test accuracy of the five models trained on all of CIFAR-10 (elsayed, §4.3)."""

from __future__ import annotations

from widemargin.studies.claims import value
from widemargin.studies.elsayed import cifar10
from widemargin.studies.figure import accuracy
from widemargin.studies.schema import named

E10 = cifar10.study(
    **named("E10", "elsayed, §4.3", "CIFAR-10, all of it"),
    question="Do margin losses cost accuracy where data are plenty and clean?",
    keep=True,
    claims=tuple(value(arm, arm, 90.0) for arm in ("cross-entropy", "hinge", *cifar10.MARGINS)),
    figures=(accuracy("arm", "Test accuracy on CIFAR-10 (elsayed, §4.3)", kind="bars"),),
    scales=cifar10.scales(),
)
