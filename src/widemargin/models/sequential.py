"""Builder of sequential networks with a readable name for each layer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from widemargin.checks import check_count, check_counts, check_flag


class SequentialBuilder:
    """Appends layers, names them (`conv1`, `relu1`, `pool1`, `conv2`, …) and tracks the shape of their output.

    Every activation and every pool is a module of its own that runs once, so that each can be a place of a margin.
    The last layer is always called `output`. `channels` and `size` are those of a square input image, or the length of
    a vector and 1; `bias` says whether convolutions and linear layers have biases.
    """

    def __init__(self, *, channels: int, size: int = 1, bias: bool = True) -> None:
        self.channels = channels
        self.size = size
        self.bias = bias
        self._layers: OrderedDict[str, nn.Module] = OrderedDict()
        self._counts: dict[str, int] = {}

    def add(self, kind: str, layer: nn.Module) -> None:
        """Append a layer that keeps the shape, under the name `kind` and the next number."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._layers[f"{kind}{self._counts[kind]}"] = layer

    def conv(self, channels: int, *, kernel: int, stride: int = 1) -> None:
        """Append a convolution padded by half its kernel (at stride 1 and an odd kernel: the size is kept)."""
        padding = kernel // 2
        self._resize((self.size + 2 * padding - kernel) // stride + 1, f"{kernel}×{kernel} convolution")
        self.add("conv", nn.Conv2d(self.channels, channels, kernel, stride=stride, padding=padding, bias=self.bias))
        self.channels = channels

    def pool(self, kernel: int, *, stride: int) -> None:
        """Append a max-pool without padding."""
        self._resize((self.size - kernel) // stride + 1, f"{kernel}×{kernel} max-pool")
        self.add("pool", nn.MaxPool2d(kernel, stride))

    def flatten(self) -> None:
        """Append the layer that turns images into vectors."""
        self._layers["flatten"] = nn.Flatten()
        self.channels, self.size = self.channels * self.size**2, 1

    def linear(self, width: int, activation: nn.Module | None = None) -> None:
        """Append a fully connected layer and its activation, a ReLU by default."""
        self.add("fc", nn.Linear(self.channels, width, bias=self.bias))
        self.add("relu", nn.ReLU() if activation is None else activation)
        self.channels = width

    def output(self, width: int, *, bias: bool | None = None) -> nn.Sequential:
        """Append the last linear layer and return the network."""
        self._layers["output"] = nn.Linear(self.channels, width, bias=self.bias if bias is None else bias)
        return nn.Sequential(self._layers)

    def _resize(self, size: int, layer: str) -> None:
        if size < 1:
            raise ValueError(f"size is too small for this network: {self.size} pixels are left before a {layer}")
        self.size = size


def convolutional_network(
    *,
    in_channels: int,
    size: int,
    widths: Sequence[int],
    kernels: Sequence[int] | None = None,
    pooled: Sequence[int] | None = None,
    pool: int = 2,
    hidden: Sequence[int] = (),
    classes: int,
    output_bias: bool = True,
    batch_norm: bool = False,
    dropout_before: float = 0.0,
    dropout_after: float = 0.0,
) -> nn.Sequential:
    """ReLU convolutions of `widths` channels, ReLU layers of `hidden` units and a linear output.

    Kernels have side 5 unless `kernels` gives others. A max-pool of side `pool` and stride 2 follows the convolutions
    whose numbers, from 1, are in `pooled`, or all. Batch norm precedes the ReLU of each convolution; dropout precedes
    each hidden layer, or follows its ReLU.
    """
    for name, value in (("in_channels", in_channels), ("size", size), ("classes", classes)):
        check_count(name, value)
    check_counts("widths", widths)
    check_counts("hidden", hidden)
    check_flag("batch_norm", batch_norm)
    builder = SequentialBuilder(channels=in_channels, size=size)
    for number, (width, kernel) in enumerate(zip(widths, kernels or [5] * len(widths), strict=True), start=1):
        builder.conv(width, kernel=kernel)
        if batch_norm:
            builder.add("norm", nn.BatchNorm2d(width))
        builder.add("relu", nn.ReLU())
        if pooled is None or number in pooled:
            builder.pool(pool, stride=2)
    builder.flatten()
    for width in hidden:
        if dropout_before > 0:
            builder.add("dropout", nn.Dropout(dropout_before))
        builder.linear(width)
        if dropout_after > 0:
            builder.add("dropout", nn.Dropout(dropout_after))
    return builder.output(classes, bias=output_bias)
