"""Criteria of PyTorch as losses: the mean is what PyTorch returns, and `fit` trains as a plain loop does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import widemargin as wm
from training.cases import CPU
from widemargin import attacks, losses
from widemargin.losses.protocol import is_capturable
from widemargin.training import SGD, Checkpoint, TrainingStopped

WEIGHT = torch.tensor([1.0, 5.0, 0.2])


def _batch(classes: int = 3) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(20, 4)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    return nn.Linear(4, classes), x, y if classes > 1 else 2.0 * (y > 0) - 1


def reduced_by_hand(scores: Tensor, y: Tensor) -> Tensor:
    """A criterion of a user: one number a batch."""
    return -F.log_softmax(scores, dim=1).gather(1, y[:, None]).mean() + 0.01 * scores.square().mean()


class WithReduction(nn.Module):
    """A criterion of a user that has a `reduction`, but returns one number a batch whatever it is."""

    reduction = "mean"

    def forward(self, scores: Tensor, y: Tensor) -> Tensor:
        return reduced_by_hand(scores, y)


CRITERIA: list[Callable[[Tensor, Tensor], Tensor]] = [
    F.cross_entropy,
    partial(F.cross_entropy, label_smoothing=0.1),
    partial(F.cross_entropy, weight=WEIGHT, reduction="sum"),
    partial(F.cross_entropy, reduction="none"),
    nn.CrossEntropyLoss(),
    nn.CrossEntropyLoss(label_smoothing=0.1),
    nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.2),
    nn.CrossEntropyLoss(reduction="sum"),
    nn.CrossEntropyLoss(ignore_index=0),
    partial(F.cross_entropy, ignore_index=1),
    nn.MultiMarginLoss(weight=WEIGHT),
    reduced_by_hand,
    WithReduction(),
    lambda scores, y: F.cross_entropy(scores, y),
]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_mean_and_its_gradients_are_those_of_the_criterion(criterion: Callable[[Tensor, Tensor], Tensor]) -> None:
    model, x, y = _batch()
    other = copy.deepcopy(model)
    values = losses.as_loss(criterion)(model, x, y.int())
    assert values.shape == (20,)
    values.mean().backward()
    expected = criterion(other(x), y).mean()
    expected.backward()
    torch.testing.assert_close(values.mean(), expected)
    for one, two in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(one.grad, two.grad)


@pytest.mark.parametrize(
    "criterion", [nn.MSELoss(), nn.BCEWithLogitsLoss(), F.smooth_l1_loss, nn.MSELoss(reduction="sum")]
)
def test_elementwise_criteria_have_one_hot_labels(criterion: Callable[[Tensor, Tensor], Tensor]) -> None:
    model, x, y = _batch()
    expected = criterion(model(x), F.one_hot(y, 3).float())
    torch.testing.assert_close(losses.as_loss(criterion)(model, x, y).mean(), expected)


@pytest.mark.parametrize("criterion", [nn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits, nn.SoftMarginLoss()])
def test_binary_networks_have_labels_of_the_criterion(criterion: Callable[[Tensor, Tensor], Tensor]) -> None:
    model, x, y = _batch(1)
    found = losses.as_loss(criterion)(model, x, y)
    torch.testing.assert_close(found, losses.CrossEntropy()(model, x, y))  # all three are softplus(−f·y)


@pytest.mark.parametrize("loss", [F.cross_entropy, nn.CrossEntropyLoss(label_smoothing=0.1), reduced_by_hand])
def test_fit_trains_as_a_plain_loop_does(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    model, x, y = _batch()
    other = copy.deepcopy(model)
    result = wm.fit(model, (x, y), loss=loss, epochs=5, batch_size=20, optimizer=SGD(lr=0.1), devices=CPU)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss(other(x), y).backward()
        optimizer.step()
    for one, two in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
    assert float(result.history.last()["loss"]) == pytest.approx(float(loss(other(x), y).detach()), rel=1e-4)


def test_other_places_that_take_losses_take_criteria() -> None:
    model, x, y = _batch()
    wide = losses.WideMargin(base=nn.CrossEntropyLoss())
    torch.testing.assert_close(wide(model, x, y), losses.WideMargin()(model, x, y))
    x = x.sigmoid()
    assert attacks.Adversarial(loss=losses.as_loss(F.cross_entropy), steps=2)(model, x, y).shape == (20,)
    networks = [nn.Linear(4, 3) for _ in range(2)]
    found = wm.population.fit(networks, (x, y), loss=losses.as_loss(F.cross_entropy), steps=2, optimizer=SGD(lr=0.1))
    assert len(found.networks) == 2


def test_settings_tell_criteria_apart_so_that_a_checkpoint_does(tmp_path: object) -> None:
    named = [repr(losses.as_loss(criterion)) for criterion in CRITERIA[:-1]]
    assert len(set(named)) == len(named)
    assert "label_smoothing=0.1" in named[5]
    assert "5.0" in named[6]
    model, x, y = _batch()
    checkpoint = Checkpoint(str(tmp_path))
    wm.fit(copy.deepcopy(model), (x, y), loss=nn.CrossEntropyLoss(), epochs=1, checkpoint=checkpoint)
    with pytest.raises(ValueError, match="loss"):
        wm.fit(model, (x, y), loss=nn.CrossEntropyLoss(label_smoothing=0.1), epochs=1, checkpoint=checkpoint)


def test_criteria_of_torch_are_captured_in_cuda_graphs_and_others_are_not() -> None:
    assert is_capturable(losses.as_loss(nn.CrossEntropyLoss()))
    assert is_capturable(losses.as_loss(partial(F.cross_entropy, label_smoothing=0.1)))
    assert is_capturable(losses.WideMargin())
    assert is_capturable(losses.WideMargin(base=F.cross_entropy))
    assert not is_capturable(losses.as_loss(reduced_by_hand))
    assert not is_capturable(losses.WideMargin(base=reduced_by_hand))


def test_losses_of_networks_stay_what_they_are() -> None:
    def own(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y, reduction="none")

    for loss in (own, losses.WideMargin(), losses.Target(alpha=(1.0, 2.0)), lambda *given: own(*given)):
        assert losses.as_loss(loss) is loss


class Learned(nn.Module):
    """A criterion with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, scores: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.scale * scores, y)


def test_bad_criteria_get_a_sentence() -> None:
    model, x, y = _batch()
    with pytest.raises(TypeError, match="parameters of its own"):
        losses.as_loss(Learned())
    with pytest.raises(TypeError, match="loss"):
        losses.as_loss(nn.CrossEntropyLoss)
    with pytest.raises(ValueError, match="BCEWithLogitsLoss"):
        losses.as_loss(F.cross_entropy)(*_batch(1))
    with pytest.raises(ValueError, match="HingeEmbeddingLoss"):
        losses.as_loss(nn.HingeEmbeddingLoss())(model, x, y)
    with pytest.raises(ValueError, match="shape"):
        losses.as_loss(lambda scores, y: scores * y[:, None])(model, x, y)
    with pytest.raises((ValueError, TrainingStopped), match="nan"):
        wm.fit(model, (x, y), loss=lambda scores, y: scores.sum() * torch.nan, epochs=1)
