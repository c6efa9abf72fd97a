"""The networks of odn, "Optimal margin Distribution Network" (2018)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from widemargin.checks import check_count, check_counts, check_flag
from widemargin.models.sequential import convolutional_network


def odn_cnn(
    *,
    in_channels: int = 1,
    size: int = 28,
    widths: Sequence[int] = (20, 50),
    hidden: Sequence[int] = (500,),
    classes: int = 10,
    batch_norm: bool = False,
) -> nn.Sequential:
    """Convolutions 5×5 of 20 and 50 channels, each with ReLU and 2×2 max-pool, one layer of 500, 10 outputs.

    Source: odn, §4.1, which says only "a simple deep convolutional network for MNIST": the widths, LeNet's,
    and the padding, which keeps the size, are chosen here.

    `size` is the height and width of an image (28 for MNIST, 8 for `digits`), `widths` are the channels of the
    convolutions, `hidden` the units of the hidden layers. With `batch_norm` one precedes the ReLU of each convolution.
    """
    return convolutional_network(
        in_channels=in_channels, size=size, widths=widths, hidden=hidden, classes=classes, batch_norm=batch_norm
    )


def alexnet(
    *,
    in_channels: int = 3,
    size: int = 32,
    widths: Sequence[int] = (96, 256, 384, 384, 256),
    hidden: Sequence[int] = (4096, 4096),
    classes: int = 10,
    dropout: bool = True,
    batch_norm: bool = False,
    he: bool = False,
) -> nn.Sequential:
    """AlexNet for 32×32 images: five convolutions, three overlapping max-pools, two layers of 4096, 10 outputs.

    Source: odn, §4.1 and Table 1: "original Alexnet", whose adaptation to 32×32 is not described. Here: the channels,
    the overlapping 3×3 pools of stride 2 after convolutions 1, 2 and 5, the 4096 units and dropout ½ before each fully
    connected hidden layer are the original's (Krizhevsky et al. 2012); kernels are 5, 5, 3, 3, 3 at stride 1, since
    the original's 11×11 at stride 4 would leave 8×8 pixels of 32×32; no local response normalization and no
    split over two devices.

    `size`, the height and width of an image, is at least 15. Table 1 has the network with and without `dropout`, and
    with and without `batch_norm`, which precedes the ReLU of each convolution.

    With `he` weights start as N(0, 2/fan-in) and biases at 0 (He et al. 2015). With PyTorch's weights, the default,
    scores of different images hardly differ at first, and margin losses without cross-entropy may make them equal.
    """
    check_count("size", size, least=15)
    check_counts("widths", widths, length=5)
    check_flag("dropout", dropout)
    check_flag("he", he)
    network = convolutional_network(
        in_channels=in_channels,
        size=size,
        widths=widths,
        kernels=(5, 5, 3, 3, 3),
        pooled=(1, 2, 5),
        pool=3,
        hidden=hidden,
        classes=classes,
        batch_norm=batch_norm,
        dropout_before=0.5 if dropout else 0.0,
    )
    for layer in network if he else ():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network
