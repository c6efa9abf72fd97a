"""`fit` takes the split backward, with the numbers of a loop of plain autograd."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from training.cases import arguments
from training.cases import network as small
from widemargin.losses import MarginLoss
from widemargin.split_backward import sample_layouts
from widemargin.training import Callback, Checkpoint, Devices, FitState, Measure


@pytest.mark.parametrize("memory", [None, 0])
def test_fit_takes_it_and_says_so(memory: int | None) -> None:
    """As a loop of plain autograd, with a regularizer beside the loss."""
    given = arguments("strongest class")
    result = wm.fit(**(given | {"devices": Devices(accelerator="cpu", backward_memory=memory)}))
    measured = {"loss": Plainly(given["loss"]), "callbacks": [Measure(at=given["loss"].at)]}
    wanted = wm.fit(**(arguments("strongest class") | measured))
    for weight, expected in zip(result.model.parameters(), wanted.model.parameters(), strict=True):
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-10)
    for name in ("objective", "loss", "distance at input"):
        for ours, theirs in zip(result.history.series(name), wanted.history.series(name), strict=True):
            assert ours == pytest.approx(theirs, rel=1e-9)
    line = "split backward: 2 layers" if memory is None else "two backwards: memory=0"
    assert result.settings["backward"].startswith(line)
    assert "backward" not in wanted.settings


def test_a_training_in_float32_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Also where the second part begins with a trial of its own, of other weights."""

    def train(folder: Path, stop: int | None = None) -> wm.training.Fit:
        given = arguments("strongest class") | {"model": small(dtype=torch.float32), "callbacks": [Interrupt(stop)]}
        return wm.fit(**given, checkpoint=Checkpoint(folder, every=1))

    whole = train(tmp_path / "whole")
    with pytest.raises(InterruptedError):
        train(tmp_path / "parts", stop=4)
    sample_layouts._known.clear()
    parts = train(tmp_path / "parts")
    assert parts.settings["backward"] == whole.settings["backward"]
    for ours, theirs in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@dataclass(frozen=True)
class Plainly:
    """A loss that `fit` does not know to be a margin loss."""

    loss: MarginLoss
    p: float = 2.0

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return self.loss(model, x, y)


class Interrupt(Callback):
    """Interrupts the training after that step."""

    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_step_end(self, state: FitState) -> None:
        if state.step == self.step:
            raise InterruptedError
