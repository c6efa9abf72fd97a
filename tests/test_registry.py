"""Objects by name are those of the library, and unknown names and keys raise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import pytest

from widemargin import losses, registry, regularizers, training
from widemargin.registry import LossName, OptimizerName, ScheduleName


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"name": "wide-margin"}, losses.WideMargin()),
        ({"name": "wide-margin", "at": ["a"], "p": "inf", "share": 0.5}, losses.WideMargin(
            at=("a",), p=math.inf, share=0.5)),
        ({"name": "cross-entropy"}, losses.CrossEntropy()),
        ({"name": "hinge", "gamma": 2.0}, losses.MultiClassHinge(gamma=2.0)),
        ({"name": "hinge", "cross_entropy": 0}, losses.MultiClassHinge()),
        ({"name": "cross-entropy", "label_smoothing": 0.1}, losses.CrossEntropy(label_smoothing=0.1)),
        ({"name": "generalized-cross-entropy", "q": 0.5}, losses.GeneralizedCrossEntropy(q=0.5)),
        ({"name": "soft-hinge"}, losses.SoftHinge()),
        ({"name": "large-margin", "at": ["input", "a"], "p": "inf", "classes": 3}, losses.large_margin(
            at=("input", "a"), p=math.inf, classes=3)),
        ({"name": "large-margin", "stabilize": None, "cross_entropy": 0.5}, losses.large_margin(
            stabilize=None, cross_entropy=0.5)),
        ({"name": "odn", "r": 1.2, "theta": 0.7, "mu": 0.2}, losses.odn(r=1.2, theta=0.7, mu=0.2)),
        ({"name": "odn-hinge", "gamma": 0.5, "epsilon": 1.0}, losses.odn_hinge(gamma=0.5, epsilon=1.0)),
        ({"name": "target", "alpha": 3.0}, losses.Target(alpha=3.0)),
    ],
)  # fmt: skip
def test_losses(values: dict[str, Any], expected: object) -> None:
    assert registry.loss(values) == expected


def test_settings_of_finished_trials_read_the_scores() -> None:
    softmax = registry.loss({"name": "large-margin", "scores": "softmax"})
    assert softmax != registry.loss({"name": "large-margin"})
    assert "softmax" in repr(softmax)


def test_every_name_of_the_command_line_builds() -> None:
    for name in get_args(LossName):
        registry.loss({"name": name})
    for optimizer in get_args(OptimizerName):
        registry.optimizer({"name": optimizer, "lr": 0.1})
    for schedule in get_args(ScheduleName):
        registry.schedule({"name": schedule})


@pytest.mark.parametrize(
    ("build", "values", "named"),
    [
        (registry.loss, {"name": "nothing"}, "'nothing'"),
        (registry.loss, {"name": "odn", "gama": 1.0}, "'gama'"),
        (registry.loss, {"name": "hinge", "r": 1.0}, "'r'"),
        (registry.optimizer, {"name": "nothing"}, "'nothing'"),
        (registry.optimizer, {"name": "sgd", "beta": 1.0}, "'beta'"),
        (registry.schedule, {"name": "cosine", "unit": "epochs"}, "'epochs'"),
        (registry.regularizers, [{"name": "jacobian", "wait": 1.0}], "'wait'"),
    ],
)
def test_unknown_names_and_keys(build: Callable[[Any], object], values: object, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        build(values)


def test_losses_with_an_argument() -> None:
    assert registry.losses_with("gamma") == ["hinge", "large-margin", "odn-hinge"]
    assert registry.losses_with("stabilize") == ["large-margin", "odn", "odn-hinge"]


def test_regularizers_of_weight_zero_are_left_out() -> None:
    given = [{"name": "jacobian", "weight": 0.1}, {"name": "weight-decay", "weight": 0}]
    assert registry.regularizers(given) == (regularizers.Jacobian(weight=0.1),)
    assert registry.regularizers({"any": given[0]}) == registry.regularizers(given)


def test_optimizers_and_schedules() -> None:
    assert registry.optimizer({"name": "adam", "betas": [0.8, 0.9]}) == training.AdamW(betas=(0.8, 0.9))
    assert registry.optimizer({"name": "nero", "lr": 0.1}) == training.Nero(lr=0.1)
    steps = {"name": "steps", "at": [0.5], "factors": [0.1]}
    assert [registry.schedule(steps)(step, 10) for step in (4.0, 5.0)] == [1.0, 0.1]
    assert registry.schedule({**steps, "unit": "steps"}) == training.Steps(at=(0.5,), factors=(0.1,))
    warm = registry.schedule({"name": "warm-up", "epochs": 0.2, "then": {"name": "cosine"}})
    assert [warm(step, 10) for step in (0.0, 1.0, 2.0, 6.0)] == pytest.approx([0.0, 0.5, 1.0, 0.5])
