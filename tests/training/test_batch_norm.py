"""Networks with BatchNorm in `fit`: frozen parts keep their statistics, and no batch has one sample."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import widemargin as wm
from training.cases import samples
from widemargin.training import SGD

FIT: dict[str, Any] = {"loss": wm.losses.CrossEntropy(), "optimizer": SGD(lr=0.1), "batch_size": 20, "epochs": 1}


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.BatchNorm1d(8)
        self.body = nn.Sequential(nn.Linear(6, 8), self.norm, nn.Dropout(0.5), nn.ReLU())
        self.head = nn.Linear(8, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(x))
        return scores

    @property
    def steps(self) -> int:
        """The number of batches that BatchNorm has seen."""
        assert self.norm.num_batches_tracked is not None
        return int(self.norm.num_batches_tracked)


def test_a_part_in_evaluation_mode_stays_in_it() -> None:
    model = Classifier().train()
    body = model.body.eval().requires_grad_(False)
    before = {name: value.clone() for name, value in body.state_dict().items()}
    wm.fit(model, samples(), **FIT)
    for name, value in body.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert model.training
    assert not body.training


def test_a_network_in_evaluation_mode_is_trained_as_a_whole() -> None:
    model = Classifier()
    model.eval()
    wm.fit(model, samples(), **FIT)
    assert model.steps == 3


def test_a_last_batch_of_one_sample_is_joined_to_the_one_before() -> None:
    model = Classifier()
    wm.fit(model, samples(41), **FIT)
    assert model.steps == 2


def test_a_batch_of_one_sample_of_a_loader_is_told_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"data has a batch of one sample, .*drop_last") as error:
        wm.fit(Classifier(), DataLoader(samples(41), batch_size=20), **FIT)
    assert "\n" not in str(error.value)
