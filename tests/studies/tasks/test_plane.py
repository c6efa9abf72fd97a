"""What a study keeps of a network on the plane, and that a wrong number is seen."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin import geometry
from widemargin.data import Samples, load
from widemargin.studies import planes
from widemargin.studies.tasks import plane


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 2)).double()


def test_cells_are_affine_and_a_moved_network_is_seen() -> None:
    network, x = _network(), load("toy").train.x.double()
    piece = planes.whole(network, x)
    assert plane.regions(network, piece)["affine"] == 1.0
    with torch.no_grad():
        next(network.parameters()).mul_(1.01)
    assert plane.regions(network, piece)["affine"] < 0.5


def test_sets_are_nested_and_their_curves_lie_on_their_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    network, train = _network(), load("toy").train
    samples = Samples(train.x.double(), train.y)
    margins = planes.input_margins(network, samples)
    chosen = int(margins.argmax())
    one, margin = samples.select(torch.tensor([chosen])), float(margins[chosen])
    row = plane.around(network, one, margin, count=9)
    assert row["nested"] == 1.0
    assert 0 <= row["area R^F"] < row["area R^J"] <= 1
    circle = [(p["at"]["x1"], p["x2"]) for p in row["points"] if p["at"]["what"] == "r^F = 1"]
    radii = (torch.tensor(circle, dtype=torch.float64) - one.x).norm(dim=1)
    torch.testing.assert_close(radii, radii.mean().expand_as(radii), atol=2e-3, rtol=0)
    assert float(radii.mean()) <= margin
    whole = geometry.sets
    monkeypatch.setattr(
        geometry, "sets", lambda *args: geometry.Sets(**{**vars(whole(*args)), "decision": -whole(*args).decision})
    )
    assert plane.around(network, one, margin, count=9)["nested"] < 1.0
