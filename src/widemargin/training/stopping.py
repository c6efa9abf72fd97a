"""A training that can't come to anything is stopped, with a sentence that says where it broke and what to try."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from widemargin import places
from widemargin.modules import evaluating, scores_of
from widemargin.training.batches import Batch


class TrainingStopped(RuntimeError):  # noqa: N818  (it is the outcome of a training, not a defect of the program)
    """A training was stopped: a loss that is not a number, a dead network, or a loss that has not moved.

    `sample` is the position of the sample in the training set where one is to blame, `place` the first module where
    things are wrong.
    """

    def __init__(self, sentence: str, *, sample: int | None = None, place: str | None = None) -> None:
        super().__init__(sentence)
        self.sample = sample
        self.place = place


@dataclass(frozen=True, kw_only=True)
class Watch:
    """When to stop: a loss has not moved if it stays within `tolerance`·loss for `epochs` epochs and `steps` steps.

    It is left alone where it has come down before and the network still tells samples apart: then it has converged.
    """

    epochs: int = 10
    steps: int = 200
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.steps < 1 or not self.tolerance >= 0:
            raise ValueError(
                f"epochs is {self.epochs}, steps {self.steps} and tolerance {self.tolerance}, expected 1, 1, 0 or more"
            )

    def loss(self, values: Tensor, batch: Batch, context: Context) -> None:
        """Stop where the loss of a sample is not a finite number."""
        if not bool(torch.isfinite(values.detach()).all()):
            row = int((~torch.isfinite(values.detach())).nonzero()[0, 0]) if values.ndim else 0
            stop_at_sample(row, values.detach().reshape(-1)[row].item(), batch, context)

    def epoch(self, means: list[float], steps: int, alive: bool, batch: Batch, context: Context) -> list[float]:
        """Stop a network whose gradients were all zero in the epoch behind, or whose loss has not moved.

        `means` are the mean losses of the epochs so far, of `steps` steps each; those that are still needed are
        returned.
        """
        patience = max(self.epochs, math.ceil(self.steps / steps))
        window = means[-patience - 1 :]
        if means[-1] > 0:  # a margin loss of zero is what was asked for
            if not alive:
                place = _same_from(context.model, batch.x)
                raise TrainingStopped(
                    f"training stopped at {context.when}: every gradient of the network was zero for a whole epoch, at "
                    f"a loss of {means[-1]:.4g}{_said(place)}; try {advice(context, dead=True)}",
                    place=place,
                )
            if len(window) > patience and max(window) - min(window) <= self.tolerance * means[-1]:
                place = _same_from(context.model, batch.x)
                if place is not None or abs(means[-1] - means[0]) <= 0.01 * means[0]:
                    raise TrainingStopped(
                        f"training stopped at {context.when}: the loss has not moved from {means[-1]:.4g} for "
                        f"{patience} epochs{_said(place)}; try {advice(context, dead=True)}",
                        place=place,
                    )
        return means[:1] + means[1:][-patience:]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a sentence is made of."""

    model: nn.Module
    loss: Any
    lr: float
    when: str


def stop_at_sample(row: int, value: float, batch: Batch, context: Context, *, of: str = "") -> NoReturn:
    """Raise `TrainingStopped` for the sample in `row` of `batch`, whose loss is `value`; `of` is the part it is of."""
    sample = None if batch.index is None else int(batch.index[row])
    which = f"{of}sample {sample}" if sample is not None else f"sample {row} of the batch"
    start = f"training stopped at {context.when}: the loss of {which} (label {batch.y[row].item():g}) is {value:g}"
    if not bool(torch.isfinite(batch.x[row]).all()):
        raise TrainingStopped(f"{start}: its input is not finite; look at the data", sample=sample, place="input")
    broken = [name for name, p in context.model.named_parameters() if not bool(torch.isfinite(p).all())]
    place = _first(context.model, batch.x, _not_finite)
    if broken:
        why = f"the weights of {broken[0]!r} are not finite any more"
    elif place is not None:
        why = f"the output of {place!r} is not finite"
    else:
        place, why = _bad_gradient(context.model, context.loss, batch)
    raise TrainingStopped(f"{start}: {why}; try {advice(context)}", sample=sample, place=place)


def advice(context: Context, *, dead: bool = False) -> str:
    """What to try, in the words of this loss and this learning rate."""
    tries = [f"another learning rate (now {context.lr:g})" if dead else f"a smaller learning rate (now {context.lr:g})"]
    if hasattr(context.loss, "stabilize") and context.loss.stabilize is None:
        tries.append("stabilize='scale-free'")
    if hasattr(getattr(context.loss, "penalty", None), "gamma"):
        tries.append(f"a smaller gamma (now {context.loss.penalty.gamma})")
    if dead:
        tries.append("another initialisation")
    return ", ".join(tries[:-1]) + f" or {tries[-1]}" if len(tries) > 1 else tries[0]


def bad_row(model: nn.Module, x: Tensor) -> int | None:
    """The first row of `x` whose scores are not finite, or None: to tell a broken network from another error."""
    with torch.no_grad():
        scores = scores_of(model(x))
    bad = ~torch.isfinite(scores).reshape(len(x), -1).all(dim=1)
    return int(bad.nonzero()[0]) if bool(bad.any()) else None


def _first(model: nn.Module, x: Tensor, wrong: Callable[[Tensor], bool]) -> str | None:
    """The name of the first module to run whose output is `wrong`; the innermost one of those that end together."""
    found: list[str] = []
    with ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():

            def look(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
                if isinstance(output, Tensor) and output.is_floating_point() and wrong(output):
                    found.append(name or places.OUTPUT)

            stack.callback(module.register_forward_hook(look).remove)
        model(x)
    return found[0] if found else None


def _not_finite(output: Tensor) -> bool:
    return not bool(torch.isfinite(output).all())


def _constant(output: Tensor) -> bool:
    return len(output) > 1 and bool((output == output[:1]).all())


def _same_from(model: nn.Module, x: Tensor) -> str | None:
    """The first module that answers the same for every sample of `x`, if the network itself does."""
    with evaluating(model), torch.no_grad():
        if not _constant(scores_of(model(x))):
            return None
        return _first(model, x, _constant)


def _said(place: str | None) -> str:
    return "" if place is None else f" (from {place!r} on the network answers the same for every sample)"


def _bad_gradient(model: nn.Module, loss: Any, batch: Batch) -> tuple[str | None, str]:
    """The place of a margin loss where a gradient is zero or not finite."""
    names = getattr(loss, "at", ())
    if names:
        with torch.enable_grad(), places.watch(model, names, statistics="coupled") as at:
            scores = scores_of(model(batch.x))
        for name, gradient in at.gradients(scores.amax(dim=-1)).items():
            if not bool(torch.isfinite(gradient).all()):
                return name, f"its gradient at {name!r} is not finite"
            if not bool(gradient.flatten(1).any(dim=1).all()):
                return name, f"a gradient at {name!r} is zero, so there is no distance to the boundary there"
    return None, "its scores are finite, so the loss itself overflows"
