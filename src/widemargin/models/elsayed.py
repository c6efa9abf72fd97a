"""The networks of elsayed, "Large Margin Deep Networks for Classification" (NeurIPS 2018)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from widemargin._io.optional import import_optional
from widemargin.checks import check_choice, check_count, check_counts, check_flag, check_number
from widemargin.models.sequential import convolutional_network

Norm = Literal["batch", "group", "none"]


def mnist_cnn(
    *,
    in_channels: int = 1,
    size: int = 28,
    widths: Sequence[int] = (32, 64),
    hidden: Sequence[int] = (512, 512),
    classes: int = 10,
    dropout: float = 0.0,
    kernel: int = 5,
) -> nn.Sequential:
    """Convolutions 5×5 of 32 and 64 channels, each with ReLU and 2×2 max-pool, two layers of 512, 10 outputs.

    Source: elsayed, §4.2 and appendix A.2. The text says two fully connected layers, the released code has one; this
    network follows the text. The paper gives neither padding (here: the size is kept) nor where dropout acts (here:
    after the ReLU of each fully connected layer).

    `size` is the height and width of an image (28 for MNIST, 8 for `digits`), `widths` are the channels of the
    convolutions, `kernel` is the side of their kernels, and `hidden` are the units of the hidden layers. The paper
    searches `dropout` in {0, 0.2}; 0 adds no layer.
    """
    check_number("dropout", dropout, least=0.0, below=1.0)
    check_count("kernel", kernel)
    check_counts("widths", widths)
    return convolutional_network(
        in_channels=in_channels,
        size=size,
        widths=widths,
        kernels=[kernel] * len(widths),
        hidden=hidden,
        classes=classes,
        dropout_after=dropout,
    )


def wide_resnet(
    *,
    depth: int = 28,
    widen: int = 10,
    classes: int = 10,
    in_channels: int = 3,
    base: int = 16,
    norm: Norm = "batch",
    groups: int = 8,
) -> nn.Sequential:
    """WRN-`depth`-`widen`: y = x + conv2(relu2(norm2(conv1(relu1(norm1(x)))))), (depth − 4)/6 blocks in 3 groups.

    Source: elsayed, §4.3 and appendix B.1, after Zagoruyko and Komodakis 2016: depth 28, k = 10, a first 3×3
    convolution of 16 channels, groups of 16k, 32k and 64k channels, no dropout. Where a block changes the shape, its
    shortcut is a 1×1 convolution of relu1(norm1(x)). The paper's "9 residual units each" are the 9 convolutions of a
    group (4 blocks of 2, and the shortcut).

    `depth`, 6n + 4, counts the convolutions and linear layers along the path; `widen` is k, `base` the channels of the
    first convolution. Images have any size of at least 4×4. `norm` is `"batch"` as in the paper; `"group"` of `groups`
    groups, a divisor of `base`, whose statistics do not couple the samples of a batch; or `"none"`.
    """
    check_count("depth", depth, least=10)
    if (depth - 4) % 6:
        raise ValueError(f"depth is {depth}, expected 6n + 4 (10, 16, 22, 28, 34, …)")
    for name, value in (("widen", widen), ("classes", classes), ("in_channels", in_channels), ("base", base)):
        check_count(name, value)
    check_choice("norm", norm, ("batch", "group", "none"))
    check_count("groups", groups)
    if norm == "group" and base % groups:
        raise ValueError(f"groups is {groups}, expected a divisor of base, which is {base}")

    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["conv"] = nn.Conv2d(in_channels, base, 3, padding=1, bias=False)
    channels = base
    for number, stride in ((1, 1), (2, 2), (3, 2)):
        width = base * 2 ** (number - 1) * widen
        blocks: OrderedDict[str, nn.Module] = OrderedDict()
        for index in range((depth - 4) // 6):
            blocks[f"block{index + 1}"] = WideBlock(channels, width, stride if index == 0 else 1, norm, groups)
            channels = width
        layers[f"group{number}"] = nn.Sequential(blocks)
    layers["norm"] = norm_layer(norm, channels, groups)
    layers["relu"] = nn.ReLU()
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["output"] = nn.Linear(channels, classes)
    return nn.Sequential(layers)


def inception_v3(*, classes: int = 1000, auxiliary: bool = True) -> nn.Module:
    """Inception v3 (Szegedy et al. 2016) for 299×299 images, with truncated-normal weights.

    Source: elsayed, §4.4 and appendix C (ImageNet, with the auxiliary head). In training mode with the auxiliary head
    the output is torchvision's pair, whose `.logits` are the scores and whose `.aux_logits` are the head's; in
    evaluation mode it is the tensor of scores. The last layer is called `fc`, as in torchvision.
    """
    check_count("classes", classes)
    check_flag("auxiliary", auxiliary)
    build = import_optional("torchvision.models", "inception-v3").inception_v3
    network: nn.Module = build(weights=None, num_classes=classes, aux_logits=auxiliary, init_weights=True)
    return network


class WideBlock(nn.Module):
    """A pre-activation residual block of two 3×3 convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm, groups: int) -> None:
        super().__init__()
        self.norm1 = norm_layer(norm, inputs, groups)
        self.relu1 = nn.ReLU()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm2 = norm_layer(norm, outputs, groups)
        self.relu2 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: Float[Tensor, "batch inputs h w"]) -> Float[Tensor, "batch outputs H W"]:
        """The sum of the branch and of x; the 1×1 shortcut, where there is one, takes the activated x."""
        activated = self.relu1(self.norm1(x))
        branch: Tensor = self.conv2(self.relu2(self.norm2(self.conv1(activated))))
        return branch + (x if self.shortcut is None else self.shortcut(activated))


def norm_layer(norm: Norm, channels: int, groups: int) -> nn.Module:
    """Batch norm, group norm, or nothing."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(groups, channels) if norm == "group" else nn.Identity()
