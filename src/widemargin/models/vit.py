"""Vision transformers of small images."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin.checks import check_count


def vit(
    *,
    in_channels: int = 3,
    size: int = 32,
    patch: int = 4,
    width: int = 64,
    layers: int = 3,
    heads: int = 4,
    classes: int = 10,
) -> nn.Module:
    """A vision transformer: linear `patch` × `patch` patches, `layers` encoders, the mean over the tokens.

    Source: Dosovitskiy et al. 2021, with the mean over tokens instead of a class token, as is usual for small images.
    An encoder is pre-norm attention of `heads` heads and a GELU layer of twice the `width`.
    """
    counts = {"in_channels": in_channels, "size": size, "patch": patch, "width": width, "layers": layers}
    for name, value in {**counts, "heads": heads, "classes": classes}.items():
        check_count(name, value)
    if size % patch:
        raise ValueError(f"patch is {patch}, expected a divisor of size, which is {size}")
    if width % heads:
        raise ValueError(f"heads is {heads}, expected a divisor of width, which is {width}")
    return ViT(in_channels, size, patch, width, layers, heads, classes)


class ViT(nn.Module):
    """Embedded patches with learned positions, encoders, and a linear layer of the mean token."""

    def __init__(self, channels: int, size: int, patch: int, width: int, layers: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patch = patch
        self.embedding = nn.Linear(channels * patch**2, width)
        self.position = nn.Parameter(0.02 * torch.randn((size // patch) ** 2, width))
        self.encoders = nn.Sequential(*(Encoder(width, heads) for _ in range(layers)))
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Float[Tensor, "batch channels size size"]) -> Float[Tensor, "batch classes"]:
        """The scores."""
        batch, channels, size, _ = x.shape
        side, p = size // self.patch, self.patch
        patches = x.reshape(batch, channels, side, p, side, p).permute(0, 2, 4, 1, 3, 5).reshape(batch * side**2, -1)
        tokens = self.embedding(patches).view(batch, side**2, -1) + self.position
        scores: Tensor = self.output(self.norm(self.encoders(tokens)).mean(dim=1))
        return scores


class Encoder(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Float[Tensor, "batch tokens width"]) -> Float[Tensor, "batch tokens width"]:
        """The tokens after both steps."""
        x = x + self.attention(self.norms[0](x))
        # Rows of tokens: a linear layer of a stack of networks is one matrix product a network then.
        rows: Tensor = self.mlp(self.norms[1](x).flatten(0, 1))
        return x + rows.view(x.shape)

    def attention(self, x: Float[Tensor, "batch tokens width"]) -> Float[Tensor, "batch tokens width"]:
        """Self-attention by plain products, which populations can stack."""
        batch, tokens, width = x.shape
        parts = self.inward(x.flatten(0, 1)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts[0], parts[1], parts[2]
        weights = (queries @ keys.mT / math.sqrt(width / self.heads)).softmax(dim=-1)
        mixed = (weights @ values).transpose(1, 2).reshape(batch * tokens, width)
        out: Tensor = self.outward(mixed)
        return out.view(batch, tokens, width)
