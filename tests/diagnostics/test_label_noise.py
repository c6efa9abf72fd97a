"""The noise model against a loop, and against data whose noise is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from widemargin.diagnostics import label_noise
from widemargin.diagnostics.label_noise import fitted_temperature, noise_model, transition_matrix, without_noise

CLASSES = 4


def drawn(seed: int, count: int = 4000) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """P(class | x), P(label | class), classes and labels."""
    rng = torch.Generator().manual_seed(seed)
    clean = (4.0 * torch.randn(count, CLASSES, generator=rng, dtype=torch.float64)).softmax(dim=1)
    noise = torch.eye(CLASSES, dtype=torch.float64) * 0.7 + 0.02
    noise[0, 1] += 0.22
    noise[1, 2] += 0.22
    noise[2:, 0] += 0.22
    classes = torch.multinomial(clean, 1, generator=rng).squeeze(1)
    labels = torch.multinomial(noise[classes], 1, generator=rng).squeeze(1)
    return clean, noise, classes, labels


def naive_transition(predicted: Tensor, labels: Tensor) -> list[list[float]]:
    n, k = predicted.shape
    given = [sum(int(y) == c for y in labels) for c in range(k)]
    needed = [
        sum(float(predicted[i, c]) for i in range(n) if labels[i] == c) / given[c] if given[c] else math.inf
        for c in range(k)
    ]
    joint = [[0.0] * k for _ in range(k)]
    for i in range(n):
        able = [c for c in range(k) if float(predicted[i, c]) >= needed[c]]
        if able:
            joint[int(labels[i])][max(able, key=lambda c: float(predicted[i, c]))] += 1
    for y in range(k):
        joint[y][y] = max(joint[y][y], 1.0)
        scale = given[y] / sum(joint[y])
        joint[y] = [value * scale for value in joint[y]]
    rows = []
    for c in range(k):
        total = sum(joint[y][c] for y in range(k))
        row = [joint[y][c] / total if total else float(y == c) for y in range(k)]
        rows.append([(value * n / k + 0.5 / k) / (n / k + 0.5) for value in row])
    return rows


@pytest.mark.parametrize("absent", [False, True])
def test_the_transition_matrix_is_that_of_a_loop(absent: bool) -> None:
    clean, _, _, labels = drawn(0, 300)
    labels = torch.where(labels == 3, 0, labels) if absent else labels  # a class that no label names
    found = transition_matrix(clean, labels)
    expected = torch.tensor(naive_transition(clean, labels), dtype=torch.float64)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(CLASSES, dtype=torch.float64))


def test_the_posterior_is_close_to_that_of_the_known_noise() -> None:
    clean, noise, classes, labels = drawn(1)
    model = noise_model(clean @ noise, labels)
    exact = noise.T[labels] * clean
    exact /= exact.sum(dim=1, keepdim=True)
    assert float((model.transition - noise).abs().max()) < 0.1
    assert model.temperature == pytest.approx(1.0, abs=0.1)
    assert float((model.posterior(labels) - exact).abs().mean()) < 0.05
    wrong = 1 - model.posterior(labels).gather(1, labels[:, None]).squeeze(1)
    assert float(wrong.mean()) == pytest.approx(float((classes != labels).double().mean()), abs=0.05)
    torch.testing.assert_close(model.posterior(labels).sum(dim=1), torch.ones(len(labels), dtype=torch.float64))


def test_noise_is_taken_out_by_maximum_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    clean, noise, _, _ = drawn(2, 50)
    monkeypatch.setattr(label_noise, "ITERATIONS", 3000)
    torch.testing.assert_close(without_noise(clean @ noise, noise), clean, atol=2e-3, rtol=0.0)


def test_the_temperature_undoes_a_scale() -> None:
    clean, _, classes, _ = drawn(3)
    assert fitted_temperature(clean.log(), classes) == pytest.approx(1.0, abs=0.05)
    assert fitted_temperature(5 * clean.log(), classes) == pytest.approx(5.0, rel=0.05)
