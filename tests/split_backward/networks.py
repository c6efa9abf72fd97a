"""Networks on which the fast margin backward is tried, beside the zoo: the ways in which parameters enter a graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

from widemargin.losses import Hinge, MarginLoss


class BasicBlock(nn.Module):
    """A residual block in the manner of timm: norms after convolutions, a downsampled shortcut, ReLUs in place."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), norm(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), norm(outputs)
        self.act = nn.ReLU(inplace=True)
        same = stride == 1 and inputs == outputs
        down = nn.Sequential(nn.AvgPool2d(stride), nn.Conv2d(inputs, outputs, 1, bias=False), norm(outputs))
        self.downsample = nn.Identity() if same else down

    def forward(self, x: Tensor) -> Tensor:
        branch = self.bn2(self.conv2(self.act(self.bn1(self.conv1(x)))))
        branch += self.downsample(x)
        out: Tensor = self.act(branch)
        return out


def resnet(norm: Callable[[int], nn.Module]) -> nn.Module:
    stem = (nn.Conv2d(1, 4, 3, padding=1, bias=False), norm(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    blocks = (BasicBlock(4, 4, 1, norm), BasicBlock(4, 6, 2, norm))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4))


class Vit(nn.Module):
    """Patches, a class token, positions, and torch's own encoder layer, with the batch first or second."""

    def __init__(self, *, batch_first: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.positions = nn.Parameter(0.1 * torch.randn(1, 5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=batch_first, activation=F.gelu)
        self.output = nn.Linear(8, 4)
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1) + self.positions
        tokens = self.layer(tokens) if self.batch_first else self.layer(tokens.transpose(0, 1)).transpose(0, 1)
        scores: Tensor = self.output(tokens[:, 0])
        return scores


class Frames(nn.Module):
    """Several frames a sample, folded into the batch: the frames of a sample next to each other, or in turns."""

    def __init__(self, *, adjacent: bool) -> None:
        super().__init__()
        self.conv, self.norm, self.output = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Linear(8, 4)
        self.adjacent = adjacent

    def forward(self, x: Tensor) -> Tensor:
        frames = x.reshape(-1, 1, 4, 8) if self.adjacent else torch.cat([x[:, :, :4], x[:, :, 4:]])
        h = torch.tanh(self.norm(self.conv(frames))).mean((2, 3))
        h = h.reshape(len(x), -1) if self.adjacent else torch.cat([h[: len(x)], h[len(x) :]], dim=1)
        scores: Tensor = self.output(h)
        return scores


class TwoConvolutions(nn.Module):
    """One convolution and one norm, each run twice, and a last layer whose matrix is another layer's transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.hidden = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for _ in range(2):
            h = h + torch.tanh(self.norm(self.conv(h)))
        h = torch.tanh(self.hidden(h.mean((2, 3))))
        return F.linear(h, self.hidden.weight.t(), self.hidden.bias)


class Sideways(nn.Module):
    """Samples along the last dimension, a parameter that multiplies, and a chunk: nodes of several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 8), nn.Parameter(torch.randn(6, 4))
        self.gain, self.output = nn.Parameter(torch.rand(4) + 0.5), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x.flatten(1)).chunk(2, dim=1)
        h = self.second @ (self.gain * a * torch.sigmoid(b)).t()
        scores: Tensor = self.output(torch.tanh(h).t())
        return scores


class Mixing(nn.Module):
    """A layer that subtracts the mean of the batch, and that no list of layers knows."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0)


class GatedMixing(nn.Module):
    """The mean of the batch through a gate that starts closed: at first no gradient shows that samples mix."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gate * x.mean(dim=0, keepdim=True).expand_as(x)


class Clipped(nn.Module):
    """A layer whose gradient is clipped on its way: no longer linear in the gradient that arrives."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x.register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))
        return x


class Recomputed(nn.Module):
    """Activation checkpointing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 6))
        self.output = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.output(checkpoint(self.inner, x.flatten(1), use_reentrant=False))
        return scores


def flat(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), *layers, nn.Linear(6, 4))


def convolutions() -> nn.Module:
    """Grouped, dilated, strided, transposed, with a padding of its own, of one dimension; norms of groups between."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"),
        nn.Tanh(),
        nn.GroupNorm(4, 4),
        nn.Conv2d(4, 8, 3, dilation=2, groups=2, stride=2),
        nn.Tanh(),
        nn.GroupNorm(2, 8),
        nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1, groups=2),
        nn.Flatten(2),
        nn.GroupNorm(1, 4, affine=False),
        nn.Conv1d(4, 3, 5, stride=3),
        nn.GroupNorm(3, 3),
        nn.Flatten(),
        nn.Linear(33, 4),
    )


def frozen(network: nn.Module, *names: str) -> nn.Module:
    for name in names:
        network.get_parameter(name).requires_grad_(False)
    return network


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet, group norm": lambda: resnet(lambda width: nn.GroupNorm(2, width)),
    "resnet, batch norm": lambda: resnet(nn.BatchNorm2d),
    "resnet, instance norm": lambda: resnet(lambda width: nn.InstanceNorm2d(width, affine=True)),
    "vit": lambda: Vit(batch_first=True),
    "vit, dropout": lambda: Vit(batch_first=True, dropout=0.3),
    "vit, batch second": lambda: Vit(batch_first=False),
    "convolutions": convolutions,
    "parts frozen": lambda: frozen(convolutions(), "0.weight", "2.bias", "3.weight", "5.bias"),
    "group norm of vectors": lambda: flat(nn.GroupNorm(2, 6), nn.ReLU()),
    "frames of a sample": lambda: Frames(adjacent=True),
    "frames in turns": lambda: Frames(adjacent=False),
    "shared parameters": TwoConvolutions,
    "sideways": Sideways,
    "weight norm": lambda: flat(nn.ReLU(), weight_norm(nn.Linear(6, 6)), nn.ReLU()),
    "weights of a norm": lambda: flat(nn.LayerNorm(6), nn.PReLU(), nn.RMSNorm(6)),
    "mixing": lambda: flat(nn.ReLU(), Mixing()),
    "gated mixing": lambda: flat(nn.ReLU(), GatedMixing()),
    "clipped gradients": lambda: flat(Clipped(), nn.ReLU()),
    "checkpointing": Recomputed,
}
"""By name; images of 8×8 pixels, four classes."""

LOSS = MarginLoss(penalty=Hinge(gamma=1.0))


def network(name: str) -> nn.Module:
    """Always the same weights, in training mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return NETWORKS[name]().double()


def batch(samples: int = 9, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(samples, 1, 8, 8, generator=generator, dtype=torch.float64)
    return x.to(dtype), torch.randint(4, (samples,), generator=generator)
