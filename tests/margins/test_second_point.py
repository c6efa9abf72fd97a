"""Two forward passes in one step: the same masks and statistics, and steps along which differences fall fastest."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from losses.wide_networks import CASES, Attention, Lstm
from widemargin import norms
from widemargin.margins import second_point
from widemargin.margins.second_point import TwoPasses, steps_down


def passes(name: str) -> tuple[TwoPasses, Tensor, tuple[str, ...]]:
    case = CASES[name]
    return TwoPasses(case.network()), case.batch()[0], ("embedding",) if case.tokens else ("input",)


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_zero_changes_nothing(name: str) -> None:
    """Masks, statistics and hence the scores of both passes are equal; after `again`, those of the part."""
    two, x, at = passes(name)
    scores, watched = two.first(x, at)
    zeros = {place: torch.zeros_like(watched.activations[place]) for place in at}
    torch.testing.assert_close(two.moved(x, zeros), scores, rtol=1e-10, atol=1e-12)
    part = x[::3]
    scores, watched = two.again(part, at)
    zeros = {place: torch.zeros_like(watched.activations[place]) for place in at}
    torch.testing.assert_close(two.moved(part, zeros), scores, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in CASES if "dropout" not in name])
def test_a_part_has_the_scores_it_has_in_the_batch(name: str, untyped: None) -> None:
    two, x, at = passes(name)
    scores, _ = two.first(x, at)
    torch.testing.assert_close(two.again(x[::3], at)[0], scores[::3], rtol=1e-10, atol=1e-12)
    assert not two.is_random


@pytest.mark.parametrize("network", [Lstm(dropout=0.5), Attention(dropout=0.5), nn.Dropout2d(), nn.AlphaDropout()])
def test_random_layers_of_any_kind_draw_the_same_twice(network: nn.Module) -> None:
    shape = (6, 4, 6) if isinstance(network, Attention) else (6, 4, 5) if isinstance(network, Lstm) else (6, 4, 5, 5)
    network, x = network.double(), torch.randn(shape, dtype=torch.float64)
    two = TwoPasses(nn.Sequential(network, nn.Flatten()))
    scores, _ = two.first(x, ("input",))
    assert two.is_random
    torch.testing.assert_close(two.moved(x, {"input": torch.zeros_like(x)}), scores, rtol=1e-12, atol=0)
    assert not torch.equal(two.first(x, ("input",))[0], scores)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, math.inf])
def test_steps_down(p: float) -> None:
    """Of the given l_p lengths, and along them the linear part falls by length·‖gradient‖_q."""
    g = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    length = torch.tensor([0.1, 1.0, 3.0, 0.0], dtype=torch.float64)
    step = steps_down({"input": g}, {"input": length}, p)["input"]
    torch.testing.assert_close(norms.lp(step, p), length, rtol=1e-10, atol=1e-14)
    fall = -(step * g).flatten(1).sum(dim=1)
    torch.testing.assert_close(fall, length * norms.lp(g, norms.dual(p)), rtol=1e-10, atol=1e-14)
    assert steps_down({"a": g.bfloat16()}, {"a": length[:1]}, p)["a"].dtype == torch.bfloat16


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_a_second_pass_has_the_gradient_of_a_double_backward(p: float) -> None:
    """Of the slope, in a linear region of a ReLU network, for any small step."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)).double()
    x, weights = torch.randn(8, 4, dtype=torch.float64), list(network.parameters())
    two = TwoPasses(network)
    scores, watched = two.first(x, ("input",))
    h = torch.tensor([1e-6], dtype=torch.float64)
    steps = steps_down(watched.gradients(scores), {"input": h}, p)
    slopes = (scores - two.moved(x, steps)).squeeze(1) / h
    moving = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(network(moving).sum(), moving, create_graph=True)
    exact = norms.lp(g, norms.dual(p))
    torch.testing.assert_close(slopes, exact, rtol=1e-8, atol=0)
    for found, expected in zip(
        torch.autograd.grad(slopes.sum(), weights[::2]), torch.autograd.grad(exact.sum(), weights[::2])
    ):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_statistics_of_several_processes_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.SyncBatchNorm(3))
    TwoPasses(network)  # in one process it is BatchNorm
    monkeypatch.setattr(second_point, "processes", lambda: 2)
    with pytest.raises(TypeError, match="SyncBatchNorm"):
        TwoPasses(network)
    TwoPasses(network.eval())
