"""Trainings that can't come to anything are stopped in a sentence; those that can are left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import widemargin as wm
from training.cases import CPU, UNMEASURED, network, samples
from widemargin import losses
from widemargin.data import Samples
from widemargin.training import SGD, Fit, Measure, StopFailed, TrainingStopped


def run(model: nn.Module | None = None, data: Any = None, **settings: Any) -> Fit:
    given: dict[str, Any] = {"loss": losses.CrossEntropy(), "epochs": 3, "batch_size": 20, "devices": CPU}
    given["callbacks"] = [UNMEASURED]
    return wm.fit(model or network(), samples() if data is None else data, **(given | settings))


def test_a_sample_whose_input_is_not_finite_is_named() -> None:
    x = samples().x.clone()
    x[31, 2] = torch.nan
    with pytest.raises(
        TrainingStopped, match=r"the loss of sample 31 \(label 1\) is nan: its input is not finite"
    ) as e:
        run(data=Samples(x, samples().y))
    assert (e.value.sample, e.value.place) == (31, "input")


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_sample_that_can_not_be_measured_is_named(split: str) -> None:
    """The network is measured before the first step, and there the first sign shows."""
    x = samples().x.clone()
    x[31, 2] = torch.nan
    data = {"train": samples(), "validation": samples(), split: Samples(x, samples().y)}
    part = "" if split == "train" else "validation "
    with pytest.raises(
        TrainingStopped, match=rf"at step 0 \(epoch 0\): the loss of {part}sample 31 \(label 1\) is nan"
    ):
        run(data=data["train"], validation=data["validation"], callbacks=[Measure(samples=40)])


def test_weights_that_blow_up_in_the_last_step_of_an_epoch_are_told_when_measured() -> None:
    with pytest.raises(
        TrainingStopped, match=r"stopped at step 1 \(epoch 1\): .* is nan: the output of '0' is not finite"
    ):
        run(model=network(dtype=torch.float32), data=samples(20), optimizer=SGD(lr=3e38), epochs=2, callbacks=())


def test_a_loader_can_only_tell_the_row() -> None:
    x = samples().x.clone()
    x[31, 2] = torch.inf
    loader = DataLoader(Samples(x, samples().y), batch_size=20)
    with pytest.raises(TrainingStopped, match=r"the loss of sample 11 of the batch \(label 1\) is nan: its input") as e:
        run(data=loader)
    assert e.value.sample is None


@pytest.mark.parametrize("loss", [losses.CrossEntropy(), losses.large_margin(stabilize=None)])
def test_weights_that_blow_up_are_named_with_what_to_try(loss: Any) -> None:
    with pytest.raises(TrainingStopped) as e:
        run(loss=loss, optimizer=SGD(lr=1e200), epochs=30)
    sentence = str(e.value)
    assert "training stopped at step " in sentence
    assert "the loss of sample" in sentence
    assert "try a smaller learning rate (now 1e+200)" in sentence
    assert ("stabilize='scale-free' or a smaller gamma (now 1.0)" in sentence) == isinstance(loss, losses.MarginLoss)


class Square(nn.Module):
    """Overflows for large inputs, with finite weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.power, self.last = nn.Linear(6, 4).double(), Power(), nn.Linear(4, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.power(self.first(x)))
        return out


class Power(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.pow(400)


def test_the_first_place_that_is_not_finite_is_named() -> None:
    x = samples().x.clone()
    x[5] *= 1e6
    with pytest.raises(TrainingStopped, match=r"sample 5 \(label 2\) is nan: the output of 'power' is not finite") as e:
        run(Square(), Samples(x, samples().y), optimizer=SGD(lr=0.0))
    assert (e.value.sample, e.value.place) == (5, "power")


def test_a_place_without_a_gradient_is_named() -> None:
    """As printed, a distance divided by ε + 0 overflows in float32: the sample's gradient there is to blame."""

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((3,), 1e36) * torch.tensor([1.0, 2.0, 3.0]))

        def forward(self, x: Tensor) -> Tensor:
            return (0 * x).sum(dim=1, keepdim=True) + self.weight

    with pytest.raises(TrainingStopped, match="a gradient at 'input' is zero, so there is no distance to the") as e:
        run(Flat(), samples(dtype=torch.float32), loss=losses.odn(stabilize=None))
    assert e.value.place == "input"


