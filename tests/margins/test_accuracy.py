"""How many samples a network answers rightly."""

from __future__ import annotations

import torch
from torch import nn

import widemargin as wm
from widemargin.data import Samples
from widemargin.margins.measurement import accuracy


def test_classes_and_signs_are_counted_in_evaluation_mode() -> None:
    x = torch.tensor([[1.0], [-2.0], [3.0], [-4.0], [5.0]])
    signs = torch.tensor([1.0, -1.0, -1.0, -1.0, 1.0])
    sign = nn.Sequential(nn.Dropout(0.99), nn.Linear(1, 1, bias=False)).train()
    nn.init.ones_(sign[1].weight)  # type: ignore[arg-type]
    assert accuracy(sign, Samples(x, signs), batch_size=2) == 0.8
    assert sign.training
    both = nn.Linear(1, 2, bias=False)
    both.weight.data = torch.tensor([[-1.0], [1.0]])
    assert accuracy(both, Samples(x, (signs > 0).long()), batch_size=2) == 0.8
    nn.init.zeros_(sign[1].weight)  # type: ignore[arg-type]
    measured = wm.measure(sign, Samples(x, signs), at=("output",))
    assert accuracy(sign, Samples(x, signs)) == measured.accuracy
