"""Losses, regularizers, optimizers, schedules and networks by name, for the command line and for studies.

Each is described by plain values: `{"name": "large-margin", "p": "inf"}`. All other keys are arguments of the named
function; `"inf"` is infinity, and lists become tuples. An unknown key raises an error that names it. Importing this
module does not import torch.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from torch import Tensor, nn

    from widemargin.training.optimizers import MakesOptimizer
    from widemargin.training.schedules import Schedule

    BuiltLoss: TypeAlias = Callable[[nn.Module, Tensor, Tensor], Tensor]

Values: TypeAlias = Mapping[str, Any]
"""A name and arguments, as plain values."""


LossName = Literal[
    "wide-margin",
    "cross-entropy",
    "generalized-cross-entropy",
    "hinge",
    "soft-hinge",
    "large-margin",
    "odn",
    "odn-hinge",
    "target",
]
OptimizerName = Literal["adam", "sgd", "rmsprop"]
ScheduleName = Literal["constant", "cosine"]
"""Losses, optimizers and schedules of the command line."""


@dataclass(frozen=True, kw_only=True)
class Shares:
    """A schedule whose positions are fractions of the training."""

    schedule: Schedule

    def __call__(self, step: float, steps: float | int) -> float:
        """The factor at this step."""
        return self.schedule(step / steps, 1)


def loss(values: Values) -> BuiltLoss:
    """The loss.

    Names: those of `LossName` (`stabilize: None` is the printed form of a margin loss); and adversarial, augmented,
    crops-and-flips, with-auxiliary, whose `loss` is again such a mapping. `cross_entropy` adds that weight of
    cross-entropy to hinge and soft-hinge too.
    """
    from widemargin.losses.classification import CrossEntropy, WeightedSum

    given = dict(values)
    if given.get("name") in _wrappers():
        inner = loss(given.pop("loss", {"name": "cross-entropy"}))
        return _built("loss", {**given, "loss": inner}, _wrappers())
    weight = given.pop("cross_entropy", None) if given.get("name") in ("hinge", "soft-hinge") else None
    built = _built("loss", given, _losses())
    return WeightedSum(parts=((1.0, built), (float(weight), CrossEntropy()))) if weight else built


def regularizers(values: Sequence[Values] | Mapping[str, Values]) -> tuple[Any, ...]:
    """The regularizers: jacobian, jacobian-frobenius, weight-decay, classifier; those of weight 0 are left out.

    Takes a list, or a mapping of names to them, so that a search can set `"regularizers.jacobian.weight"`.
    """
    from widemargin.regularizers import ClassifierPenalty, Jacobian, JacobianFrobenius, WeightDecay

    table = {
        "jacobian": Jacobian,
        "jacobian-frobenius": JacobianFrobenius,
        "weight-decay": WeightDecay,
        "classifier": ClassifierPenalty,
    }
    listed = list(values.values()) if isinstance(values, Mapping) else values
    return tuple(_built("regularizer", one, table) for one in listed if one.get("weight") != 0)


def optimizer(values: Values) -> MakesOptimizer:
    """The optimizer: sgd, adam, rmsprop, nero."""
    from widemargin import training

    table = {"sgd": training.SGD, "adam": training.AdamW, "rmsprop": training.RMSprop, "nero": training.Nero}
    return _built("optimizer", values, table)


def schedule(values: Values) -> Schedule:
    """The schedule: constant, cosine, exponential, steps, warm-up (whose `then` is again such a mapping).

    Positions (`at`, `every`, `epochs`) are fractions of the training, so that a shortened training keeps its form:
    `{"name": "steps", "at": [0.34, 0.67], "factors": [0.1, 0.05]}`. With `"unit": "steps"` they are steps.
    """
    from widemargin import training
    from widemargin.checks import check_choice

    table = {
        "constant": training.Constant,
        "cosine": training.Cosine,
        "exponential": training.Exponential,
        "steps": training.Steps,
        "warm-up": training.WarmUp,
    }
    given = dict(values)
    unit = given.pop("unit", "share")
    check_choice("unit of the schedule", unit, ("share", "steps"))
    if given.get("name") == "warm-up" and "then" in given:
        given["then"] = schedule({**given["then"], "unit": "steps"})  # in the unit of the whole
    built = _built("schedule", given, table)
    return built if unit == "steps" else Shares(schedule=built)


def network(values: Values) -> nn.Module:
    """The network of `models.build`, with weights from torch's global generator."""
    from widemargin import models

    given = {key: argument(value) for key, value in values.items()}
    return models.build(given.pop("name"), **given)


def losses_with(argument_name: str) -> list[LossName]:
    """Losses of the command line that have this argument."""
    return [name for name in get_args(LossName) if argument_name in _parameters(_losses()[name])]


def argument(value: Any) -> Any:
    """A plain value as an argument: infinity for "inf", tuples for lists."""
    if value == "inf":
        return math.inf
    return tuple(argument(inner) for inner in value) if isinstance(value, (list, tuple)) else value


@functools.cache
def _losses() -> dict[str, Callable[..., Any]]:
    from widemargin import losses

    return {
        "wide-margin": losses.WideMargin,
        "cross-entropy": losses.CrossEntropy,
        "generalized-cross-entropy": losses.GeneralizedCrossEntropy,
        "hinge": losses.MultiClassHinge,
        "soft-hinge": losses.SoftHinge,
        "large-margin": losses.large_margin,
        "odn": losses.odn,
        "odn-hinge": losses.odn_hinge,
        "target": losses.Target,
    }


@functools.cache
def _wrappers() -> dict[str, Callable[..., Any]]:
    from widemargin import attacks
    from widemargin.losses.wrappers import Augmented, CropsAndFlips, WithAuxiliary

    return {
        "adversarial": attacks.Adversarial,
        "augmented": Augmented,
        "crops-and-flips": CropsAndFlips,
        "with-auxiliary": WithAuxiliary,
    }


def _built(kind: str, values: Values, table: Mapping[str, Callable[..., Any]]) -> Any:
    from widemargin.checks import check_choice

    given = {key: argument(value) for key, value in values.items()}
    name = given.pop("name", None)
    check_choice(f"name of the {kind}", name, table)
    known = _parameters(table[name])
    if "scores" in given and "read_as" in known:
        given["read_as"] = given.pop("scores")  # the key in the settings of finished trials
    for key in given:
        check_choice(f"key of the {kind} {name!r}", key, known)
    return table[name](**given)


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments; the presets of `MarginLoss` pass its other settings on."""
    from widemargin.losses import MarginLoss

    parameters = inspect.signature(function).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
    if len(names) < len(parameters):
        names += [name for name in inspect.signature(MarginLoss).parameters if name not in (*names, "penalty")]
    return names
