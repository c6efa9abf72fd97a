from __future__ import annotations

import copy
import io
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from oracles_optim import SlowNero
from widemargin.optim import Nero, param_groups
from widemargin.optim.nero import advance_
from widemargin.optim.rows import as_rows


@settings(max_examples=15)
@given(
    shapes=st.lists(
        st.sampled_from([(3, 4), (2, 5), (3, 4), (2, 3, 2, 2), (4,), (6, 1), (1, 7)]), min_size=1, max_size=5
    ),
    lr=st.sampled_from([0.01, 0.3, 2.0]),
    beta=st.sampled_from([0.0, 0.9, 0.999]),
    project=st.booleans(),
    foreach=st.sampled_from([None, True, False]),
    seed=st.integers(0, 1000),
)
def test_the_rule_of_the_errata(
    shapes: list[tuple[int, ...]], lr: float, beta: float, project: bool, foreach: bool | None, seed: int
) -> None:
    torch.manual_seed(seed)
    parameters = [nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
    slow = [
        SlowNero(as_rows(p.detach()).tolist(), project and p.ndim > 1 and p[0].numel() > 1, lr, beta)
        for p in parameters
    ]
    fast = Nero(parameters, lr, beta, project=project, foreach=foreach)
    for step in range(8):
        for number, (p, oracle) in enumerate(zip(parameters, slow)):
            p.grad = torch.randn_like(p) * 10.0 ** (step % 3)
            p.grad[0] = 0  # a neuron that has never had a gradient
            if (step * number) % 3 == 1:  # one that has none now
                p.grad = None
                continue
            oracle.step(as_rows(p.grad).tolist())
        fast.step()
    for p, oracle in zip(parameters, slow):
        torch.testing.assert_close(as_rows(p.detach()), torch.tensor(oracle.rows, dtype=torch.float64))


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize(("lr", "beta"), [(0.01, 0.999), (1.0, 0.999), (100.0, 0.9)])
def test_rows_stay_centred_and_unit(lr: float, beta: float, foreach: bool) -> None:
    """In float32, also where gradients push a row along the constants, and come after a long silence."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 30), nn.Linear(30, 30), nn.Linear(30, 2))
    optimizer = Nero(model.parameters(), lr, beta, foreach=foreach)
    for step in range(60):
        for p in model.parameters():
            p.grad = torch.randn_like(p) + (1e4 if step % 7 == 0 else 0) if step > 20 else 1e-12 * torch.ones_like(p)
        optimizer.step()
        for p in (q for q in model.parameters() if q.ndim > 1):
            rows = p.detach().double()
            assert rows.mean(dim=1).abs().max() <= 1e-6
            assert (rows.norm(dim=1) - 1).abs().max() <= 1e-6


def test_rows_of_a_million_numbers_are_unit() -> None:
    weight = nn.Parameter(torch.randn(1, 1_000_000))
    optimizer = Nero([weight])
    weight.grad = torch.randn_like(weight)
    optimizer.step()
    assert float(weight.detach().double().norm()) == pytest.approx(1.0, abs=1e-6)


def test_rows_of_one_number_and_vectors_are_finite_and_not_projected() -> None:
    model = nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 1), nn.PReLU())
    before = model.get_parameter("0.weight").detach().clone()
    optimizer = Nero(model.parameters())
    assert torch.equal(model.get_parameter("0.weight"), before)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 1)).square().mean().backward()
        optimizer.step()
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert not torch.equal(model.get_parameter("0.weight"), before)


def test_scales() -> None:
    weight, bias, zero = (nn.Parameter(t) for t in (torch.randn(3, 4), torch.tensor([3.0, -1.0]), torch.zeros(2)))
    optimizer = Nero([weight, bias, zero], lr=0.1)
    assert [optimizer.state[p]["scale"] for p in (weight, bias, zero)] == [pytest.approx(1.0), 2.0, 0.01]
    bias.grad, zero.grad = torch.tensor([5.0, 0.0]), torch.tensor([-1e-3, 7.0])
    optimizer.step()
    assert bias.tolist() == [pytest.approx(3 - 0.2), -1.0]
    assert zero.tolist() == [pytest.approx(0.001), pytest.approx(-0.001)]


def test_a_row_that_a_step_would_make_constant_stays() -> None:
    rows = torch.tensor([[0.5, 0.5, -0.5, -0.5], [0.5, -0.5, 0.5, -0.5]])
    gradient = torch.tensor([[0.5, 0.5, -0.5, -0.5], [0.0, 0.0, 0.0, 0.0]])
    start = rows.clone()
    advance_(rows, gradient, torch.zeros(2), 1.0, lr=1.0, beta=0.0, step=1, constrained=True)
    assert torch.equal(rows, start)


def test_a_nan_is_not_swallowed() -> None:
    weight = nn.Parameter(torch.randn(2, 3))
    optimizer = Nero([weight])
    weight.grad = torch.tensor([[math.nan, 0, 0], [1, 0, 0]])
    optimizer.step()
    assert weight.isnan().any(dim=1).tolist() == [True, False]


@pytest.mark.parametrize("order", ["network first", "optimizer first"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_resumed_training_is_the_same_bit_for_bit(order: str, dtype: torch.dtype) -> None:
    model, optimizer = started(dtype)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    train(model, optimizer, 5)
    scheduler.step()
    stored = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, stored)
    train(model, optimizer, 5, start=5)

    stored.seek(0)
    loaded = torch.load(stored, weights_only=True)
    again = network(dtype)
    if order == "network first":
        again.load_state_dict(loaded["model"])
    resumed = Nero(again.parameters(), lr=0.5, beta=0.5)
    if order == "optimizer first":
        again.load_state_dict(loaded["model"])
    resumed.load_state_dict(loaded["optimizer"])
    assert resumed.param_groups[0]["lr"] == pytest.approx(0.027)
    assert resumed.param_groups[0]["beta"] == 0.99
    assert {state["step"] for state in resumed.state.values()} == {5}
    train(again, resumed, 5, start=5)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters()))
    assert optimizer.state_dict()["param_groups"] == resumed.state_dict()["param_groups"]
    for p, q in zip(model.parameters(), again.parameters()):
        assert optimizer.state[p].keys() == {"step", "scale", "v"}
        assert optimizer.state[p]["scale"] == resumed.state[q]["scale"]
        assert torch.equal(optimizer.state[p]["v"], resumed.state[q]["v"])


def test_a_state_of_another_optimizer_is_refused_before_anything_changes() -> None:
    _, optimizer = started()
    before = optimizer.state_dict()
    adam = torch.optim.Adam(network().parameters())
    with pytest.raises(ValueError, match=r"state_dict holds \[\] for parameter 0"):
        optimizer.load_state_dict(adam.state_dict())
    assert optimizer.state_dict()["param_groups"] == before["param_groups"]


def test_a_deep_copy_goes_on_alone() -> None:
    model, optimizer = started()
    train(model, optimizer, 3)
    twin, its = copy.deepcopy((model, optimizer))
    train(twin, its, 3, start=3)
    assert not torch.equal(twin.get_parameter("0.weight"), model.get_parameter("0.weight"))
    train(model, optimizer, 3, start=3)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters()))


def test_groups_added_later_are_projected_and_have_their_own_settings() -> None:
    model, optimizer = started()
    train(model, optimizer, 3)
    late = nn.Parameter(torch.randn(2, 3))
    optimizer.add_param_group({"params": [late], "lr": 0.0})
    torch.testing.assert_close(late.detach().norm(dim=1), torch.ones(2))
    before, other = late.detach().clone(), model.get_parameter("0.weight").detach().clone()
    late.grad = torch.randn(2, 3)
    optimizer.step()
    torch.testing.assert_close(late.detach(), before)
    assert not torch.equal(model.get_parameter("0.weight"), other)
    assert (optimizer.state[late]["step"], optimizer.state[model.get_parameter("0.weight")]["step"]) == (1, 4)


def test_opted_out_and_frozen_weights_keep_their_norm() -> None:
    model = network()
    model.get_parameter("1.weight").requires_grad_(False)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = Nero(param_groups(model, unprojected=("0.weight",)), lr=0.001)
    assert torch.equal(model.get_parameter("0.weight"), before["0.weight"])
    assert torch.equal(model.get_parameter("1.weight"), before["1.weight"])
    scale = float(before["0.weight"].norm(dim=1).mean())
    assert optimizer.state[model.get_parameter("0.weight")]["scale"] == pytest.approx(scale)
    gradient = torch.randn_like(model.get_parameter("0.weight"))
    model.get_parameter("0.weight").grad = gradient
    optimizer.step()
    step = -0.001 * scale * gradient / gradient.norm(dim=1, keepdim=True)
    torch.testing.assert_close(model.get_parameter("0.weight").detach(), before["0.weight"] + step)


def test_transposed_convolutions_are_projected_by_output_channel() -> None:
    layer = nn.ConvTranspose2d(6, 4, 3, groups=2)
    optimizer = Nero(param_groups(layer))
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(2, 6, 4, 4)).square().mean().backward()
        optimizer.step()
    weight = layer.weight.detach()
    for group in (weight[:3], weight[3:]):
        for channel in range(2):
            torch.testing.assert_close(group[:, channel].norm(), torch.tensor(1.0))
            torch.testing.assert_close(group[:, channel].sum(), torch.tensor(0.0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("foreach", [True, False])
def test_weights_that_do_not_lie_in_one_piece(foreach: bool) -> None:
    torch.manual_seed(0)
    plain = [nn.Parameter(torch.randn(4, 3, 2, 2)) for _ in range(2)]
    last = [nn.Parameter(p.detach().clone().contiguous(memory_format=torch.channels_last)) for p in plain]
    one, other = Nero(plain, foreach=foreach), Nero(last, foreach=foreach)
    for _ in range(3):
        for p, q in zip(plain, last):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone().contiguous(memory_format=torch.channels_last)
        one.step()
        other.step()
    for p, q in zip(plain, last):
        assert q.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(p, q)


def test_closures_run_with_gradients() -> None:
    model, optimizer = started()
    twin, its = started()
    x = torch.randn(4, 5)

    def closure() -> float:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.item()

    with torch.no_grad():
        loss = optimizer.step(closure)
    value = twin(x).square().mean()
    value.backward()
    its.step()
    assert loss == value.item()
    assert torch.equal(model.get_parameter("0.weight"), twin.get_parameter("0.weight"))


def test_sparse_gradients_are_refused_before_anything_moves() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Embedding(5, 3, sparse=True))
    optimizer = Nero(model.named_parameters())
    model[1](torch.tensor([1, 2])).sum().backward()
    model[0](torch.rand(2, 3)).sum().backward()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(RuntimeError, match=r"parameter '1.weight' .*sparse"):
        optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))
    assert {state["step"] for state in optimizer.state.values()} == {0}


def test_tensors_without_numbers_and_numbers_without_dimensions() -> None:
    empty, number = nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.tensor(2.0))
    optimizer = Nero([empty, number], lr=0.1)
    empty.grad, number.grad = torch.zeros(0, 3), torch.tensor(-3.0)
    optimizer.step()
    assert number.item() == pytest.approx(2.2)


@pytest.mark.parametrize(
    ("settings_", "error", "sentence"),
    [
        ({"lr": -1.0}, ValueError, r"lr is -1\.0"),
        ({"lr": "0.1"}, TypeError, r"lr is '0\.1'"),
        ({"beta": 1.0}, ValueError, r"beta is 1\.0"),
        ({"project": None}, TypeError, "project is None"),
        ({"foreach": 3}, TypeError, "foreach is 3"),
        ({"axis": 2}, ValueError, "axis is 2"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_settings_that_can_not_be(settings_: dict[str, Any], error: type[Exception], sentence: str) -> None:
    weight = nn.Parameter(torch.randn(2, 3))
    before = weight.detach().clone()
    with pytest.raises(error, match=sentence):
        Nero([weight], **settings_)
    optimizer = Nero([nn.Parameter(torch.randn(2, 3))])
    with pytest.raises(error, match=sentence):
        optimizer.add_param_group({"params": [weight], **settings_})
    assert len(optimizer.param_groups) == 1
    assert torch.equal(weight, before)


@pytest.mark.parametrize(
    ("parameter", "error", "sentence"),
    [
        (torch.zeros(2, 3), ValueError, r"parameter 0 of shape \[2, 3\] has equal numbers in row 0"),
        (torch.tensor([[0.0, math.inf]]), ValueError, r"parameter 0 of shape \[1, 2\]"),
        (torch.zeros(2, 3, dtype=torch.complex64), TypeError, "has dtype torch.complex64"),
    ],
)
def test_parameters_that_can_not_be(parameter: Tensor, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        Nero([nn.Parameter(parameter)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("foreach", [None, True, False])
def test_a_gpu_gives_the_same_weights(foreach: bool | None) -> None:
    trained = []
    for device in ("cpu", "cuda"):
        model = network(torch.float64).to(device)
        optimizer = Nero(model.parameters(), lr=0.03, beta=0.99, foreach=foreach)
        train(model, optimizer, 10)
        trained.append([p.detach().cpu() for p in model.parameters()])
    torch.testing.assert_close(trained[1], trained[0], rtol=1e-7, atol=1e-10)


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2)).to(dtype)


def started(dtype: torch.dtype = torch.float32) -> tuple[nn.Sequential, Nero]:
    model = network(dtype)
    return model, Nero(model.parameters(), lr=0.03, beta=0.99)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, start: int = 0) -> None:
    like = next(model.parameters())
    for step in range(start, start + steps):
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step)).to(like)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("shape", [(300, 2), (70, 25), (1000, 500), (33, 784), (3, 5000), (2, 20_000)])
@pytest.mark.parametrize("lr", [0.01, 3.0])
def test_cuda_the_fused_step_is_the_step(shape: tuple[int, int], lr: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one kernel as in many, with rows without gradients and ones that come after a long silence."""
    torch.manual_seed(0)
    start = torch.randn(shape, device="cuda")
    gradients = [torch.randn_like(start) * 10.0 ** (2 - k % 5) for k in range(6)]
    for k, gradient in enumerate(gradients):
        gradient[0] = 0
        gradient[1] *= float(k > 3)
    found = []
    for fused in (True, False):
        if not fused:
            monkeypatch.setattr("widemargin.optim.nero._can_be_fused", lambda *_: False)
        weight = nn.Parameter(start.clone())
        optimizer = Nero([weight], lr=lr)
        for gradient in gradients:
            weight.grad = gradient.clone()
            optimizer.step()
        found.append(weight.detach().clone())
        rows = weight.detach().double()
        assert rows.mean(dim=1).abs().max() <= 1e-6
        assert (rows.norm(dim=1) - 1).abs().max() <= 1e-6
    assert (found[0] - found[1]).abs().max() <= 1e-6
