"""Cross-validated predictions: held-out samples are held out, averages are those of a loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from widemargin.data import Samples
from widemargin.diagnostics.cross_validation import PredictionRecorder, cross_validate, probabilities, stratified
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


def test_the_average_has_the_early_predictions_of_all_networks() -> None:
    """SGD on 8 of the 12 one-hot samples: the weights of sample i move by p_other/8 towards its label in each step."""
    found = predictions(3)
    gap, seen = 0.0, []
    for _ in range(2):  # a third of the epochs
        other = float(torch.sigmoid(torch.tensor(-gap, dtype=torch.float64)))
        gap += 2 * other / 8
        seen.append(float(torch.sigmoid(torch.tensor(gap, dtype=torch.float64))))
    early = (2 * sum(seen) / 2 + 0.5) / 3  # two of the three networks have seen it
    expected = (2 * 0.5 + early) / 3
    label = found.averaged.gather(1, (torch.arange(12) % 2)[:, None]).squeeze(1)
    torch.testing.assert_close(label, torch.full((12,), expected, dtype=torch.float64), atol=1e-6, rtol=0.0)


def test_one_fold_is_one_training_on_all_samples_for_a_third_of_the_epochs() -> None:
    found = predictions(1)
    label = found.averaged.gather(1, (torch.arange(12) % 2)[:, None]).squeeze(1)
    assert bool((label > 0.5).all())
    torch.testing.assert_close(found.predicted, predictions(1, epochs=4).predicted)  # both have two epochs


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


def test_the_recorder_counts_epochs() -> None:
    recorder = PredictionRecorder(torch.eye(3), torch.tensor([1]), 2)
    assert recorder.epochs == 0