def test_a_regularizer_is_watched_too() -> None:
    def broken(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return torch.where(y == 2, torch.inf, 0.0)

    with pytest.raises(TrainingStopped, match=r"\(label 2\) is inf: its scores are finite, so the loss itself"):
        run(regularizers=(broken,))


def dead() -> nn.Sequential:
    model = network()
    model.load_state_dict({"0.bias": torch.full((8,), -1e3)}, strict=False)
    return model


def test_a_network_whose_gradients_are_all_zero_is_dead() -> None:
    model = dead()
    model[3].bias.requires_grad_(False)  # which would still learn the shares of the classes
    with pytest.raises(
        TrainingStopped,
        match=r"stopped at step 3 \(epoch 1\): every gradient of the network was zero for a whole epoch, at a loss of "
        r"1\.\d+ \(from '1' on the network returns the same for every sample\); try another learning rate",
    ) as e:
        run(model)
    assert e.value.place == "1"


def test_a_loss_of_zero_is_not_dead() -> None:
    """All margins beyond γ: no gradient, and nothing left to do."""
    model = nn.Linear(1, 2, bias=False).double()
    model.weight.data = torch.tensor([[100.0], [-100.0]], dtype=torch.float64)
    x = torch.linspace(-2, 2, 20, dtype=torch.float64)[:, None]
    before = model.weight.clone()
    run(model, (x, (x < 0).long().flatten()), loss=losses.MultiClassHinge(gamma=0.1), optimizer=SGD(lr=0.1), epochs=2)
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("rate", [0.0, 1e-9])
def test_a_loss_that_has_not_moved_is_stopped(rate: float) -> None:
    with pytest.raises(
        TrainingStopped, match=r"the loss has not changed from 1.* for 10 epochs; try another learning rate"
    ):
        run(optimizer=SGD(lr=rate), epochs=11, callbacks=[UNMEASURED, StopFailed(epochs=10, steps=30)])


def test_a_dead_network_that_learns_the_shares_of_classes_is_stopped() -> None:
    with pytest.raises(TrainingStopped, match=r"has not changed from 1\.09\d+ for 5 epochs \(from '1' on the network"):
        run(
            dead(),
            samples(48),
            batch_size=48,
            optimizer=SGD(lr=1.0),
            epochs=60,
            callbacks=[UNMEASURED, StopFailed(epochs=5, steps=5)],
        )


def test_a_loss_that_has_come_down_and_rests_is_converged() -> None:
    """Least squares to labels, with orthogonal inputs: half the distance to the minimum is left after a step."""
    x = torch.linalg.qr(samples(48).x).Q * 48**0.5
    callbacks = [StopFailed(epochs=5, steps=5)]
    settings: dict[str, Any] = {"loss": losses.Target(), "optimizer": SGD(lr=0.25), "callbacks": callbacks}
    model = nn.Linear(6, 3, bias=False).double()
    result = run(model, (x, samples(48).y), batch_size=48, epochs=30, **settings)
    values = [value for _, value in result.history.series("objective")]
    assert values[-1] < 0.5 * values[0]
    assert values[-6] - values[-1] < 1e-4 * values[-1]


def test_short_trainings_are_never_judged() -> None:
    run(optimizer=SGD(lr=0.0), epochs=5, callbacks=[UNMEASURED, StopFailed(epochs=5, steps=1)])
    run(optimizer=SGD(lr=0.0), epochs=5, callbacks=[UNMEASURED, StopFailed(epochs=1, steps=16)])  # of the 15 there are


def test_none_watches_nothing() -> None:
    with pytest.raises(TrainingStopped):
        run(optimizer=SGD(lr=0.0), epochs=3, callbacks=[UNMEASURED, StopFailed(epochs=2, steps=1)])
    run(optimizer=SGD(lr=0.0), epochs=3, callbacks=[UNMEASURED, StopFailed(epochs=None)])
    x = samples().x.clone()
    x[0] = torch.nan
    result = run(data=Samples(x, samples().y), loss=Squared(), callbacks=[UNMEASURED, StopFailed(epochs=None)])
    assert any(bool(torch.isnan(p).any()) for p in result.model.parameters())


class Squared:
    """Does not look at what it is given, as the package's own losses do."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return (model(x) - F.one_hot(y, 3)).square().sum(dim=1)


def test_bad_values_get_a_sentence() -> None:
    with pytest.raises(ValueError, match="epochs is 0"):
        StopFailed(epochs=0)
    with pytest.raises(ValueError, match="tolerance is -1"):
        StopFailed(tolerance=-1)
