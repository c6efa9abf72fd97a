"""Theorem 5: certificates below the true margin, on linear networks in closed form and in 2-D by dense search."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bounds.cases import Twice, cnn, mlp, samples
from oracles_bounds import frobenius, input_margin_2d, matrix_of
from widemargin import bounds
from widemargin.bounds import Certificate, MarginEstimate
from widemargin.bounds.input_margin import jacobian_estimate, output_margin


def predictions(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model.eval()(x).argmax(dim=1)


def test_of_a_linear_network_all_are_the_exact_margin() -> None:
    model, x = mlp(4, 3, bias=True), samples(20, 4)
    y = predictions(model, x)
    weight, bias = (p.detach() for p in model[0].parameters())
    exact = []
    for sample, label in zip(x, y, strict=True):
        f = weight @ sample + bias
        gaps = [(f[label] - f[c]) / (weight[label] - weight[c]).norm() for c in range(3) if c != label]
        exact.append(float(min(gaps)))
    found = bounds.input_margin(model, x, y, batch_size=7)
    assert isinstance(found.jacobian, MarginEstimate)
    for part in (found.spectral, found.frobenius, found.jacobian):
        assert part.values.tolist() == pytest.approx(exact, rel=1e-9)
    assert found.output.tolist() == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("activation", [nn.ReLU, Twice, nn.LeakyReLU])
@pytest.mark.parametrize("seed", [0, 1])
def test_in_two_dimensions_certificates_lie_below_the_true_margin(activation: type[nn.Module], seed: int) -> None:
    model = mlp(2, 8, 6, 3, bias=True, activation=activation, seed=seed)
    x = 2 * samples(8, 2, seed=seed)
    y = predictions(model, x)
    found = bounds.input_margin(model, x, y, directions=8, steps=8)
    assert found.jacobian is not None
    exact = [input_margin_2d(lambda points: predictions(model, points), sample, 6.0) for sample in x]
    met = 0
    for i, truth in enumerate(exact):
        assert 0 < found.frobenius.values[i] <= found.spectral.values[i] < truth
        assert found.spectral.values[i] <= found.jacobian.values[i] * (1 + 1e-9)
        met += math.isfinite(truth)
    assert met >= 3  # the search does find boundaries


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, stride=1, padding=1), nn.AvgPool2d(2)], ids=str)
def test_no_step_inside_the_certificate_changes_the_label(pool: nn.Module) -> None:
    model = cnn(bias=True, pool=pool)
    x = samples(5, 2, 6, 6)
    y = predictions(model, x)
    found = bounds.input_margin(model, x, y, directions=2, steps=4)
    for i in range(len(x)):
        point = x[i : i + 1].clone().requires_grad_()
        f = model(point)[0]
        gradient = torch.autograd.grad(f[y[i]] - f.topk(2).values[1], point)[0]
        noise = torch.cat([samples(200, 2, 6, 6, seed=i), -gradient])
        steps = noise / noise.flatten(1).norm(dim=1).view(-1, 1, 1, 1) * found.spectral.values[i]
        assert bool((predictions(model, x[i] + steps) == y[i]).all())


def test_the_products_are_those_of_the_matrices() -> None:
    model, x = cnn(pool=nn.MaxPool2d(3, stride=2)), samples(3, 2, 6, 6)
    found = bounds.input_margin(model, x, predictions(model, x), directions=0)
    layers = [(model[0], (2, 6, 6)), (model[3], (3, 2, 2)), (model[6], (4,))]
    sizes = [matrix_of(layer, shape) for layer, shape in layers]
    expected = math.prod(float(torch.linalg.svdvals(m)[0]) for m in sizes)
    assert expected <= found.spectral_product <= expected * (1 + 1e-5)
    assert found.frobenius_product == pytest.approx(math.prod(frobenius(m) for m in sizes))
    assert found.lipschitz_factor == pytest.approx(2.0)  # an entry lies in 2×2 windows
    assert found.spectral.values.tolist() == pytest.approx((found.output / found.spectral_product / 2).tolist())
    assert found.jacobian is None


def test_batch_norm_is_taken_in_evaluation_mode() -> None:
    model = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)).double()
    model(5 * samples(50, 2))  # running statistics
    x = samples(10, 2)
    y = predictions(model, x)
    model.train()
    found = bounds.input_margin(model, x, y)
    assert model.training
    for i, sample in enumerate(x):
        assert found.spectral.values[i] < input_margin_2d(lambda points: predictions(model, points), sample, 6.0)


def test_a_binary_network_and_a_misclassified_sample() -> None:
    model, x = mlp(3, 5, 1, bias=True), samples(6, 3)
    with torch.no_grad():
        f = model(x)[:, 0]
    y = f.sign()
    y[2] *= -1
    found = bounds.input_margin(model, x, y)
    v = model[2].weight.detach().norm()  # type: ignore[operator]
    expected = f.abs() / v
    expected[2] = 0.0
    assert found.output.tolist() == pytest.approx(expected.tolist())
    assert found.jacobian is not None
    for part in (found.frobenius, found.spectral, found.jacobian):
        assert part.values[2] == 0.0
        assert (part.values[[0, 1, 3, 4, 5]] > 0).all()


def test_a_sample_without_a_gradient_has_no_estimate() -> None:
    model = mlp(2, 2, 2, bias=True)
    with torch.no_grad():
        next(model[0].parameters()).fill_(1.0)
    x = torch.tensor([[-9.0, -9.0]], dtype=torch.float64)
    found = bounds.input_margin(model, x, predictions(model, x))
    assert found.jacobian is not None
    assert found.jacobian.values.isnan().all()
    assert (found.spectral.values > 0).all()  # a certificate needs no gradient


def test_classes_that_share_a_vector_are_told_apart_by_their_bias_for_ever() -> None:
    classifier = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    scores = torch.tensor([[3.0, 2.0, 1.0], [2.0, 3.0, 1.0]], dtype=torch.float64)
    assert output_margin(scores, torch.tensor([0, 0]), classifier).tolist() == pytest.approx([2 / math.sqrt(2), 0.0])


def test_the_estimate_follows_the_average_jacobian_through_a_kink() -> None:
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1, bias=False)).double()
    state = {"0.weight": [[1.0], [-1.0]], "0.bias": [0.0, 1.0], "2.weight": [[1.0, -2.0]]}
    model.load_state_dict({name: torch.tensor(value, dtype=torch.float64) for name, value in state.items()})
    # f(x) = x above 1 and 3x − 2 in [0, 1]: from 2 the boundary lies at 2/3, and to first order at 0. Of 10 steps to 4
    # the kink lies in the middle of the third, where the trapezoid rule is exact.
    x, y = torch.tensor([[2.0]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    found = bounds.input_margin(model, x, y, directions=1, steps=10)
    assert found.jacobian is not None
    assert found.jacobian.values.tolist() == pytest.approx([4 / 3], rel=1e-12)


def test_the_type_and_the_printed_name_say_what_is_proved() -> None:
    model, x = mlp(3, 5, 2), samples(4, 3)
    found = bounds.input_margin(model, x, predictions(model, x))
    assert isinstance(found.spectral, Certificate) and isinstance(found.frobenius, Certificate)  # noqa: PT018
    assert isinstance(found.jacobian, MarginEstimate)
    assert not isinstance(found.jacobian, Certificate)
    lines = str(found).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "certificate",
        "certificate",
        "estimate (no certificate)",
    ]


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"directions": -1}, "directions is -1"),
        ({"steps": 1}, "steps is 1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"jacobian": "sharp"}, "jacobian is 'sharp'"),
        ({"jacobian": "exact"}, r"jacobian is 'exact', but x has shape \[2, 3\]"),
    ],
)
def test_bad_arguments_are_told(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        bounds.input_margin(mlp(3, 2), samples(2, 3), torch.tensor([0, 1]), **options)


def test_a_network_that_is_no_chain_is_told() -> None:
    with pytest.raises(TypeError, match="layer '1' is a Tanh"):
        bounds.input_margin(mlp(3, 4, 2, activation=nn.Tanh), samples(2, 3), torch.tensor([0, 1]))
    model = nn.Sequential(nn.Conv2d(1, 2, 1)).double()
    with pytest.raises(TypeError, match="layer '0' is a Conv2d"):
        bounds.input_margin(model, samples(2, 1, 1, 1), torch.tensor([0, 1]))


def test_the_estimate_is_nan_where_no_score_has_a_gradient() -> None:
    network = nn.Linear(2, 3)
    with torch.no_grad():
        network.weight.zero_()
        network.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    found = jacobian_estimate(network, torch.randn(4, 2), torch.tensor([0, 0, 1, 2]), 2, 4, 0, 4).values
    assert found[:2].isnan().all()  # classified rightly, and no direction leads anywhere
    assert not (found[2:] > 0).any()
