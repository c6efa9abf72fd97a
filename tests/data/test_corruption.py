from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from widemargin.data import Samples, add_noise, flip_labels, holdout

seeds = st.integers(0, 2**31)


def labelled(n: int, classes: int) -> Samples:
    return Samples(torch.zeros(n, 1), torch.arange(n) % classes)


@given(st.integers(1, 200), st.integers(2, 12), st.floats(0, 1), seeds)
def test_exactly_the_fraction_is_flipped_and_to_another_class(n: int, classes: int, fraction: float, seed: int) -> None:
    samples = labelled(n, classes)
    flipped = flip_labels(samples, fraction, seed, classes)
    # A flip to the same class would show as one flip fewer.
    assert int((flipped.y != samples.y).sum()) == round(fraction * n)
    assert int(flipped.y.min()) >= 0
    assert int(flipped.y.max()) < classes
    assert torch.equal(flipped.y, flip_labels(samples, fraction, seed, classes).y)


@given(st.floats(0, 1), st.floats(0, 1), seeds)
def test_a_flipped_label_stays_flipped(a: float, b: float, seed: int) -> None:
    samples = labelled(100, 10)
    few, many = (flip_labels(samples, fraction, seed, 10).y for fraction in sorted((a, b)))
    changed = few != samples.y
    assert torch.equal(few[changed], many[changed])


def test_each_other_class_is_equally_likely() -> None:
    samples = Samples(torch.zeros(30_000, 1), torch.full((30_000,), 2))
    counts = flip_labels(samples, 1, 0, 4).y.bincount(minlength=4)
    assert counts[2] == 0
    # Three classes of 10,000 each, with a standard deviation of 82.
    assert (counts[[0, 1, 3]] - 10_000).abs().max() < 400


def test_the_input_is_left_alone() -> None:
    samples = labelled(20, 5)
    before = samples.y.clone()
    flipped = flip_labels(samples, 1, 0, 5)
    assert torch.equal(samples.y, before)
    assert flipped.x is samples.x


def test_the_flipped_are_not_the_held_out() -> None:
    samples = Samples(torch.arange(1000.0).unsqueeze(1), torch.arange(1000) % 10)
    _, validation = holdout(flip_labels(samples, 0.2, 0, 10), 200, 0)
    share = float((validation.y != validation.x[:, 0].long() % 10).double().mean())
    assert 0.1 < share < 0.3


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_small_integers_do_not_overflow(dtype: torch.dtype) -> None:
    samples = Samples(torch.zeros(300, 1), torch.full((300,), 249).to(dtype))
    flipped = flip_labels(samples, 1, 0, 250)
    assert flipped.y.dtype == dtype
    wide = flip_labels(Samples(samples.x, samples.y.long()), 1, 0, 250)
    assert flipped.y.tolist() == wide.y.tolist()


@pytest.mark.parametrize(
    ("y", "fraction", "classes", "sentence"),
    [
        (torch.tensor([0, 1]), 1.1, 2, r"fraction is 1.1, expected a number in \[0, 1\]"),
        (torch.tensor([0, 1]), float("nan"), 2, "fraction is nan"),
        (torch.tensor([0, 0]), 0.5, 1, "classes is 1, expected at least 2"),
        (torch.tensor([0, 3]), 0.5, 3, r"y has 3 at index 1, but classes is 3 \(0..2\)"),
        (torch.tensor([-1, 0]), 0.5, 3, "y has -1 at index 0"),
        (torch.tensor([-1.0, 1.0]), 0.5, 2, "y has dtype torch.float32, expected class indices"),
    ],
)
def test_flips_that_make_no_sense(y: torch.Tensor, fraction: float, classes: int, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        flip_labels(Samples(torch.zeros(2, 1), y), fraction, 0, classes)


def test_noise_has_the_deviation_asked_for_and_one_shape_for_all() -> None:
    samples = Samples(torch.full((500, 1, 8, 8), 0.5, dtype=torch.float64), torch.zeros(500))
    one, two = (add_noise(samples, sigma, seed=3).x - samples.x for sigma in (1, 2))
    assert torch.allclose(two, 2 * one)
    assert abs(float(one.std()) - 1) < 0.02
    assert abs(float(one.mean())) < 0.02
    assert one.flatten(1).unique(dim=0).shape[0] == 500
    assert torch.equal(add_noise(samples, 0, seed=3).x, samples.x)
    assert not torch.equal(add_noise(samples, 1, seed=4).x, one + samples.x)
    assert add_noise(Samples(torch.zeros(2, 1), torch.zeros(2)), 1.0, 0).x.dtype == torch.float32


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_sigma_is_a_deviation(sigma: float) -> None:
    with pytest.raises(ValueError, match=r"sigma is .*, expected a finite number >= 0"):
        add_noise(labelled(2, 2), sigma, 0)


def test_tokens_take_no_noise() -> None:
    with pytest.raises(TypeError, match=r"x has dtype torch\.int64, expected a floating-point tensor"):
        add_noise(Samples(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2)), 1.0, 0)
