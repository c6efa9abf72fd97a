"""The forms of layers against the layers themselves, as explicit matrices, and by search."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from oracles_bounds import matrix_of
from widemargin import layers
from widemargin.layers import Affine, MaxPool
from widemargin.layers.registry import forms_of

AFFINE = [
    (nn.Linear(3, 4), (3,)),
    (nn.Linear(3, 4, bias=False), (5, 3)),
    (nn.Conv1d(2, 3, 2, padding=1), (2, 5)),
    (nn.Conv2d(2, 4, 3, padding=1, stride=2, groups=2), (2, 5, 4)),
    (nn.Conv2d(2, 3, 3, padding="same"), (2, 4, 4)),
    (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 4, 4)),
    (nn.Conv3d(1, 2, 2, dilation=2), (1, 4, 4, 4)),
    (nn.BatchNorm1d(3), (3,)),
    (nn.BatchNorm2d(2, affine=False), (2, 3, 3)),
    (nn.AvgPool1d(2), (2, 6)),
    (nn.AvgPool2d(3, stride=1, padding=1), (2, 4, 4)),
    (nn.AdaptiveAvgPool3d(2), (1, 3, 4, 5)),
    (nn.Flatten(), (2, 3)),
    (nn.Unflatten(1, (2, 3)), (6,)),
    (nn.Dropout(0.5), (4,)),
]


def affine(module: nn.Module, shape: tuple[int, ...]) -> tuple[Affine, Tensor]:
    """The affine form, and W as a matrix."""
    with torch.no_grad():
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 2.0)
    rule = layers.rule("affine", module.double().eval())
    assert rule is not None
    return rule(module, torch.zeros(1, *shape)), matrix_of(module, shape)


def l_q(W: Tensor, q: float) -> Tensor:
    """‖W_i‖_q of every row, without a power that overflows or is 0 for all entries."""
    largest = W.abs().amax(dim=1).clamp(min=1e-300)
    return largest * torch.linalg.vector_norm(W / largest[:, None], q, dim=1)


@pytest.mark.parametrize(("module", "shape"), AFFINE, ids=str)
def test_an_affine_form_is_the_layer(module: nn.Module, shape: tuple[int, ...]) -> None:
    form, W = affine(module, shape)
    x = torch.randn(4, *shape, dtype=torch.float64)
    torch.testing.assert_close(form.forward(x), module(x).detach(), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(form.linear(x).flatten(1), x.flatten(1) @ W.T, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(
        form.magnitude(x.abs()).flatten(1), x.abs().flatten(1) @ W.abs().T, rtol=1e-11, atol=1e-12
    )
    rows = torch.randn_like(form.forward(x))
    torch.testing.assert_close(form.adjoint(rows).flatten(1), rows.flatten(1) @ W, rtol=1e-11, atol=1e-12)
    norm = float(torch.linalg.matrix_norm(W, ord=2))
    assert norm * (1 - 1e-13) <= form.lipschitz <= norm * (1 + 2e-6)


def test_the_norm_of_a_map_of_rank_one_is_its_frobenius_norm() -> None:
    form, W = affine(nn.Conv2d(2, 1, 3), (2, 3, 3))
    assert form.lipschitz == pytest.approx(float(torch.linalg.vector_norm(W)), rel=1e-12)


def test_the_norm_of_a_linear_layer_on_a_sequence_is_that_of_its_matrix() -> None:
    form, _ = affine(nn.Linear(30, 40), (7, 30))
    weight = torch.linalg.svdvals(form.linear(torch.eye(30).double()[:, None]).flatten(1))
    assert form.lipschitz == pytest.approx(float(weight[0]), rel=1e-11)


@pytest.mark.parametrize("q", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize(("module", "shape"), AFFINE, ids=str)
def test_row_norms_are_those_of_the_matrix(module: nn.Module, shape: tuple[int, ...], q: float) -> None:
    form, W = affine(module, shape)
    if form.row_norms is None:
        return
    expected = torch.linalg.vector_norm(W, q, dim=1)
    found = form.row_norms(q, None).flatten()
    if q == math.inf:  # of the whole kernel: never too small
        assert bool((found >= expected - 1e-12).all())
    else:
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    if not form.is_weight:
        return
    weight = module.weight
    assert isinstance(weight, Tensor)
    torch.testing.assert_close(form.row_norms(2.0, 3 * weight.detach()), 3 * form.row_norms(2.0, None))


@pytest.mark.parametrize("q", [30.0, 334.0, 1e6, 1e15])
@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(2, 3, 3, padding=1, bias=False), (2, 4)),
        (nn.Conv2d(2, 4, 3, padding=2, stride=2, groups=2, bias=False), (2, 4, 3)),
        (nn.Conv3d(1, 2, 2, padding=1, bias=False), (1, 2, 2, 2)),
    ],
    ids=str,
)
def test_no_power_of_a_row_norm_underflows(module: nn.Module, shape: tuple[int, ...], q: float) -> None:
    """Channels and taps of very different sizes, whose q-th powers are 0 in float64, as are rows at the edge."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    with torch.no_grad():
        weight.copy_(torch.rand_like(weight) + 0.5)
        weight *= (10.0 ** -torch.arange(weight[0, 0].numel()).double()).view(weight[0, 0].shape)
        weight *= (10.0 ** (-5.0 * torch.arange(len(weight)).double())).view(-1, *[1] * (weight.ndim - 1))
        weight[0, 0].view(-1)[-1] = 0.0
    form, W = affine(module, shape)
    assert form.row_norms is not None
    found = form.row_norms(q, None).flatten()
    sizes = W.abs()
    largest, exact = sizes.amax(dim=1), l_q(W, q)
    assert (found >= exact * (1 - 1e-12)).all()
    assert (found <= sizes.sum(dim=1) * (1 + 1e-12)).all()
    kernel = weight.detach().double().abs().flatten(1).amax(dim=1)
    assert (found <= kernel.repeat_interleave(len(W) // len(kernel)) * sizes.shape[1] ** (1 / q) * (1 + 1e-12)).all()
    whole = largest == kernel.repeat_interleave(len(W) // len(kernel))  # rows with the largest entry of their kernel
    assert int(whole.sum()) >= len(kernel)
    torch.testing.assert_close(found[whole], exact[whole], rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("pool", "shape"),
    [
        (nn.MaxPool1d(3, 2, padding=1), (2, 7)),
        (nn.MaxPool2d((3, 2), stride=(1, 2), dilation=(2, 1)), (2, 7, 6)),
        (nn.MaxPool3d(2, stride=1), (2, 3, 4, 3)),
        (nn.MaxPool3d(3, stride=2, padding=1, ceil_mode=True), (1, 4, 5, 6)),
    ],
    ids=str,
)
def test_a_max_pool_is_the_layer(pool: nn.Module, shape: tuple[int, ...]) -> None:
    rule, constant = layers.rule("pieces", pool), layers.rule("lipschitz", pool)
    assert rule is not None
    assert constant is not None
    x = torch.randn(5, *shape, dtype=torch.float64)
    form = rule(pool, x)
    assert isinstance(form, MaxPool)
    assert torch.equal(form.forward(x), pool(x))
    assert constant(pool, x) == pytest.approx(form.lipschitz)


def test_pools_that_return_indices_have_no_form() -> None:
    pool = nn.MaxPool2d(2, return_indices=True)
    rule = layers.rule("pieces", pool)
    assert rule is not None
    assert rule(pool, torch.zeros(1, 1, 4, 4)) is None


NORMS = [
    (nn.GroupNorm(2, 4), (4, 3)),
    (nn.GroupNorm(4, 4, affine=False), (4,)),  # groups of one entry
    (nn.LayerNorm((2, 3), eps=0.1), (2, 2, 3)),
    (nn.LayerNorm(2), (3, 2)),
    (nn.InstanceNorm1d(2, affine=True), (2, 5)),
    (nn.RMSNorm(3), (2, 3)),
]


@pytest.mark.parametrize(("module", "shape"), NORMS, ids=str)
def test_the_steps_of_a_norm_are_the_layer(module: nn.Module, shape: tuple[int, ...]) -> None:
    module = module.double()
    for parameter in module.parameters():
        nn.init.uniform_(parameter, 0.5, 1.5)
    x = torch.randn(3, *shape, dtype=torch.float64)
    value = x
    for form in forms_of(module, x):
        if isinstance(form, Affine):
            eye = torch.eye(x[0].numel(), dtype=x.dtype).view(-1, *shape)
            W = form.linear(eye).flatten(1).T
            rows = value.flatten(1)
            torch.testing.assert_close(form.magnitude(value.abs()).flatten(1), rows.abs() @ W.abs().T)
            torch.testing.assert_close(form.adjoint(value).flatten(1), rows @ W)
            assert form.lipschitz >= float(torch.linalg.matrix_norm(W, ord=2)) - 1e-12
            assert form.row_norms is not None
            for q in (1.0, 2.0, 3.0, 1e5, math.inf):
                found, expected = form.row_norms(q, None).flatten(), l_q(W, q)
                assert (found >= expected - 1e-12).all()
                if len(W) > 4:  # a group of one entry has the row 0
                    torch.testing.assert_close(found, expected)
        value = form.forward(value)
    torch.testing.assert_close(value, module(x).detach(), rtol=1e-9, atol=1e-10)
