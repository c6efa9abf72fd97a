from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import named
from oracles_regularizers import finite_differences, score_jacobians
from widemargin import places
from widemargin.regularizers import JacobianFrobenius
from zoo import LOGITS, RECURRENT, TOKENS, ZOO, Entry

CPU = torch.device("cpu")


def smooth() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)).double()


def samples(batch: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(batch, 3, dtype=torch.float64, generator=generator), torch.arange(batch) % 3


def bases(batch: int, count: int) -> Tensor:
    """An orthonormal basis for every sample."""
    generator = torch.Generator().manual_seed(2)
    q: Tensor = torch.linalg.qr(torch.randn(batch, count, count, dtype=torch.float64, generator=generator)).Q
    return q


@pytest.mark.parametrize("entry", ZOO, ids=str)
def test_exactly_it_is_half_the_sum_of_squares_of_the_jacobian(entry: Entry) -> None:
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(3, dtype=torch.float64), entry.labels(3)
    expected = torch.stack([0.5 * J.square().sum() for J in score_jacobians(network, x)])
    torch.testing.assert_close(JacobianFrobenius(weight=0.7, projections=None)(network, x, y), 0.7 * expected)


@pytest.mark.parametrize("entry", ZOO, ids=str)
def test_projections_onto_a_basis_give_the_exact_value(entry: Entry) -> None:
    """Σ_i ‖u_iᵀJ‖² = ‖J‖²_F over any orthonormal basis: why the estimate is unbiased."""
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(3, dtype=torch.float64), entry.labels(3)
    regularizer = JacobianFrobenius(weight=0.7, projections=entry.classes)
    value = regularizer(network, x, y, directions=bases(3, entry.classes))
    torch.testing.assert_close(value, JacobianFrobenius(weight=0.7, projections=None)(network, x, y))


@pytest.mark.parametrize("projections", [1, 3])
def test_the_estimate_is_unbiased(projections: int) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5)).double()
    x, y = samples(1)
    exact = JacobianFrobenius(weight=1.0, projections=None)(network, x, y).item()
    n = 40000
    drawn = JacobianFrobenius(weight=1.0, projections=projections)(network, x.expand(n, 3), y.expand(n))
    error = drawn.std().item() / n**0.5
    assert error < 0.01 * exact  # the next line can tell a factor
    assert abs(drawn.mean().item() - exact) < 5 * error
    assert drawn.std().item() > 0.01 * exact


def test_directions_are_unit_vectors_uniform_on_the_sphere() -> None:
    torch.manual_seed(0)
    u = JacobianFrobenius(projections=2).draw(20000, 4, CPU)
    torch.testing.assert_close(u.norm(dim=2), torch.ones(20000, 2, dtype=torch.float64))
    flat = u.reshape(-1, 4)
    torch.testing.assert_close(flat.mean(dim=0), torch.zeros(4, dtype=torch.float64), rtol=0, atol=0.015)
    torch.testing.assert_close(flat.T @ flat / len(flat), torch.eye(4, dtype=torch.float64) / 4, rtol=0, atol=0.01)
    # E u_i⁴ = 3/(k(k+2)) is that of the sphere, not of normalised uniform numbers.
    torch.testing.assert_close(
        flat.pow(4).mean(dim=0), torch.full((4,), 3 / 24, dtype=torch.float64), rtol=0, atol=0.005
    )


@pytest.mark.parametrize("entry", [*ZOO, *LOGITS, *TOKENS, *RECURRENT], ids=str)
def test_a_batch_is_its_samples_stacked_at_every_kind_of_place(entry: Entry) -> None:
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(3, dtype=torch.float64), entry.labels(3)
    regularizer = JacobianFrobenius(weight=1.0, projections=2, at=entry.place)
    torch.manual_seed(3)
    together = regularizer(network, x, y)
    torch.manual_seed(3)
    torch.testing.assert_close(together, torch.cat([regularizer(network, x[[i]], y[[i]]) for i in range(3)]))


def test_of_one_seed_a_large_batch_draws_what_its_samples_draw_in_turn() -> None:
    regularizer = JacobianFrobenius(projections=2)
    torch.manual_seed(3)
    together = regularizer.draw(300, 10, CPU)
    torch.manual_seed(3)
    torch.testing.assert_close(together, torch.cat([regularizer.draw(1, 10, CPU) for _ in range(300)]))


