"""Recipe 1 of farhang: training to a given Frobenius-normalized margin of every training point."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from widemargin import norms
from widemargin._io.progress import track
from widemargin.checks import (
    check_callable,
    check_count,
    check_dense,
    check_module,
    check_number,
    check_numbers,
    check_scores_and_labels,
)
from widemargin.control.accuracy import on_the_sphere
from widemargin.data import Samples
from widemargin.losses.classification import Target
from widemargin.margins.normalized import frobenius, weights
from widemargin.modules import evaluating, forward, unwrap
from widemargin.optim import Nero, param_groups
from widemargin.population.batches import full_batch
from widemargin.training.schedules import Exponential, Schedule, factor_of
from widemargin.types import Mask, PerExample

Row: TypeAlias = dict[str, float | int]
"""step, loss (the mean of the squared loss), share (of the points within the tolerance), worst (relative error), lr."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Controlled:
    """The result of the recipe: `margins` γ̄_F and `targets` α of every training point, in their order.

    `history` has a row for every measurement of the margins, before the first step and after the last among them.
    """

    model: nn.Module
    margins: PerExample
    targets: PerExample
    tolerance: float
    steps: int
    history: tuple[Row, ...]

    @property
    def errors(self) -> PerExample:
        """|γ̄_F − α|/|α| of every point."""
        return (self.margins - self.targets).abs() / self.targets.abs()

    @property
    def reached(self) -> Mask:
        """Whether each point is within the tolerance."""
        return self.errors <= self.tolerance

    @property
    def share(self) -> float:
        """The fraction of the points that are."""
        return float(self.reached.double().mean())

    def __str__(self) -> str:
        return (
            f"{int(self.reached.sum())} of {len(self.margins)} points ({self.share:.1%}) within {self.tolerance:g} of "
            f"their target after {self.steps} steps; worst relative error {float(self.errors.max()):.3g}"
        )


def normalized_margin(
    model: nn.Module,
    data: object,
    *,
    target: float | int | Sequence[float | int] | Tensor,
    tolerance: float = 0.01,
    share: float | int = 1.0,
    steps: int = 10_000,
    optimizer: Callable[..., torch.optim.Optimizer] = Nero,
    schedule: Schedule = Exponential(factor=0.999),  # noqa: B008 (a frozen value)
    measure_every: int = 20,
    progress: bool | None = None,
) -> Controlled:
    """Train `model` in place until γ̄_F(x_i, y_i) = α_i at its training points, and measure what was reached.

    farhang, Recipe 1: ① x ← x·√d_0/‖x‖₂; ② minimise the mean of ‖f(x_i) − α_i·y_i‖² over the full batch, y_i = ±1 or
    one-hot; ③ every step ends with ‖W_l‖_F = √d_l. The paper writes a sum in ②; a mean has the same minima, and Nero
    does not see the difference. The margins are those of `margins.normalized.frobenius`, for k classes
    f_y − max_{i≠y} f_i (errata 2). Nothing is random in the training: seed the network before it is built.

    Args:
        model: a network of Linear and Conv layers without biases, such as `models.build("farhang-mlp")`.
        data: a name (its training set), `Data`, `Samples`, a pair of tensors, a `Dataset` or a `DataLoader`; all of it
            is one batch. Inputs are projected to the sphere of radius √d_0 here: at test time project them as well.
        target: α, one number or one per training point in their order; not 0.
        tolerance: a point has reached its target where |γ̄_F − α| ≤ tolerance·|α|.
        share: stop once this part of the points has.
        steps: stop after so many steps in any case.
        optimizer: from the groups of `optim.param_groups(model)`, an optimizer that keeps ‖W_l‖_F = √d_l: `Nero`,
            `functools.partial(Nero, lr=…)`, or `lambda groups: Projected(SGD(groups, lr=…), to_frobenius_sphere)`.
        schedule: the factor of the learning rate: a value of `widemargin.training`, or any function (step, steps) →
            factor. Without a decay the margins oscillate around their targets.
        measure_every: steps between two rows of the history; only there the training can stop.
        progress: show a bar with the time left; by default on a terminal only.
    """
    check_number("tolerance", tolerance, above=0.0, below=1.0)
    check_number("share", share, above=0.0, most=1.0)
    check_count("steps", steps)
    check_count("measure_every", measure_every)
    if not callable(optimizer):  # it may be a class
        raise TypeError(f"optimizer is {optimizer!r}, expected Nero or a function of parameter groups")
    check_callable("schedule", schedule, "training.Exponential(factor=0.999)")
    _check_network(model)
    samples = on_the_sphere(full_batch(data), model)
    with evaluating(model), torch.no_grad():
        check_scores_and_labels(forward(model, samples.x), samples.y)
    run = _RecipeRun(model, samples, _targets(target, samples.x), tolerance, optimizer(param_groups(model)))
    with evaluating(model), torch.enable_grad():
        reached = run.measure(0)
        for step in track(range(steps), "Recipe 1", progress=progress):
            if reached.share >= share:
                break
            run.step(factor_of(schedule, float(step), steps))
            if (step + 1) % measure_every == 0 or step + 1 == steps:
                reached = run.measure(step + 1)
    run.optimizer.zero_grad()
    return reached


