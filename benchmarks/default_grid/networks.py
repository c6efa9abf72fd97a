"""Networks of the grid, as plain modules: small enough that nine of them train as one program."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

Norm = Callable[[int], nn.Module]


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    inputs = math.prod(shape)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, classes)
    )


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    channels, size, _ = shape
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * (size // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, classes)),
    )


class Block(nn.Module):
    """relu(x + norm(conv(relu(norm(conv(x))))))."""

    def __init__(self, inputs: int, outputs: int, norm: Norm) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norms = nn.ModuleList([norm(outputs), norm(outputs)])
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.shortcut(x) + self.norms[1](self.second(hidden)))


class ResNet(nn.Module):
    """Three residual blocks of 16, 32 and 64 channels."""

    def __init__(self, shape: tuple[int, ...], classes: int, norm: Norm) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(shape[0], 16, 3, padding=1), norm(16), nn.ReLU())
        self.blocks = nn.Sequential(Block(16, 16, norm), Block(16, 32, norm), Block(32, 64, norm))
        self.output = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.output(self.blocks(self.stem(x)).mean(dim=(2, 3)))
        return scores


class Encoder(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        # Rows of tokens: a linear layer of a stack is one matrix product a network then.
        rows: Tensor = self.mlp(self.norms[1](x).flatten(0, 1))
        return x + rows.view(x.shape)

    def attention(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.inward(x.flatten(0, 1)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts[0], parts[1], parts[2]
        weights = (queries @ keys.mT / math.sqrt(width / self.heads)).softmax(dim=-1)
        mixed = (weights @ values).transpose(1, 2).reshape(batch * tokens, width)
        out: Tensor = self.outward(mixed)
        return out.view(batch, tokens, width)


class ViT(nn.Module):
    """Patches of 4 × 4 (2 × 2 of images of 8 × 8), three encoders of width 64, mean over the tokens."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        channels, size, _ = shape
        self.patch = 4 if size > 8 else 2
        self.embedding = nn.Linear(channels * self.patch**2, width)
        self.position = nn.Parameter(0.02 * torch.randn((size // self.patch) ** 2, width))
        self.encoders = nn.Sequential(*(Encoder(width, heads) for _ in range(3)))
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, size, _ = x.shape
        side, p = size // self.patch, self.patch
        patches = x.view(batch, channels, side, p, side, p).permute(0, 2, 4, 1, 3, 5).reshape(batch * side**2, -1)
        tokens = self.embedding(patches).view(batch, side**2, -1) + self.position
        scores: Tensor = self.output(self.norm(self.encoders(tokens)).mean(dim=1))
        return scores


NETWORKS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "mlp": mlp,
    "cnn": cnn,
    "resnet-gn": lambda shape, classes: ResNet(shape, classes, lambda width: nn.GroupNorm(width // 8, width)),
    "resnet-bn": lambda shape, classes: ResNet(shape, classes, nn.BatchNorm2d),
    "vit": ViT,
}
WORK = {"mlp": 0.3, "cnn": 1.0, "resnet-gn": 2.0, "resnet-bn": 2.0, "vit": 1.5}
"""Work of a step of a network, relative to that of the CNN: for the order of the jobs."""
