"""How networks and samples lie in a gradient: the factors of a layout, and that a trial finds the right one alone."""

from __future__ import annotations

import pytest
import torch

from widemargin.population.split_check import StackedLayout, _layouts, _weights
from widemargin.split_backward.sample_layouts import agreeing

N, K = 3, 4
"""Networks and samples of each."""


@pytest.mark.parametrize(
    ("pattern", "shape", "layout"),
    [
        ("nk", (N, K), StackedLayout(0, 1, 1, is_adjacent=True)),
        ("nok", (N, 5, K), StackedLayout(0, 2, 1, is_adjacent=True)),  # linear layers
        ("n(kp)o", (N, K * 6, 5), StackedLayout(0, 1, 6, is_adjacent=True)),  # products of patches
        ("n(pk)o", (N, 6 * K, 5), StackedLayout(0, 1, 6, is_adjacent=False)),
        ("k(no)p", (K, N * 5, 6), StackedLayout(1, 0, 1, is_adjacent=True)),  # grouped convolutions
        ("(nk)o", (N * K, 5), StackedLayout(0, 0, 1, is_adjacent=True)),
        ("(nkp)o", (N * K * 6, 5), StackedLayout(0, 0, 6, is_adjacent=True)),
        ("(npk)o", (N * 6 * K, 5), StackedLayout(0, 0, 6, is_adjacent=False)),
    ],
)
def test_a_layout_is_found(pattern: str, shape: tuple[int, ...], layout: StackedLayout) -> None:
    """Each letter is a dimension before it is folded: networks, samples k, outputs, pixels."""
    sizes = {"n": N, "k": K, "o": 5, "p": 6}
    letters = [letter for letter in pattern if letter in sizes]
    weights = _weights(N, K)
    parts = torch.randn([sizes[letter] for letter in letters], dtype=torch.float64)
    spread = torch.einsum("nk->" + "".join(sorted("nk", key=letters.index)), weights)
    spread = spread.reshape([sizes[letter] if letter in "nk" else 1 for letter in letters])
    plain, weighted = parts.reshape(shape), (parts * spread).reshape(shape)
    assert agreeing(plain, weighted, weights, _layouts(shape, N, K)) == (layout,)
    assert torch.equal(plain * layout.factors(weights, plain), weighted)


def test_mixed_samples_and_nothing_at_all_have_no_layout() -> None:
    weights, plain = _weights(N, K), torch.randn(N, 5, K, dtype=torch.float64)
    mixed = (plain * weights[:, None]).roll(1, 2)
    assert agreeing(plain, mixed, weights, _layouts(plain.shape, N, K)) == ()
    assert agreeing(0 * plain, 0 * plain, weights, _layouts(plain.shape, N, K)) == ()


def test_weights_are_powers_of_two_of_both_signs() -> None:
    weights = _weights(5, 8)
    assert set(weights.abs().flatten().tolist()) == {0.25, 0.5, 1.0, 2.0, 4.0}
    assert bool((weights > 0).any())
    assert bool((weights < 0).any())
