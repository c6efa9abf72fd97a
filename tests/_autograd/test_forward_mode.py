from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

import zoo
from step_cost.transformer import VisionTransformer
from widemargin import losses, places
from widemargin._autograd import forward_mode
from widemargin.modules import mixing_modules, scores_of


def both(network: nn.Module, x: Tensor, some: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]:
    """Scores and their derivatives along directions: by an ordinary pass, and in forward mode."""
    u = {"input": torch.randn(some, *x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(0))}
    torch.manual_seed(0)  # of dropout
    with places.watch(network, ("input",), statistics="coupled") as at:
        scores = scores_of(network(x)).reshape(len(x), -1)
    torch.manual_seed(0)
    found = forward_mode.run(network, x, u["input"])
    if found is None:
        return (scores, scores), None
    pushed = found[0].reshape(len(x), -1)
    return (scores, at.along(scores, u)["input"]), (pushed, found[1].along(pushed, u)["input"])


@pytest.mark.parametrize("entry", [*zoo.ZOO, *zoo.LOGITS, zoo.RECURRENT[1]], ids=str)
@pytest.mark.parametrize("mode", [False, True])
@pytest.mark.parametrize("some", [1, 2])
def test_the_scores_of_an_ordinary_pass_with_the_derivatives(entry: zoo.Entry, mode: bool, some: int) -> None:
    network, x = entry.network(dtype=torch.float64).train(mode), entry.inputs(dtype=torch.float64)
    expected, found = both(network, x, some)
    if mixing_modules(network):
        assert found is None
        return
    assert found is not None
    torch.testing.assert_close(found[0], expected[0], rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("some", [1, 2])
def test_gradients_of_weights_and_at_the_input_come_with_it(some: int) -> None:
    entry = zoo.ZOO[3]
    network, x = entry.network(dtype=torch.float64), entry.inputs(dtype=torch.float64)
    found = forward_mode.run(network, x, torch.randn(some, *x.shape, dtype=torch.float64))
    assert found is not None
    scores, at = found
    with places.watch(network, ("input",)) as watched:
        plain = network(x)
    torch.testing.assert_close(at.gradients(scores[:, 1]), watched.gradients(plain[:, 1]))
    weights = list(network.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(scores.square().sum(), weights), torch.autograd.grad(plain.square().sum(), weights)
    )


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_no_convolution_is_taken_for_weights_that_do_not_move() -> None:
    network, x = (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 36, 3)),
        torch.rand(2, 1, 8, 8),
    )
    network(x)
    from torch.profiler import profile

    with profile() as plain:
        network(x)
    with profile() as along:
        assert forward_mode.run(network, x, torch.randn(1, *x.shape)) is not None
    calls = [sum(e.count for e in p.key_averages() if e.key.endswith("_convolution")) for p in (plain, along)]
    assert calls[0] > 0
    assert calls[1] == 2 * calls[0]


@pytest.mark.parametrize("some", [1, 2])
def test_torch_s_own_attention_which_has_no_second_derivative(some: int) -> None:
    torch.manual_seed(0)
    network = VisionTransformer(size=8, patch=4, width=8, depth=2, heads=2, classes=3).double()
    x, u = torch.rand(2, 3, 8, 8, dtype=torch.float64), torch.randn(some, 2, 3, 8, 8, dtype=torch.float64)
    found = forward_mode.run(network, x, u)
    assert found is not None
    torch.testing.assert_close(found[0], network(x))
    slopes = torch.stack([(network(x + 1e-6 * one) - network(x - 1e-6 * one)) / 2e-6 for one in u])
    torch.testing.assert_close(found[1].along(found[0], {"input": u})["input"], slopes.detach(), rtol=1e-6, atol=1e-8)


