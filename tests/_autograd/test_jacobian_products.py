"""Columns of scores go back together where they can: the gradients of one by one."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zoo
from widemargin import places
from widemargin._autograd import jacobian_products
from widemargin.modules import scores_of

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def columns_of(entry: zoo.Entry, mode: bool, second_order: bool) -> tuple[list[dict[str, Tensor]], list[Tensor]]:
    """Gradients of all scores at two places, some columns at a time; and those of the weights, of a sum of them."""
    network, x = entry.network(dtype=torch.float64).train(mode), entry.inputs(dtype=torch.float64)
    torch.manual_seed(3)  # of dropout
    with places.watch(network, (entry.place, "input"), statistics="frozen") as at:
        scores = scores_of(network(x))
    parts = list(at.columns(scores.reshape(len(x), -1), second_order=second_order))
    total = sum((part[name] ** 2).sum() for part in parts for name in at)
    assert isinstance(total, Tensor)
    weights = list(network.parameters()) if second_order else []
    return parts, list(torch.autograd.grad(total, weights, materialize_grads=True)) if weights else []


@pytest.mark.parametrize("entry", [*zoo.ZOO, *zoo.RECURRENT, *zoo.LOGITS], ids=str)
@pytest.mark.parametrize("second_order", [False, True])
def test_columns_together_are_columns_one_by_one(
    entry: zoo.Entry, second_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In training mode too, with frozen statistics: one backward pass for all, against one for each."""
    for mode in (False, True):
        monkeypatch.setattr(jacobian_products, "AT_ONCE", {"cpu": 2**20})
        at_once, weights = columns_of(entry, mode, second_order)
        monkeypatch.setattr(jacobian_products, "AT_ONCE", {"cpu": 1})
        alone, expected = columns_of(entry, mode, second_order)
        assert len(alone) == entry.classes
        if not (second_order and "group-norm" in entry.traits):  # torch has no rule for that one
            assert len(at_once) == 1
        for name in at_once[0]:
            one_by_one = torch.cat([part[name] for part in alone])
            torch.testing.assert_close(torch.cat([part[name] for part in at_once]), one_by_one, rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(weights, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("most", [6 * 5, 2 * 6 * 5, 6 * 5 * 3, 10**9])
def test_so_many_columns_go_back_together_as_the_largest_activation_allows(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jacobian_products, "AT_ONCE", {"cpu": most})
    # 6 samples, 5 numbers each in the largest activation
    network = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    with places.watch(network, ("input", "1")) as at:
        scores = network(X)
    sizes = [len(part["1"]) for part in at.columns(scores)]
    assert sizes == {30: [1, 1, 1], 60: [2, 1], 90: [3], 10**9: [3]}[most]


def test_large_weights_do_not_keep_columns_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jacobian_products, "AT_ONCE", {"cpu": 3 * 50})
    network = nn.Sequential(nn.Linear(4, 50), nn.Linear(50, 3)).double()  # one sample, weights of 200 numbers
    with places.watch(network, ("input",)) as at:
        scores = network(X[:1])
    assert [len(part["input"]) for part in at.columns(scores)] == [3]


class Unruly(torch.autograd.Function):
    """x², whose backward pass looks at numbers: nothing that a batch of cotangents can do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grads[0] if float(grads[0].detach().abs().sum()) >= 0 else x


def test_columns_go_back_one_by_one_where_there_is_no_rule() -> None:
    class Squares(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            squares: Tensor = Unruly.apply(x)
            return squares

    network = nn.Sequential(nn.Linear(4, 5), Squares(), nn.Linear(5, 3)).double()
    with places.watch(network, ("input",)) as at:
        scores = network(X)
    parts = [part["input"] for part in at.columns(scores)]
    assert [len(part) for part in parts] == [1, 1, 1]
    for column, part in enumerate(parts):
        torch.testing.assert_close(part[0], at.gradients(scores[:, column])["input"])


class Patches(nn.Module):
    """Neighbours side by side: torch knows no batch of cotangents for `unfold`, and loops over them."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unfold(1, 2, 1).flatten(1)


def test_where_torch_would_loop_it_is_tried_once_and_nothing_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jacobian_products, "_without_rules", set())
    network = nn.Sequential(nn.Linear(4, 5), Patches(), nn.Tanh(), nn.Linear(8, 3)).double()
    found = []
    for sizes in ([3], [1, 1, 1]):  # in a loop of torch's, and from then on one by one
        node = leaf_node(network.get_parameter("0.weight"))
        node.metadata["of this pass"] = True
        with places.watch(network, ("input",)) as at:
            scores = network(X)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parts = [part["input"] for part in at.columns(scores, second_order=True)]
        assert [len(part) for part in parts] == sizes
        found.append(torch.cat(parts).detach())
        del node, at, scores, parts
        gc.collect()
        assert not leaf_node(network.get_parameter("0.weight")).metadata
    torch.testing.assert_close(found[0], found[1])


def leaf_node(parameter: Tensor) -> Any:
    """Where the gradients of a parameter arrive; it is a new node where no graph has one any more."""
    node = parameter.view_as(parameter).grad_fn
    assert node is not None
    return node.next_functions[0][0]


def test_other_warnings_are_given_as_ever() -> None:
    class Warns(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            warnings.warn("on the way back", stacklevel=1)
            return 2 * grads[0]

    x = torch.rand(2, 3, requires_grad=True)
    way = jacobian_products.batched_vjp(out := Warns.apply(x), [x], second_order=False)
    with pytest.warns(UserWarning, match="on the way back"):
        found = way.gradients(out)
    assert found is not None
