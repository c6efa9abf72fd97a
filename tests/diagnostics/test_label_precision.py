"""Expected precision: margins against a loop, and mixtures whose share of wrong labels is known."""

from __future__ import annotations

import math

import pytest
import torch

from diagnostics.test_label_noise import drawn
from widemargin.diagnostics.label_noise import noise_model
from widemargin.diagnostics.label_precision import by_mixture, margins, wrong_probabilities


def test_margins_are_mean_log_odds() -> None:
    clean, noise, _, labels = drawn(0, 40)
    model = noise_model(clean @ noise, labels)
    posterior = model.posterior(labels)
    weight = sum(max(row) for row in model.calibrated.tolist()) / len(labels)
    for i, y in enumerate(labels.tolist()):
        odds = [float(p[i, y] / (p[i].sum() - p[i, y])) for p in (model.calibrated, posterior)]
        mean = (math.log(odds[0]) + weight * math.log(odds[1])) / (1 + weight)
        assert float(margins(model, labels)[i]) == pytest.approx(mean, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_a_mixture_of_known_parts(share: float) -> None:
    rng = torch.Generator().manual_seed(0)
    n = 4000
    wrong = torch.rand(n, generator=rng) < share
    margin = torch.randn(n, generator=rng, dtype=torch.float64) + torch.where(wrong, -3.0, 3.0)
    of_wrong = torch.randn(3 * n, generator=rng, dtype=torch.float64) - 3.0
    found = by_mixture(margin, of_wrong)
    assert 0.8 * share <= float(found.mean()) <= 1.05 * share  # a lower estimate
    for limit in (-3.0, 0.0, 1.0):
        below = margin < limit
        assert -0.2 <= float(found[below].mean()) - float(wrong[below].double().mean()) <= 0.05
    order = margin.argsort()
    assert bool((found[order].diff() <= 1e-12).all())


def test_labels_without_any_wrong_one_have_few_suspects() -> None:
    rng = torch.Generator().manual_seed(1)
    margin = torch.randn(2000, generator=rng, dtype=torch.float64) + 3.0
    of_wrong = torch.randn(2000, generator=rng, dtype=torch.float64) - 3.0
    assert float(by_mixture(margin, of_wrong).mean()) < 0.03


def test_the_lower_estimate_is_lower_and_more_classes_are_drawn() -> None:
    rng = torch.Generator().manual_seed(2)
    predicted = (2.0 * torch.randn(500, 15, generator=rng, dtype=torch.float64)).softmax(dim=1)
    labels = torch.multinomial(predicted, 1, generator=rng).squeeze(1)
    low, high = wrong_probabilities(noise_model(predicted, labels), labels)
    assert bool((low <= high).all())
    assert bool(((low >= 0) & (high <= 1)).all())
