"""The weights of the best measurement: at the end of a training, of a stopped one, and of one that was resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from training.cases import CPU, network, samples
from training.test_fit import weights
from widemargin.training import SGD, BestWeights, Callback, EarlyStopping, FitState

SETTINGS: dict[str, Any] = {
    "loss": wm.losses.CrossEntropy(),
    "optimizer": SGD(lr=0.3),
    "epochs": 8,
    "batch_size": 20,
    "validation": samples(20, seed=5),
    "devices": CPU,
}


class Weights(Callback):
    """The weights at the start and after every epoch."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def on_fit_start(self, state: FitState) -> None:
        self.on_epoch_end(state)

    def on_epoch_end(self, state: FitState) -> None:
        self.seen.append(weights(state.model))


def noisy() -> Any:
    """Half of the labels are wrong, so that the validation loss rises again."""
    data = samples(40)
    return wm.data.flip_labels(data, 0.5, seed=0, classes=3)


def wide() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 3)).double()


@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_network_ends_with_the_weights_of_the_best_row(mode: Literal["min", "max"]) -> None:
    seen = Weights()
    best = BestWeights(monitor="validation/loss", mode=mode)
    found = wm.fit(wide(), noisy(), callbacks=[seen, best], **SETTINGS)
    values = [row["loss"] for row in found.history.rows if row["split"] == "validation"]
    position = values.index(min(values) if mode == "min" else max(values))
    assert 0 < position < 8 or mode == "max"
    assert torch.equal(weights(found.model), seen.seen[position])


def test_a_stopped_training_ends_with_them_too() -> None:
    seen = Weights()
    found = wm.fit(wide(), noisy(), callbacks=[seen, EarlyStopping(patience=2), BestWeights()], **SETTINGS)
    values = [row["loss"] for row in found.history.rows if row["split"] == "validation"]
    assert len(values) < 9
    assert torch.equal(weights(found.model), seen.seen[values.index(min(values))])


def test_a_resumed_training_knows_the_best_weights_of_before(tmp_path: Path) -> None:
    class Stop(Callback):
        def on_epoch_end(self, state: FitState) -> None:
            if stops and state.epoch == 7:
                raise InterruptedError

    stops, settings = True, {**SETTINGS, "checkpoint": wm.training.Checkpoint(tmp_path, every=1)}
    with pytest.raises(InterruptedError):
        wm.fit(wide(), noisy(), callbacks=[Stop(), BestWeights()], **settings)
    stops = False
    resumed = wm.fit(wide(), noisy(), callbacks=[Stop(), BestWeights()], **settings)
    whole = wm.fit(wide(), noisy(), callbacks=[Stop(), BestWeights()], **SETTINGS)
    assert resumed.history.rows == whole.history.rows
    assert torch.equal(weights(resumed.model), weights(whole.model))
    again = wm.fit(wide(), noisy(), callbacks=[Stop(), BestWeights()], **settings)  # finished
    assert torch.equal(weights(again.model), weights(whole.model))


def test_a_second_training_forgets_the_weights_of_the_first() -> None:
    best = BestWeights(monitor="train/accuracy", mode="max")
    given = {**SETTINGS, "callbacks": [best]}
    wm.fit(network(), samples(), **given)
    other = wm.fit(wide(), samples(), **given)
    assert torch.equal(weights(other.model), weights(wm.fit(wide(), samples(), **given).model))


def test_bad_values_are_named() -> None:
    with pytest.raises(ValueError, match="monitor is 'loss'"):
        BestWeights(monitor="loss")
    with pytest.raises(ValueError, match="monitor is 'validation/loss', which was not measured"):
        wm.fit(network(), samples(), callbacks=[BestWeights()], **{**SETTINGS, "validation": None})