def test_on_another_device_the_generator_of_the_cpu_is_not_used() -> None:
    """A CUDA graph would repeat its numbers."""
    state = torch.get_rng_state()
    assert JacobianFrobenius().draw(4, 3, torch.device("meta")).device.type == "meta"
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("projections", [None, 2])
def test_derivatives_are_those_of_finite_differences(projections: int | None) -> None:
    network, (x, y) = smooth(), samples()
    regularizer = JacobianFrobenius(weight=0.7, projections=projections)
    directions = None if projections is None else bases(4, 3)[:, :projections]
    coefficients = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)

    def value() -> Tensor:
        return coefficients @ regularizer(network, x, y, directions=directions)

    slopes = torch.autograd.grad(value(), list(network.parameters()), materialize_grads=True)
    for slope, expected in zip(slopes, finite_differences(value, network)):
        torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-8)


def test_a_dead_network_has_the_value_zero_and_no_slope() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    network[0].bias = nn.Parameter(torch.full((4,), -100.0, dtype=torch.float64))
    value = JacobianFrobenius(weight=1.0)(network, *samples())
    assert torch.equal(value.detach(), torch.zeros(4, dtype=torch.float64))
    for slope in torch.autograd.grad(value.sum(), list(network.parameters()), materialize_grads=True):
        assert torch.equal(slope, torch.zeros_like(slope))


def test_autocast() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    x, y = torch.rand(8, 16), torch.arange(8) % 4
    regularizer = JacobianFrobenius(weight=1.0, projections=None)
    exact = regularizer(network, x, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = regularizer(network, x, y)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, exact, rtol=0.03, atol=0.0)


@pytest.mark.parametrize("statistics", ["coupled", "frozen"])
def test_batch_statistics(statistics: places.BatchStatistics) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()
    x, y = samples(6)
    before = copy.deepcopy(network.state_dict())
    value = JacobianFrobenius(weight=1.0, projections=None, statistics=statistics)(network, x, y)
    assert all(torch.equal(kept, before[name]) for name, kept in network.state_dict().items())
    if statistics == "frozen":
        still, hidden = copy.deepcopy(network).eval(), network[0](x).detach()
        norm = still[1]
        assert isinstance(norm, nn.BatchNorm1d)
        norm.running_mean, norm.running_var = hidden.mean(0), hidden.var(0, correction=0)
        expected = JacobianFrobenius(weight=1.0, projections=None)(still, x, y)
    else:
        z = x.clone().requires_grad_()
        rows = [torch.autograd.grad(network(z)[:, c].sum(), z)[0].square().sum(dim=1) for c in range(3)]
        expected = 0.5 * torch.stack(rows).sum(dim=0)
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"weight": -1.0}, "weight is -1.0"),
        ({"weight": 1.0, "projections": 0}, "projections is 0"),
        ({"weight": 1.0, "projections": 1.5}, "projections is 1.5"),
        ({"weight": 1.0, "statistics": "none"}, "statistics is 'none'"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_bad_settings_get_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        JacobianFrobenius(**settings)


def test_bad_directions_get_one_sentence() -> None:
    network, (x, y) = smooth(), samples()
    with pytest.raises(ValueError, match=r"directions has shape \[4, 2, 3\], expected \[4, 1, 3\]"):
        JacobianFrobenius(weight=1.0)(network, x, y, directions=bases(4, 3)[:, :2])
    with pytest.raises(ValueError, match=r"directions.*projections is None"):
        JacobianFrobenius(weight=1.0, projections=None)(network, x, y, directions=bases(4, 3))
    with places.watch(network, ("1",)) as at:
        scores = network(x)
    with pytest.raises(ValueError, match=r"at watches \('1',\).*at='input'"):
        JacobianFrobenius(weight=1.0).of(scores, y, at=at)


@pytest.mark.parametrize("second_order", ["exact", "second-point"])
def test_inputs_by_name(second_order: Any) -> None:
    case = named.case()
    regularizer = JacobianFrobenius(projections=None, second_order=second_order)
    found = regularizer(case.masked, case.by_name, case.y)
    torch.testing.assert_close(found, regularizer(case.fixed, case.values, case.y))
