from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from widemargin.optim import Projected, param_groups, to_centred_unit_rows, to_frobenius_sphere, to_spectral_sphere

INNER: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


@pytest.mark.parametrize("name", INNER)
def test_it_is_the_optimizer_and_then_the_projection(name: str) -> None:
    model, twin = network(), network()
    optimizer = Projected(INNER[name](model.parameters()), to_frobenius_sphere)
    by_hand = INNER[name](twin.parameters())
    project(twin)
    for step in range(6):
        losses = [objective(m, step) for m in (model, twin)]
        optimizer.zero_grad()
        by_hand.zero_grad()
        for loss in losses:
            loss.backward()
        optimizer.step()
        by_hand.step()
        project(twin)
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters()))
        for weight in (model.get_parameter("0.weight"), model.get_parameter("2.weight")):
            assert weight.norm().item() == pytest.approx(math.sqrt(len(weight)), rel=1e-6)


@pytest.mark.parametrize("projection", [to_centred_unit_rows, to_frobenius_sphere, to_spectral_sphere])
def test_the_constraint_holds_from_the_start_and_vectors_are_left_alone(projection: Callable[..., Tensor]) -> None:
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = Projected(torch.optim.SGD(model.parameters(), lr=0.0), projection)
    train(model, optimizer, 1)
    for p, old in zip(model.parameters(), before):
        assert torch.equal(p, projection(old) if p.ndim > 1 else old)


def test_schedules_see_the_optimizer() -> None:
    model = network()
    optimizer = Projected(INNER["sgd"](model.parameters()), to_frobenius_sphere)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for _ in range(2):
        train(model, optimizer, 1)
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == optimizer.optimizer.param_groups[0]["lr"] == 0.025
    assert isinstance(optimizer, torch.optim.Optimizer)


def test_closures() -> None:
    model = network()
    optimizer = Projected(torch.optim.LBFGS(model.parameters(), max_iter=3), to_frobenius_sphere)
    calls = []

    def closure() -> float:
        optimizer.zero_grad()
        loss = objective(model, 0)
        loss.backward()
        calls.append(loss.item())
        return calls[-1]

    with torch.no_grad():
        assert optimizer.step(closure) == calls[0]
    assert len(calls) > 1
    assert model.get_parameter("0.weight").norm().item() == pytest.approx(math.sqrt(8), rel=1e-6)


def test_a_resumed_training_is_the_same_bit_for_bit() -> None:
    model = network()
    optimizer = Projected(INNER["adam"](model.parameters()), to_frobenius_sphere)
    train(model, optimizer, 3)
    stored = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    assert stored[1]["state"][0]["step"] == 3
    train(model, optimizer, 3, start=3)
    again = network()
    again.load_state_dict(stored[0])
    resumed = Projected(INNER["adam"](again.parameters()), to_frobenius_sphere)
    resumed.load_state_dict(stored[1])
    train(again, resumed, 3, start=3)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters()))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_goes_on_alone_and_projects(copied: Callable[[Any], Any]) -> None:
    model = network()
    optimizer = Projected(INNER["sgd"](model.parameters()), to_frobenius_sphere)
    train(model, optimizer, 2)
    twin, its = copied((model, optimizer))
    train(twin, its, 2, start=2)
    assert not torch.equal(twin.get_parameter("0.weight"), model.get_parameter("0.weight"))
    train(model, optimizer, 2, start=2)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters()))
    assert twin.get_parameter("0.weight").norm().item() == pytest.approx(math.sqrt(8), rel=1e-6)


def test_groups_opt_out_are_added_later_and_know_their_axis() -> None:
    layer = nn.ConvTranspose2d(6, 4, 3, groups=2)
    free, frozen, late = (nn.Parameter(torch.full((2, 3), 5.0)) for _ in range(3))
    frozen.requires_grad_(False)
    groups = [*param_groups(layer), {"params": [free], "project": False}, {"params": [frozen]}]
    optimizer = Projected(torch.optim.SGD(groups, lr=0.1), to_frobenius_sphere)
    optimizer.add_param_group({"params": [late]})
    assert layer.weight.norm().item() == pytest.approx(2.0)  # 4 output channels
    assert [p.norm().item() for p in (free, frozen)] == [pytest.approx(5 * math.sqrt(6))] * 2
    assert late.norm().item() == pytest.approx(math.sqrt(2))


def test_hooks_run() -> None:
    model = network()
    optimizer = Projected(INNER["sgd"](model.parameters()), to_frobenius_sphere)
    ran = []
    optimizer.register_step_pre_hook(lambda *_: ran.append("pre"))
    optimizer.register_step_post_hook(lambda *_: ran.append("post"))
    optimizer.register_state_dict_pre_hook(lambda *_: ran.append("state"))
    optimizer.register_state_dict_post_hook(lambda *_: ran.append("stated"))
    optimizer.register_load_state_dict_pre_hook(lambda *_: ran.append("load"))
    optimizer.register_load_state_dict_post_hook(lambda *_: ran.append("loaded"))
    train(model, optimizer, 1)
    optimizer.load_state_dict(optimizer.state_dict())
    assert ran == ["pre", "post", "state", "stated", "load", "loaded"]


def test_its_repr_names_both() -> None:
    optimizer = Projected(INNER["sgd"](network().parameters()), to_frobenius_sphere)
    assert repr(optimizer).startswith("Projected(SGD (")
    assert repr(optimizer).endswith("to_frobenius_sphere)")


@pytest.mark.usefixtures("untyped")
def test_what_can_not_be() -> None:
    sgd = INNER["sgd"](network().parameters())
    nothing: Any = None
    with pytest.raises(TypeError, match="optimizer is a NoneType"):
        Projected(nothing, to_frobenius_sphere)
    with pytest.raises(TypeError, match="projection is None"):
        Projected(sgd, nothing)
    with pytest.raises(ValueError, match=r"projection .*\[5, 8\].*\[8, 5\]"):
        Projected(sgd, lambda w: w.T)


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))


def objective(model: nn.Module, step: int) -> Tensor:
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step))
    loss: Tensor = model(x).square().mean()
    return loss


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, start: int = 0) -> None:
    for step in range(start, start + steps):
        optimizer.zero_grad()
        objective(model, step).backward()
        optimizer.step()


@torch.no_grad()
def project(model: nn.Module) -> None:
    for p in model.parameters():
        if p.ndim > 1:
            p.copy_(to_frobenius_sphere(p))
