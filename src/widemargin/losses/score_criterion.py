"""Criteria of PyTorch, `criterion(scores, y)`, as losses."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import ClassVar, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin.checks import check_callable, check_scores_and_labels, is_capturing
from widemargin.losses.classification import ScoreLoss
from widemargin.losses.protocol import Loss, Stacking
from widemargin.modules import ModelInputs, forward
from widemargin.types import Labels, PerExample, Scores, is_binary, wide

Function: TypeAlias = Callable[..., Tensor]

_OF_CLASSES = (nn.CrossEntropyLoss, nn.NLLLoss, F.cross_entropy, F.nll_loss)
_OF_BITS = (nn.BCEWithLogitsLoss, nn.BCELoss, F.binary_cross_entropy_with_logits, F.binary_cross_entropy)
_OF_NUMBERS = (
    *(nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss),
    *(F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss),
)


def as_loss(loss: object) -> Loss:
    """`loss(model, x, y) -> [batch]` from a loss, a `Criterion`, or any `criterion(scores, y)` of PyTorch or your own.

    A callable of two required arguments is a criterion of the scores.
    """
    check_callable("loss", loss, "losses.WideMargin() or torch.nn.CrossEntropyLoss()")
    if (inner := getattr(loss, "per_sample", None)) is not None:
        return cast("Loss", inner)
    return ScoreCriterion(cast("Function", loss)) if takes_scores(loss) else cast("Loss", loss)


def takes_scores(function: object) -> bool:
    """Whether `function` has two required arguments, as `criterion(scores, y)` has and `loss(model, x, y)` has not."""
    called = function.forward if isinstance(function, nn.Module) else function
    try:
        parameters = inspect.signature(cast("Function", called)).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return False
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.default is one.empty and one.kind in positional for one in parameters) == 2


class ScoreCriterion(ScoreLoss):
    """`criterion(scores, y)` of every sample: numbers whose mean is what the criterion returns.

    A criterion with `reduction="mean"` or `"sum"` is evaluated sample by sample; its class weights divide by their sum
    over the batch, as in PyTorch. If a function returns a single number, every sample has that number, so that the mean
    and the gradients are those of the function. PyTorch's elementwise criteria, such as `MSELoss` and
    `BCEWithLogitsLoss`, get one-hot labels; its binary cross-entropies get 0 and 1 for the labels ±1 of a binary
    network.

    Args:
        criterion: an `nn.Module` without parameters, of which a copy is kept, or a function.
    """

    stacking: ClassVar[Stacking | None] = None

    def __init__(self, criterion: Function) -> None:
        check_callable("criterion", criterion, "torch.nn.functional.cross_entropy")
        if isinstance(criterion, nn.Module):
            if any(True for _ in criterion.parameters()):
                raise TypeError(
                    f"loss is a {type(criterion).__name__} with parameters of its own, which would not be trained: "
                    "make it a part of the network"
                )
            criterion = copy.deepcopy(criterion)  # it is moved to the device of the scores
        self.criterion = criterion
        self._reduction, self._unreduced = _without_reduction(criterion)

    def __repr__(self) -> str:
        return f"ScoreCriterion({_label(self.criterion)})"

    @property
    def capturable(self) -> bool:
        """Whether it may be captured in a CUDA graph: a criterion of torch, or one that says so."""
        kind = _kind(self.criterion)
        is_own = str(getattr(kind, "__module__", "")).startswith("torch.nn.")
        return is_own or bool(getattr(self.criterion, "capturable", False))

    @property
    def takes_outputs(self) -> bool:
        """Whether it takes probabilities as they are: `BCELoss`, and functions that are not PyTorch's own."""
        kind = _kind(self.criterion)
        return kind in (nn.BCELoss, F.binary_cross_entropy) or not kind.__module__.startswith("torch.nn.")

    def __call__(self, model: nn.Module, x: ModelInputs, y: Labels) -> PerExample:
        """The criterion of every sample of a batch."""
        return self.of(forward(model, x), y) if self.takes_outputs else super().__call__(model, x, y)

    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The criterion of every sample."""
        check_scores_and_labels(scores, y, finite=True)
        scores = wide(scores)
        for part in (self.criterion, self._unreduced):
            if isinstance(part, nn.Module):
                part.to(scores.device)
        try:
            values = self._values(scores, self._targets(scores, y))
        except (RuntimeError, ValueError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise ValueError(
                f"loss, {_label(self.criterion)}, does not take scores {list(scores.shape)} and labels "
                f"{list(y.shape)} of {y.dtype}: {str(error).splitlines()[0]}"
            ) from error
        if values.shape != y.shape:
            raise ValueError(
                f"loss, {_label(self.criterion)}, returned the shape {list(values.shape)} for {len(y)} samples, "
                "expected one number per sample or a single number"
            )
        return values

    def _values(self, scores: Tensor, targets: Tensor) -> Tensor:
        if self._unreduced is None:
            value = self.criterion(scores, targets)
            if value.ndim == 0 and not is_capturing(value.device) and not bool(value.detach().isfinite()):
                raise ValueError(f"it returned {float(value.detach()):g}, expected a finite number")
            return value.expand(len(scores)) if value.ndim == 0 else value
        values = self._unreduced(scores, targets)
        if values.ndim == 0 and len(scores) > 1:  # of a module of one's own, which has a `reduction` but returns a mean
            return values.expand(len(scores))
        values = values.reshape(len(scores), -1)
        if self._reduction == "sum":
            return values.sum(dim=1) * len(scores)
        values = values.mean(dim=1)
        if not _is_rescaled(self.criterion):
            return values
        # PyTorch divides by the weights of the samples that count: a factor that is the same for all samples.
        mean = values.detach().mean()
        return values * torch.where(mean != 0, self.criterion(scores, targets).detach() / mean, 1.0)

    def _targets(self, scores: Tensor, y: Tensor) -> Tensor:
        if not is_binary(scores):
            is_elementwise = _is_one_of(self.criterion, (*_OF_BITS, *_OF_NUMBERS))
            return F.one_hot(y.long(), scores.shape[1]).to(scores.dtype) if is_elementwise else y.long()
        if _is_one_of(self.criterion, _OF_CLASSES):
            raise ValueError(
                "a binary network has one score, which is no distribution over classes: use "
                "torch.nn.BCEWithLogitsLoss() or losses.CrossEntropy()"
            )
        y = (y > 0).to(scores.dtype) if _is_one_of(self.criterion, _OF_BITS) else y.to(scores.dtype)
        return y.reshape(scores.shape)


def _without_reduction(criterion: Function) -> tuple[str, Function | None]:
    """The reduction of `criterion`, "mean" or "sum", and the criterion without it; None where it has none to set."""
    if isinstance(criterion, nn.Module):
        reduction = getattr(criterion, "reduction", "none")
        if reduction in ("mean", "sum"):
            unreduced = copy.deepcopy(criterion)
            setattr(unreduced, "reduction", "none")  # noqa: B010 (a module has no such attribute for mypy)
            return reduction, unreduced
        return "none", None
    given = criterion.keywords if isinstance(criterion, functools.partial) else {}
    parameter = inspect.signature(_kind(criterion)).parameters.get("reduction")
    reduction = given.get("reduction", "none" if parameter is None else parameter.default)
    if reduction in ("mean", "sum"):
        return reduction, functools.partial(criterion, reduction="none")
    return "none", None


def _kind(criterion: Function) -> Function:
    """The class of a module, or the function without the arguments of `partial`."""
    if isinstance(criterion, functools.partial):
        return _kind(criterion.func)
    return cast("Function", type(criterion)) if isinstance(criterion, nn.Module) else criterion


def _is_one_of(criterion: Function, known: tuple[object, ...]) -> bool:
    return _kind(criterion) in known


def _is_rescaled(criterion: Function) -> bool:
    """Whether PyTorch divides by something else than the number of samples: weights, or samples left out."""
    given = criterion.keywords if isinstance(criterion, functools.partial) else {}
    ignored = getattr(criterion, "ignore_index", given.get("ignore_index", -100))
    return getattr(criterion, "weight", given.get("weight")) is not None or ignored >= 0


def _label(criterion: Function) -> str:
    """The criterion with its settings, which the repr of PyTorch's modules leaves out."""
    settings: dict[str, object] = {}
    if isinstance(criterion, nn.Module):
        plain = {key: value for key, value in vars(criterion).items() if isinstance(value, (int, float, str))}
        settings |= {key: value for key, value in plain.items() if not key.startswith("_") and key != "training"}
        settings |= criterion.state_dict()
    elif isinstance(criterion, functools.partial):
        settings |= criterion.keywords
    kind = _kind(criterion)
    values = {key: value.tolist() if isinstance(value, Tensor) else value for key, value in sorted(settings.items())}
    name = getattr(kind, "__qualname__", type(kind).__name__)
    words = ", ".join(f"{key}={value!r}" for key, value in values.items())
    return f"{name}({words})" if settings or isinstance(criterion, nn.Module) else name
