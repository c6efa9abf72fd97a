from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from geometry.planar import build
from widemargin import geometry, norms
from widemargin.margins.output import output


def scene(name: str) -> tuple[nn.Sequential, Tensor, Tensor, Tensor]:
    model, found = build(name)
    x = found.plane.inputs(torch.tensor([[0.5, 0.4]]))
    scores = found.scores(torch.tensor([[0.5, 0.4]]))
    label = scores.argmax(dim=1) if scores.shape[1] > 1 else scores[:, 0].sign()
    near = 0.7 * torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    near[:200] *= 0.05
    return model, x, label, found.plane.inputs(near + torch.tensor([0.5, 0.4]))


@pytest.mark.parametrize("name", ["relu", "binary", "leaky", "scaled", "pooled"])
def test_the_sets_lie_in_each_other(name: str) -> None:
    model, x, label, points = scene(name)
    found = geometry.sets(model, x, label, points)
    assert (found.decision >= found.jacobian - 1e-10).all()
    assert (found.jacobian >= found.frobenius - 1e-10).all()
    decision, jacobian, frobenius = found.members()
    assert (decision >= jacobian).all()
    assert (jacobian >= frobenius).all()
    right = output(model(points), label.expand(len(points))) > 0
    assert torch.equal(decision, right)
    assert 0 < int(jacobian.sum()) < len(points)


@torch.no_grad()
def test_the_values_of_a_binary_network() -> None:
    """(16) and (17) by hand, point by point."""
    model, x, label, points = scene("binary")
    found = geometry.sets(model, x, label, points[:20])
    features, v = model[:-1], weight(model, -1)[0]
    assert isinstance(features, nn.Sequential)
    gamma = float(label[0] * model(x)[0, 0] / v.norm())
    product = float(norms.frobenius(weight(model, 0)) * norms.frobenius(weight(model, 2)))
    for index, point in enumerate(points[:20]):
        way = point - x[0]
        J = geometry.average_jacobian(features, x, point[None])[0]
        r = gamma - float(label[0] * v @ (features(x)[0] - features(point[None])[0]) / v.norm())
        assert float(found.decision[index]) == pytest.approx(r, abs=1e-10)
        assert float(found.jacobian[index]) == pytest.approx(gamma - float((v @ J).norm() / v.norm() * way.norm()))
        assert float(found.frobenius[index]) == pytest.approx(gamma - product * float(way.norm()))


def weight(model: nn.Sequential, index: int) -> Tensor:
    layer = model[index]
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach()


def test_what_has_no_sets() -> None:
    model, x, label, points = scene("binary")
    with pytest.raises(ValueError, match="x has the output margin"):
        geometry.sets(model, x, -label, points)
    with pytest.raises(ValueError, match="does not end in a linear layer"):
        geometry.sets(nn.Sequential(nn.Linear(2, 1), nn.ReLU()), x, label, points)
