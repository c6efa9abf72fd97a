"""Activations at places, and networks with steps added there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zoo
from placed import X, small
from widemargin import places
from widemargin.modules import scores_of


def test_activations_are_those_before_the_zeros_and_without_a_graph() -> None:
    network = small()
    hidden = network[:2](X)
    with places.watch(network, ("input", "1", "2.0", "output")) as at:
        scores = network(X)
    assert list(at.activations) == ["input", "1", "2.0", "output"]
    for name, expected in {
        "input": X,
        "1": hidden,
        "2.0": network.get_submodule("2.0")(hidden),
        "output": scores,
    }.items():
        torch.testing.assert_close(at.activations[name], expected.detach(), rtol=0, atol=0)
        assert not at.activations[name].requires_grad


def test_activations_survive_an_operation_in_place() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)).double()
    with places.watch(network, ("0",)) as at:
        network(X)
    torch.testing.assert_close(at.activations["0"], network[0](X).detach(), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["input", "1", "2.0", "output"])
def test_steps_are_added_at_their_place(name: str) -> None:
    """Inside the block alone."""
    network = small()
    before = network(X)
    with places.watch(network, (name,)) as at:
        network(X)
    step = torch.randn(at[name].shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layers = [network[0], network[1], *network.get_submodule("2").children(), network[3]]
    first = {"input": 0, "1": 2, "2.0": 3, "output": 5}[name]
    expected = nn.Sequential(*layers[first:])(at.activations[name] + step)
    with places.moved(network, {name: step}):
        found = network(X)
        torch.testing.assert_close(network(X), found, rtol=0, atol=0)  # as often as it runs
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    assert torch.equal(network(X), before)


def test_several_steps_at_once() -> None:
    network = small()
    steps = {"input": torch.ones_like(X), "1": torch.full((6, 5), 0.5, dtype=torch.float64)}
    with places.moved(network, steps):
        found = network(X)
    torch.testing.assert_close(found, network[2:](network[:2](X + 1) + 0.5), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("entry", [*zoo.TOKENS, *zoo.RECURRENT, *zoo.LOGITS], ids=str)
def test_steps_of_zero_change_nothing(entry: zoo.Entry) -> None:
    """In networks whose modules return tuples or objects, too; gradients flow to the step."""
    network, x = entry.network(dtype=torch.float64), entry.inputs(dtype=torch.float64)
    with places.watch(network, (entry.place,)) as at:
        expected = scores_of(network(x))
    step = torch.zeros_like(at.activations[entry.place]).requires_grad_()
    with places.moved(network, {entry.place: step}):
        scores = scores_of(network(x))
    torch.testing.assert_close(scores, expected, rtol=1e-12, atol=1e-14)
    (found,) = torch.autograd.grad(scores[:, 0].sum(), step)
    torch.testing.assert_close(found, at.gradients(expected[:, 0])[entry.place], rtol=1e-9, atol=1e-12)


def test_the_block_leaves_nothing_behind_after_an_error() -> None:
    network, before = small(), small()(X)

    def broken() -> None:
        with places.moved(network, {"input": torch.ones_like(X), "1": torch.ones(3)}):
            network(X)

    with pytest.raises(RuntimeError):
        broken()
    assert torch.equal(network(X), before)


@pytest.mark.parametrize("enabled", [True, False])
def test_recurrent_layers_use_the_same_kernels_as_when_watched(enabled: bool) -> None:
    """Others would draw other dropout masks on a GPU; the setting comes back."""
    seen: list[Any] = []

    class Asks(nn.LSTM):
        def forward(self, x: Tensor) -> Any:  # type: ignore[override]
            seen.append(torch.backends.cudnn.enabled)
            return super().forward(x)

    network = Asks(4, 3, batch_first=True)
    x = torch.randn(2, 5, 4)
    with torch.backends.cudnn.flags(enabled=enabled):
        with places.watch(network):
            network(x)
        with places.moved(network, {"input": torch.zeros_like(x)}):
            network(x)
        network(x)
    assert seen == [False, False, enabled]