class _RecipeRun:
    def __init__(
        self, model: nn.Module, samples: Samples, targets: Tensor, tolerance: float, optimizer: torch.optim.Optimizer
    ) -> None:
        self.model, self.x, self.y, self.targets, self.tolerance = model, samples.x, samples.y, targets, tolerance
        same = bool((targets == targets[0]).all())
        self.target = Target(alpha=float(targets[0]) if same else tuple(targets.tolist()))
        self.index = torch.arange(len(targets), device=targets.device)
        self.optimizer = optimizer
        self.rates = [group["lr"] for group in optimizer.param_groups]
        self.history: list[Row] = []

    def step(self, factor: float) -> None:
        """One step, at `factor` times the optimizer's own learning rates."""
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            group["lr"] = rate * factor
        self.optimizer.zero_grad()
        self._loss().backward()
        self.optimizer.step()

    def measure(self, step: int) -> Controlled:
        """The result after `step` steps, with a new row in its history."""
        _check_norms(self.model)
        margins = frobenius(self.model, self.x, self.y)
        found = Controlled(
            model=self.model, margins=margins, targets=self.targets, tolerance=self.tolerance, steps=step, history=()
        )
        with torch.no_grad():
            loss = float(self._loss())
        lr = self.optimizer.param_groups[0]["lr"]
        worst = float(found.errors.max())
        self.history.append({"step": step, "loss": loss, "share": found.share, "worst": worst, "lr": lr})
        return replace(found, history=tuple(self.history))

    def _loss(self) -> Tensor:
        return self.target(self.model, self.x, self.y, index=self.index).mean()


def _targets(target: float | int | Sequence[float | int] | Tensor, x: Tensor) -> Tensor:
    if isinstance(target, Tensor):
        check_dense(target, "target")
    elif isinstance(target, Sequence):
        check_numbers("target", list(target))
    else:
        check_number("target", target)
    alpha = torch.as_tensor(target, dtype=torch.float64)
    if alpha.ndim > 1 or (alpha.ndim == 1 and len(alpha) != len(x)):
        raise ValueError(f"target has shape {list(alpha.shape)}, expected one number, or {len(x)}: one per point")
    alpha = alpha.to(x.device, x.dtype).expand(len(x)).contiguous()
    bad = (~(torch.isfinite(alpha) & (alpha != 0))).nonzero()
    if len(bad):
        at = int(bad[0])
        where = f" at index {at}" if not isinstance(target, numbers.Real) else ""
        raise ValueError(f"target is {alpha[at].item():g}{where}, expected finite numbers other than 0")
    return alpha


def _check_network(model: nn.Module) -> None:
    check_module(model)
    list(weights(model))  # raises for BatchNorm and other layers without a norm here, biases, and no layer at all
    for name, module in unwrap(model).named_modules():
        if isinstance(module, _DropoutNd) and module.p > 0:
            kind = type(module).__name__
            raise ValueError(f"layer {name!r} is a {kind} with p={module.p}, which is random, expected p=0")


def _check_norms(model: nn.Module) -> None:
    """Raise unless ‖W_l‖_F = √d_l for every layer: else the loss would not control the normalized margin."""
    for name, weight in weights(model):
        wanted = math.sqrt(len(weight))
        norm = float(norms.frobenius(weight.float()))
        if not abs(norm / wanted - 1) <= max(1e-4, 16 * torch.finfo(weight.dtype).eps):
            advice = "pass optimizer=Nero, or one that ends in Projected(…, to_frobenius_sphere)"
            if weight[0].numel() == 1:
                advice = "Nero can't project rows of one number, Projected(…, to_frobenius_sphere) can"
            raise ValueError(
                f"layer {name!r} has Frobenius norm {norm:.6g} under this optimizer, expected √{len(weight)} = "
                f"{wanted:.6g}: {advice}"
            )
