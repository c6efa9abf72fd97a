from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from widemargin.data import Pca, Samples, pca


def drawn(n: int, *shape: int, seed: int = 0) -> Samples:
    draw = torch.Generator().manual_seed(seed)
    d = int(np.prod(shape))
    mix = torch.randn(d, d, generator=draw, dtype=torch.float64)
    x = torch.randn(n, d, generator=draw, dtype=torch.float64) @ mix + 3
    return Samples(x.reshape(n, *shape), torch.arange(n) % 2)


def test_against_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pca, "_ROWS", 7)  # so that the parts matter
    train, test = drawn(50, 1, 3, 4), drawn(20, 1, 3, 4, seed=1)
    fitted = Pca.fit(train, 5)
    oracle = PCA(5, svd_solver="full").fit(train.x.flatten(1).numpy())
    signs = np.sign((oracle.components_ * fitted.components.numpy()).sum(1))
    expected = oracle.transform(test.x.flatten(1).numpy()) * signs
    np.testing.assert_allclose(fitted(test).x.numpy(), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(fitted.variance.numpy(), oracle.explained_variance_, rtol=1e-10)
    assert fitted(test).y is test.y
    assert repr(fitted) == "Pca(12 -> 5)"


def test_full_rank_keeps_distances_and_signs_are_fixed() -> None:
    train = drawn(30, 6)
    fitted = Pca.fit(train, 6)
    z = fitted(train).x
    assert torch.allclose(torch.pdist(z), torch.pdist(train.x), rtol=1e-12)
    assert bool((fitted.components.gather(1, fitted.components.abs().argmax(1, keepdim=True)) > 0).all())
    assert torch.allclose(z.mean(0), torch.zeros(6, dtype=torch.float64), atol=1e-12)


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
    with pytest.raises(ValueError, match=f"dims is {dims}, expected 1..4: 5 samples of 6 numbers"):
        Pca.fit(drawn(5, 6), dims)


def test_other_data_do_not_fit() -> None:
    fitted = Pca.fit(drawn(20, 6), 2)
    with pytest.raises(ValueError, match="x has 4 numbers a sample, but the components were fitted on 6"):
        fitted(drawn(5, 4))
    with pytest.raises(TypeError, match=r"x has dtype torch\.int64"):
        fitted(Samples(torch.zeros(2, 6, dtype=torch.int64), torch.zeros(2)))
