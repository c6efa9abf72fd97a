"""Cross-validated networks, and their predictions for every sample during training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from widemargin.checks import check_module
from widemargin.data.samples import Samples
from widemargin.data.seeds import generator
from widemargin.losses.protocol import Loss
from widemargin.modules import predict
from widemargin.population.fit import build as build_seeded
from widemargin.training.callbacks import Callback, FitState, Measure, ProgressBar
from widemargin.training.config import Devices
from widemargin.training.fit import fit
from widemargin.training.optimizers import MakesOptimizer
from widemargin.types import is_binary

EARLY = 3
"""A third of the epochs is early: then predictions of training samples count too."""

LEARNED = 0.95
"""Epochs count as soon as the held-out accuracy on the given labels reaches this part of its best value."""

SHARPNESS = 10.0
"""Weights of epochs: exp(−SHARPNESS · held-out cross-entropy)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Probabilities of every sample: `averaged` over training, and `predicted` out of sample at its end."""

    averaged: Float64[Tensor, "samples classes"]
    predicted: Float64[Tensor, "samples classes"]
    network: str


class PredictionRecorder(Callback):
    """Probabilities after every epoch: `held_out`, by the network of the sample's fold, and `summed` over networks.

    `begin` says which samples the next network predicts for `held_out`.
    """

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.held = torch.arange(0)
        self.held_out: list[Tensor] = []  # [samples, classes] in float32, one per epoch
        self.summed: list[Tensor] = []
        self.epoch = 0

    def begin(self, held: Int64[Tensor, " held"]) -> None:
        """Begin with the next network."""
        self.held, self.epoch = held, 0

    def on_epoch_end(self, state: FitState) -> None:
        """Predict with the network as it is."""
        every = probabilities(predict(state.model, self.x, batch_size=1024)).float()
        if self.epoch == len(self.summed):
            self.summed.append(torch.zeros_like(every))
            self.held_out.append(torch.zeros_like(every))
        self.summed[self.epoch] += every
        self.held_out[self.epoch][self.held] = every[self.held]
        self.epoch += 1


def cross_validate(
    build: Callable[[], nn.Module],
    samples: Samples,
    labels: Int64[Tensor, " samples"],
    *,
    folds: int,
    loss: Loss,
    epochs: int,
    optimizer: MakesOptimizer,
    batch_size: int,
    seed: int,
    device: str | torch.device | None,
    progress: bool | None,
) -> Predictions:
    """Train a network outside of every fold; with one fold, one on all samples for a third of the epochs.

    `labels` are those of `samples` as class indices, by which the folds are stratified.
    """
    devices = Devices() if device is None else Devices.of(device)
    samples = samples if device is None else samples.to(device)
    fold_of = stratified(labels, folds, seed)
    recorder = PredictionRecorder(samples.x)
    for fold in range(folds):
        held = (fold_of == fold).nonzero()[:, 0]
        (network,) = build_seeded(build, [_seed(seed, fold)])
        check_module(network, "build()")
        recorder.begin(held)
        fit(
            network,
            samples.select(held if folds == 1 else (fold_of != fold).nonzero()[:, 0]),
            loss=loss,
            epochs=-(-epochs // EARLY) if folds == 1 else epochs,
            optimizer=optimizer,
            batch_size=batch_size,
            seed=_seed(seed, fold),
            callbacks=[Measure(every=None), ProgressBar(show=progress), recorder],
            devices=devices,
        )
    averaged = early_average(recorder) if folds == 1 else weighted_average(recorder, labels, folds)
    counted = sum(p.numel() for p in network.parameters())
    return Predictions(
        averaged=averaged,
        predicted=recorder.held_out[-1].double(),
        network=f"{type(network).__name__} with {counted:,} parameters",
    )


def weighted_average(
    found: PredictionRecorder, labels: Int64[Tensor, " samples"], folds: int
) -> Float64[Tensor, "samples classes"]:
    """2/3 of the average of the held-out predictions, and 1/3 of the early predictions of all networks."""
    label = labels[:, None]
    accuracies = [float((p.argmax(dim=1) == labels).double().mean()) for p in found.held_out]
    losses = [-float(p.double().gather(1, label).clamp_min(1e-9).log().mean()) for p in found.held_out]
    count = len(losses)
    first = next(e for e in range(count) if accuracies[e] >= LEARNED * max(accuracies))
    early = range(first, first + -(-(count - first) // EARLY))
    least = min(losses[first:])
    weights = {e: math.exp(-SHARPNESS * (losses[e] - least)) for e in range(first, count)}
    return (2 * _mean(found.held_out, weights) + _mean(found.summed, {e: weights[e] for e in early}) / folds) / 3


def early_average(found: PredictionRecorder) -> Float64[Tensor, "samples classes"]:
    """The average of one network over the second half of its epochs, which are few."""
    count = len(found.summed)
    return _mean(found.summed, dict.fromkeys(range(count // 2, count), 1.0))


def _mean(parts: Sequence[Tensor], weights: Mapping[int, float]) -> Float64[Tensor, "samples classes"]:
    total = sum(weights.values())
    mean = torch.zeros(parts[0].shape, dtype=torch.float64)
    for epoch, weight in weights.items():
        mean += weight / total * parts[epoch]
    return mean


def stratified(labels: Int64[Tensor, " samples"], folds: int, seed: int) -> Int64[Tensor, " samples"]:
    """The fold of every sample: a random one, with every label shared out evenly."""
    order = torch.randperm(len(labels), generator=generator("folds", seed))
    order = order[labels[order].argsort(stable=True)]
    fold_of = torch.empty_like(labels)
    fold_of[order] = torch.arange(len(labels)) % folds
    return fold_of


def probabilities(scores: Tensor) -> Float64[Tensor, "samples classes"]:
    """Softmax of the scores; those of a binary network are (P(−1), P(1))."""
    scores = scores.detach().cpu().double()
    if is_binary(scores):
        positive = scores.reshape(-1)
        scores = torch.stack([torch.zeros_like(positive), positive], dim=1)
    return scores.softmax(dim=1)


def _seed(seed: int, fold: int) -> int:
    """Another seed for every fold."""
    return int(torch.randint(2**31, (), generator=generator(f"fold {fold}", seed)))
