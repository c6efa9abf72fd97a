"""Cross-validated networks, and their predictions for every sample during training."""

from __future__ import annotations

from collections.abc import Callable
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
"""The first epochs / EARLY are those in which predictions of training samples count."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Probabilities of every sample: `averaged` over training, and `predicted` out of sample at its end."""

    averaged: Float64[Tensor, "samples classes"]
    predicted: Float64[Tensor, "samples classes"]
    network: str


class PredictionRecorder(Callback):
    """Adds up the probabilities of held-out samples over all epochs, and of all samples over the first `early`."""

    def __init__(self, x: Tensor, held: Int64[Tensor, " held"], early: int) -> None:
        self.x, self.held, self.early = x, held.to(x.device), early
        self.last = torch.zeros(0)
        self.held_sum = self.early_sum = torch.zeros(())
        self.epochs = 0

    def on_epoch_end(self, state: FitState) -> None:
        """Predict with the network as it is."""
        self.epochs += 1
        if self.epochs <= self.early:
            every = probabilities(predict(state.model, self.x, batch_size=1024))
            self.early_sum = self.early_sum + every
            self.last = every[self.held.cpu()]
        else:
            self.last = probabilities(predict(state.model, self.x[self.held], batch_size=1024))
        self.held_sum = self.held_sum + self.last


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
    """Train a network outside of every fold; with one fold, one on all samples for the early epochs.

    `labels` are those of `samples` as class indices, by which the folds are stratified.
    """
    early = -(-epochs // EARLY)
    devices = Devices() if device is None else Devices.of(device)
    samples = samples if device is None else samples.to(device)
    fold_of = stratified(labels, folds, seed)
    parts: list[tuple[Tensor, PredictionRecorder]] = []
    for fold in range(folds):
        held = (fold_of == fold).nonzero()[:, 0]
        train = held if folds == 1 else (fold_of != fold).nonzero()[:, 0]
        recorder = PredictionRecorder(samples.x, held, early)
        (network,) = build_seeded(build, [_seed(seed, fold)])
        check_module(network, "build()")
        fit(
            network,
            samples.select(train),
            loss=loss,
            epochs=early if folds == 1 else epochs,
            optimizer=optimizer,
            batch_size=batch_size,
            seed=_seed(seed, fold),
            callbacks=[Measure(every=None), ProgressBar(show=progress), recorder],
            devices=devices,
        )
        parts.append((held, recorder))
    name = type(network).__name__
    counted = sum(p.numel() for p in network.parameters())
    averaged, predicted = _combined(parts, len(labels), folds)
    return Predictions(averaged=averaged, predicted=predicted, network=f"{name} with {counted:,} parameters")


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


def _combined(parts: list[tuple[Tensor, PredictionRecorder]], samples: int, folds: int) -> tuple[Tensor, Tensor]:
    """Averages over epochs and networks, and the last predictions, in the order of the samples."""
    early = torch.stack([one.early_sum / min(one.early, one.epochs) for _, one in parts]).mean(dim=0)
    held_out, predicted = torch.empty_like(early), torch.empty_like(early)
    for held, one in parts:
        held_out[held] = one.held_sum / one.epochs
        predicted[held] = one.last
    assert len(early) == samples
    return (early if folds == 1 else (early + 2 * held_out) / 3), predicted


def _seed(seed: int, fold: int) -> int:
    """Another seed for every fold."""
    return int(torch.randint(2**31, (), generator=generator(f"fold {fold}", seed)))
