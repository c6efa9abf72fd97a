"""The networks of farhang, "Investigating Generalization by Controlling Normalized Margin" (ICML 2022)."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor, nn

from widemargin.checks import check_count, check_number
from widemargin.models.sequential import SequentialBuilder


def farhang_mlp(
    *, inputs: int = 784, width: int = 5000, depth: int = 5, outputs: int = 10, sigma: float = 1.0
) -> nn.Sequential:
    """f(x) = W_L φ(W_{L−1} ⋯ φ(W_1 x)), φ(t) = √2·max(t, 0), no biases, W_l ~ N(0, σ²/d_{l−1}) at the start.

    Source: farhang, (1), §6.1 and appendix A. With this prior and inputs of norm √d_0, wide networks are the Gaussian
    process of covariance σ^{2L}·h∘⋯∘h(xᵀx′/d_0). Erratum: the paper prints a plain ReLU, for which E[φφ] is h/2; its
    kernel h needs the √2, which the authors' code has.

    `inputs` is d_0 (images are flattened first), `width` the units of each hidden layer, `depth` the number L of weight
    matrices. One output gives a binary network, with scores [batch, 1] and labels ±1.
    """
    for name, value in (("inputs", inputs), ("width", width), ("depth", depth), ("outputs", outputs)):
        check_count(name, value)
    check_number("sigma", sigma, above=0.0)
    builder = SequentialBuilder(channels=inputs, bias=False)
    builder.flatten()
    for _ in range(depth - 1):
        builder.linear(width, ScaledReLU())
    return _sampled(builder.output(outputs), sigma)


def farhang_cnn(
    *,
    in_channels: int = 3,
    size: int = 32,
    channels: int = 20,
    width: int = 500,
    outputs: int = 1,
    kernel: int = 3,
    stride: int = 1,
    sigma: float = 1.0,
) -> nn.Sequential:
    """Three convolutions of `channels` channels, flatten, three linear layers of width 500, φ = √2·ReLU, no biases.

    Source: farhang, appendix A.3 (CIFAR-10, dog against ship), with 3, 5, 10, 20, 40, 80, 160, 320 channels. The third
    linear layer is the output. The paper gives neither kernel nor stride; here they are 3×3 and 1, with the size kept.
    Weights start as N(0, σ²/fan-in), as in `farhang_mlp`, the fan-in of a convolution being its input
    channels times the kernel's pixels.

    `size` is the height and width of an image, `width` the units of each hidden linear layer. One output gives a binary
    network, with scores [batch, 1] and labels ±1.
    """
    settings = {"in_channels": in_channels, "size": size, "channels": channels, "width": width, "outputs": outputs}
    for name, value in (settings | {"kernel": kernel, "stride": stride}).items():
        check_count(name, value)
    if kernel % 2 == 0:
        raise ValueError(f"kernel is {kernel}, expected an odd integer")
    check_number("sigma", sigma, above=0.0)
    builder = SequentialBuilder(channels=in_channels, size=size, bias=False)
    for _ in range(3):
        builder.conv(channels, kernel=kernel, stride=stride)
        builder.add("relu", ScaledReLU())
    builder.flatten()
    for _ in range(2):
        builder.linear(width, ScaledReLU())
    return _sampled(builder.output(outputs), sigma)


class ScaledReLU(nn.Module):
    """φ(t) = scale·max(t, 0); with scale √2, E[φ(t)²] = 1 for t ~ N(0, 1), and the Lipschitz constant is √2."""

    def __init__(self, scale: float = math.sqrt(2)) -> None:
        super().__init__()
        check_number("scale", scale, above=0.0)
        self.scale = scale

    @property
    def slopes(self) -> tuple[float, float]:
        """φ′ for t ≤ 0 and for t > 0, as `geometry` reads piecewise linear layers."""
        return 0.0, self.scale

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Elementwise."""
        return self.scale * x.relu()

    @property
    def lipschitz(self) -> float:
        """The l_2 Lipschitz constant."""
        return self.scale

    def extra_repr(self) -> str:
        """The scale, for the printed network."""
        return f"scale={self.scale:.6g}"


def _sampled(network: nn.Sequential, sigma: float) -> nn.Sequential:
    """Draw every weight from N(0, σ²/fan-in), in place."""
    for weight in network.parameters():
        nn.init.normal_(weight, std=sigma / math.sqrt(weight[0].numel()))
    return network
