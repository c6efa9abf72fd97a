"""The losses, regularizers and optimizers that the command names are those of the library."""

from __future__ import annotations

from typing import Any

import pytest

from widemargin import losses, regularizers, training
from widemargin.cli import objectives
from widemargin.cli.objectives import Loss, Optimizer, Schedule


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (Loss.cross_entropy, {}, losses.CrossEntropy()),
        (Loss.cross_entropy, {"at": ("conv1",), "p": 1.0}, losses.CrossEntropy()),  # which are then only measured
        (Loss.hinge, {"gamma": 2.0}, losses.MultiClassHinge(gamma=2.0)),
        (Loss.soft_hinge, {}, losses.SoftHinge()),
        (Loss.large_margin, {"gamma": 2.0, "at": ("input", "a"), "p": 1.0, "classes": 3}, losses.large_margin(
            gamma=2.0, at=("input", "a"), p=1.0, classes=3)),
        (Loss.large_margin, {"stabilize": "--as-printed", "cross_entropy": 0.5}, losses.large_margin(
            stabilize=None, cross_entropy=0.5)),
        (Loss.odn, {"r": 1.2, "theta": 0.7, "mu": 0.2}, losses.odn(r=1.2, theta=0.7, mu=0.2)),
        (Loss.odn_hinge, {"gamma": 0.5}, losses.odn_hinge(gamma=0.5)),
        (Loss.target, {"alpha": 3.0}, losses.Target(alpha=3.0)),
    ],
)  # fmt: skip
def test_losses(name: Loss, options: dict[str, Any], expected: Any) -> None:
    every = dict.fromkeys(("gamma", "r", "theta", "mu", "alpha", "at", "p", "classes", "cross_entropy", "stabilize"))
    assert objectives.loss(name, every | options) == expected


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            Loss.cross_entropy,
            {"gamma": 1.0},
            "--gamma is not for --loss cross-entropy, but for hinge, large-margin, odn-",
        ),
        (Loss.odn, {"gamma": 1.0}, "--gamma is not for --loss odn, but for"),
        (Loss.hinge, {"stabilize": "x"}, "--as-printed is not for --loss hinge, but for large-margin, odn, odn-hinge"),
        (Loss.target, {"cross_entropy": 1.0}, "--add-cross-entropy is not for --loss target, but for large-margin"),
    ],
)
def test_an_option_of_another_loss_gets_a_sentence(name: Loss, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        objectives.loss(name, options)


def test_regularizers() -> None:
    assert objectives.regularizers(0.0, 0.0) == ()
    jacobian, decay = regularizers.Jacobian(weight=0.1), regularizers.WeightDecay(weight=0.01)
    assert objectives.regularizers(0.1, 0.01) == (jacobian, decay)


def test_optimizers_and_schedules() -> None:
    assert objectives.optimizer(Optimizer.adam, None, None) == training.Adam(lr=0.001)
    assert objectives.optimizer(Optimizer.sgd, 0.1, None) == training.Sgd(lr=0.1, momentum=0.9)
    assert objectives.optimizer(Optimizer.sgd, 0.1, 0.0) == training.Sgd(lr=0.1)
    assert objectives.optimizer(Optimizer.rmsprop, None, None) == training.RmsProp(lr=0.01)
    with pytest.raises(ValueError, match="--momentum is not for --optimizer adam, but for sgd and rmsprop"):
        objectives.optimizer(Optimizer.adam, None, 0.9)
    assert objectives.schedule(Schedule.cosine) == training.Cosine()
    assert objectives.schedule(Schedule.constant) == training.Constant()
