"""Boundaries as points."""

from __future__ import annotations

import pytest
import torch

from widemargin import models
from widemargin.data import Samples
from widemargin.studies import planes


def test_the_points_lie_on_the_boundary_close_together(untyped: None) -> None:
    network = models.toy_mlp(hidden=(4,))  # f_0 = |x_1|, f_1 = x_2
    with torch.no_grad():
        network.get_parameter("fc1.weight").copy_(torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]]))
        network.get_parameter("output.weight").copy_(torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, -1]]))
        for name in ("fc1.bias", "output.bias"):
            network.get_parameter(name).zero_()
    train = Samples(torch.tensor([[0.5, 0.25], [1.0, -1.0]]), torch.tensor([0, 1]))
    points = planes.boundary_points(network, train, samples=True)
    assert next(network.parameters()).dtype == torch.float32  # the network is left as it was
    on = torch.tensor([[p["at"]["x1"], p["x2"]] for p in points if p["at"]["what"] == "boundary"])
    assert len(on) > 10
    torch.testing.assert_close(on[:, 1], on[:, 0].abs(), atol=1e-3, rtol=0)  # they are rounded to four digits
    assert float(on[:, 0].min()) < -1.5
    assert float(on[:, 0].max()) > 1.5
    nearest = torch.cdist(on, on).fill_diagonal_(9).min(dim=1).values
    assert float(nearest.max()) <= 0.051
    shown = [p for p in points if p["at"]["what"] != "boundary"]
    assert [(p["at"]["what"], p["at"]["x1"], p["x2"]) for p in shown] == [
        ("training sample of class 0", 0.5, 0.25),
        ("training sample of class 1", 1.0, -1.0),
    ]
    assert len(planes.boundary_points(network, train)) == len(on)


@pytest.mark.usefixtures("untyped")
def test_a_network_without_a_boundary_has_no_points() -> None:
    network = models.toy_mlp(hidden=())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.get_parameter("output.bias")[0] = 1.0
    assert planes.boundary_points(network, Samples(torch.zeros(1, 2), torch.tensor([0]))) == []
