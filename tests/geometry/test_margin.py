from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from geometry.planar import BOX, build
from widemargin import geometry

NAMES = ["relu", "binary", "leaky", "pooled"]


def scene(name: str) -> tuple[geometry.Slice, Tensor, Tensor]:
    """Points of the middle of the box, with labels of which about half are right."""
    _, found = build(name)
    draw = torch.Generator().manual_seed(3)
    points = torch.rand(60, 2, generator=draw, dtype=torch.float64) * 2 - torch.tensor([1.0, 0.5])
    scores = found.scores(points)
    labels = scores.argmax(dim=1) if scores.shape[1] > 1 else scores[:, 0].sign()
    swapped = torch.rand(60, generator=draw) < 0.4
    other = (labels + 1) % scores.shape[1] if scores.shape[1] > 1 else -labels
    return found, points, torch.where(swapped, other, labels)


def right(found: geometry.Slice, points: Tensor, label: Tensor) -> Tensor:
    scores = found.scores(points)
    return scores.argmax(dim=1) == label if scores.shape[1] > 1 else scores[:, 0] * label > 0


@pytest.mark.parametrize("name", NAMES)
def test_against_a_dense_search(name: str) -> None:
    """On circles of less than the margin nothing changes; a little beyond it, something does."""
    found, points, labels = scene(name)
    margins = geometry.exact_margin(found, points, labels, signed=True, outside="edge")
    inner = torch.linalg.inv(found.plane.frame)
    angles = torch.linspace(0, 2 * math.pi, 4_001, dtype=torch.float64)[:-1]
    circle = torch.stack((angles.cos(), angles.sin()), dim=1) @ inner.T
    low, high = torch.tensor(BOX[::2]).double(), torch.tensor(BOX[1::2]).double()
    beyond = 0
    for point, label, margin in zip(points[:12], labels[:12], margins[:12]):
        size = abs(float(margin))
        for share in (0.2, 0.7, 0.999):
            assert bool((right(found, point + share * size * circle, label) == (margin > 0)).all())
        outside = point + (1.01 * size + 1e-3) * circle
        if bool(((outside > low) & (outside < high)).all()):
            assert bool((right(found, outside, label) != (margin > 0)).any())
            beyond += 1
    assert beyond > 2


def test_misclassified_points_have_margin_0() -> None:
    found, points, labels = scene("relu")
    wrong = ~right(found, points, labels)
    plain = geometry.exact_margin(found, points, labels, outside="edge")
    signed = geometry.exact_margin(found, points, labels, outside="edge", signed=True)
    assert 5 < int(wrong.sum()) < 55
    assert (plain[wrong] == 0).all()
    assert (signed[wrong] < 0).all()
    assert torch.equal(plain[~wrong], signed[~wrong])
    assert (plain[~wrong] > 0).all()


def test_an_affine_classifier_in_closed_form() -> None:
    layer = nn.Linear(3, 1)
    origin, u, v = torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).unbind()
    found = geometry.slice2d(nn.Sequential(layer), origin, u, v, (-50, 50, -50, 50))
    assert isinstance(found, geometry.Slice)
    points = torch.tensor([[0.3, -0.2], [1.0, 1.0]], dtype=torch.float64)
    scores = found.scores(points)[:, 0]
    # The distance within the plane: the gradient is projected onto it.
    basis = torch.linalg.qr(torch.stack((u, v), dim=1).double()).Q
    slope = torch.linalg.vector_norm(basis.T @ layer.weight.detach().double()[0])
    exact = geometry.exact_margin(found, points, scores.sign())
    torch.testing.assert_close(exact, scores.abs() / slope, rtol=1e-10, atol=0)


def test_a_boundary_out_of_sight() -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    nn.init.ones_(model[0].weight)  # type: ignore[arg-type]
    nn.init.constant_(model[0].bias, 10.0)  # type: ignore[arg-type]
    found = geometry.slice2d(model, torch.zeros(2), torch.tensor([1.0, 0]), torch.tensor([0.0, 1]), (-1, 1, -1, 1))
    assert isinstance(found, geometry.Slice)
    point, label = torch.tensor([[0.25, 0.0]]), torch.ones(1)
    with pytest.raises(ValueError, match=r"points\[0\] is 0.75"):
        geometry.exact_margin(found, point, label)
    assert float(geometry.exact_margin(found, point, label, outside="edge")) == 0.75
    with pytest.raises(ValueError, match=r"points\[0\] is \[2.0, 0.0\]"):
        geometry.exact_margin(found, torch.tensor([[2.0, 0.0]]), label)
