"""What is drawn says what the network says: at random points, the last polygon that holds a point has its label."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from geometry.planar import BOX, build
from widemargin import geometry
from widemargin.geometry.plain import merged


def drawn(parts: list[dict[str, Any]], point: list[float]) -> int | None:
    """The label of the polygon on top, by the even-odd rule."""
    label = None
    for part in parts:
        corners = part["corners"]
        crossed = 0
        for (x1, y1), (x2, y2) in zip(corners, corners[1:] + corners[:1]):
            if (y1 > point[1]) != (y2 > point[1]):
                crossed += point[0] < x1 + (point[1] - y1) / (y2 - y1) * (x2 - x1)
        label = part["label"] if crossed % 2 else label
    return label


def points() -> Tensor:
    draw = torch.Generator().manual_seed(2)
    low, high = torch.tensor(BOX[::2]), torch.tensor(BOX[1::2])
    return (low + (high - low) * torch.rand(300, 2, generator=draw)).double()


@pytest.mark.parametrize("cells", [True, False])
@pytest.mark.parametrize("name", ["relu", "binary", "leaky", "scaled", "pooled"])
def test_the_parts_have_the_labels_of_the_network(name: str, cells: bool) -> None:
    _, found = build(name)
    values = geometry.plain(found, cells=cells)
    json.dumps(values, allow_nan=False)
    scores = found.scores(points())
    labels = scores.argmax(dim=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).long()
    assert [drawn(values["parts"], point) for point in points().tolist()] == labels.tolist()
    if cells:
        assert len(values["parts"]) == len(found.decisions().label)
        assert all(part["slope"] >= 0 for part in values["parts"])
    else:
        assert len(values["parts"]) < len(found) / 2


def test_boundaries_between_cells_are_listed_once() -> None:
    _, found = build("relu")
    values = geometry.plain(found)
    assert len(values["boundary"]) <= len(found.boundary().ends)
    assert len({tuple(round(side, 9) for side in row) for row in values["boundary"]}) == len(values["boundary"])
    ends = torch.tensor(values["boundary"], dtype=torch.float64).reshape(-1, 2)
    top = found.scores(ends).topk(2, dim=1).values
    torch.testing.assert_close(top[:, 0], top[:, 1], rtol=0, atol=1e-9)


def test_runs_of_a_raster_tile_the_box() -> None:
    model, _ = build("relu")
    e1, e2 = torch.eye(2, dtype=torch.float64)
    raster = geometry.slice2d(model, torch.zeros(2).double(), e1, e2, BOX, max_cells=3, pixels=20)
    assert isinstance(raster, geometry.Raster)
    runs = geometry.plain(raster)["runs"]
    assert sum((b - a) * (d - c) for a, b, c, d, _ in runs) == pytest.approx(16.0)
    labels = raster.labels()
    for row in range(20):
        for column in range(20):
            x, y = raster.points[row, column].tolist()
            found = [label for a, b, c, d, label in runs if a < x < b and c < y < d]
            assert found == [int(labels[row, column])]


def test_ellipses_have_the_singular_values_as_half_axes() -> None:
    model, found = build("relu")
    lines = geometry.outlines(found, size=0.1)
    assert 3 < len(lines) <= len(found)
    largest = float(found.ellipses().axes.max())
    for line in lines:
        ring = torch.tensor(line, dtype=torch.float64)
        centre = ring[:-1].mean(dim=0)
        J = geometry.jacobian(model, centre[None])[0]
        away = torch.linalg.vector_norm(ring - centre, dim=1)
        axes = torch.linalg.svdvals(J) * 0.1 / largest
        assert float(away.max()) == pytest.approx(float(axes[0]), rel=1e-6)
        assert float(away.min()) == pytest.approx(float(axes[1]), rel=1e-6, abs=1e-12)


def test_merging_keeps_holes_behind_what_fills_them() -> None:
    ring = [
        [[0.0, 0.0], [3.0, 0.0], [2.0, 1.0], [1.0, 1.0]],
        [[3.0, 0.0], [3.0, 3.0], [2.0, 2.0], [2.0, 1.0]],
        [[3.0, 3.0], [0.0, 3.0], [1.0, 2.0], [2.0, 2.0]],
        [[0.0, 3.0], [0.0, 0.0], [1.0, 1.0], [1.0, 2.0]],
    ]
    hole = [[1.0, 1.0], [2.0, 1.0], [2.0, 2.0], [1.0, 2.0]]
    found = merged([hole, *ring], [1, 0, 0, 0, 0], 1e-9)
    assert found is not None
    assert [(len(outline), label) for outline, label in found] == [(4, 0), (4, 1)]


def test_edges_that_do_not_meet_are_not_merged() -> None:
    left = [[0.0, 0.0], [1.0, 0.0], [1.0, 2.0], [0.0, 2.0]]
    right = [[1.0, 0.0], [2.0, 0.0], [2.0, 1.0], [1.0, 1.0]]  # half as high
    found = merged([left, right], [0, 0], 1e-9)
    assert found is None or sum(len(outline) for outline, _ in found) == 8
