"""Every row of the table of laws, held to every law."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import laws
from laws import Row, batch, smooth_network
from widemargin import attacks, losses, places, regularizers

every_row = pytest.mark.parametrize("row", laws.ROWS, ids=lambda row: row.name)


def test_every_public_loss_and_regularizer_is_in_the_table() -> None:
    public = {
        value
        for room in (losses, regularizers, attacks)
        for value in (getattr(room, name) for name in room.__all__)
        if isinstance(value, type) and dataclasses.is_dataclass(value) and not issubclass(value, losses.Penalty)
        if any("__call__" in vars(base) for base in value.__mro__)  # what an attack found is a dataclass, too
    }
    assert len(public) >= 10
    assert public == {type(row.value) for row in laws.ROWS}


@every_row
def test_one_number_per_sample_or_one_for_the_weights(row: Row) -> None:
    x, y = batch()
    value = row.call(row.value, smooth_network(), x, y, torch.arange(12))
    assert value.shape == (() if row.kind == "weight" else (12,))
    assert value.dtype == torch.float64
    assert bool((value >= 0).all())
    assert bool(value.any())
    assert value.requires_grad


@every_row
def test_a_batch_is_its_samples_one_by_one(row: Row) -> None:
    network, (x, y) = smooth_network().eval(), batch()
    index = torch.arange(12)
    together = row.call(row.singles, network, x, y, index)
    alone = [row.call(row.singles, network, x[k : k + 1], y[k : k + 1], index[k : k + 1]) for k in range(12)]
    expected = torch.stack(alone) if row.kind == "weight" else torch.cat(alone)
    torch.testing.assert_close(together.expand_as(expected), expected, rtol=1e-9, atol=1e-12)


@every_row
def test_the_gradient_of_the_exact_form_is_that_of_the_function(row: Row) -> None:
    if row.exact is None:
        pytest.skip("has no exact form: its examples or denominators are constants by definition")
    network, (x, y) = smooth_network(), batch()
    _check_gradient(network, lambda: row.call(row.exact, network, x, y, torch.arange(12)))


@every_row
def test_the_gradient_is_that_of_the_function_with_what_is_detached_held_constant(row: Row) -> None:
    network, (x, y) = smooth_network(), batch()
    if row.hold is None:
        _check_gradient(network, lambda: row.call(row.value, network, x, y, torch.arange(12)))
        return
    held = row.hold(row.value, network, x, y)
    value = row.call(row.value, network, x, y, torch.arange(12))
    torch.testing.assert_close(value, held(), rtol=1e-9, atol=1e-12)
    _check_gradient(network, held, of=lambda: row.call(row.value, network, x, y, torch.arange(12)))


@pytest.mark.parametrize("row", laws.MARGINS, ids=lambda row: row.name)
def test_the_scale_free_form_does_not_move_the_scale_of_the_scores(row: Row) -> None:
    if row.value.cross_entropy or row.value.read_as == "softmax":
        pytest.skip("the cross-entropy term and a softmax know the scale of the scores")
    network, (x, y) = smooth_network(), batch()

    def along_the_scale(loss: losses.MarginLoss) -> tuple[float, float]:
        with places.watch(network, loss.at) as at:
            scores = network(x)
        (gradient,) = torch.autograd.grad(loss.of(scores, y, at=at).mean(), scores)
        return float((gradient * scores.detach()).sum()), float(gradient.norm() * scores.detach().norm())

    free, size = along_the_scale(row.value)
    assert size > 1e-6
    assert abs(free) < 1e-9 * size  # not 0: s has a tiny number inside, for networks whose scores are all equal
    printed, size = along_the_scale(row.singles)
    assert abs(printed) > 1e-4 * size


@every_row
def test_autocast_changes_little(row: Row) -> None:
    network, (x, y) = smooth_network(torch.float32), batch(dtype=torch.float32)
    exact = row.call(row.value, network, x, y, torch.arange(12)).mean()
    with torch.autocast("cpu", torch.bfloat16):
        value = row.call(row.value, network, x, y, torch.arange(12))
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.mean(), exact, rtol=0.1, atol=0.02)
    value.mean().backward()
    assert any(bool(p.grad.any()) for p in network.parameters() if p.grad is not None)
    assert all(bool(p.grad.isfinite().all()) for p in network.parameters() if p.grad is not None)


def _check_gradient(network: nn.Module, function: Callable[[], Tensor], of: Callable[[], Tensor] | None = None) -> None:
    """The gradient of `of` (by default of `function`) against central differences of `function` in 5 directions."""
    parameters = list(network.parameters())
    gradients = torch.autograd.grad((of or function)().mean(), parameters, materialize_grads=True)
    generator = torch.Generator().manual_seed(3)
    step = 1e-6
    for _ in range(5):
        direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                for p, d in zip(parameters, direction, strict=True):
                    p.add_(d, alpha=sign * step)
            values.append(float(function().mean().detach()))
            with torch.no_grad():
                for p, d in zip(parameters, direction, strict=True):
                    p.sub_(d, alpha=sign * step)
        expected = (values[0] - values[1]) / (2 * step)
        assert sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True)) == pytest.approx(
            expected, rel=1e-5, abs=1e-8
        )
