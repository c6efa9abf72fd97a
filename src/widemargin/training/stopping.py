"""Detection of failed trainings: the callback `StopFailed`, and where and why a loss is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor, nn

from widemargin import places
from widemargin.checks import check_count, check_number
from widemargin.losses.protocol import Loss, innermost, places_of
from widemargin.modules import ModelInputs, NamedInputs, evaluating, forward
from widemargin.training.batches import Batch
from widemargin.training.callbacks import Callback, FitState
from widemargin.training.fingerprint import name_of


class TrainingStopped(RuntimeError):  # noqa: N818  (it is the outcome of a training, not a defect of the program)
    """A training has failed: a loss that is not finite, a network without gradients, or a loss that has not changed.

    `sample` is the position in the training set of the sample that caused it, where there is one, and `place` the
    first module with a wrong output.
    """

    def __init__(self, message: str, *, sample: int | None = None, place: str | None = None) -> None:
        super().__init__(message)
        self.sample, self.place = sample, place


@dataclass(frozen=True, kw_only=True)
class StopFailed(Callback):
    """Stops a training that has failed with a `TrainingStopped` that says where and what to try.

    It has failed where a loss is not a finite number, where every gradient was zero for an epoch, or where the loss
    has stayed within `tolerance`·loss for `epochs` epochs and `steps` steps. A loss that has decreased before, of a
    network that still separates samples, has converged and is left alone. `epochs=None` switches all of it off.
    """

    epochs: int | None = 10
    steps: int = 200
    tolerance: float | int = 1e-4

    def __post_init__(self) -> None:
        if self.epochs is not None:
            check_count("epochs", self.epochs)
        check_count("steps", self.steps)
        check_number("tolerance", self.tolerance, least=0.0)

    def on_epoch_end(self, state: FitState) -> None:
        """Raise where every gradient of the epoch was zero, or where the loss has not changed."""
        losses, batch = state.epoch_losses, state.batch
        if self.epochs is None or batch is None or not losses[-1] > 0:  # a margin loss of zero is the goal
            return
        patience = max(self.epochs, math.ceil(self.steps * state.epoch / state.step))
        window = losses[-patience - 1 :]
        is_constant = len(window) > patience and max(window) - min(window) <= self.tolerance * losses[-1]
        if state.had_gradient and not is_constant:
            return
        place = _constant_from(state.model, batch.x)
        if state.had_gradient and place is None and abs(losses[-1] - losses[0]) > 0.01 * losses[0]:
            return
        why = f"the loss has not changed from {losses[-1]:.4g} for {patience} epochs"
        if not state.had_gradient:
            why = f"every gradient of the network was zero for a whole epoch, at a loss of {losses[-1]:.4g}"
        if place is not None:
            why += f" (from {place!r} on the network returns the same for every sample)"
        raise TrainingStopped(f"training stopped at {state.when}: {why}; try {advice(state, dead=True)}", place=place)


def stop_at_sample(row: int, value: float, batch: Batch, state: FitState, *, of: str = "") -> NoReturn:
    """Raise `TrainingStopped` for the sample in `row` of `batch`, whose loss is `value`; `of` names the split."""
    sample = None if batch.index is None else int(batch.index[row])
    which = f"{of}sample {sample}" if sample is not None else f"sample {row} of the batch"
    start = f"training stopped at {state.when}: the loss of {which} (label {batch.y[row].item():g}) is {value:g}"
    if not isinstance(batch.x, NamedInputs) and not bool(torch.isfinite(batch.x[row]).all()):
        raise TrainingStopped(f"{start}: its input is not finite; check the data", sample=sample, place="input")
    broken = [name for name, p in state.model.named_parameters() if not bool(torch.isfinite(p).all())]
    place = _first(state.model, batch.x, lambda output: not bool(torch.isfinite(output).all()))
    if broken:
        why = f"the weights of {broken[0]!r} are not finite any more"
    elif place is not None:
        why = f"the output of {place!r} is not finite"
    else:
        place, why = _bad_gradient(state.model, state.loss, batch)
    raise TrainingStopped(f"{start}: {why}; try {advice(state)}", sample=sample, place=place)


def advice(state: FitState, *, dead: bool = False) -> str:
    """Settings to try instead."""
    tries = [f"another learning rate (now {state.lr:g})" if dead else f"a smaller learning rate (now {state.lr:g})"]
    loss = innermost(state.loss)
    if getattr(loss, "stabilize", "scale-free") is None:
        tries.append("stabilize='scale-free'")
    if (gamma := getattr(getattr(loss, "penalty", None), "gamma", None)) is not None:
        tries.append(f"a smaller gamma (now {gamma})")
    if dead:
        tries.append("another initialisation")
    return ", ".join(tries[:-1]) + f" or {tries[-1]}" if len(tries) > 1 else tries[0]


def bad_row(model: nn.Module, x: ModelInputs) -> int | None:
    """The first row of `x` whose scores are not finite, or None: to tell a broken network from another error."""
    with torch.no_grad():
        scores = forward(model, x)
    if scores.shape[:1] != (len(x),):
        raise ValueError(f"scores has shape {list(scores.shape)} for {len(x)} samples, expected one row each")
    bad = ~torch.isfinite(scores).reshape(len(x), -1).all(dim=1)
    return int(bad.nonzero()[0]) if bool(bad.any()) else None


def _first(model: nn.Module, x: ModelInputs, wrong: Callable[[Tensor], bool]) -> str | None:
    """The name of the first module to run whose output is `wrong`; the innermost one of those that end together."""
    found: list[str] = []
    with ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():

            def check(_: nn.Module, __: object, output: object, name: str = name) -> None:
                if isinstance(output, Tensor) and output.is_floating_point() and wrong(output):
                    found.append(name or places.OUTPUT)

            stack.callback(module.register_forward_hook(check).remove)
        forward(model, x)
    return found[0] if found else None


def _constant(output: Tensor) -> bool:
    return len(output) > 1 and bool((output == output[:1]).all())


def _constant_from(model: nn.Module, x: ModelInputs) -> str | None:
    """The first module whose output is the same for every sample of `x`, if that of the network is."""
    with evaluating(model), torch.no_grad():
        if not _constant(forward(model, x)):
            return None
        return _first(model, x, _constant)


def _bad_gradient(model: nn.Module, loss: Loss, batch: Batch) -> tuple[str | None, str]:
    """The place of a margin loss where a gradient is zero or not finite."""
    names = places_of(loss)
    if names:
        with torch.enable_grad(), places.watch(model, names, statistics="coupled") as at:
            scores = forward(model, batch.x)
        for name, gradient in at.gradients(scores.amax(dim=-1)).items():
            if not bool(torch.isfinite(gradient).all()):
                return name, f"its gradient at {name!r} is not finite"
            if not bool(gradient.flatten(1).any(dim=1).all()):
                return name, f"a gradient at {name!r} is zero, so there is no distance to the boundary there"
    return None, "its scores are finite, so the loss itself overflows"


def check_one_each(values: Tensor, batch: Batch, name: str, function: object) -> None:
    """Raise unless `values` of `function` has one number per sample."""
    if values.shape != batch.y.shape:
        raise ValueError(
            f"{name}, {name_of(function)}, returned the shape {list(values.shape)} for {len(batch.y)} samples, "
            "expected one number per sample"
        )
