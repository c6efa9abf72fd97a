"""odn's Theorem 1 and its cushions against loops over samples and explicit matrices."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest
import torch
from torch import nn

from bounds.cases import Twice, cnn, matrices, mlp, samples
from oracles_bounds import cushions, frobenius, matrix_of
from widemargin import bounds

Y = torch.tensor([0, 1, 2, 0, 1, 2, 0])


def test_cushions_are_those_of_the_loops() -> None:
    model, x = mlp(4, 6, 5, 3), samples(7, 4)
    layer, between, contraction = cushions(matrices(model), x)
    found = bounds.cushions(model, x, batch_size=3)
    assert list(found.layer.values()) == pytest.approx(layer, rel=1e-9)
    names = list(found.layer)
    pairs = {(names.index(m.lower), names.index(m.upper)): m.cushion for m in found.interlayer}
    assert pairs == pytest.approx(between, rel=1e-9)
    assert found.contraction == pytest.approx(contraction, rel=1e-9)
    assert found.width == 6
    for i, name in enumerate(names):
        above = [mu for (low, _), mu in between.items() if low == i]
        assert found.minimal[name] == pytest.approx(min([1 / math.sqrt(6), *above]), rel=1e-9)


def test_a_cushion_of_a_linear_network_has_the_closed_form() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False)).double()
    nn.init.eye_(model[0].weight)  # type: ignore[arg-type]
    found = bounds.cushions(model, samples(5, 2))
    assert found.layer == pytest.approx({"0": 1 / math.sqrt(2)})
    assert found.minimal == pytest.approx({"0": 1 / math.sqrt(2)})
    assert (found.contraction, found.interlayer) == (1.0, ())


@pytest.mark.parametrize("model", [cnn(), cnn(pool=nn.AvgPool2d(2))], ids=["max", "average"])
def test_cushions_are_at_most_1_and_ignore_the_scale_of_layers(model: nn.Sequential) -> None:
    x = samples(8, 2, 6, 6)
    before = bounds.cushions(model, x)
    assert 0 < min(before.layer.values()) <= max(before.layer.values()) <= 1
    assert all(0 < m.cushion <= 1 + 1e-12 for m in before.interlayer)
    assert before.contraction >= 1
    with torch.no_grad():
        next(model[0].parameters()).mul_(7.0)
    after = bounds.cushions(model, 3 * x)
    assert after.layer == pytest.approx(before.layer)
    assert after.minimal == pytest.approx(before.minimal)
    assert after.contraction == pytest.approx(before.contraction)


def test_activations_in_place_change_nothing() -> None:
    model, x = cnn(), samples(3, 2, 6, 6)
    before = bounds.cushions(model, x)
    for layer in model:
        if isinstance(layer, nn.ReLU):
            layer.inplace = True
    assert bounds.cushions(model, x) == before


def test_probes_are_unbiased_and_their_standard_error_is_honest() -> None:
    model, x = mlp(4, 6, 5, 3), samples(1, 4)
    exact = bounds.cushions(model, x, probes=0).interlayer
    many = [bounds.cushions(model, x, probes=16, seed=seed).interlayer for seed in range(60)]
    for k, truth in enumerate(exact):
        squares = torch.tensor([draw[k].norm ** 2 for draw in many])
        error = float(squares.std()) / math.sqrt(len(squares))
        assert abs(float(squares.mean()) - truth.norm**2) <= 4 * error + 1e-9 * truth.norm**2
        claimed = torch.tensor([draw[k].standard_error for draw in many]).mean()
        seen = torch.tensor([draw[k].norm for draw in many]).std()
        assert float(claimed) == pytest.approx(float(seen), rel=0.4, abs=1e-9)
        assert truth.standard_error == 0.0


def test_large_networks_take_probes_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = mlp(4, 6, 5, 3), samples(3, 4)
    assert bounds.cushions(model, x).probes == 0
    monkeypatch.setattr(importlib.import_module("widemargin.bounds.cushions"), "EXACT_UNITS", 7)
    assert bounds.cushions(model, x).probes == 64


@pytest.mark.parametrize("cushion_form", ["printed", "squared"])
@pytest.mark.parametrize("log_form", ["printed", "proof"])
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_the_value_is_the_theorem(cushion_form: Any, log_form: Any, delta: float) -> None:
    model, x = mlp(4, 6, 5, 3), samples(7, 4)
    r, theta = 3.0, 0.5
    found = bounds.odn(
        model, x, Y, r=r, theta=theta, delta=delta, cushion_form=cushion_form, log_form=log_form, batch_size=4
    )
    layer, between, c = cushions(matrices(model), x)
    summed = 0.0
    for i, matrix in enumerate(matrices(model)):
        arrow = min([6**-0.5, *(mu for (low, _), mu in between.items() if low == i)])
        power = 2 if cushion_form == "squared" else 1
        rank = frobenius(matrix) ** 2 / float(torch.linalg.svdvals(matrix)[0]) ** 2
        summed += rank / (layer[i] * arrow) ** power
    log = math.log(3 * 7 / delta)
    main = c**2 * 3**2 * 6 * math.log(3 * 6) * (r + theta) ** 2 * summed
    below = 7 * (r - theta) ** 2
    root = math.sqrt((main + log) / below) if log_form == "printed" else math.sqrt(main / below + log / 7)
    assert found.value == pytest.approx(loss_of(model, x, r, theta) + root, rel=1e-9)
    assert found.ratio == pytest.approx((3.5 / 2.5) ** 2)


def loss_of(model: nn.Module, x: torch.Tensor, r: float, theta: float) -> float:
    """One minus the share of samples whose distance, by a gradient each, lies strictly inside the band."""
    outside = 0
    for sample, label in zip(x, Y, strict=True):
        point = sample.clone().requires_grad_()
        f = model(point[None])[0]
        others = f.clone()
        others[label] = -torch.inf
        margin = f[label] - others.max()
        (gradient,) = torch.autograd.grad(margin, point)
        outside += not r - theta < float(margin.detach() / gradient.norm()) < r + theta
    return outside / len(x)


def test_the_empirical_loss_counts_both_sides() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False)).double()
    nn.init.constant_(model[0].weight, 5.0)  # type: ignore[arg-type]
    x = torch.tensor([[0.5], [1.0], [1.5], [2.0], [2.5], [3.5], [-1.0]], dtype=torch.float64)
    y = torch.ones(7, dtype=torch.float64)
    found = bounds.odn(model, x, y, r=2.0, theta=1.0)  # the distances are x itself
    assert found.empirical_loss == pytest.approx(4 / 7)
    # with ‖W‖_2 = 1 the scores are x: 3.5 is above r + θ = 3
    assert found.share_within == pytest.approx(6 / 7)
    assert [a.holds for a in found.assumptions] == [True, False, True]
    assert "on 85.7 % of the samples" in str(found)


def test_a_sample_without_a_gradient_is_outside_the_band() -> None:
    model = mlp(2, 2, 2)
    with torch.no_grad():
        next(model[0].parameters()).fill_(1.0)
    found = bounds.odn(model, torch.tensor([[-1.0, -1.0]], dtype=torch.float64), Y[:1], r=2.0, theta=1.0)
    assert (found.without_margin, found.empirical_loss) == (1, 1.0)
    assert found.cushions.contraction == math.inf  # all units are off
    assert found.vacuous


def test_the_readings_differ_as_the_errata_say() -> None:
    model, x = mlp(4, 6, 5, 3), samples(7, 4)
    printed = bounds.odn(model, x, Y, r=5.0, theta=1.0)
    assert printed.value < bounds.odn(model, x, Y, r=5.0, theta=1.0, log_form="proof").value
    assert printed.value < bounds.odn(model, x, Y, r=5.0, theta=1.0, cushion_form="squared").value
    assert "constant 1" in printed.source
    assert "scores" in printed.source


def test_convolutions_are_operators() -> None:
    model, x = cnn(), samples(7, 2, 6, 6)
    found = bounds.odn(model, x, Y, r=1.0, theta=0.5)
    matrix = matrix_of(model[0], (2, 6, 6))
    rank = (frobenius(matrix) / float(torch.linalg.svdvals(matrix)[0])) ** 2
    assert found.layers[0].stable_rank == pytest.approx(rank, rel=1e-9)
    assert found.cushions.width == len(matrix) == 3 * 36
    assert not found.assumptions[2].holds  # a max-pool is not in the theorem


def test_other_activations_are_told() -> None:
    found = bounds.odn(mlp(4, 6, 3, activation=Twice), samples(7, 4), Y, r=1.0, theta=0.5)
    assert [a.text for a in found.broken if "ReLU" in a.text] == ["activations are plain ReLUs"]


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"r": -1.0}, "r is -1.0"),
        ({"theta": 2.0}, "theta is 2.0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"cushion_form": "cubed"}, "cushion_form is 'cubed'"),
        ({"log_form": "other"}, "log_form is 'other'"),
        ({"probes": 1}, "probes is 1"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_bad_arguments_are_told(options: dict[str, Any], sentence: str) -> None:
    arguments: dict[str, Any] = {"r": 2.0, "theta": 1.0, **options}
    with pytest.raises(ValueError, match=sentence):
        bounds.odn(mlp(4, 3), samples(7, 4), Y, **arguments)
