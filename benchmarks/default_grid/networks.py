"""Networks of the grid: small enough that nine of them train as one program."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import nn

from widemargin import models


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    inputs = math.prod(shape)
    return models.sokolic_mlp(inputs=inputs, first=256, higher=256, classes=classes, classifier_bias=True)


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    return models.mnist_cnn(in_channels=shape[0], size=shape[1], kernel=3, hidden=(128,), classes=classes)


def resnet(shape: tuple[int, ...], classes: int, *, norm: Literal["batch", "group"]) -> nn.Module:
    """Three residual blocks of 16, 32 and 64 channels."""
    widths, blocks = (16, 32, 64), (1, 1, 1)
    return models.resnet(widths=widths, blocks=blocks, classes=classes, in_channels=shape[0], norm=norm, plain=True)


def vit(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Patches of 4 × 4 (2 × 2 of images of 8 × 8), three encoders of width 64."""
    channels, size, _ = shape
    return models.vit(in_channels=channels, size=size, patch=4 if size > 8 else 2, classes=classes)


NETWORKS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "mlp": mlp,
    "cnn": cnn,
    "resnet-gn": partial(resnet, norm="group"),
    "resnet-bn": partial(resnet, norm="batch"),
    "vit": vit,
}
WORK = {"mlp": 0.3, "cnn": 1.0, "resnet-gn": 2.0, "resnet-bn": 2.0, "vit": 1.5}
"""Work of a step of a network, relative to that of the CNN: for the order of the jobs."""
