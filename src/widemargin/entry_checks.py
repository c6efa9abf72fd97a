"""Checks of a network together with its data, once in each call of a public function.

Losses and regularizers, which run in every training step, check shapes and dtypes alone; functions that are called once
start with `check_call`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from widemargin import places
from widemargin.checks import (
    check_batch,
    check_finite,
    check_floating,
    check_labels,
    check_module,
    check_scores_and_labels,
    check_weights,
)
from widemargin.modules import ModelInputs, evaluating, forward, uncompiled, unwrap
from widemargin.types import HALF, wide

FEW = 8
"""Samples that are looked at: another pass over a whole batch would be noticeable on small data."""

_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
_is_checked: ContextVar[bool] = ContextVar("is_checked", default=False)


@contextmanager
def checked_by_caller() -> Iterator[None]:
    """Leave out `check_call` inside the `with` block: the caller has checked the network and its data."""
    before = _is_checked.set(True)
    try:
        yield
    finally:
        _is_checked.reset(before)


def check_call(model: nn.Module, x: object, y: object, *, name: str = "y") -> None:
    """Raise unless `model` has finite weights and, in evaluation mode, own finite scores for every sample of `x`.

    `x` is a batch of finite floating-point numbers, `y` (called `name`) has its labels.
    """
    if _is_checked.get():
        return
    check_module(model)
    check_batch(x, "x")
    assert isinstance(x, Tensor)
    check_labels(y, len(x), name)
    assert isinstance(y, Tensor)
    check_weights(model)
    scores = check_by_sample(model, x)
    check_scores_and_labels(scores, y[:FEW].to(scores.device))


def check_by_sample(model: nn.Module, x: ModelInputs, at: Sequence[str] = (places.INPUT,)) -> Tensor:
    """The scores of the first samples of `x`. Raises unless they are finite, and those of a sample are its own.

    They must have no gradient at the other samples at the places `at`, and the same values in another batch: a layer
    may mix samples without gradients. The weights of the gradient are random because sums of scores can be constant
    (probabilities).
    """
    few = x[:FEW]
    with evaluating(model), uncompiled(model), torch.inference_mode(False), torch.enable_grad():
        few = few.clone() if few.is_inference() else few
        with places.watch(model, at) as watched:
            scores = forward(model, few)
        if missing := watched.unreached():
            kind = type(unwrap(model)).__name__
            raise ValueError(
                f"at has {missing[0]!r}, which a forward pass of {kind} does not reach, expected a module that it runs"
            )
        check_floating(scores, "scores", "[batch, classes] or [batch]")
        if scores.ndim not in (1, 2) or len(scores) != len(few):
            found = f"scores has shape {list(scores.shape)} for {len(few)} samples"
            raise ValueError(f"{found}, expected [batch, classes], or [batch] when binary")
        check_finite(scores, "scores")
        if len(few) > 1:
            _check_gradients(scores, watched)
            # Every second sample twice, in another order: as many as before, for networks of a fixed batch size.
            order = torch.arange(len(few) - 1, -1, -2, device=few.device).repeat(2)[: len(few)]
            with places.watch(model, at):  # a watched place may change what is read as scores, within rounding
                again = forward(model, few[order])
            _check_values(scores.detach()[order.to(scores.device)], again.detach())
    return scores.detach()


def _check_gradients(scores: Tensor, watched: places.At) -> None:
    if not scores.requires_grad and bool((scores != scores[:1]).any()):
        raise ValueError(
            "the scores of the network have no gradient, but change with x: expected a forward pass without "
            "torch.no_grad, inference_mode and detach"
        )
    weights = torch.randn(scores[1].shape, generator=torch.Generator().manual_seed(0)).to(scores)
    for name, gradient in watched.gradients(scores[1] * weights).items():
        gradient = gradient.nan_to_num(
            0, 0, 0
        )  # an infinite slope, as of a root at 0, says nothing about other samples
        if gradient.shape[:1] == scores.shape[:1] and bool(gradient[0].any() or gradient[2:].any()):
            raise ValueError(_mixed(f" at {name!r}"))


def _check_values(scores: Tensor, again: Tensor) -> None:
    tolerance = 5e-2 if scores.dtype in HALF else _TOLERANCE.get(scores.dtype, 1e-3)
    close = tolerance * float(wide(scores).abs().max())
    if scores.shape != again.shape or bool(((wide(scores) - wide(again)).abs() > close).any()):
        raise ValueError(_mixed(", or on random numbers"))


def _mixed(where: str) -> str:
    return (
        f"the scores of one sample depend on the other samples of its batch{where}, even in evaluation mode, so "
        "per-sample margins are not defined: pass one sample at a time, or change the layer that mixes"
    )
