"""The networks of sokolic, "Robust Large Margin Deep Neural Networks" (2016)."""

from __future__ import annotations

from torch import nn

from widemargin.checks import check_count, check_flag
from widemargin.models.sequential import SequentialBuilder, convolutional_network


def sokolic_mlp(
    *,
    inputs: int = 784,
    layers: int = 2,
    first: int = 784,
    higher: int = 392,
    classes: int = 10,
    classifier_bias: bool = False,
) -> nn.Sequential:
    """g(x) = V f(x) with f^i = [W_i f^{i−1} + b_i]_+ for i = 1, …, L: `layers` hidden layers and a linear classifier.

    Source: sokolic, (4), (5), §V and the appendix: 784 units in the first layer, 392 in the higher ones, L = 1, 2, 3.
    (W_i is written here as PyTorch stores it, the transpose of the paper's.) Neither the paper's L nor `layers` counts
    the classifier, which has no bias, as in (4).

    `inputs` is the length of the input (images are flattened first), `first` the units of the first layer, `higher`
    those of each later one. The paper leaves the `classifier_bias` out "without affecting generality".
    """
    counts = {"inputs": inputs, "layers": layers, "first": first, "higher": higher, "classes": classes}
    for name, value in counts.items():
        check_count(name, value)
    check_flag("classifier_bias", classifier_bias)
    builder = SequentialBuilder(channels=inputs)
    builder.flatten()
    for number in range(layers):
        builder.linear(higher if number else first)
    return builder.output(classes, bias=classifier_bias)


def sokolic_cnn(
    *,
    in_channels: int = 1,
    size: int = 28,
    layers: int = 2,
    channels: int = 32,
    classes: int = 10,
    classifier_bias: bool = False,
) -> nn.Sequential:
    """(32, 5, 5)-conv, (2, 2)-max-pool, twice, then a linear classifier; with 3 layers another (32, 5, 5)-conv first.

    Source: sokolic, §V and the appendix. The paper does not give the padding: the size is kept here, since without
    padding 4×4 pixels would be left of 28×28, too few for a third 5×5 convolution. Each convolution has a ReLU.

    `size` is the height and width of an image (28 for MNIST, 8 for `digits`), `layers` the number of convolutions, of
    which the first two are followed by pools. For `classifier_bias` see `sokolic_mlp`.
    """
    check_count("layers", layers)
    check_count("channels", channels)
    check_flag("classifier_bias", classifier_bias)
    return convolutional_network(
        in_channels=in_channels,
        size=size,
        widths=(channels,) * layers,
        pooled=(1, 2),
        classes=classes,
        output_bias=classifier_bias,
    )
