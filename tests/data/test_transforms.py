from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from widemargin.data import Pca, Samples, add_noise, flip_labels, holdout, to_sphere, to_unit_range, transforms

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
        (torch.tensor([0, 1]), 1.1, 2, "fraction is 1.1"),
        (torch.tensor([0, 1]), float("nan"), 2, "fraction is nan"),
        (torch.tensor([0, 0]), 0.5, 1, "classes is 1"),
        (torch.tensor([0, 3]), 0.5, 3, "y has 3 at index 1"),
        (torch.tensor([-1, 0]), 0.5, 3, "y has -1 at index 0"),
        (torch.tensor([-1.0, 1.0]), 0.5, 2, "y has dtype torch.float32"),
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
    with pytest.raises(ValueError, match=f"sigma is {sigma}"):
        add_noise(labelled(2, 2), sigma, 0)


def test_tokens_take_no_noise() -> None:
    with pytest.raises(TypeError, match=r"x has dtype torch\.int64"):
        add_noise(Samples(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2)), 1.0, 0)


@given(
    st.lists(st.integers(1, 5), min_size=0, max_size=3),
    st.floats(1e-20, 1e20),
    st.integers(0, 2**31),
)
def test_every_sample_lands_on_the_sphere_of_radius_root_d(inner: list[int], scale: float, seed: int) -> None:
    x = scale * (0.1 + torch.rand(4, *inner, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    projected = to_sphere(x)
    assert projected.shape == x.shape
    radius = projected.reshape(4, -1).norm(dim=1)
    assert torch.allclose(radius, torch.full_like(radius, math.sqrt(math.prod(inner))), rtol=1e-11)
    # The direction is kept, so the projection of 3x is that of x.
    assert torch.allclose(to_sphere(3 * x), projected, rtol=1e-11)


def test_single_precision_and_samples() -> None:
    samples = Samples(1e-30 * torch.rand(3, 1, 28, 28), torch.arange(3), torch.arange(3))
    projected = to_sphere(samples)
    assert projected.x.dtype == torch.float32
    assert torch.allclose(projected.x.flatten(1).norm(dim=1), torch.full((3,), 28.0))
    assert projected.y is samples.y
    assert projected.index is samples.index


@pytest.mark.parametrize(("value", "norm"), [(0.0, "0"), (float("nan"), "nan"), (float("inf"), "inf")])
def test_a_sample_without_direction_is_named(value: float, norm: str) -> None:
    x = torch.ones(3, 2)
    x[1] = value
    with pytest.raises(ValueError, match=f"x has norm {norm} at index 1"):
        to_sphere(x)


def test_tokens_have_no_direction() -> None:
    with pytest.raises(TypeError, match=r"data has dtype torch\.int64"):
        to_sphere(torch.ones(2, 2, dtype=torch.int64))


def test_unit_range_of_bytes_is_exact_at_both_ends() -> None:
    x = torch.tensor([[0, 255], [51, 128]], dtype=torch.uint8)
    scaled = to_unit_range(x, bounds=(0, 255))
    assert scaled.dtype == torch.float32
    assert scaled.tolist() == [[0.0, 1.0], [pytest.approx(0.2), pytest.approx(128 / 255)]]


def test_unit_range_of_the_data_itself_and_of_others() -> None:
    train = Samples(torch.tensor([[-2.0], [6.0]], dtype=torch.float64), torch.arange(2))
    assert to_unit_range(train).x[:, 0].tolist() == [0.0, 1.0]
    test = to_unit_range(torch.tensor([[8.0]], dtype=torch.float64), bounds=(-2, 6))
    assert test.item() == 1.25  # not clipped


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, float("inf")), None])
def test_a_range_has_two_ends(bounds: tuple[float, float] | None) -> None:
    with pytest.raises(ValueError, match=r"^bounds"):
        to_unit_range(torch.ones(3, 2), bounds)


def drawn(n: int, *shape: int, seed: int = 0) -> Samples:
    draw = torch.Generator().manual_seed(seed)
    d = int(np.prod(shape))
    mix = torch.randn(d, d, generator=draw, dtype=torch.float64)
    x = torch.randn(n, d, generator=draw, dtype=torch.float64) @ mix + 3
    return Samples(x.reshape(n, *shape), torch.arange(n) % 2)


def test_against_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforms, "_ROWS", 7)  # so that the parts matter
    train, test = drawn(50, 1, 3, 4), drawn(20, 1, 3, 4, seed=1)
    fitted = Pca.fit(train, 5)
    oracle = PCA(5, svd_solver="full").fit(train.x.flatten(1).numpy())
    signs = np.sign((oracle.components_ * fitted.components.numpy()).sum(1))
    expected = oracle.transform(test.x.flatten(1).numpy()) * signs
    np.testing.assert_allclose(fitted(test).x.numpy(), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(fitted.variance.numpy(), oracle.explained_variance_, rtol=1e-9)
    assert fitted(test).y is test.y
    assert repr(fitted) == "Pca(12 -> 5)"


def test_full_rank_keeps_distances_and_signs_are_fixed() -> None:
    train = drawn(30, 6)
    fitted = Pca.fit(train, 6)
    z = fitted(train).x
    assert torch.allclose(torch.pdist(z), torch.pdist(train.x), rtol=1e-10)
    assert bool((fitted.components.gather(1, fitted.components.abs().argmax(1, keepdim=True)) > 0).all())
    assert torch.allclose(z.mean(0), torch.zeros(6, dtype=torch.float64), atol=1e-11)


def test_single_precision_in_and_out_but_not_inside() -> None:
    train = drawn(40, 8)
    single = Samples(train.x.float() + 1000, train.y)  # a large mean: single precision would lose the variance
    fitted = Pca.fit(single, 3)
    z = fitted(single).x
    assert z.dtype == torch.float32
    assert torch.allclose(z.double().var(0), fitted.variance, rtol=1e-5)
    assert torch.allclose(fitted.variance, Pca.fit(train, 3).variance, rtol=1e-3)


@pytest.mark.parametrize("dims", [0, 5, 8])
def test_no_more_directions_than_the_data_have(dims: int) -> None:
    with pytest.raises(ValueError, match=rf"dims is {dims}, "):
        Pca.fit(drawn(5, 6), dims)


def test_other_data_do_not_fit() -> None:
    fitted = Pca.fit(drawn(20, 6), 2)
    with pytest.raises(ValueError, match=r"x has 4 .*6"):
        fitted(drawn(5, 4))
    with pytest.raises(TypeError, match=r"x has dtype torch\.int64"):
        fitted(Samples(torch.zeros(2, 6, dtype=torch.int64), torch.zeros(2)))
