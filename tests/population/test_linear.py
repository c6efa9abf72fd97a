"""Linear layers as one batched product are linear layers, and their gradients lie as the weights do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from widemargin.population.layers import stacked_layers
from widemargin.population.linear import transform


@pytest.mark.parametrize("with_bias", [True, False])
def test_every_network_has_its_own_layer(with_bias: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, 2, dtype=torch.float64, requires_grad=True) if with_bias else None
    out = transform(x, weight, bias)
    for k in range(3):
        expected = nn.functional.linear(x[k], weight[k], None if bias is None else bias[k])
        assert torch.allclose(out[k], expected, rtol=1e-12)
    (gradient,) = torch.autograd.grad(out.square().sum(), weight)
    assert gradient.is_contiguous()
    if bias is not None:
        assert torch.autograd.gradgradcheck(transform, (x, weight, bias))


@pytest.mark.parametrize("shape", [(4, 5), (4, 6, 5)])
def test_inside_vmap_alone(shape: tuple[int, ...]) -> None:
    layer = nn.Linear(5, 2)
    x = torch.randn(3, *shape)
    weights = torch.randn(3, 2, 5)

    def of(weight: Tensor, x: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(layer, {"weight": weight}, (x,))
        return out

    with stacked_layers(layer):
        found = torch.vmap(of)(weights, x)
    assert torch.allclose(found, torch.stack([of(weights[k], x[k]) for k in range(3)]), atol=1e-6)
