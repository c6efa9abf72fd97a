"""Layers of a population: each is that of every network alone; which ones it refuses, and what is left as it was."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.utils import prune

from widemargin.margins.second_point import TwoPasses
from widemargin.population import rng
from widemargin.population.layers import (
    Dropout,
    check_layers,
    normalise,
    stacked_layers,
    transform,
    with_own_dropout,
)


@pytest.mark.parametrize(
    "layer",
    [
        *(nn.LSTM(3, 3), nn.AlphaDropout(0.1), nn.SyncBatchNorm(3)),
        *(nn.BatchNorm1d(3, momentum=None), nn.MultiheadAttention(4, 2, dropout=0.1)),
        *(nn.Embedding(5, 3, sparse=True), nn.EmbeddingBag(5, 3, sparse=True)),
        prune.l1_unstructured(nn.Linear(3, 3), "weight", amount=0.5),
    ],
    ids=str,
)
def test_layers_that_can_not_be_stacked_are_named(layer: nn.Module) -> None:
    with pytest.raises(TypeError, match=f"layer '1', {type(layer).__name__}") as raised:
        check_layers(nn.Sequential(nn.Linear(3, 3), layer))
    assert "\n" not in str(raised.value)


def test_lazy_layers_are_named() -> None:
    with pytest.raises(ValueError, match="networks have a lazy layer '1'"):
        check_layers(nn.Sequential(nn.Linear(3, 3), nn.LazyLinear(3)))


def test_all_other_layers_pass() -> None:
    check_layers(
        nn.Sequential(
            *(nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=None, track_running_stats=False), nn.GELU()),
            *(nn.Embedding(3, 3), nn.TransformerEncoderLayer(4, 2, dropout=0.0)),
        )
    )


def test_forwards_are_replaced_inside_the_block_alone() -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.GroupNorm(1, 2), nn.ReLU())
    for convolutions, replaced in (("grouped", "03"), ("matmul", "013"), ("fused", "0123")):
        with stacked_layers(network, convolutions):
            assert "".join(name for name, m in network.named_children() if "forward" in vars(m)) == replaced
        assert not any("forward" in vars(module) for module in network)


def test_dropout_layers_are_replaced_and_numbered() -> None:
    network = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout2d(0.2).eval()), nn.Dropout(0.0))
    own = with_own_dropout(network)
    assert [(one.p, one.dims, one.number) for one in own] == [(0.5, 0, 0), (0.2, 2, 1)]
    assert [one.training for one in own] == [True, False]
    assert isinstance(network[0], Dropout)
    assert isinstance(network[2], nn.Dropout)


def test_a_repeated_pass_has_the_same_masks() -> None:
    """As second points need them: a step of length 0 changes nothing, while a new pass has new masks."""
    torch.manual_seed(0)
    network, x = nn.Sequential(nn.Linear(3, 50), nn.Dropout(0.5), nn.Dropout(0.2), nn.Linear(50, 3)), torch.ones(4, 3)
    for dropout in with_own_dropout(network):
        dropout.start(rng.keys([7], "dropout", 0)[0])
    passes = TwoPasses(network)
    scores, at = passes.first(x, ("input",))
    assert passes.is_random
    assert at.moved is not None
    torch.testing.assert_close(at.moved({"input": torch.zeros_like(x)}), scores)
    assert not torch.allclose(network(x), scores)


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
