"""Theorems 1 and 4: the formula, covering numbers and their growth."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bounds.cases import mlp, samples
from widemargin import bounds
from widemargin.bounds import Certificate, GaussianMixture, GreedyCovering, MarginEstimate, SparseDictionary

X = samples(50, 3) / 10


def certified(*values: float) -> Certificate:
    return Certificate(what="given", values=torch.tensor(values, dtype=torch.float64))


def test_the_value_is_the_theorem() -> None:
    margins = certified(*[0.4] * 49, 0.2)
    found = bounds.robustness(margins, X, classes=2, covering=GaussianMixture(components=3, rank=2), delta=0.1)
    scale = float(X.norm(dim=1).max())  # data into the unit ball, and the radius γ/2 with it
    balls = 2 * 3 * (1 + 2 / (0.1 / scale)) ** 2
    assert found.value == pytest.approx(math.sqrt((2 * balls * math.log(2) + 2 * math.log(1 / 0.1)) / 50))
    assert found.margin == pytest.approx(0.2)
    assert found.certified
    sparse = bounds.robustness(margins, X, classes=5, covering=SparseDictionary(atoms=3, sparsity=2), delta=0.1)
    assert sparse.terms["ln K"] == pytest.approx(math.log(5 * 3**2 * (1 + 2 / (0.1 / scale)) ** 2))


def test_two_groups_far_apart_take_two_balls() -> None:
    x = torch.cat([X, X + 100])
    assert GreedyCovering().log_number(2.0, x) == pytest.approx(math.log(2))
    assert GreedyCovering().log_number(1e3, x) == 0.0
    assert GreedyCovering().log_number(1e-9, x) == pytest.approx(math.log(100))
    found = bounds.robustness(certified(*[4.0] * 100), x, classes=2, covering=GreedyCovering())
    assert found.value == pytest.approx(math.sqrt((2 * 4 * math.log(2) + 2 * math.log(20)) / 100))
    assert not found.vacuous
    assert "ESTIMATE" in found.source  # of the samples, not of the space


def test_greedy_balls_cover_and_their_centres_lie_apart() -> None:
    x = samples(60, 2, seed=4)
    for radius in (0.2, 0.5, 1.0):
        centres: list[Tensor] = []
        for sample in x:  # sample by sample: a new ball where no ball holds it
            if all(float((sample - centre).norm()) > radius for centre in centres):
                centres.append(sample)
        assert GreedyCovering().log_number(radius, x) == pytest.approx(math.log(len(centres)))


def test_a_larger_margin_needs_fewer_balls() -> None:
    for covering in (GreedyCovering(), GaussianMixture(components=2, rank=3), SparseDictionary(atoms=9, sparsity=2)):
        numbers = [covering.log_number(radius, X) for radius in (0.01, 0.1, 1.0)]
        assert numbers == sorted(numbers, reverse=True)


def test_without_a_margin_there_is_no_bound() -> None:
    for values in ([0.0, 1.0], [math.nan, 1.0]):
        found = bounds.robustness(certified(*values), X[:2], classes=2, covering=GreedyCovering())
        assert (found.value, found.margin, found.vacuous) == (math.inf, 0.0, True)
        assert found.broken[0].found.startswith("1 of 2 have one")


def test_a_number_that_no_float_holds_is_vacuous() -> None:
    found = bounds.robustness(certified(*[1e-3] * 50), X, classes=2, covering=GaussianMixture(components=1, rank=784))
    assert found.value == math.inf
    assert found.log_covering == pytest.approx(784 * math.log1p(2 * float(X.norm(dim=1).max()) / 5e-4))


def test_from_an_estimated_margin_it_is_an_estimate() -> None:
    margins = MarginEstimate(what="given", values=torch.full((50,), 0.2))
    found = bounds.robustness(margins, X, classes=2, covering=GaussianMixture(components=1, rank=1))
    assert not found.certified
    assert "ESTIMATE" in str(found)
    assert "estimate (no certificate): given" in str(found)


def test_from_a_network_to_its_bound() -> None:
    model = mlp(3, 2)
    with torch.no_grad():
        y = model(X).argmax(dim=1)
    margins = bounds.input_margin(model, X, y).spectral
    found = bounds.robustness(margins, X, classes=2, covering=GreedyCovering())
    assert found.margin == pytest.approx(float(margins.values.min()))


def test_with_depth_one_doubles_and_the_other_follows_the_margin() -> None:
    covering = GaussianMixture(components=1, rank=2)
    grown = bounds.growth([1, 2, 3], [0.1, 0.1, 0.2], X, covering=covering, product=3.0, classifier=2.0, samples=100)
    assert grown.frobenius == pytest.approx([1.2, 2.4, 4.8])
    scale = float(X.norm(dim=1).max())
    assert grown.robustness == pytest.approx([(1 + 2 * scale / (g / 2)) / 10 for g in (0.1, 0.1, 0.2)])
    assert grown.robustness[0] == grown.robustness[1] > grown.robustness[2]


@pytest.mark.usefixtures("untyped")
def test_bad_arguments_are_told() -> None:
    with pytest.raises(ValueError, match="components is 0"):
        GaussianMixture(components=0, rank=1)
    with pytest.raises(TypeError, match=r"sparsity is 1\.5"):
        SparseDictionary(atoms=1, sparsity=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="margins is a float"):
        bounds.robustness(1.0, X, classes=2, covering=GreedyCovering())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="margins has 1 entries"):
        bounds.robustness(certified(1.0), X, classes=2, covering=GreedyCovering())
    with pytest.raises(ValueError, match="classes is 1"):
        bounds.robustness(certified(1.0), X[:1], classes=1, covering=GreedyCovering())
    with pytest.raises(ValueError, match="delta is 0"):
        bounds.robustness(certified(1.0), X[:1], classes=2, covering=GreedyCovering(), delta=0)
    with pytest.raises(ValueError, match="margins has 1 entries"):
        bounds.growth([1, 2], [1.0], X, covering=GreedyCovering())
    with pytest.raises(ValueError, match=r"margins\[0\] is 0"):
        bounds.growth([1], [0], X, covering=GreedyCovering())
