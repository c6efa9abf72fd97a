"""Networks that are one layer after another, with a readable name for each layer."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


class Chain:
    """Collects layers in order, names them (`conv1`, `relu1`, `pool1`, `conv2`, …) and follows the shape through them.

    Every activation and every pool is a module of its own that runs once, so that each can be a place of a margin.
    The last layer is always called `output`.

    Args:
        channels: channels of the input image; for a network on vectors, their length.
        size: side of the square input image; 1 for vectors.
        bias: whether convolutions and linear layers carry biases.
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
        """Append the step from images to vectors."""
        self._layers["flatten"] = nn.Flatten()
        self.channels, self.size = self.channels * self.size**2, 1

    def linear(self, width: int) -> None:
        """Append a fully connected layer."""
        self.add("fc", nn.Linear(self.channels, width, bias=self.bias))
        self.channels = width

    def output(self, width: int, *, bias: bool | None = None) -> nn.Sequential:
        """Append the last linear layer and give the network."""
        self._layers["output"] = nn.Linear(self.channels, width, bias=self.bias if bias is None else bias)
        return nn.Sequential(self._layers)

    def _resize(self, size: int, what: str) -> None:
        if size < 1:
            raise ValueError(f"size is too small for this network: {self.size} pixels are left before a {what}")
        self.size = size
