"""Two passes draw the same numbers, also while a CUDA graph is captured."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from losses.wide_networks import CASES
from widemargin._autograd import repeated_rng
from widemargin._autograd.repeated_rng import random_states, with_random_states
from widemargin.margins.second_point import TwoPasses


def test_states_are_drawn_from_again_and_left_as_they_were() -> None:
    device = torch.device("cpu")
    states = random_states(device)
    first, after = torch.rand(3), torch.get_rng_state()
    with with_random_states(states, device):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), after)
    with with_random_states(None, device):
        other = torch.rand(3)
    assert not torch.equal(other, first)


def test_numbers_of_python_numpy_and_own_generators_are_drawn_again(untyped: None) -> None:
    own = torch.Generator().manual_seed(3)

    def draw() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand((), generator=own))]  # noqa: NPY002

    device = torch.device("cpu")
    states = random_states(device, [own])
    assert states is not None
    first = draw()
    with with_random_states(states, device, [own]):
        assert draw() == first
    after = draw()
    assert after != first
    with with_random_states(states, device, [own]):
        draw()
        draw()
    with with_random_states(states, device, [own]):
        assert [draw(), draw()] == [first, after]
    for change in (random.random, np.random.rand, lambda: torch.rand(2), lambda: torch.rand(2, generator=own)):
        before, same = random_states(device, [own]), random_states(device, [own])
        change()
        now = random_states(device, [own])
        assert before is not None
        assert same is not None
        assert now is not None
        assert before.equals(same)
        assert not before.equals(now)


@pytest.mark.parametrize(
    "draw", [lambda self: float(torch.rand(())), lambda self: random.random(), lambda self: self.drawn()]
)
def test_both_passes_skip_the_same_layers(draw: Callable[[Any], float], untyped: None) -> None:
    class Skipping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(8))
            self.generator = torch.Generator().manual_seed(5)

        def drawn(self) -> float:
            return float(torch.rand((), generator=self.generator))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = x + layer(x) if draw(self) < 0.5 else x
            return x

    network, x = Skipping(), torch.randn(5, 4)
    two = TwoPasses(network)
    scores, _ = two.first(x, ("input",))
    assert two.is_random
    torch.testing.assert_close(two.moved(x, {"input": torch.zeros_like(x)}), scores)


def test_states_of_an_apple_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    generator, device = torch.Generator().manual_seed(0), torch.device("mps")
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda _: generator.get_state())
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda state, _: generator.set_state(state))
    states = random_states(device)
    first, after = torch.rand(3, generator=generator), generator.get_state()
    with with_random_states(states, device):
        assert torch.equal(torch.rand(3, generator=generator), first)
    assert torch.equal(generator.get_state(), after)


class Noise(nn.Module):
    """Random layers that are not modules of torch."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x * (1 + torch.rand_like(x)) + torch.randn(x.shape, dtype=x.dtype), 0.5)


CAPTURED = {
    "nn.Dropout": nn.Dropout(),
    "in place": nn.Sequential(nn.Dropout(0.3, inplace=True), nn.Dropout(0.5)),
    "nn.Dropout2d": nn.Dropout2d(),
    "nn.AlphaDropout": nn.AlphaDropout(),
    "nn.FeatureAlphaDropout": nn.FeatureAlphaDropout(),
    "noise": Noise(),
}


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a CUDA graph were captured: random states can't be read and set."""
    monkeypatch.setattr(repeated_rng, "is_capturing", lambda _: True)


@pytest.mark.parametrize("name", CAPTURED)
@pytest.mark.usefixtures("captured")
def test_kept_masks(name: str) -> None:
    layer, x = nn.Sequential(CAPTURED[name], nn.Flatten()).double(), torch.randn(5, 4, 3, 3, dtype=torch.float64)
    two = TwoPasses(layer)
    scores, _ = two.first(x.clone(), ("input",))
    assert two.is_random
    assert not torch.equal(scores, x.flatten(1))
    torch.testing.assert_close(two.moved(x, {"input": torch.zeros_like(x)}), scores, rtol=1e-12, atol=0)
    torch.testing.assert_close(two.moved(x, {"input": x}), layer_at(layer, two, 2 * x), rtol=1e-12, atol=0)
    other, _ = two.first(x.clone(), ("input",))
    assert not torch.equal(other, scores)


def layer_at(layer: nn.Module, two: TwoPasses, x: Tensor) -> Tensor:
    with two._masks.reused(x.device):
        scores: Tensor = layer(x)
    return scores


@pytest.mark.parametrize("layer", [nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)])
@pytest.mark.usefixtures("captured")
def test_kept_masks_reach_functions_inside_functions(layer: nn.MultiheadAttention) -> None:
    """Attention with weights calls F.dropout inside F.multi_head_attention_forward."""

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.layer(x, x, x)[0][:, 0]
            return scores

    x = torch.randn(4, 3, 6)
    two = TwoPasses(Whole())
    scores, _ = two.first(x, ("input",))
    torch.testing.assert_close(two.moved(x, {"input": torch.zeros_like(x)}), scores, rtol=1e-6, atol=1e-7)
    assert not torch.equal(two.first(x, ("input",))[0], scores)


@pytest.mark.usefixtures("captured")
def test_other_random_functions_are_an_error_in_a_cuda_graph() -> None:
    class Draws(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.multinomial(x.softmax(1), 1)

    with pytest.raises(RuntimeError, match=r"multinomial draws random numbers"):
        TwoPasses(Draws()).first(torch.randn(4, 3), ("input",))


@pytest.mark.parametrize("name", ["mlp", "batch norm", "attention", "lstm"])
@pytest.mark.usefixtures("captured")
def test_networks_without_random_layers_are_captured_as_they_are(name: str) -> None:
    """Also attention without dropout, and dropout in evaluation mode or with probability 0."""
    case = CASES[name]
    two, x = TwoPasses(case.network()), case.batch()[0]
    scores, _ = two.first(x, ("input",))
    assert not two.is_random
    torch.testing.assert_close(two.moved(x, {"input": torch.zeros_like(x)}), scores, rtol=1e-10, atol=1e-12)
    quiet = TwoPasses(nn.Sequential(nn.Dropout2d().eval(), nn.Dropout(0.0), nn.AlphaDropout().eval(), nn.Flatten()))
    x = torch.randn(4, 3, 2, 2)
    assert torch.equal(quiet.first(x, ("input",))[0], x.flatten(1))
    assert not quiet.is_random
