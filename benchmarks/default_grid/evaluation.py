"""Accuracy, distances and accuracy under attack of a trained network."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

import widemargin as wm
from widemargin.data import Samples
from widemargin.entry_checks import checked_by_caller

RADII = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16)
"""l_2 radii of the attacks, as parts of √D, which is the length of a standardised input of D numbers."""

ATTACKED, MEASURED, STEPS = 200, 500, 20

CPU_BATCH = 20
"""Samples that are attacked at once on a CPU, with every radius: larger batches leave its caches."""


class Offsets(nn.Module):
    """The scores of x + r·offset, with a radius for every sample: attacks of several radii are one batch."""

    def __init__(self, model: nn.Module, x: Tensor, radii: Tensor) -> None:
        super().__init__()
        self.model, self.x, self.radii = model, x, radii.view(-1, *[1] * (x.ndim - 1))

    def forward(self, offset: Tensor) -> Tensor:
        scores: Tensor = self.model(self.x + self.radii * offset)
        return scores


def evaluate(model: nn.Module, train: Samples, test: Samples) -> dict[str, Any]:
    """Accuracies, the median linearised l_2 distance at the input, and PGD accuracies; dead where scores are NaN."""
    model.eval()
    accuracy, fitted = (_accuracy(model, part) for part in (test, train))
    if accuracy is None or fitted is None:
        return {"dead": True}
    x, y = test.x[:MEASURED], test.y[:MEASURED]
    with wm.places.watch(model, ("input",)) as at:
        scores = model(x)
    distances = wm.margins.distance(scores, y, at=at)["input"]
    return {
        "dead": False,
        "accuracy": accuracy,
        "training accuracy": fitted,
        "distance": float(distances.detach().nanmedian()),
        "attacked": under_attack(model, test.x[:ATTACKED], test.y[:ATTACKED]),
    }


def under_attack(model: nn.Module, x: Tensor, y: Tensor) -> list[float]:
    """The accuracy under PGD with 20 steps at every radius, from the sample itself."""
    size = CPU_BATCH if x.device.type == "cpu" else len(x)
    parts = zip(x.split(size), y.split(size), strict=True)
    return torch.cat([_withstood(model, *part) for part in parts], dim=1).double().mean(dim=1).tolist()


def _withstood(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Whether the answer is right under attack, `[radii, samples]`."""
    many, labels = x.repeat(len(RADII), *[1] * (x.ndim - 1)), y.repeat(len(RADII))
    radii = math.sqrt(x[0].numel()) * torch.tensor(RADII, device=x.device).repeat_interleave(len(x))
    network = Offsets(model, many, radii).eval()
    start = torch.zeros_like(many)
    with checked_by_caller():  # it knows samples by their position
        offsets = wm.attacks.pgd(network, start, labels, 1.0, steps=STEPS, p=2, random_start=False, bounds=None)
    with torch.no_grad():
        return (network(offsets).argmax(dim=1) == labels).view(len(RADII), -1)


@torch.no_grad()
def _accuracy(model: nn.Module, samples: Samples) -> float | None:
    scores = torch.cat([model(x) for x in samples.x.split(1000)])
    return float((scores.argmax(dim=1) == samples.y).double().mean()) if bool(torch.isfinite(scores).all()) else None
