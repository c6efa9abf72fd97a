"""Residual networks with the activation after the sum: ResNet-18 for small images, and smaller ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from widemargin.checks import check_choice, check_count, check_counts, check_flag
from widemargin.models.elsayed import Norm, norm_layer

CHANNELS_OF_A_GROUP = 8


def resnet(
    *,
    widths: Sequence[int] = (64, 128, 256, 512),
    blocks: Sequence[int] = (2, 2, 2, 2),
    classes: int = 10,
    in_channels: int = 3,
    norm: Norm = "batch",
    plain: bool = False,
) -> nn.Sequential:
    """ResNet-18 for images of 32×32 pixels: y = relu(x + norm2(conv2(relu1(norm1(conv1(x)))))).

    Source: He, Zhang, Ren and Sun 2016, with the 3×3 first convolution of stride 1 and without the max-pool that are
    usual for CIFAR-10. `widths` are the channels of the groups, `blocks` their numbers of blocks; the first
    convolution has the channels of the first group, and a block that changes them has stride 2 and a 1×1 shortcut.
    `norm` is `"batch"`, `"group"` with 8 channels a group, or `"none"`. In the `plain` form convolutions have biases
    and shortcuts no norm.
    """
    check_counts("widths", widths)
    check_counts("blocks", blocks, length=len(widths))
    check_count("classes", classes)
    check_count("in_channels", in_channels)
    check_choice("norm", norm, ("batch", "group", "none"))
    check_flag("plain", plain)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    channels = widths[0]
    layers["conv"] = nn.Conv2d(in_channels, channels, 3, padding=1, bias=plain)
    layers["norm"] = _norm(norm, channels)
    layers["relu"] = nn.ReLU()
    for number, (width, count) in enumerate(zip(widths, blocks, strict=True), start=1):
        group: OrderedDict[str, nn.Module] = OrderedDict()
        for index in range(count):
            group[f"block{index + 1}"] = ResidualBlock(channels, width, norm, plain=plain)
            channels = width
        layers[f"group{number}"] = nn.Sequential(group)
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["output"] = nn.Linear(channels, classes)
    return nn.Sequential(layers)


class ResidualBlock(nn.Module):
    """A residual block of two 3×3 convolutions, activated after the sum."""

    def __init__(self, inputs: int, outputs: int, norm: Norm, *, plain: bool) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=plain)
        self.norm1 = _norm(norm, outputs)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=plain)
        self.norm2 = _norm(norm, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride == 2:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=plain)
            self.shortcut = shortcut if plain else nn.Sequential(shortcut, _norm(norm, outputs))
        self.relu2 = nn.ReLU()

    def forward(self, x: Float[Tensor, "batch inputs h w"]) -> Float[Tensor, "batch outputs H W"]:
        """The activated sum of the branch and of the shortcut."""
        branch = self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x)))))
        out: Tensor = self.relu2(self.shortcut(x) + branch)
        return out


def _norm(norm: Norm, channels: int) -> nn.Module:
    return norm_layer(norm, channels, max(1, channels // CHANNELS_OF_A_GROUP))
