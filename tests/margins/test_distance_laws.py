"""What the distance must not depend on, and how it changes with units and norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from margins.measured import P, distance


class Changed(nn.Module):
    """A network with its scores, or its input, passed through a function."""

    def __init__(self, network: nn.Module, scores: Callable[[Tensor], Tensor], x: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self.scores, self.x = network, scores, x

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.network(self.x(x)))


def same(x: Tensor) -> Tensor:
    return x


LAW = st.tuples(st.integers(0, 1000), st.one_of(st.sampled_from(P), st.floats(1, 12)), st.sampled_from([1, 2, "all"]))


def mlp(seed: int, classes: int = 4) -> tuple[nn.Sequential, Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, classes)).double()
        return network, torch.randn(3, 3, dtype=torch.float64), torch.randint(classes, (3,))


@given(LAW, st.floats(1e-3, 1e3))
@settings(max_examples=40)
def test_the_scale_of_the_scores_does_not_matter(law: tuple[int, float, Any], factor: float) -> None:
    seed, p, classes = law
    network, x, y = mlp(seed)
    scaled = Changed(network, lambda f: f * factor, same)
    expected = distance(network, x, y, ("input", "1"), p=p, classes=classes, aggregate="none")
    result = distance(scaled, x, y, ("input", "network.1"), p=p, classes=classes, aggregate="none")
    torch.testing.assert_close(list(result.values()), list(expected.values()), rtol=1e-9, atol=0)


@given(LAW, st.floats(-100, 100))
@settings(max_examples=30)
def test_a_constant_on_all_scores_does_not_matter(law: tuple[int, float, Any], constant: float) -> None:
    seed, p, classes = law
    network, x, y = mlp(seed)
    shifted = Changed(network, lambda f: f + constant, same)
    for reading in ("logits", "softmax"):
        expected = distance(network, x, y, p=p, classes=classes, read_as=reading)["input"]
        result = distance(shifted, x, y, p=p, classes=classes, read_as=reading)["input"]
        torch.testing.assert_close(result, expected, rtol=1e-7, atol=1e-11)


@given(LAW, st.permutations(range(4)))
@settings(max_examples=40)
def test_the_names_of_the_classes_do_not_matter(law: tuple[int, float, Any], order: list[int]) -> None:
    """Class order[i] is called i: every distance stays, with the labels renamed. So the others may change places."""
    seed, p, classes = law
    network, x, y = mlp(seed)
    renamed = Changed(network, lambda f: f[:, order], same)
    labels = torch.tensor([order.index(int(label)) for label in y])
    expected = distance(network, x, y, p=p, classes=classes, aggregate="none")["input"]
    result = distance(renamed, x, labels, p=p, classes=classes, aggregate="none")["input"]
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-11)


@given(LAW, st.permutations(range(3)))
@settings(max_examples=30)
def test_permuting_the_samples_permutes_the_distances(law: tuple[int, float, Any], order: list[int]) -> None:
    seed, p, classes = law
    network, x, y = mlp(seed)
    expected = distance(network, x, y, p=p, classes=classes)["input"]
    torch.testing.assert_close(distance(network, x[order], y[order], p=p, classes=classes)["input"], expected[order])


@given(LAW, st.floats(1e-3, 1e3))
@settings(max_examples=30)
def test_distance_has_the_unit_of_the_input(law: tuple[int, float, Any], factor: float) -> None:
    seed, p, classes = law
    network, x, y = mlp(seed)
    rescaled = Changed(network, same, lambda x: x / factor)
    expected = distance(network, x, y, p=p, classes=classes)["input"]
    result = distance(rescaled, x * factor, y, p=p, classes=classes)["input"]
    torch.testing.assert_close(result / factor, expected, rtol=1e-7, atol=1e-11)


@given(LAW, st.floats(1, 12))
@settings(max_examples=30)
def test_distance_falls_as_p_grows(law: tuple[int, float, Any], other: float) -> None:
    """‖δ‖_p falls as p grows, for every δ, and so does the distance; it is at most d^(1/p − 1/p') times smaller."""
    seed, p, classes = law
    network, x, y = mlp(seed)
    low, high = min(p, other), max(p, other)
    near = distance(network, x, y, p=high, classes=classes, aggregate="none")["input"].abs()
    far = distance(network, x, y, p=low, classes=classes, aggregate="none")["input"].abs()
    assert (near <= far * (1 + 1e-9)).all()
    assert (far <= near * 3 ** (1 / low - (0 if high == math.inf else 1 / high)) * (1 + 1e-9)).all()
