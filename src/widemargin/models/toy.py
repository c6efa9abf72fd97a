"""Small networks on the plane, for pictures."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from widemargin.checks import check_count, check_counts
from widemargin.models.sequential import SequentialBuilder


def toy_mlp(*, inputs: int = 2, hidden: Sequence[int] = (16, 16), classes: int = 2) -> nn.Sequential:
    """Fully connected ReLU layers of `hidden` units and a linear output; no hidden layer gives an affine classifier."""
    check_count("inputs", inputs)
    check_counts("hidden", hidden)
    check_count("classes", classes)
    builder = SequentialBuilder(channels=inputs)
    for width in hidden:
        builder.linear(width)
    return builder.output(classes)


def elsayed_toy(*, width: int = 32, classes: int = 2) -> nn.Sequential:
    """The "4-layer deep network" on 2-D data of elsayed, Fig. 1b: three ReLU layers of `width` units and the output.

    Source: elsayed, Fig. 1b, which gives no widths; here the output counts as the fourth layer.
    """
    check_count("width", width)
    return toy_mlp(hidden=(width, width, width), classes=classes)
