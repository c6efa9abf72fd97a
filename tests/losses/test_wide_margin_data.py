"""The weight of `WideMargin` and its share of a batch, by the number of training samples and their augmentation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from losses.wide_networks import CASES
from widemargin.losses import WideMargin
from widemargin.losses.wide_margin import FULL_WEIGHT_SAMPLES, MIN_AUGMENTED_SAMPLES


@pytest.mark.parametrize("name", ["mlp", "batch norm"])
def test_the_weight_falls_with_the_number_of_samples(name: str) -> None:
    """N/FULL_WEIGHT_SAMPLES times as many samples, (FULL_WEIGHT_SAMPLES/N)² of the weight."""
    network, (x, y) = CASES[name].network(), CASES[name].batch()
    for samples, strength in (
        (1, 8.0),
        (FULL_WEIGHT_SAMPLES, 8.0),
        (2 * FULL_WEIGHT_SAMPLES, 2.0),
        (16 * FULL_WEIGHT_SAMPLES, 8.0 / 256),
    ):
        found = WideMargin(strength=8.0, samples=samples, share=1.0)(network, x, y)
        torch.testing.assert_close(found, WideMargin(strength=strength)(network, x, y), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("batch", "share"), [(1, 1.0), (16, 1.0), (17, 16 / 17), (64, 1 / 4), (128, 1 / 8)])
def test_a_part_of_the_batch_is_enough_with_many_samples(batch: int, share: float) -> None:
    many = WideMargin(samples=FULL_WEIGHT_SAMPLES + 1)
    assert many.share_of(batch) == share
    assert WideMargin(samples=FULL_WEIGHT_SAMPLES).share_of(batch) == WideMargin().share_of(batch) == 1.0
    assert WideMargin(samples=FULL_WEIGHT_SAMPLES + 1, share=0.5).share_of(batch) == 0.5
    network, (x, y) = CASES["mlp"].network(), CASES["mlp"].batch(batch)
    found, expected = many(network, x, y), WideMargin(samples=FULL_WEIGHT_SAMPLES + 1, share=share)(network, x, y)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("settings", "counted"),
    [
        ({}, MIN_AUGMENTED_SAMPLES),
        ({"samples": 9}, MIN_AUGMENTED_SAMPLES),
        ({"samples": MIN_AUGMENTED_SAMPLES}, MIN_AUGMENTED_SAMPLES),
        ({"samples": 2 * MIN_AUGMENTED_SAMPLES}, 2 * MIN_AUGMENTED_SAMPLES),
    ],
)
def test_augmented_samples_count_as_many(settings: dict[str, Any], counted: int) -> None:
    network, (x, y) = CASES["mlp"].network(), CASES["mlp"].batch(24)
    found = WideMargin(strength=1e4, augmented=True, **settings)(network, x, y)
    expected = WideMargin(strength=1e4, samples=counted)(network, x, y)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    full = WideMargin(strength=1e4, augmented=False)(network, x, y)
    assert not torch.equal(found, full)
    assert torch.equal(full, WideMargin(strength=1e4)(network, x, y))


def test_what_is_known_of_the_data_is_set_once() -> None:
    assert WideMargin().for_samples(7) == WideMargin(samples=7)
    assert WideMargin(samples=3).for_samples(7) == WideMargin(samples=3)
    assert WideMargin().for_augmented() == WideMargin(augmented=True)
    assert WideMargin(augmented=False).for_augmented() == WideMargin(augmented=False)
