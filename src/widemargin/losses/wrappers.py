"""Losses built on other losses: augmented images, an auxiliary head, and weighted sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin.losses.classification import CrossEntropy, ScoreLoss
from widemargin.types import Labels, PerExample, Scores

Images = Float[Tensor, "batch channels h w"]


@dataclass(frozen=True, kw_only=True)
class Augmented:
    """L at randomly changed images: shifted, with other contrast and hue (elsayed §4.3, which gives no numbers).

    The random numbers are from torch's global CPU generator, which training seeds by network and step.

    Args:
        loss: L, any loss `(model, x, y) -> [batch]`.
        crop: images are padded by so many pixels (reflected) and cut out again at a random place.
        contrast: x ← m + c·(x − m), m the image's mean, c uniform in 1 ± this.
        hue: a rotation of the colours about grey by an angle uniform in ± this share of a turn; three channels only.
    """

    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] = field(default_factory=CrossEntropy)
    crop: int = 4
    contrast: float | int = 0.2
    hue: float | int = 0.05

    def __call__(self, model: nn.Module, x: Tensor, y: Labels) -> PerExample:
        """The loss of every sample."""
        return self.loss(model, self.images(x), y)

    def images(self, x: Images) -> Images:
        """Changed copies of `x`, in [0, 1] as these are."""
        cut = _shifted(x, self.crop) if self.crop else x
        mean = cut.mean(dim=(1, 2, 3), keepdim=True)
        changed = mean + _around(1.0, float(self.contrast), x) * (cut - mean)
        if self.hue and x.shape[1] == 3:
            turn = _around(0.0, 2 * math.pi * self.hue, x)
            changed = torch.einsum("bij,bjhw->bihw", rotations(turn.flatten()), changed)
        return changed.clamp(0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class WithAuxiliary:
    """L plus `weight` times the cross-entropy of the auxiliary head, where the network has one (elsayed, appendix C).

    0.3 is the weight of Szegedy et al. 2015; the paper gives none. In evaluation mode there is no such head.
    """

    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] = field(default_factory=CrossEntropy)
    weight: float | int = 0.3

    def __call__(self, model: nn.Module, x: Tensor, y: Labels) -> PerExample:
        """The loss of every sample, by the forward pass of `loss` alone."""
        seen: list[Tensor] = []

        def look(module: nn.Module, inputs: Any, output: Any) -> None:  # noqa: ARG001
            if getattr(output, "aux_logits", None) is not None:
                seen.append(output.aux_logits)

        handle = model.register_forward_hook(look)
        try:
            value: Tensor = self.loss(model, x, y)
        finally:
            handle.remove()
        return value + self.weight * F.cross_entropy(seen[0], y, reduction="none") if seen else value


@dataclass(frozen=True, kw_only=True)
class WeightedSum(ScoreLoss):
    """Σ weight·loss, of losses of the scores (elsayed §4.2: the hinge with a small weight of cross-entropy)."""

    parts: tuple[tuple[float, ScoreLoss], ...]

    def of(self, scores: Scores, y: Labels) -> PerExample:
        """The sum for every sample."""
        return torch.stack([weight * part.of(scores, y) for weight, part in self.parts]).sum(dim=0)


def rotations(angles: Float[Tensor, " batch"]) -> Float[Tensor, "batch 3 3"]:
    """Rotations of (red, green, blue) about the grey axis, which leave grey as it is (Rodrigues' formula)."""
    grey = torch.full((3, 3), 1 / 3, dtype=angles.dtype, device=angles.device)
    s = 1 / math.sqrt(3)
    cross = torch.tensor([[0.0, -s, s], [s, 0.0, -s], [-s, s, 0.0]], dtype=angles.dtype, device=angles.device)
    c, sin = angles.cos()[:, None, None], angles.sin()[:, None, None]
    return c * torch.eye(3, dtype=angles.dtype, device=angles.device) + sin * cross + (1 - c) * grey


def _shifted(x: Tensor, crop: int) -> Tensor:
    height, width = x.shape[-2:]
    padded = F.pad(x, (crop, crop, crop, crop), mode="reflect")
    top, left = (torch.randint(2 * crop + 1, (len(x),)).to(x.device) for _ in range(2))
    rows = (top[:, None] + torch.arange(height, device=x.device))[:, None, :, None]
    columns = (left[:, None] + torch.arange(width, device=x.device))[:, None, None, :]
    image = torch.arange(len(x), device=x.device)[:, None, None, None]
    channel = torch.arange(x.shape[1], device=x.device)[None, :, None, None]
    return padded[image, channel, rows, columns]


def _around(middle: float, reach: float, x: Tensor) -> Tensor:
    return middle + reach * (2 * torch.rand(len(x)) - 1).to(x)[:, None, None, None]
