"""The signature of a margin distribution: quartiles of normalized margins at four places of a network.

Source: Jiang, Krishnan, Mobahi, Bengio, *Predicting the Generalization Gap in Deep Networks with Margin Distributions*,
ICLR 2019, §3. The distance to the boundary at a layer is divided by the square root of the total variation of its
activations, ν = Σ_i ‖h_i − h̄‖²/n, so that it does not change when a layer is scaled. Misclassified samples are left
out. Five statistics describe the rest: both fences of a box plot, and the three quartiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from widemargin import places
from widemargin.checks import check_count, check_module, check_weights
from widemargin.data import batches
from widemargin.data.batching import Batches
from widemargin.data.seeds import generator
from widemargin.entry_checks import check_by_sample
from widemargin.margins.distance import linearize
from widemargin.modules import (
    ModelInputs,
    cast_input,
    evaluating,
    forward,
    output_shapes,
    predicted_labels,
    unwrap_ddp,
)

STATISTICS = ("lower fence", "first quartile", "median", "third quartile", "upper fence")
POSITIONS = ("input", "first layer", "middle layer", "last layer")
FEATURES = tuple(f"{statistic} at the {position}" for position in POSITIONS for statistic in STATISTICS)
"""Names of the 20 numbers of a signature, in their order."""

LEAST = 20
"""Correctly classified samples that a distribution has to have."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginSignature:
    """Logarithms of the five statistics at the four positions, whose places in the network are `places`."""

    values: Float64[Tensor, "positions statistics"]
    places: tuple[str, ...]
    accuracy: float
    samples: int

    def by_name(self) -> dict[str, float]:
        """All numbers by their names in `FEATURES`."""
        return dict(zip(FEATURES, self.values.flatten().tolist(), strict=True))


def margin_signature(
    model: nn.Module, train: object, *, samples: int = 1000, batch_size: int = 250, seed: int = 0
) -> MarginSignature:
    """Measure the margins of at most `samples` training samples at the four positions.

    They are drawn by `seed`; of a `DataLoader` or a stream they are the first ones.
    """
    check_module(model)
    check_count("samples", samples, least=LEAST)
    check_weights(model)
    network = unwrap_ddp(model)
    source = _drawn(train, samples, batch_size, seed)
    names: tuple[str, ...] = ()
    distances: list[dict[str, Tensor]] = []
    variation: dict[str, TotalVariation] = {}
    right = total = 0
    with evaluating(network), torch.enable_grad():
        for x, y in source:
            x = cast_input(network, x)
            y = y.to(x.device)
            if not names:
                names = four_places(network, x)
                check_by_sample(network, x, tuple(dict.fromkeys(names)))
            with places.watch(network, tuple(dict.fromkeys(names))) as at:
                scores = forward(network, x)
            found = linearize(scores, y, at=at).distances()
            for name in at:
                variation.setdefault(name, TotalVariation()).add(at.activations[name])
            is_right = predicted_labels(scores.detach()) == y
            right, total = right + int(is_right.sum()), total + len(y)
            distances.append({name: d.detach()[is_right].double().cpu() for name, d in found.items()})
    if not names:
        raise ValueError("train has no samples, expected at least one batch")
    values = {}
    for name in dict.fromkeys(names):
        margins = torch.cat([part[name] for part in distances])
        values[name] = statistics_of(margins[torch.isfinite(margins) & (margins > 0)] / variation[name].root())
    signature = torch.stack([values[name].log() for name in names])
    return MarginSignature(values=signature, places=names, accuracy=right / total, samples=total)


def four_places(model: nn.Module, x: ModelInputs) -> tuple[str, ...]:
    """The input (or the embedding of tokens), and the first, middle and last layer with weights before the output.

    Networks with fewer layers have a place twice. Where a layer of these has no margins, which a few samples tell, all
    layers without margins are left out: those that do not run, run several times, or whose rows are not samples.
    """
    first = places.default_places(model, x)[0]
    layers = [name for name in places.check_places(model, "all") if name not in (places.INPUT, first)]
    chosen = _spread(layers[:-1], first)
    if len(layers) < 2:
        return (first, *chosen)
    runs = {count: output_shapes(model, x[:count], layers) for count in {min(len(x), 2), min(len(x), 3)}}
    has_margins = {
        name
        for name in layers
        if all(len(found[name]) == 1 and _rows(found[name][0]) == count for count, found in runs.items())
    }
    if not has_margins.issuperset({*chosen} - {first}):
        reached = [name for name in layers if any(found[name] for found in runs.values())]
        chosen = _spread([name for name in reached[:-1] if name in has_margins], first)
    return (first, *chosen)


def _spread(layers: list[str], otherwise: str) -> list[str]:
    """The first, middle and last of some layers."""
    layers = layers or [otherwise]
    return [layers[round(part * (len(layers) - 1))] for part in (0.0, 0.5, 1.0)]


def _rows(shape: torch.Size | None) -> int | None:
    return shape[0] if shape else None


def statistics_of(margins: Float64[Tensor, " samples"]) -> Float64[Tensor, " statistics"]:
    """Lower fence, quartiles and upper fence: the fences are at most 1.5 interquartile ranges from the quartiles."""
    if len(margins) < LEAST:
        raise ValueError(f"train has {len(margins)} correctly classified samples with a margin, expected >= {LEAST}")
    quartiles = margins.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    spread = 1.5 * (quartiles[2] - quartiles[0])
    low = torch.maximum(margins.min(), quartiles[0] - spread)
    high = torch.minimum(margins.max(), quartiles[2] + spread)
    return torch.cat([low[None], quartiles, high[None]])


class TotalVariation:
    """Σ_i ‖h_i − h̄‖²/n of activations, batch by batch."""

    def __init__(self) -> None:
        self.count, self.squares = 0, 0.0
        self.total = torch.zeros(())

    def add(self, activations: Tensor) -> None:
        """Count a batch."""
        h = activations.flatten(1).double()
        self.count += len(h)
        self.squares += float(h.square().sum())
        self.total = self.total.to(h.device) + h.sum(dim=0)

    def root(self) -> float:
        """The square root of the total variation."""
        mean = self.total / self.count
        return max(self.squares / self.count - float(mean.square().sum()), 0.0) ** 0.5


def _drawn(train: object, samples: int, batch_size: int, seed: int) -> Batches | Sequence[tuple[Tensor, Tensor]]:
    """Batches of at most so many samples; of a loader or a stream the first ones."""
    source = batches(train, batch_size=batch_size, split="train")
    if source.samples is not None:
        every = source.samples
        order = torch.randperm(len(every), generator=generator("signature", seed))
        return batches(every.select(order[:samples].sort().values), batch_size=batch_size)
    taken: list[tuple[Tensor, Tensor]] = []
    for x, y in source:
        taken.append((x[:samples], y[:samples]))
        samples -= len(y)
        if samples <= 0:
            break
    return taken
