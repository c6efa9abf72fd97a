"""Theorems 2, 3 and 5 as a study checks them: they hold of a network, and a wrong number is seen."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin import geometry
from widemargin.data import Samples, load
from widemargin.studies import planes
from widemargin.studies.tasks import distance_preservation as task


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 2)).double()


def test_the_theorems_hold_and_a_wrong_jacobian_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(8, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    row = task.distances(_network(), x[:4], x[4:])
    assert (row["theorem 2"], row["theorem 3"]) == (1.0, 1.0)
    assert row["error"] < 1e-12
    assert row["points"][0]["times"] == pytest.approx(1)
    exact = geometry.average_jacobian
    monkeypatch.setattr(geometry, "average_jacobian", lambda *args: 1.001 * exact(*args))
    assert task.distances(_network(), x[:4], x[4:])["theorem 2"] == 0.0


def test_bounds_of_the_input_margin_and_one_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    train = load("toy").train.select(torch.arange(30))
    samples = Samples(train.x.double(), train.y)
    row = task.input_margins(_network(), samples, exact=True, seed=0)
    assert row["theorem 5"] == 1.0
    shown = {point["at"]["bound"]: point["distance"] for point in row["points"]}
    assert shown["γ_in"] >= shown["Jacobian (19)"] >= shown["γ_out/Π‖W‖_F (20)"] > 0
    exact = planes.input_margins
    monkeypatch.setattr(planes, "input_margins", lambda *args: 0.1 * exact(*args))
    assert task.input_margins(_network(), samples, exact=True, seed=0)["theorem 5"] < 1.0


def test_input_margins_are_those_of_a_line() -> None:
    linear = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    network = nn.Sequential(linear)
    x = torch.tensor([[1.0, 1.0], [-2.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    found = planes.input_margins(network, Samples(x, torch.tensor([0, 0, 0])))
    torch.testing.assert_close(found, torch.tensor([1.4, 0.0, 0.7], dtype=torch.float64))


def test_a_network_without_an_answer_proves_nothing() -> None:
    network = _network()
    for parameter in network.parameters():
        parameter.data.zero_()
    x = torch.randn(8, 2, dtype=torch.float64)
    assert task.distances(network, x[:4], x[4:])["theorem 2"] is None
    wrong = Samples(x, 1 - _network()(x).argmax(dim=1))
    assert task.input_margins(_network(), wrong, exact=True, seed=0) == {"theorem 5": None, "points": []}
