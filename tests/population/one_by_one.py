"""The slow, obvious way: every network in a loop of its own, with torch's optimizers. And small networks to train."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from widemargin import population
from widemargin.data import Samples
from widemargin.training.batches import order
from widemargin.training.schedules import Constant

MLP, CNN, BN_CNN = "mlp", "cnn", "bn-cnn"


def networks(kind: str, count: int = 3, *, dropout: float = 0.0, outputs: int = 3) -> list[nn.Module]:
    """Networks of one architecture, in float64."""

    def builder() -> nn.Module:
        if kind == MLP:
            layers: list[nn.Module] = [nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU()]
        else:
            # Without a bias before BatchNorm: its gradient is a rounding error, which Adam and Nero would magnify.
            norm = [nn.BatchNorm2d(4)] if kind == BN_CNN else []
            first = nn.Conv2d(1, 4, 3, padding=1, bias=kind == CNN)
            second = nn.Conv2d(4, 6, 3, stride=2)
            layers = [first, *norm, nn.ReLU(inplace=True), nn.MaxPool2d(2, 1), second, nn.Tanh(), nn.Flatten()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        return nn.Sequential(*layers, nn.Linear(6 if kind == MLP else 24, outputs)).double()

    return population.build(builder, range(10, 10 + count))


def samples(count: int = 21, *, seed: int = 0, classes: int = 3) -> Samples:
    """Clouds of images of 6×6 pixels, far enough apart to learn; labels ±1 for two classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % classes
    centres = torch.randn(classes, 1, 6, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    x = centres[y] + 0.7 * torch.randn(count, 1, 6, 6, generator=generator, dtype=torch.float64)
    return Samples(x, y if classes > 2 else (2 * y - 1).double())


def train(
    network: nn.Module,
    data: Samples,
    *,
    loss: Any,
    optimizer: Any,
    steps: int,
    batch_size: int | None,
    seed: int,
    regularizers: Sequence[Any] = (),
    schedule: Any = Constant(),  # noqa: B008
    until: float | None = None,
) -> tuple[nn.Module, int, float]:
    """A trained copy of one network, its steps and its last loss."""
    model = copy.deepcopy(network).train()
    moves = optimizer([p for p in model.parameters() if p.requires_grad])
    value = float("nan")
    for step in range(steps):
        index = _index(model, len(data), step, batch_size, seed)
        x, y = data.x[index], data.y[index]
        extra = {"index": index} if getattr(loss, "needs_index", False) else {}
        mean = _at_step(loss, step)(model, x, y, **extra).mean()
        value = float(mean.detach())
        if until is not None and value < until:
            return model, step, value
        objective = mean + sum(regularizer(model, x, y).mean() for regularizer in regularizers)
        for group in moves.param_groups:
            group["lr"] = optimizer.lr * schedule(float(step), steps)
        moves.zero_grad()
        objective.backward()
        moves.step()
    return model, steps, value


def difference(one: nn.Module, other: nn.Module) -> float:
    """The largest difference between their weights and buffers."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


def _at_step(loss: Any, step: int) -> Any:
    if getattr(loss, "every", 1) == 1:
        return loss
    return dataclasses.replace(loss, every=1, strength=0.0 if step % loss.every else loss.strength * loss.every)


def _index(model: nn.Module, count: int, step: int, batch_size: int | None, seed: int) -> Tensor:
    """The samples of a step; with BatchNorm a last one alone belongs to the batch before it."""
    if batch_size is None:
        return torch.arange(count)
    has_norm = any(isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) for module in model.modules())
    starts = [i for i in range(0, count, batch_size) if not (has_norm and 0 < i == count - 1)]
    epoch, number = divmod(step, len(starts))
    return order(count, epoch, seed)[starts[number] : [*starts[1:], count][number]]
