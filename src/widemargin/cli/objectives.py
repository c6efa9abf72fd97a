"""The loss, the regularizers, the optimizer and the schedule that a command line names."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Loss(StrEnum):
    """The losses by name."""

    cross_entropy = "cross-entropy"
    hinge = "hinge"
    soft_hinge = "soft-hinge"
    large_margin = "large-margin"
    odn = "odn"
    odn_hinge = "odn-hinge"
    target = "target"


class Optimizer(StrEnum):
    """The optimizers by name."""

    adam = "adam"
    sgd = "sgd"
    rmsprop = "rmsprop"


class Schedule(StrEnum):
    """The schedules by name."""

    constant = "constant"
    cosine = "cosine"


_MARGIN = ("at", "p", "classes", "cross_entropy", "stabilize")
_TAKES: dict[Loss, tuple[str, ...]] = {
    Loss.cross_entropy: (),
    Loss.hinge: ("gamma",),
    Loss.soft_hinge: (),
    Loss.large_margin: ("gamma", *_MARGIN),
    Loss.odn: ("r", "theta", "mu", *_MARGIN),
    Loss.odn_hinge: ("gamma", *_MARGIN),
    Loss.target: ("alpha",),
}
_FLAGS = {"stabilize": "--as-printed", "cross_entropy": "--add-cross-entropy"}


def loss(name: Loss, options: Mapping[str, Any]) -> Any:
    """The loss `name` with those of `options` that were given; one that it does not take is an error.

    `at` and `p` are also where and how distances are measured, so every loss may have them.
    """
    from widemargin import losses

    make: dict[Loss, Any] = {
        Loss.cross_entropy: losses.CrossEntropy,
        Loss.hinge: losses.MultiClassHinge,
        Loss.soft_hinge: losses.SoftHinge,
        Loss.large_margin: losses.large_margin,
        Loss.odn: losses.odn,
        Loss.odn_hinge: losses.odn_hinge,
        Loss.target: losses.Target,
    }
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if key not in _TAKES[name] and key not in ("at", "p"):
            takers = ", ".join(other for other in Loss if key in _TAKES[other])
            raise ValueError(f"{_FLAGS.get(key, f'--{key}')} is not for --loss {name}, but for {takers}")
    if "stabilize" in given:
        given["stabilize"] = None  # --as-printed
    return make[name](**{key: value for key, value in given.items() if key in _TAKES[name]})


def regularizers(jacobian: float, weight_decay: float) -> tuple[Any, ...]:
    """Sokolić's, with these weights; none where they are 0."""
    from widemargin.regularizers import Jacobian, WeightDecay

    found: list[Any] = []
    if jacobian:
        found.append(Jacobian(weight=jacobian))
    if weight_decay:
        found.append(WeightDecay(weight=weight_decay))
    return tuple(found)


def optimizer(name: Optimizer, lr: float | None, momentum: float | None) -> Any:
    """The optimizer `name`; a learning rate that is not given is Adam's 0.001, and 0.01 for the others."""
    from widemargin.training import Adam, RmsProp, Sgd

    if name is Optimizer.adam:
        if momentum is not None:
            raise ValueError("--momentum is not for --optimizer adam, but for sgd and rmsprop")
        return Adam(lr=0.001 if lr is None else lr)
    rate = 0.01 if lr is None else lr
    if name is Optimizer.rmsprop:
        return RmsProp(lr=rate, momentum=0.0 if momentum is None else momentum)
    return Sgd(lr=rate, momentum=0.9 if momentum is None else momentum)


def schedule(name: Schedule) -> Any:
    """The schedule `name`."""
    from widemargin.training import Constant, Cosine

    return Cosine() if name is Schedule.cosine else Constant()
