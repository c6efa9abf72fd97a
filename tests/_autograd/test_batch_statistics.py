"""Batch normalisation with statistics as outputs, and with statistics given, against plain operations."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from widemargin._autograd.batch_statistics import KeptStatistics, batch_norm, normalise, normalise_with
from widemargin._autograd.frozen_batchnorm import Route

EPS = 1e-3
SHAPES = [(6, 3), (5, 3, 4), (4, 3, 2, 5), (3, 3, 2, 2, 2)]


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def by_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (x.ndim - 2))


def plain_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    dims = [d for d in range(x.ndim) if d != 1]
    mean = x.mean(dims)
    return mean, 1 / ((x - by_channel(mean, x)) ** 2).mean(dims).add(EPS).sqrt()


def plain(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, inverse: Tensor) -> Tensor:
    out = (x - by_channel(mean, x)) * by_channel(inverse, x)
    out = out if weight is None else out * by_channel(weight, x)
    return out if bias is None else out + by_channel(bias, x)


def same(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], inputs: list[Tensor]) -> None:
    """Values and the gradients of a random combination of them."""
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    factors = [random(*value.shape, seed=9).detach() for value in found]
    sums = [sum((f * v).sum() for f, v in zip(factors, values)) for values in (found, expected)]
    grads = [torch.autograd.grad(total, inputs) for total in sums if isinstance(total, Tensor)]
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("has_weight", "has_bias"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("outputs", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
def test_statistics_are_differentiable(
    shape: tuple[int, ...], has_weight: bool, has_bias: bool, outputs: tuple[int, ...]
) -> None:
    x = random(*shape)
    weight, bias = random(3, seed=1) if has_weight else None, random(3, seed=2) if has_bias else None
    found = normalise(x, (weight, bias), (None, None), 0.1, EPS, Route())
    mean, inverse = plain_statistics(x)
    expected = plain(x, weight, bias, mean, inverse), mean, inverse
    inputs = [x, *(t for t in (weight, bias) if t is not None and 0 in outputs)]
    same(tuple(found[k] for k in outputs), tuple(expected[k] for k in outputs), inputs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("has_weight", "has_bias"), [(True, True), (True, False), (False, True), (False, False)])
def test_given_statistics_are_differentiable(shape: tuple[int, ...], has_weight: bool, has_bias: bool) -> None:
    x, mean, inverse = random(*shape), random(3, seed=3), (random(3, seed=4).abs() + 0.5).detach().requires_grad_()
    weight, bias = random(3, seed=1) if has_weight else None, random(3, seed=2) if has_bias else None
    found = normalise_with(x, weight, bias, mean, inverse, EPS)
    inputs = [t for t in (x, weight, bias, mean, inverse) if t is not None]
    same((found,), (plain(x, weight, bias, mean, inverse),), inputs)


def test_gradients_that_are_not_needed() -> None:
    """Frozen weights, and inputs without a graph."""
    x, weight, bias = random(6, 3), random(3, seed=1), random(3, seed=2)
    for needed in ([x], [weight], [bias], [x, bias]):
        a, w, b = (t if any(t is n for n in needed) else t.detach() for t in (x, weight, bias))
        out, mean, inverse = normalise(a, (w, b), (None, None), 0.1, EPS, Route())
        moved = normalise_with(a + 0.1, w, b, mean, inverse, EPS)
        statistics = plain_statistics(a)
        expected = plain(a, w, b, *statistics), plain(a + 0.1, w, b, *statistics)
        same((out, moved), expected, needed)


def test_a_frozen_route_holds_statistics_constant() -> None:
    x, weight, bias, route = random(6, 3), random(3, seed=1), random(3, seed=2), Route()
    out, _, _ = normalise(x, (weight, bias), (None, None), 0.1, EPS, route)
    mean, inverse = plain_statistics(x)
    for is_frozen in (True, False):
        held = (mean.detach(), inverse.detach()) if is_frozen else (mean, inverse)
        (expected,) = torch.autograd.grad(plain(x, weight, bias, *held).square().sum(), x, retain_graph=True)
        if is_frozen:
            with route.frozen():
                (found,) = torch.autograd.grad(out.square().sum(), x, retain_graph=True)
        else:
            (found,) = torch.autograd.grad(out.square().sum(), x, retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    without_bias = nn.BatchNorm1d(3)
    without_bias.register_parameter("bias", None)  # torch 2.11 has no argument for it
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Tanh(), without_bias).double()


def test_a_recorded_pass_is_the_pass() -> None:
    """Values, gradients, and running statistics."""
    network, x = layers(), random(7, 3)
    other = copy.deepcopy(network)
    with KeptStatistics().recorded(Route()):
        found = network(x)
    expected = other(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    found.square().sum().backward()
    expected.square().sum().backward()
    for mine, theirs in zip(network.parameters(), other.parameters()):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(dict(network.named_buffers()), dict(other.named_buffers()), rtol=1e-12, atol=0)


def test_a_pass_with_statistics_of_another_equals_it_on_the_same_samples() -> None:
    """Also on some of them, several times, and without a change of anything."""
    network, x, kept = layers(), random(7, 3), KeptStatistics()
    with kept.recorded(Route()):
        expected = network(x)
    for part in (slice(None), slice(2, 5), slice(0, 1)):
        with kept.reused():
            torch.testing.assert_close(network(x[part]), expected[part], rtol=1e-10, atol=1e-13)


def test_layers_in_evaluation_mode_are_left_alone() -> None:
    network, x, kept = layers().eval(), random(7, 3), KeptStatistics()
    expected = network(x)
    with kept.recorded(Route()):
        assert torch.equal(network(x), expected)
    with kept.reused():
        assert torch.equal(network(x[:1]), expected[:1])


def test_the_function_for_vmap_is_the_functional_one_outside() -> None:
    x, weight, bias = random(7, 3), random(3, seed=1), random(3, seed=2)
    running = torch.zeros(3).double(), torch.ones(3).double()
    for training in (True, False):
        arguments: tuple[Any, ...] = (x, running[0].clone(), running[1].clone(), weight, bias, training)
        assert torch.equal(batch_norm(*arguments), F.batch_norm(*arguments))


def test_one_value_per_channel_is_an_error() -> None:
    network, kept = layers(), KeptStatistics()
    with kept.recorded(Route()), pytest.raises(ValueError, match=r"more than 1 value per channel.*\[1, 3\]"):
        network(random(1, 3))


def test_a_checkpointed_layer_is_an_error() -> None:
    """Its second computation, in the backward pass, would not have the statistics and would count them again."""
    network, x, kept = layers(), random(7, 3), KeptStatistics()
    with kept.recorded(Route()), pytest.raises(RuntimeError, match=r"torch\.utils\.checkpoint"):
        checkpoint(network, x, use_reentrant=False)
    with kept.recorded(Route()), torch.autograd.graph.save_on_cpu():  # other hooks of saved tensors are fine
        network(x)
