from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bad_values import Changed, mix_fourth
from widemargin.entry_checks import check_by_sample, check_call, checked_by_caller

X = torch.rand(9, 3, generator=torch.Generator().manual_seed(0))
Y = torch.arange(9) % 4


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.5), nn.BatchNorm1d(5), nn.Linear(5, 4)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("batch", [1, 2, 3, 9])
def test_a_network_in_evaluation_mode_keeps_samples_apart(dtype: torch.dtype, batch: int) -> None:
    model, x = network(dtype), X[:batch].to(dtype)
    check_call(model, x, Y[:batch])
    assert model.training
    assert torch.equal(check_by_sample(model, x), model.eval()(x[:8]))


def last(scores: Tensor) -> Tensor:
    """Half of the last sample's scores, added to all."""
    return scores + 0.5 * scores[-1:]


@pytest.mark.parametrize(
    "change",
    [
        mix_fourth,
        last,
        lambda s: s - s.mean(0),
        lambda s: s - s.mean(0).detach(),
        lambda s: s / s.detach().abs().max(),
        lambda s: s.flip(0),
        lambda s: s.cumsum(0),
        lambda s: s + 0.1 * torch.rand_like(s),
    ],
)
def test_a_network_that_mixes_is_refused(change: Any) -> None:
    with pytest.raises(ValueError, match="depend on the other samples"):
        check_call(Changed(network(), change), X, Y)
    with checked_by_caller():
        check_call(Changed(network(), change), X, Y)
    check_call(Changed(network(), change), X[:1], Y[:1])  # alone there is nobody to mix with


def test_a_constant_network_has_no_gradient_and_is_none_the_worse() -> None:
    check_call(Changed(network(), lambda s: torch.zeros_like(s.detach())), X, Y)
    with pytest.raises(ValueError, match="no gradient"):
        check_call(Changed(network(), lambda s: s.detach()), X, Y)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_and_buffers_are_named(value: float) -> None:
    model = network()
    assert isinstance(model[3].running_var, Tensor)
    model[3].running_var[1] = value
    with pytest.raises(ValueError, match=r"^model has weights '3.running_var' that are not finite"):
        check_call(model, X, Y)


@pytest.mark.parametrize(
    ("lazy", "name"), [(nn.LazyLinear(4), "weight"), (nn.LazyBatchNorm1d(affine=False), "running")]
)
def test_a_lazy_module_has_to_run_first(lazy: nn.Module, name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), lazy)
    with pytest.raises(
        ValueError, match=rf"^model has '1\.{name}\w*' of a lazy module, expected .* forward pass first$"
    ):
        check_call(model, X, Y)
    model(X)
    check_call(model, X, Y)
