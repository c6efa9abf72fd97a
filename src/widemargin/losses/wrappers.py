"""Losses that wrap another loss: their base, augmented images, and an auxiliary head."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial
from typing import Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin.checks import check_count, check_flag, check_images, check_index, check_module, check_number
from widemargin.losses.classification import CrossEntropy
from widemargin.losses.protocol import (
    BackwardOptions,
    FastBackward,
    Loss,
    fast_backward,
    for_augmented,
    for_samples,
    is_capturable,
    needs_index,
    turns_of,
    values_of,
)
from widemargin.losses.score_criterion import as_loss
from widemargin.modules import ModelInputs
from widemargin.split_backward.backward import Backward

Images = Float[Tensor, "batch channels h w"]


class Wrapper:
    """`loss(model, *prepare(model, x, y))`, with the fast backward and CUDA graph of `loss`.

    A subclass holds the wrapped loss as `loss` and overrides `prepare`, whose results are constants for the gradient.
    A frozen dataclass is best, since `fit` recognises a checkpoint by the repr of its loss:

        @dataclass(frozen=True)
        class Flipped(losses.Wrapper):
            loss: losses.Loss

            def prepare(self, model, x, y):
                return x.flip(-1), y

    `capturable` follows the wrapped loss. Override it with False where `prepare` waits for the device or draws random
    numbers on the CPU.
    """

    loss: Loss

    def prepare(self, model: nn.Module, x: ModelInputs, y: Tensor) -> tuple[ModelInputs, Tensor]:  # noqa: ARG002
        """The inputs and labels that the wrapped loss takes."""
        return x, y

    def __call__(self, model: nn.Module, x: ModelInputs, y: Tensor, *, index: Tensor | None = None) -> Tensor:
        """The loss of every sample."""
        values = values_of(self.loss, model, *self.prepare(model, x, y), index)
        if index is not None:
            check_index(index, len(y))
        return values

    @property
    def wrapped(self) -> Loss:
        """The wrapped loss."""
        return self.loss

    @property
    def needs_index(self) -> bool:
        """Whether the wrapped loss needs the positions of the samples."""
        return needs_index(self.loss)

    def for_samples(self, samples: int) -> Loss:
        """A copy that wraps `loss.for_samples(samples)`; `self` if it is not a dataclass."""
        return self._with_loss(for_samples(self.loss, samples))

    def for_augmented(self) -> Loss:
        """A copy that wraps `loss.for_augmented()`; `self` if it is not a dataclass."""
        return self._with_loss(for_augmented(self.loss))

    def _with_loss(self, inner: Loss) -> Loss:
        return self if inner is self.loss or not is_dataclass(self) else replace(self, loss=inner)

    @property
    def turns(self) -> tuple[Loss, ...]:
        """Copies that wrap the losses of successive steps; `self` alone if it is not a dataclass."""
        inner = turns_of(self.loss)
        if len(inner) == 1 or not is_dataclass(self):
            return (self,)
        each = {id(one): replace(self, loss=one) for one in inner}
        return tuple(each[id(one)] for one in inner)

    @property
    def capturable(self) -> bool:
        """Whether the wrapped loss may be captured in a CUDA graph."""
        return is_capturable(self.loss)

    @property
    def backward(self) -> FastBackward | None:
        """The fast backward of the wrapped loss at the prepared inputs, or None where it has none."""
        inner = fast_backward(self.loss)
        return None if inner is None else partial(self._backward, inner)

    def _backward(
        self, inner: FastBackward, model: nn.Module, x: ModelInputs, y: Tensor, **options: Unpack[BackwardOptions]
    ) -> Backward:
        return inner(model, *self.prepare(model, x, y), **options)


@dataclass(frozen=True, kw_only=True)
class Augmented(Wrapper):
    """L at randomly changed images: shifted, with other contrast and hue (elsayed §4.3, which gives no numbers).

    A network in evaluation mode gets the images as they are.

    The random numbers are from the generator of the images' device, which training seeds by network and step, so that a
    step can be a CUDA graph.

    Args:
        loss: L, any loss `(model, x, y) -> [batch]`.
        crop: images are padded by so many pixels (reflected) and cut out again at a random place.
        contrast: x ← m + c·(x − m), m the image's mean, c uniform in 1 ± this.
        hue: a rotation of the colours about grey by an angle uniform in ± this share of a turn; three channels only.
    """

    loss: Loss = field(default_factory=CrossEntropy)
    crop: int = 4
    contrast: float | int = 0.2
    hue: float | int = 0.05

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", for_augmented(as_loss(self.loss)))
        check_count("crop", self.crop, least=0)
        check_number("contrast", self.contrast, least=0.0)
        check_number("hue", self.hue, least=0.0)

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The changed images, or those given if `model` is in evaluation mode, and their labels."""
        check_module(model)
        return (self.images(x) if model.training else x), y

    def images(self, x: Images) -> Images:
        """Changed copies of `x`, in [0, 1] as these are."""
        check_images(x, "x")
        cut = _shifted(x, self.crop) if self.crop else x
        mean = cut.mean(dim=(1, 2, 3), keepdim=True)
        changed = mean + _uniform(1.0, float(self.contrast), x) * (cut - mean)
        if self.hue and x.shape[1] == 3:
            turn = _uniform(0.0, 2 * math.pi * self.hue, x)
            # Not a matrix product, which autocast would round to bfloat16.
            changed = (rotations(turn.flatten())[..., None, None] * changed[:, None]).sum(dim=2)
        return changed.clamp(0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class CropsAndFlips(Wrapper):
    """L at randomly shifted and mirrored images, the usual augmentation of CIFAR-10, on the images' device.

    A network in evaluation mode gets the images as they are, so that validation losses are those of the data.

    The random numbers are from the generator of that device, so that a step can be a CUDA graph. The second term of
    `WideMargin` gets a smaller weight (`augmented=True`) unless the loss has `augmented=False`.

    Args:
        loss: L, any loss `(model, x, y) -> [batch]`.
        crop: images are padded by so many pixels of 0 and cut out again at a random place.
        flip: mirror left and right with probability ½.
    """

    loss: Loss = field(default_factory=CrossEntropy)
    crop: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        check_count("crop", self.crop, least=0)
        check_flag("flip", self.flip)
        loss = as_loss(self.loss)
        object.__setattr__(self, "loss", for_augmented(loss) if self.crop or self.flip else loss)

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The changed images, or those given if `model` is in evaluation mode, and their labels."""
        check_module(model)
        return (self.images(x) if model.training else x), y

    def images(self, x: Images) -> Images:
        """Changed copies of `x`."""
        check_images(x, "x")
        top, left, side = torch.rand(3, len(x), device=x.device)
        mirrored = side < 0.5 if self.flip else None
        padded = F.pad(x, (self.crop,) * 4)
        top, left = ((part * (2 * self.crop + 1)).long() for part in (top, left))
        return _cut(padded, top, left, x.shape[-2:], mirrored)


@dataclass(frozen=True, kw_only=True)
class WithAuxiliary(Wrapper):
    """L plus `weight` times the cross-entropy of the auxiliary head, where the network has one (elsayed, appendix C).

    0.3 is the weight of Szegedy et al. 2015; the paper gives none. In evaluation mode there is no such head.
    """

    loss: Loss = field(default_factory=CrossEntropy)
    weight: float | int = 0.3

    def __call__(self, model: nn.Module, x: ModelInputs, y: Tensor, *, index: Tensor | None = None) -> Tensor:
        """The loss of every sample, by the forward pass of `loss` alone."""
        auxiliary: list[Tensor] = []

        def keep(module: nn.Module, inputs: object, output: object) -> None:  # noqa: ARG001
            if (scores := getattr(output, "aux_logits", None)) is not None:
                auxiliary.append(scores)

        handle = model.register_forward_hook(keep)
        try:
            value = super().__call__(model, x, y, index=index)
        finally:
            handle.remove()
        return value + self.weight * F.cross_entropy(auxiliary[0], y, reduction="none") if auxiliary else value


def rotations(angles: Float[Tensor, " batch"]) -> Float[Tensor, "batch 3 3"]:
    """Rotations of (red, green, blue) about the grey axis, which leave grey as it is (Rodrigues' formula)."""
    grey = torch.full((3, 3), 1 / 3, dtype=angles.dtype, device=angles.device)
    s = 1 / math.sqrt(3)
    eye = torch.eye(3, dtype=angles.dtype, device=angles.device)
    cross = s * (eye.roll(2, 1) - eye.roll(1, 1))  # a CUDA graph can't copy constants from the CPU
    c, sin = angles.cos()[:, None, None], angles.sin()[:, None, None]
    return c * eye + sin * cross + (1 - c) * grey


def _shifted(x: Tensor, crop: int) -> Tensor:
    padded = F.pad(x, (crop, crop, crop, crop), mode="reflect")
    top, left = (torch.randint(2 * crop + 1, (len(x),), device=x.device) for _ in range(2))
    return _cut(padded, top, left, x.shape[-2:])


def _cut(x: Tensor, top: Tensor, left: Tensor, shape: torch.Size, mirrored: Tensor | None = None) -> Tensor:
    """The parts of `shape` at (`top`, `left`) of each image; those with `mirrored` from right to left."""
    height, width = shape
    across = torch.arange(width, device=x.device).expand(len(x), width)
    if mirrored is not None:
        across = torch.where(mirrored[:, None], width - 1 - across, across)
    rows = (top[:, None] + torch.arange(height, device=x.device))[:, None, :, None]
    columns = (left[:, None] + across)[:, None, None, :]
    image = torch.arange(len(x), device=x.device)[:, None, None, None]
    channel = torch.arange(x.shape[1], device=x.device)[None, :, None, None]
    return x[image, channel, rows, columns]


def _uniform(middle: float, reach: float, x: Tensor) -> Tensor:
    return middle + reach * (2 * torch.rand(len(x), device=x.device) - 1).to(x)[:, None, None, None]
