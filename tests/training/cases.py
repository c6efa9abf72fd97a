"""Small trainings that several tests share, and programs that run in processes of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from widemargin import losses, regularizers
from widemargin.data import Samples
from widemargin.training import SGD, AdamW, Cosine, Devices, Measure, RMSprop

CPU = Devices(accelerator="cpu")
UNMEASURED = Measure(every=None)


def samples(count: int = 47, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Samples:
    """Three Gaussian clouds of 6 dimensions."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    centres = 2 * torch.randn(3, 6, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    x = centres[y] + torch.randn(count, 6, generator=generator, dtype=torch.float64)
    return Samples(x.to(dtype), y)


def network(*, dtype: torch.dtype = torch.float64, dropout: float = 0.0) -> nn.Sequential:
    """Always the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))
        return layers.to(dtype)


class Unused(nn.Module):
    """A network with a layer that no sample reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = network(), nn.Linear(2, 2).double()
        nn.init.constant_(self.unused.weight, 0.5)
        nn.init.constant_(self.unused.bias, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.used(x)
        return out


@dataclass(frozen=True)
class Norm:
    """A loss that takes a gradient of its own, with `autograd.grad`, as in pytorch issue 47562."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        scores = model(x)
        (slope,) = torch.autograd.grad(scores.gather(1, y[:, None]).sum(), x, create_graph=True)
        return nn.functional.cross_entropy(scores, y, reduction="none") + slope.square().sum(dim=1)


CASES: dict[str, dict[str, Any]] = {
    "cross-entropy": {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.1, momentum=0.9)},
    "large margin": {"loss": losses.large_margin(gamma=2.0, at=("input", "1")), "optimizer": SGD(lr=0.1)},
    "strongest class": {
        "loss": losses.large_margin(gamma=2.0, classes=1, at=("input", "1")),
        "regularizers": (regularizers.WeightDecay(weight=0.01),),
        "optimizer": SGD(lr=0.1),
    },
    "printed odn": {"loss": losses.odn(stabilize=None), "optimizer": AdamW(lr=0.01), "schedule": Cosine()},
    "second order": {"loss": losses.large_margin(second_order=True), "optimizer": SGD(lr=0.1)},
    "second point": {
        "loss": losses.large_margin(second_order="second-point", classes=1),
        "regularizers": (regularizers.JacobianFrobenius(second_order="second-point", projections=None),),
        "optimizer": SGD(lr=0.1),
    },
    "Jacobian": {
        "loss": losses.CrossEntropy(),
        "regularizers": (regularizers.Jacobian(weight=0.1, form="sum"), regularizers.WeightDecay(weight=0.01)),
        "optimizer": RMSprop(lr=0.01),
    },
    "autograd.grad": {"loss": Norm(), "optimizer": SGD(lr=0.1)},
    "alpha of each sample": {
        "loss": losses.Target(alpha=tuple(1 + i / 47 for i in range(47))),
        "optimizer": SGD(lr=0.02),
    },
    "unused weights": {
        "model": Unused,
        "loss": losses.CrossEntropy(),
        "optimizer": AdamW(lr=0.01, weight_decay=0.1),
    },
    "clipped": {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=0.5), "gradient_clip": 0.2},
    "loader": {
        "loss": losses.large_margin(),
        "optimizer": SGD(lr=0.1),
        "loader": True,
    },
}
"""Arguments of `fit`. 47 samples in batches of 20 leave 7, which two processes share as 4 and 3."""


def arguments(name: str) -> dict[str, Any]:
    """What `fit` takes for the case `name`."""
    case = {"epochs": 2, "batch_size": 20, "seed": 3, "devices": CPU, **CASES[name]}
    case["model"] = case.get("model", network)()
    case["data"] = samples()
    if case.pop("loader", False):
        case["data"] = torch.utils.data.DataLoader(samples(), batch_size=20, shuffle=True)
    return case
