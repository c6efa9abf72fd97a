from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from geometry.networks import CASES, build, double
from widemargin import geometry, layers
from widemargin.geometry.network import read


@pytest.mark.parametrize("name", CASES)
def test_the_chain_gives_the_networks_scores_and_leaves_it_as_it_was(name: str) -> None:
    model, x = build(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    network = read(model, x)
    torch.testing.assert_close(network.forward(x.double()), double(model)(x.double()), rtol=1e-11, atol=1e-12)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class Functional(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.a, self.b, self.kind = nn.Linear(3, 3), nn.Linear(3, 2), kind

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        if self.kind == "relu":
            return self.b(functional.relu(h))
        if self.kind == "in place":
            return self.b(functional.relu(h, inplace=True))
        if self.kind == "residual":
            return self.b(h + x)
        return self.b(h).exp()


@pytest.mark.parametrize("kind", ["relu", "in place", "residual"])
def test_functions_between_layers_are_read(kind: str) -> None:
    model, x = Functional(kind), torch.randn(5, 3)
    torch.testing.assert_close(geometry.affine(model, x)(x), double(model)(x.double()))
    expected = torch.autograd.functional.jacobian(lambda v: double(model)(v).sum(dim=0), x.double())
    torch.testing.assert_close(geometry.jacobian(model, x), expected.movedim(1, 0))


def test_functions_without_a_form_are_named() -> None:
    with pytest.raises(TypeError, match="layer 'exp' is the function exp in Functional"):
        read(Functional("end"), torch.randn(2, 3))


@pytest.mark.parametrize(
    "layer",
    [
        *(nn.Tanh(), nn.Softmax(dim=1), nn.ReLU6(), nn.LayerNorm(3), nn.PReLU(3)),
        nn.BatchNorm1d(3, track_running_stats=False),
    ],
)
def test_unsupported_layers_are_named(layer: nn.Module) -> None:
    with pytest.raises(TypeError, match=f"layer '1' is {type(layer).__name__}"):
        read(nn.Sequential(nn.Linear(2, 3), layer), torch.randn(2, 2))


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
        nn.MaxPool2d((2, 3), stride=(3, 2), ceil_mode=True),
        nn.MaxPool2d(2, stride=3, dilation=2, ceil_mode=True),
        nn.MaxPool2d(2, stride=2, padding=1, ceil_mode=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [5, 6, 7, 8])
def test_pools_of_ceiled_windows(pool: nn.Module, size: int) -> None:
    x = torch.randn(3, 2, size, size, dtype=torch.float64)
    torch.testing.assert_close(read(nn.Sequential(pool), x).forward(x), pool(x).flatten(1), rtol=0, atol=0)


class Half(nn.Module):
    slopes: Any

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, 3 * x, 0.5 * x)


def test_activations_of_ones_own() -> None:
    torch.manual_seed(0)  # of the first sample, some units are positive
    half = Half()
    model = nn.Sequential(nn.Linear(3, 4), half, nn.Linear(4, 2))
    x = torch.randn(5, 3)
    with pytest.raises(TypeError, match="'1' is Half"):
        geometry.pattern(model, x)
    half.slopes = (0.5, 3.0)
    torch.testing.assert_close(geometry.affine(model, x)(x), double(model)(x.double()))
    half.slopes = (0.5, 2.0)
    with pytest.raises(TypeError, match="gives other scores"):
        geometry.pattern(model, x)


class Registered(Half):
    pass


@pytest.mark.usefixtures("untyped")
def test_registered_activations() -> None:
    layers.register("pieces", Registered)(lambda _, __: layers.Slopes(negative=0.5, positive=3.0))
    model = nn.Sequential(nn.Linear(3, 4), Registered(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    torch.testing.assert_close(geometry.affine(model, x)(x), double(model)(x.double()))


@pytest.mark.usefixtures("untyped")
def test_bad_inputs() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    for x, error, said in (
        (torch.zeros(2, 2, dtype=torch.long), TypeError, "x has dtype torch.int64"),
        (torch.zeros(2), ValueError, r"x has shape \[2\]"),
        (torch.full((1, 2), torch.nan), ValueError, "x has nan"),
    ):
        with pytest.raises(error, match=said):
            geometry.jacobian(model, x)
    with pytest.raises(ValueError, match=r"x has shape \[1, 2\]"):
        geometry.average_jacobian(model, torch.zeros(1, 2), torch.zeros(2, 2))
