"""BatchNorm and GroupNorm of a stack are those of every network alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import vmap

from widemargin.population.layers import stacked_layers
from widemargin.population.norm_layers import normalise


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3, 2)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_statistics_of_its_own(shape: tuple[int, ...], affine: bool, remembers: bool, training: bool) -> None:
    torch.manual_seed(0)
    kind = nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d
    layer = kind(4, affine=affine, track_running_stats=remembers, momentum=0.3).double().train(training)
    layers = [copy.deepcopy(layer) for _ in range(3)]
    names = [name for name, _ in (*layer.named_parameters(), *layer.named_buffers())]
    for one in layers:
        for name in names:
            value = one.state_dict()[name]
            value.copy_(torch.rand(value.shape) + 0.5 if value.is_floating_point() else torch.tensor(7))
    stacked = {name: torch.stack([one.state_dict()[name] for one in layers]) for name in names}
    x = torch.randn(3, *shape, dtype=torch.float64) * 3 + 1
    expected = torch.stack([one(part) for one, part in zip(layers, x)]).detach()

    def forward(tensors: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        for name, value in tensors.items():
            (layer._parameters if name in layer._parameters else layer._buffers)[name] = value  # type: ignore[assignment]
        out: torch.Tensor = layer(x)
        return out

    with stacked_layers(layer):
        found = vmap(forward)(stacked, x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for name in names:
        torch.testing.assert_close(stacked[name], torch.stack([one.state_dict()[name] for one in layers]))


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3, 2)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("channels_last", [False, True])
def test_groups(shape: tuple[int, ...], affine: bool, channels_last: bool) -> None:
    torch.manual_seed(0)
    layer = nn.GroupNorm(2, 4, affine=affine).double()
    tensors = {name: torch.rand(3, *p.shape, dtype=torch.float64) + 0.5 for name, p in layer.named_parameters()}
    x = torch.randn(3, *shape, dtype=torch.float64) * 3 + 1
    if channels_last and len(shape) == 4:
        x = x.movedim(2, -1).contiguous().movedim(-1, 2)
    with stacked_layers(layer):
        found = vmap(lambda own, one: torch.func.functional_call(layer, own, (one,)))(tensors, x)
    expected = [torch.func.functional_call(layer, {n: p[k] for n, p in tensors.items()}, (x[k],)) for k in range(3)]
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-12, atol=1e-12)


def test_outside_of_the_block_layers_are_as_they_were() -> None:
    layer = nn.BatchNorm1d(2)
    with stacked_layers(layer):
        assert "forward" in vars(layer)
    assert "forward" not in vars(layer)
    x = torch.randn(1, 6, 2)
    out = normalise(x, None, None, None, None, by_batch=True, momentum=0.1, eps=1e-5)
    torch.testing.assert_close(out[0], layer(x[0]).detach())
