"""Cross-validated predictions: held-out samples are held out, averages are those of a loop."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from widemargin.data import Samples
from widemargin.diagnostics.cross_validation import (
    PredictionRecorder,
    cross_validate,
    probabilities,
    stratified,
    weighted_average,
)
from widemargin.losses import CrossEntropy
from widemargin.training import SGD


def memory(count: int) -> tuple[Samples, Tensor]:
    """Samples that only a network that has seen them knows: one-hot inputs."""
    y = torch.arange(count) % 2
    return Samples(torch.eye(count), y), y


def predictions(folds: int, epochs: int = 6, count: int = 12):  # type: ignore[no-untyped-def]
    samples, y = memory(count)

    def zeros() -> nn.Module:
        network = nn.Linear(count, 2, bias=False)
        nn.init.zeros_(network.weight)
        return network

    return cross_validate(
        zeros,
        samples,
        y,
        folds=folds,
        loss=CrossEntropy(),
        epochs=epochs,
        optimizer=SGD(lr=1.0),
        batch_size=count,
        seed=0,
        device="cpu",
        progress=False,
    )


def test_a_sample_is_predicted_by_a_network_that_has_not_seen_it() -> None:
    """A linear network of one-hot inputs knows nothing about samples that it was not trained on."""
    found = predictions(3)
    torch.testing.assert_close(found.predicted, torch.full((12, 2), 0.5, dtype=torch.float64))


def recorded(held_out: list[list[list[float]]], summed: list[list[list[float]]]) -> PredictionRecorder:
    found = PredictionRecorder(torch.zeros(2, 1))
    found.held_out, found.summed = [torch.tensor(p) for p in held_out], [torch.tensor(p) for p in summed]
    return found


def test_the_average_begins_when_something_is_learned_and_has_early_predictions_of_all() -> None:
    """Two samples of label 0: the first epoch is right about one of them, the others about both."""
    p = [[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4]] * 2, [[0.7, 0.3]] * 2, [[0.8, 0.2]] * 2, [[0.55, 0.45]] * 2]
    everyone = [[[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2, [[1.2, 0.8]] * 2, [[9.0, 9.0]] * 2, [[9.0, 9.0]] * 2]
    found = weighted_average(recorded(p, everyone), torch.tensor([0, 0]), 2)
    weights = [(0.6 / 0.8) ** 10, (0.7 / 0.8) ** 10, 1.0, (0.55 / 0.8) ** 10]  # exp(−10·(−log p))
    held = sum(w * q for w, q in zip(weights, (0.6, 0.7, 0.8, 0.55), strict=True)) / sum(weights)
    early = (weights[0] * 1.0 + weights[1] * 1.2) / (weights[0] + weights[1]) / 2  # two of four epochs, two networks
    assert found[0, 0].item() == pytest.approx((2 * held + early) / 3, rel=1e-6)


def test_all_networks_predict_all_samples() -> None:
    """SGD on 8 of the 12 one-hot samples: the weights of sample i move by p_other/8 towards its label in each step."""
    found = predictions(3)
    gap, seen = 0.0, []
    for _ in range(2):  # a third of the epochs
        gap += 2 / (1 + math.exp(gap)) / 8
        seen.append(1 / (1 + math.exp(-gap)))
    early = (2 * sum(seen) / 2 + 0.5) / 3  # two of the three networks have seen it
    label = found.averaged.gather(1, (torch.arange(12) % 2)[:, None]).squeeze(1)
    torch.testing.assert_close(label, torch.full((12,), (1 + early) / 3, dtype=torch.float64), atol=1e-6, rtol=0.0)


def test_one_fold_is_one_training_on_all_samples_for_a_third_of_the_epochs() -> None:
    found = predictions(1)
    label = found.averaged.gather(1, (torch.arange(12) % 2)[:, None]).squeeze(1)
    assert bool((label > 0.5).all())
    torch.testing.assert_close(found.predicted, predictions(1, epochs=4).predicted)  # both have two epochs
    torch.testing.assert_close(found.averaged, found.predicted)  # and the second half of them is the second one


def test_folds_share_out_every_label() -> None:
    labels = torch.tensor([0] * 8 + [1] * 5 + [2] * 4)
    fold_of = stratified(labels, 4, 0)
    for label in range(3):
        counts = torch.bincount(fold_of[labels == label], minlength=4)
        assert int(counts.max() - counts.min()) <= 1
    assert not torch.equal(fold_of, stratified(labels, 4, 1))


def test_probabilities_of_a_binary_network() -> None:
    scores = torch.tensor([[-1.0], [2.0]])
    found = probabilities(scores)
    torch.testing.assert_close(found[:, 1], torch.sigmoid(scores.double()).squeeze(1))
