"""Vision transformer for benchmarks and tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class VisionTransformer(nn.Module):
    """ViT (Dosovitskiy et al. 2021) with pre-norm blocks and mean pooling over the patches; by default ViT-S/16."""

    def __init__(
        self,
        *,
        size: int = 224,
        patch: int = 16,
        width: int = 384,
        depth: int = 12,
        heads: int = 6,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.positions = nn.Parameter(0.02 * torch.randn((size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores `[batch, classes]`."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        scores: Tensor = self.output(self.norm(self.blocks(tokens)).mean(dim=1))
        return scores


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.mix(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y
