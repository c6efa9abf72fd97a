from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor, nn

from geometry.planar import BOX, CASES, build, codes, inside, spread
from widemargin import geometry

NAMES = list(CASES)
E1, E2 = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])


@pytest.mark.parametrize("name", NAMES)
def test_cells_tile_the_box(name: str) -> None:
    _, found = build(name)
    areas = found.cells.areas()
    assert (areas > 0).all()
    assert float(areas.sum()) == pytest.approx(16.0, abs=1e-10)
    assert len(found) > 20


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_has_one_pattern_and_its_map(name: str) -> None:
    model, found = build(name)
    centre = codes(model, found.plane.inputs(found.cells.centroids()))
    for seed in range(3):
        points = inside(found.cells, seed)
        wide = found.cells.areas() > 1e-9  # in a sliver a point may be a rounding away from its border
        assert wide.float().mean() > 0.9
        assert torch.equal(codes(model, found.plane.inputs(points))[wide], centre[wide])
        ours = torch.einsum("cko,ck->co", found.maps[:, :2], points) + found.maps[:, 2]
        torch.testing.assert_close(ours, model(found.plane.inputs(points)).detach(), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_every_pattern_of_the_box_is_one_cell(name: str) -> None:
    """The other way: random points see no pattern that is not a cell, and no two cells share one."""
    model, found = build(name)
    cells = codes(model, found.plane.inputs(found.cells.centroids()))
    draw = torch.Generator().manual_seed(0)
    low, high = torch.tensor(BOX[::2]), torch.tensor(BOX[1::2])
    points = (low + (high - low) * torch.rand(3000, 2, generator=draw)).double()
    seen = codes(model, found.plane.inputs(points))
    known = {tuple(row) for row in cells.tolist()}
    assert {tuple(row) for row in seen.tolist()} <= known
    assert len(known) == len(found)


@pytest.mark.parametrize("name", NAMES)
def test_neighbours_agree_on_their_borders(name: str) -> None:
    """Continuity: a corner that cells share has the same scores in each of them."""
    _, found = build(name)
    values = found.cells.values(found.maps).transpose(1, 2)  # [cells, corners, outputs]
    exact = found.scores(found.cells.corners.flatten(0, 1)).reshape(values.shape)
    torch.testing.assert_close(values, exact, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_decisions_are_the_networks(name: str) -> None:
    _, found = build(name)
    parts = found.decisions()
    assert float(parts.polygons.areas().sum()) == pytest.approx(16.0, abs=1e-10)
    scores = found.scores(inside(parts.polygons))
    label = scores.argmax(dim=1) if scores.shape[1] > 1 else scores[:, 0].sign()
    wide = parts.polygons.areas() > 1e-9
    assert torch.equal(label[wide].double(), parts.label[wide].double())


@pytest.mark.parametrize("name", NAMES)
def test_the_boundary_is_where_the_label_changes(name: str) -> None:
    _, found = build(name)
    boundary = found.boundary()
    assert len(boundary.ends) > 3
    for share in (0.0, 0.3, 1.0):
        points = boundary.ends[:, 0] + share * (boundary.ends[:, 1] - boundary.ends[:, 0])
        scores = _with_zero(found.scores(points))
        top = scores.topk(2, dim=1)
        assert (top.values[:, 0] - top.values[:, 1]).max() < 1e-10
    if name == "scaled":
        return  # without biases scores are 0 in a whole cone, on whose border they tie though the label stays
    # Along random segments: the number of changes of the label is the number of crossings with the boundary.
    draw = torch.Generator().manual_seed(0)
    low, high = torch.tensor(BOX[::2]).double(), torch.tensor(BOX[1::2]).double()
    for _ in range(5):
        start, end = (low + (high - low) * torch.rand(2, generator=draw, dtype=torch.float64) for _ in range(2))
        t = torch.linspace(0, 1, 20001, dtype=torch.float64)[:, None]
        labels = _with_zero(found.scores(start + t * (end - start))).argmax(dim=1)
        assert int((labels.diff() != 0).sum()) == _crossings(start, end, boundary.ends)


def test_ellipses_are_singular_values() -> None:
    _, found = build("pooled")
    ellipses = found.ellipses()
    basis = torch.stack((found.plane.u.flatten(), found.plane.v.flatten()), dim=1) @ torch.linalg.inv(found.plane.frame)
    torch.testing.assert_close(basis.T @ basis, torch.eye(2, dtype=torch.float64))
    model, _ = build("pooled")
    J = geometry.jacobian(model, found.plane.inputs(ellipses.centres)).flatten(2) @ basis
    torch.testing.assert_close(ellipses.axes, torch.linalg.svdvals(J), rtol=1e-8, atol=1e-10)
    stretched = torch.linalg.vector_norm(J @ ellipses.directions.transpose(1, 2), dim=1)
    torch.testing.assert_close(stretched, ellipses.axes, rtol=1e-8, atol=1e-10)
    _, binary = build("binary")
    assert (binary.ellipses().axes[:, 1] == 0).all()


def test_ten_thousand_cells_in_ten_seconds() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for inputs in (2, 64, 64):
            layers += [nn.Linear(inputs, 64), nn.ReLU()]
        model = spread(nn.Sequential(*layers, nn.Linear(64, 3)))
    start = time.process_time()
    found = geometry.slice2d(model, torch.zeros(2), E1, E2, BOX)
    assert time.process_time() - start < 10
    assert found.exact
    assert isinstance(found, geometry.Slice)
    assert len(found) > 8000
    assert float(found.cells.areas().sum()) == pytest.approx(16.0, abs=1e-9)


def test_above_max_cells_it_is_a_raster_and_says_so() -> None:
    model, found = build("relu")
    raster = geometry.slice2d(model, torch.zeros(2), E1, E2, BOX, max_cells=len(found) - 1, pixels=50)
    assert isinstance(raster, geometry.Raster)
    assert not raster.exact
    assert "Raster(50×50 pixels, not exact" in repr(raster)
    assert "exact" in repr(found)
    torch.testing.assert_close(raster.scores.flatten(0, 1), found.scores(raster.points.flatten(0, 1)))
    assert raster.labels().shape == (50, 50)
    assert geometry.slice2d(model, torch.zeros(2), E1, E2, BOX, max_cells=len(found)).exact


@pytest.mark.parametrize("seed", range(4))
def test_lines_that_coincide_and_meet_in_corners(seed: int) -> None:
    """Weights of −1, 0 and 1: units share their lines, which run through corners of cells and of the box."""
    draw = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    for weight in model.parameters():
        weight.data = torch.randint(-1, 2, weight.shape, generator=draw).float()
    found = geometry.slice2d(model, torch.zeros(2), E1, E2, (-2, 2, -2, 2))
    assert isinstance(found, geometry.Slice)
    assert float(found.cells.areas().sum()) == pytest.approx(16.0, abs=1e-10)
    assert float(found.decisions().polygons.areas().sum()) == pytest.approx(16.0, abs=1e-10)
    points = inside(found.cells)
    ours = torch.einsum("cko,ck->co", found.maps[:, :2], points) + found.maps[:, 2]
    torch.testing.assert_close(ours, found.scores(points), rtol=0, atol=1e-11)
    start, end = torch.tensor([[-2.0, -2.0], [-2.0, 0.0]]).double(), torch.tensor([[2.0, 2.0], [2.0, 0.0]]).double()
    moved = torch.einsum("bon,bn->bo", geometry.average_jacobian(model, start, end), end - start)
    torch.testing.assert_close(moved, found.scores(end) - found.scores(start), rtol=0, atol=1e-10)


def test_cells_are_cut_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    _, whole = build("pooled")
    monkeypatch.setattr("widemargin.geometry.cells._NUMBERS", 100_000)
    _, parts = build.__wrapped__("pooled")
    assert len(parts) == len(whole)
    torch.testing.assert_close(parts.cells.areas().sort().values, whole.cells.areas().sort().values)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"u": torch.zeros(2)}, "u and v are parallel or zero"),
        ({"u": torch.tensor([0.0, 2.0])}, "u and v are parallel or zero"),
        ({"box": (1.0, 0.0, 0.0, 1.0)}, r"box is \(1.0, 0.0, 0.0, 1.0\)"),
        ({"max_cells": 0}, "max_cells is 0"),
        ({"v": torch.ones(3)}, r"v has shape \[3\]"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_bad_planes(change: dict[str, object], said: str) -> None:
    arguments: dict[str, object] = {"origin": torch.zeros(2), "u": E1, "v": E2, "box": BOX, **change}
    with pytest.raises(ValueError, match=said):
        geometry.slice2d(nn.Sequential(nn.Linear(2, 2)), **arguments)  # type: ignore[arg-type]


def _with_zero(scores: Tensor) -> Tensor:
    return scores if scores.shape[1] > 1 else torch.cat((scores, torch.zeros_like(scores)), dim=1)


def _crossings(start: Tensor, end: Tensor, segments: Tensor) -> int:
    def side(a: Tensor, b: Tensor, p: Tensor) -> Tensor:
        return ((b - a)[..., 0] * (p - a)[..., 1] - (b - a)[..., 1] * (p - a)[..., 0]).sign()

    a, b = segments[:, 0], segments[:, 1]
    meet = (side(start, end, a) != side(start, end, b)) & (side(a, b, start) != side(a, b, end))
    return int(meet.sum())