class Looks(nn.Module):
    """A function of its own, for which torch has no rule in forward mode."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _Custom.apply(x)
        return y


class _Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 2


def test_a_network_without_forward_mode_takes_the_other_way_and_is_not_tried_again() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 5), Looks(), nn.Linear(5, 3)).double()
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    u = torch.randn(2, 6, 4, dtype=torch.float64)
    loss = losses.MarginLoss(classes="all", probes=2, aggregate="sum")
    value = loss(network, x, y, directions={"input": u})
    assert forward_mode.run(network, x, u) is None
    runs: list[int] = []
    network[0].register_forward_hook(lambda *_: runs.append(1))
    twice = nn.Linear(5, 5, bias=False)
    with torch.no_grad():
        twice.weight.copy_(2 * torch.eye(5))
    same = nn.Sequential(network[0], twice, network[2]).double()
    torch.testing.assert_close(value, loss(same, x, y, directions={"input": u}), rtol=1e-10, atol=0)
    runs.clear()
    loss(network, x, y)
    assert runs == [1]


@pytest.mark.parametrize("case", ["compiled", "tokens", "no grad", "recurrent", "batch norm"])
def test_where_there_is_none(case: str) -> None:
    network, x = nn.Sequential(nn.Linear(4, 3)), torch.rand(2, 4)
    if case == "compiled":
        network = torch.compile(network, backend="eager")  # type: ignore[assignment]
    if case == "tokens":
        x = torch.randint(3, (2, 4))
    if case == "recurrent":
        network = nn.Sequential(nn.RNN(4, 3))
    if case == "batch norm":
        network.append(nn.BatchNorm1d(3))
    with torch.set_grad_enabled(case != "no grad"):
        assert forward_mode.run(network, x, torch.rand(1, 2, 4)) is None


def test_other_directions_than_those_of_the_pass_are_refused() -> None:
    network, x = nn.Linear(4, 3), torch.rand(2, 4)
    found = forward_mode.run(network, x, torch.rand(2, 2, 4))
    assert found is not None
    with pytest.raises(ValueError, match="directions has 3"):
        found[1].along(found[0], {"input": torch.rand(3, 2, 4)})


MASK = torch.ones(4, 4).tril().bool()


@pytest.mark.parametrize(
    ("given", "how"),
    [
        ((), {}),
        ((), {"scale": 0.3}),
        ((), {"is_causal": True}),
        ((), {"attn_mask": MASK}),
        ((MASK, 0.0), {}),
        ((None, 0.0, True), {}),
    ],
)
def test_attention_of_every_kind(given: tuple[Any, ...], how: dict[str, Any]) -> None:
    """By the rule of our own, and with masks by torch's."""

    class Attends(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = x.unflatten(1, (3, 4, 2)).unbind(1)
            return nn.functional.scaled_dot_product_attention(q, k.tanh(), v.square(), *given, **how).flatten(1)

    x, u = torch.randn(5, 24, dtype=torch.float64), torch.randn(2, 5, 24, dtype=torch.float64)
    network = Attends()
    found = forward_mode.run(network, x, u)
    assert found is not None
    torch.testing.assert_close(found[0].detach(), network(x), rtol=1e-10, atol=1e-12)
    slopes = torch.stack([(network(x + 1e-6 * one) - network(x - 1e-6 * one)) / 2e-6 for one in u])
    torch.testing.assert_close(found[1].along(found[0], {"input": u})["input"], slopes, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_nothing_is_saved_with_a_derivative_of_its_own(approximate: str) -> None:
    """Saved for the backward pass, a dual number would keep its derivative alive as long."""
    torch.manual_seed(0)
    body = [nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.GELU(approximate)]
    network = nn.Sequential(*body, nn.Flatten(), nn.Linear(64, 3)).double()
    x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    saved: list[bool] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(forward_ad.unpack_dual(tensor).tangent is not None)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        assert forward_mode.run(network, x, torch.randn(1, *x.shape, dtype=torch.float64)) is not None
    assert len(saved) > 5
    assert not any(saved)
    expected, found = both(network, x, 1)
    assert found is not None
    torch.testing.assert_close(found[1], expected[1], rtol=1e-10, atol=1e-11)
