"""Losses, regularizers, optimizers and schedules from plain values: `{"name": "large-margin", "p": "inf"}`.

Every other key is an argument of what the name stands for; `"inf"` is infinity, lists become tuples. A misspelt key is
an error that names it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from widemargin import attacks, losses, models, regularizers, training
from widemargin.losses import ScoreLoss
from widemargin.studies.augmented import Augmented, WithAuxiliary
from widemargin.training.schedules import Schedule
from widemargin.types import Labels, PerExample, Scores


def loss(settings: Mapping[str, Any]) -> Any:
    """The loss; `cross_entropy` adds that weight of cross-entropy to a loss of scores, as it does to margin losses.

    Names: cross-entropy, hinge, soft-hinge, target, large-margin, odn, odn-hinge (`stabilize: None` is the printed
    form); and adversarial, augmented, with-auxiliary, whose `loss` is again such a mapping.
    """
    given = dict(settings)
    if given.get("name") in _WRAPPERS:
        inner = loss(given.pop("loss", {"name": "cross-entropy"}))
        return _made("loss", {**given, "loss": inner}, _WRAPPERS)
    weight = given.pop("cross_entropy", None) if given.get("name") in ("hinge", "soft-hinge") else None
    made = _made("loss", given, _LOSSES)
    return made if not weight else Sum(parts=((1.0, made), (float(weight), losses.CrossEntropy())))


def penalties(settings: Sequence[Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    """The regularizers: jacobian, weight-decay, classifier; those of weight 0 are left out.

    A list, or a mapping of names to them, which a search can reach into: `"regularizers.jacobian.weight"`.
    """
    listed = list(settings.values()) if isinstance(settings, Mapping) else settings
    return tuple(_made("regularizers", one, _REGULARIZERS) for one in listed if one.get("weight") != 0)


def optimizer(settings: Mapping[str, Any]) -> Any:
    """The optimizer: sgd, adam, rmsprop, nero."""
    return _made("optimizer", settings, _OPTIMIZERS)


def schedule(settings: Mapping[str, Any]) -> Schedule:
    """The schedule: constant, cosine, exponential, steps.

    Positions (`at`, `every`) are shares of the whole training, so that a training that is cut keeps its form:
    `{"name": "steps", "at": [0.34, 0.67], "factors": [0.1, 0.05]}`. With `"unit": "steps"` they are steps.
    """
    given = dict(settings)
    unit = given.pop("unit", "share")
    if unit not in ("share", "steps"):
        raise ValueError(f"unit of the schedule is {unit!r}, expected 'share' or 'steps'")
    made = _made("schedule", given, _SCHEDULES)
    return made if unit == "steps" else Shares(schedule=made)


def network(settings: Mapping[str, Any]) -> nn.Module:
    """The network of `models.build`, with weights from torch's global generator."""
    given = {key: argument(value) for key, value in settings.items()}
    return models.build(given.pop("name"), **given)


@dataclass(frozen=True, kw_only=True)
class Sum(ScoreLoss):
    """Σ weight·loss, of losses of the scores (elsayed §4.2: the hinge with a small weight of cross-entropy)."""

    parts: tuple[tuple[float, ScoreLoss], ...]

    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The sum for every sample."""
        values = [weight * part.of(scores, y) for weight, part in self.parts]
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total


@dataclass(frozen=True, kw_only=True)
class Shares:
    """A schedule whose positions are shares of the training."""

    schedule: Schedule

    def __call__(self, step: float, steps: int) -> float:
        """The factor at this step."""
        return self.schedule(step / steps, 1)


_LOSSES: dict[str, Callable[..., Any]] = {
    "cross-entropy": losses.CrossEntropy,
    "hinge": losses.MultiClassHinge,
    "soft-hinge": losses.SoftHinge,
    "target": losses.Target,
    "large-margin": losses.large_margin,
    "odn": losses.odn,
    "odn-hinge": losses.odn_hinge,
}
_WRAPPERS: dict[str, Callable[..., Any]] = {
    "adversarial": attacks.Adversarial,
    "augmented": Augmented,
    "with-auxiliary": WithAuxiliary,
}
_REGULARIZERS: dict[str, Callable[..., Any]] = {
    "jacobian": regularizers.Jacobian,
    "weight-decay": regularizers.WeightDecay,
    "classifier": regularizers.ClassifierPenalty,
}
_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": training.Sgd,
    "adam": training.Adam,
    "rmsprop": training.RmsProp,
    "nero": training.Nero,
}
_SCHEDULES: dict[str, Callable[..., Any]] = {
    "constant": training.Constant,
    "cosine": training.Cosine,
    "exponential": training.Exponential,
    "steps": training.Steps,
}


def _made(what: str, settings: Mapping[str, Any], table: Mapping[str, Callable[..., Any]]) -> Any:
    given = {key: argument(value) for key, value in settings.items()}
    name = given.pop("name", None)
    if name not in table:
        raise ValueError(f"name of {what} is {name!r}, expected one of {', '.join(table)}")
    parameters = inspect.signature(table[name]).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for key in given:
            if key not in parameters:
                raise ValueError(f"{what} {name!r} has no {key!r}, expected one of {', '.join(parameters)}")
    return table[name](**given)


def argument(value: Any) -> Any:
    """A plain value as an argument: infinity for its word, tuples for lists."""
    if value == "inf":
        return math.inf
    return tuple(argument(inner) for inner in value) if isinstance(value, (list, tuple)) else value
