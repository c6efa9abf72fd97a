"""Small instances of every network of the zoo, for laws that must hold over all of them.

`ZOO` takes floats and answers a tensor `[batch, classes]`; `TOKENS` takes integers through an `nn.Embedding` at
`Entry.place`; `RECURRENT` runs a module several times or gives a tuple from one; `LOGITS` answers an object with
`.logits`. In evaluation mode no network couples the samples of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from widemargin import models


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A small network with what it takes.

    `traits` ⊆ {"batch-norm", "group-norm", "dropout", "bias-free", "binary", "residual", "attention", "conv"}.
    `vocabulary` is the number of tokens where inputs are integers; `place` a hidden place that every law can use.
    """

    name: str
    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    classes: int
    place: str
    traits: frozenset[str] = frozenset()
    vocabulary: int | None = None

    def network(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The network in evaluation mode, from a seed; batch norms get statistics and scales that are not 0 and 1."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self.build()
            for module in network.modules():
                if isinstance(module, nn.BatchNorm2d):
                    assert module.running_mean is not None
                    assert module.running_var is not None
                    module.running_mean.normal_(std=0.2)
                    module.running_var.uniform_(0.5, 2.0)
                    nn.init.uniform_(module.weight, 0.5, 1.5)
                    nn.init.normal_(module.bias, std=0.2)
        return network.to(dtype).eval()

    def inputs(self, batch: int = 5, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
        """Random inputs, uniform in [0, 1], or tokens where there is a vocabulary."""
        generator = torch.Generator().manual_seed(seed)
        if self.vocabulary is not None:
            return torch.randint(self.vocabulary, (batch, *self.input_shape), generator=generator)
        return torch.rand(batch, *self.input_shape, generator=generator, dtype=torch.float64).to(dtype)

    def labels(self, batch: int = 5, seed: int = 2, dtype: torch.dtype = torch.float32) -> Tensor:
        """Random labels: class indices, or ±1 for a binary network."""
        generator = torch.Generator().manual_seed(seed)
        if self.classes == 1:
            return (2 * torch.randint(2, (batch,), generator=generator) - 1).to(dtype)
        return torch.randint(self.classes, (batch,), generator=generator)

    def __str__(self) -> str:
        return self.name


class Attention(nn.Module):
    """One head of self-attention in plain operations, which can be differentiated twice on every device."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.softmax = nn.Softmax(dim=-1)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        mixed: Tensor = self.out(self.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5) @ v)
        return mixed


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class VisionTransformer(nn.Module):
    """Patches of 4×4 pixels, one block, the mean of the patches."""

    def __init__(self, classes: int = 4, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, stride=4)
        self.positions = nn.Parameter(0.1 * torch.randn(4, width))
        self.block = Block(width)
        self.output = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        scores: Tensor = self.output(self.block(tokens).mean(dim=1))
        return scores


class TokenTransformer(nn.Module):
    """Integer tokens, an embedding, one block, the mean of the tokens."""

    def __init__(self, vocabulary: int = 11, classes: int = 3, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.block = Block(width)
        self.output = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.output(self.block(self.embedding(x)).mean(dim=1))
        return scores


class BagOfWords(nn.Module):
    """Integer tokens, an embedding, their mean, a ReLU layer."""

    def __init__(self, vocabulary: int = 11, classes: int = 3, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.hidden = nn.Linear(width, width)
        self.relu = nn.ReLU()
        self.output = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.output(self.relu(self.hidden(self.embedding(x).mean(dim=1))))
        return scores


class Gated(nn.Module):
    """`nn.GRU`, a module that answers a tuple, over a sequence of vectors."""

    def __init__(self, classes: int = 3, width: int = 6) -> None:
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.output = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(self.embed(x))
        scores: Tensor = self.output(states[:, -1])
        return scores


class Unrolled(nn.Module):
    """A cell that runs once for each step: `cell` runs several times and is no place."""

    def __init__(self, classes: int = 3, width: int = 6) -> None:
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.cell = nn.RNNCell(width, width)
        self.output = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        steps = self.embed(x)
        state = torch.zeros_like(steps[:, 0])
        for step in steps.unbind(dim=1):
            state = self.cell(step, state)
        scores: Tensor = self.output(state)
        return scores


class Answer(NamedTuple):
    """What some libraries' networks answer."""

    logits: Tensor
    hidden: Tensor


class WithLogits(nn.Module):
    """A network whose answer has `.logits`."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 8)
        self.relu = nn.ReLU()
        self.output = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Answer:
        hidden = self.relu(self.hidden(x))
        return Answer(logits=self.output(hidden), hidden=hidden)


def _entry(
    name: str, build: Callable[[], nn.Module], shape: tuple[int, ...], classes: int, place: str, *traits: str
) -> Entry:
    return Entry(name=name, build=build, input_shape=shape, classes=classes, place=place, traits=frozenset(traits))


def _small(**settings: object) -> Callable[[], nn.Module]:
    name = str(settings.pop("name"))
    return lambda: models.build(name, **settings)


_IMAGE = (1, 8, 8)
_ALEX = {"name": "odn-alexnet", "size": 16, "widths": (3, 4, 4, 4, 3), "hidden": (8, 8), "classes": 4}
_WRN = {"depth": 10, "widen": 1, "base": 4, "classes": 4}

ZOO: list[Entry] = [
    _entry("affine", _small(name="toy-mlp", inputs=6, hidden=(), classes=3), (6,), 3, "output"),
    _entry("toy-mlp", _small(name="toy-mlp", hidden=(7, 5), classes=3), (2,), 3, "relu1"),
    _entry("elsayed-toy", _small(name="elsayed-toy", width=6), (2,), 2, "relu2"),
    _entry(
        "elsayed-mnist-cnn",
        _small(name="elsayed-mnist-cnn", size=8, widths=(3, 4), hidden=(8, 8), classes=4),
        _IMAGE,
        4,
        "pool1",
        "conv",
    ),
    _entry(
        "elsayed-mnist-cnn, dropout",
        _small(name="elsayed-mnist-cnn", size=8, widths=(3, 4), hidden=(8, 8), classes=4, dropout=0.2),
        _IMAGE,
        4,
        "fc1",
        "conv",
        "dropout",
    ),
    _entry("wrn", _small(name="wrn-28-10", **_WRN), (3, 8, 8), 4, "group2.block1", "conv", "residual", "batch-norm"),
    _entry(
        "wrn, group norm",
        _small(name="wrn-28-10-gn", groups=2, **_WRN),
        (3, 8, 8),
        4,
        "group2.block1",
        "conv",
        "residual",
        "group-norm",
    ),
    _entry(
        "wrn, no norm",
        _small(name="wrn-28-10", norm="none", **_WRN),
        (3, 8, 8),
        4,
        "group2.block1",
        "conv",
        "residual",
    ),
    _entry(
        "odn-mnist-cnn",
        _small(name="odn-mnist-cnn", size=8, widths=(3, 4), hidden=(8,), classes=4),
        _IMAGE,
        4,
        "conv2",
        "conv",
    ),
    _entry(
        "odn-mnist-cnn, batch norm",
        _small(name="odn-mnist-cnn", size=8, widths=(3, 4), hidden=(8,), classes=4, batch_norm=True),
        _IMAGE,
        4,
        "norm2",
        "conv",
        "batch-norm",
    ),
    _entry("odn-alexnet", _small(**_ALEX), (3, 16, 16), 4, "pool2", "conv", "dropout"),
    _entry("odn-alexnet, plain", _small(dropout=False, **_ALEX), (3, 16, 16), 4, "pool2", "conv"),
    _entry(
        "odn-alexnet, batch norm",
        _small(dropout=False, batch_norm=True, **_ALEX),
        (3, 16, 16),
        4,
        "norm3",
        "conv",
        "batch-norm",
    ),
    _entry(
        "odn-alexnet, batch norm and dropout",
        _small(batch_norm=True, **_ALEX),
        (3, 16, 16),
        4,
        "fc1",
        "conv",
        "batch-norm",
        "dropout",
    ),
    *(
        _entry(
            f"sokolic-mlp, {layers} layers",
            _small(name="sokolic-mlp", inputs=9, layers=layers, first=9, higher=6, classes=4),
            (9,),
            4,
            "fc1",
        )
        for layers in (1, 2, 3)
    ),
    *(
        _entry(
            f"sokolic-cnn, {layers} layers",
            _small(name="sokolic-cnn", size=8, layers=layers, channels=4, classes=4),
            _IMAGE,
            4,
            f"relu{layers}",
            "conv",
        )
        for layers in (2, 3)
    ),
    _entry(
        "farhang-mlp", _small(name="farhang-mlp", inputs=9, width=12, depth=4, outputs=4), (9,), 4, "relu2", "bias-free"
    ),
    _entry(
        "farhang-mlp, binary",
        _small(name="farhang-mlp", inputs=9, width=12, depth=3, outputs=1),
        (9,),
        1,
        "fc2",
        "bias-free",
        "binary",
    ),
    _entry(
        "farhang-cnn",
        _small(name="farhang-cnn", size=8, channels=3, width=10, outputs=4),
        (3, 8, 8),
        4,
        "relu3",
        "bias-free",
        "conv",
    ),
    _entry(
        "farhang-cnn, binary",
        _small(name="farhang-cnn", size=8, channels=3, width=10),
        (3, 8, 8),
        1,
        "conv2",
        "bias-free",
        "conv",
        "binary",
    ),
    _entry("vision transformer", VisionTransformer, _IMAGE, 4, "block", "attention", "residual"),
]

TOKENS: list[Entry] = [
    Entry(
        name="token transformer",
        build=TokenTransformer,
        input_shape=(6,),
        classes=3,
        place="embedding",
        traits=frozenset({"attention", "residual"}),
        vocabulary=11,
    ),
    Entry(name="bag of words", build=BagOfWords, input_shape=(6,), classes=3, place="embedding", vocabulary=11),
]

RECURRENT: list[Entry] = [
    _entry("gru", Gated, (5, 4), 3, "embed"),
    _entry("unrolled rnn", Unrolled, (5, 4), 3, "embed"),
]

LOGITS: list[Entry] = [_entry("with logits", WithLogits, (6,), 3, "hidden")]
