"""`class_separation` against a loop, and on clouds and clusters of which the answer is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import oracles_wide_margin as oracle
from widemargin.margins.class_separation import class_separation


def clusters(
    distance: float, *, width: int = 8, networks: int = 3, size: int = 40, classes: int = 3
) -> tuple[Tensor, Tensor]:
    """Standard normal clusters whose centers have length `distance`."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(size).remainder(classes).expand(networks, size)
    centers = torch.nn.functional.normalize(
        torch.randn(classes, width, generator=generator, dtype=torch.float64), dim=1
    )
    noise = torch.randn(networks, size, width, generator=generator, dtype=torch.float64)
    return distance * centers[y] + noise, y


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, math.inf])
@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_values_are_those_of_a_loop(p: float, size: int) -> None:
    """Also of several networks at once, of one number a sample, of one label alone, and of binary labels."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for shape in ((4, size, 3, 5), (4, size, 1), (4, size)):
        y = torch.randint(3, (4, size), generator=generator)
        y[0] = 1
        y[1] = torch.arange(size)  # no label twice
        points = torch.randn(shape, generator=generator, dtype=torch.float64)
        points = points + y.view(4, size, *[1] * (len(shape) - 2)).clamp(max=2)
        for labels in (y, (2.0 * y.remainder(2) - 1).double()):
            expected = [oracle.separation(points[k], labels[k].tolist(), p) for k in range(4)]
            torch.testing.assert_close(class_separation(points, labels, p).tolist(), expected, rtol=1e-9, atol=1e-12)
            found += expected
    assert size < 7 or any(0.01 < c < 0.99 for c in found)


@pytest.mark.parametrize("width", [2, 20, 400])
def test_one_cloud_is_not_separated(width: int) -> None:
    """However many dimensions, and also where a linear rule gives the labels without an error."""
    x, _ = clusters(0.0, width=width, networks=50, size=64)
    random = torch.arange(64).remainder(2).expand(50, 64)
    linear = (x[..., 0] + x[..., 1] > 0).long()
    assert float(class_separation(x, random).square().mean()) < 0.01
    if width > 2:
        assert float(class_separation(x, linear).square().mean()) < 0.02


def test_separation_grows_with_the_distance_of_the_classes() -> None:
    found = [float(class_separation(*clusters(distance)).mean()) for distance in (1.0, 2.0, 4.0, 8.0)]
    assert found == sorted(found)
    assert found[0] < 0.05
    assert found[-1] == 1.0


@pytest.mark.parametrize(("labels", "c"), [(lambda y: y.remainder(2), 1.0), (lambda y: (y // 2) ^ y.remainder(2), 1.0)])
def test_classes_of_several_clusters(labels: object, c: float) -> None:
    """Neighbours tell where class means don't: four far clusters, and the corners of a square."""
    x, y = clusters(40.0, width=2, classes=4)
    x = x + 40 * torch.stack([y.remainder(2), y // 2], dim=-1)
    assert callable(labels)
    torch.testing.assert_close(class_separation(x, labels(y)), torch.full((3,), c, dtype=x.dtype), rtol=0, atol=1e-9)


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize(("scale", "shift"), [(1e3, 0.0), (1e-3, 5.0), (-7.0, 100.0)])
def test_units_order_and_names_of_labels_do_not_matter(p: float, scale: float, shift: float) -> None:
    x, y = clusters(3.0)
    expected = class_separation(x, y, p)
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(1))
    found = class_separation((scale * x + shift)[:, order], 10.5 - 3 * y[:, order].double(), p)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
    assert bool(((expected > 0.01) & (expected < 0.99)).all())


def test_rotations_do_not_matter() -> None:
    x, y = clusters(3.0)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(2), dtype=x.dtype)).Q
    torch.testing.assert_close(class_separation(x @ rotation, y), class_separation(x, y), rtol=1e-9, atol=1e-12)


def test_flipped_labels_leave_clear_classes_of_many_dimensions_separated() -> None:
    """Two in five labels flipped: neighbours disagree, but class means are still far apart in units of a coordinate."""
    x, y = clusters(20.0, width=300, networks=20, size=64, classes=4)
    flipped = torch.rand(y.shape, generator=torch.Generator().manual_seed(3)) < 0.4
    assert float(class_separation(x, torch.where(flipped, (y + 1) % 4, y)).mean()) > 0.9


def test_data_without_spread_are_finite() -> None:
    x, y = torch.ones(2, 6, 3), torch.arange(6).remainder(2).expand(2, 6)
    assert class_separation(x, y).tolist() == [0.0, 0.0]
