"""Losses as modules that return one number."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import widemargin as wm
from widemargin import losses


def _batch() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return nn.Linear(4, 3), torch.randn(24, 4), torch.arange(24) % 3


def test_mean_is_a_module_whose_value_is_the_mean() -> None:
    model, x, y = _batch()
    criterion = losses.mean(wm.WideMargin())
    assert isinstance(criterion, nn.Module)
    value = criterion(model, x, y)
    torch.testing.assert_close(value, wm.WideMargin()(model, x, y).mean())
    value.backward()
    assert model.weight.grad is not None
    assert "WideMargin" in repr(criterion)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_weights_and_reductions_are_those_of_pytorch(reduction: str) -> None:
    model, x, y = _batch()
    weight = torch.tensor([1.0, 5.0, 0.2])
    criterion = losses.Criterion(losses.CrossEntropy(), weight=weight, reduction=reduction)  # type: ignore[arg-type]
    expected = F.cross_entropy(model(x), y, weight=weight, reduction=reduction)
    torch.testing.assert_close(criterion(model, x, y), expected)


def test_sample_weights_count_as_repetitions() -> None:
    model, x, y = _batch()
    times = torch.randint(0, 4, (24,))
    again = torch.arange(24).repeat_interleave(times)
    found = losses.mean(losses.CrossEntropy())(model, x, y, sample_weight=times.float())
    torch.testing.assert_close(found, F.cross_entropy(model(x[again]), y[again]))


def test_it_moves_and_has_a_state() -> None:
    model, x, y = _batch()
    criterion = losses.Criterion(losses.CrossEntropy(), weight=[1.0, 2.0, 3.0])
    assert list(criterion.state_dict()) == ["weight"]
    other = losses.Criterion(losses.CrossEntropy(), weight=torch.ones(3))
    other.load_state_dict(criterion.state_dict())
    torch.testing.assert_close(other(model, x, y), criterion(model, x, y))
    assert criterion.to("meta").weight.device.type == "meta"  # type: ignore[union-attr]
    inner = losses.mean(nn.CrossEntropyLoss(weight=torch.ones(3)))
    assert list(inner.state_dict()) == ["inner.weight"]
    assert not list(losses.mean(wm.WideMargin()).parameters())


def test_gradients_of_parts_of_a_batch_accumulate() -> None:
    model, x, y = _batch()
    whole = copy.deepcopy(model)
    criterion = losses.mean(F.cross_entropy)
    criterion(whole, x, y).backward()
    for part in range(4):
        (criterion(model, x[part::4], y[part::4]) / 4).backward()
    torch.testing.assert_close(model.weight.grad, whole.weight.grad)


def test_a_process_alone_computes_it_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = _batch()
    expected = F.cross_entropy(model(x), y)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda *_: pytest.fail("it waits for the other process"))
    torch.testing.assert_close(losses.mean(losses.CrossEntropy())(model, x, y), expected)


def test_fit_takes_it() -> None:
    _, x, y = _batch()
    model, trained = nn.Linear(4, 3), []
    weight = (1.0, 2.0, 3.0)
    for loss in (
        losses.Criterion(losses.CrossEntropy(), weight=weight),
        nn.CrossEntropyLoss(weight=torch.tensor(weight)),
    ):
        network = copy.deepcopy(model)
        wm.fit(network, (x, y), loss=loss, epochs=2, batch_size=12)
        trained.append(network.weight.detach())
    torch.testing.assert_close(*trained)
    assert losses.as_loss(losses.mean(wm.WideMargin())) == wm.WideMargin()
    with pytest.raises(ValueError, match="reduction"):
        wm.fit(model, (x, y), loss=losses.Criterion(losses.CrossEntropy(), reduction="sum"), epochs=1)


@pytest.mark.usefixtures("untyped")
def test_a_wrong_reduction_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match="reduction"):
        losses.Criterion(losses.CrossEntropy(), reduction="average")  # type: ignore[arg-type]
