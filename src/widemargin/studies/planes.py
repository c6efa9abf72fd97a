"""Networks on the plane: their exact slices, input margins, and decision boundaries as points for figures."""

from __future__ import annotations

import copy
import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin import geometry
from widemargin.data import Samples
from widemargin.studies.rows import Row
from widemargin.types import PerExample

BOX = (-2.2, 2.2, -1.7, 1.7)
"""left, right, bottom, top: a box around the toy data."""


def sliced(network: nn.Module, box: tuple[float, float, float, float]) -> geometry.Slice:
    """All cells in a box (left, right, bottom, top)."""
    piece = _slice(network, box)
    if not isinstance(piece, geometry.Slice):
        raise ValueError("network has too many cells on this plane for exact margins, expected a smaller one")
    return piece


def whole(network: nn.Module, x: Float[Tensor, "samples 2"]) -> geometry.Slice:
    """All cells in a box that reaches beyond the samples by their spread on every side."""
    low, high = x.double().amin(dim=0), x.double().amax(dim=0)
    wide = (high - low).max()
    (left, bottom), (right, top) = (low - wide).tolist(), (high + wide).tolist()
    return sliced(network, (left, right, bottom, top))


def box_around(centre: Float[Tensor, 2], reach: float, shape: float = 1.0) -> tuple[float, float, float, float]:
    """The box around `centre` of half-width `reach` and half-height `shape·reach`."""
    x, y = centre.tolist()
    return (x - reach, x + reach, y - shape * reach, y + shape * reach)


def input_margins(network: nn.Module, samples: Samples) -> PerExample:
    """γ_in of every sample (sokolic, 14), in float64; 0 where it is misclassified.

    Where no boundary is within the box, its edge stands for it: a lower bound.
    """
    x = samples.x.double()
    return geometry.exact_margin(whole(network, x), x, samples.y, outside="edge")


def boundary_points(network: nn.Module, train: Samples, *, samples: bool = False, apart: float = 0.05) -> list[Row]:
    """The exact boundary as points of the curve "plane" (elsayed, Fig. 1b), and with `samples` the training samples."""
    piece = geometry.plain(_slice(copy.deepcopy(network).double().cpu(), BOX), cells=False)
    ends = torch.tensor(piece.get("boundary", []), dtype=torch.float64).view(-1, 2, 2)
    points = [point("plane", "boundary", at, digits=4) for at in along(ends, apart)]
    if samples:
        points += [point("plane", f"training sample of class {int(y)}", x, digits=4) for x, y in zip(train.x, train.y)]
    return points


def along(ends: Float[Tensor, "lines 2 2"], apart: float) -> list[Tensor]:
    """Points on straight lines, given by their ends, at most `apart` from the next one."""
    points = []
    for start, end in ends:
        count = max(1, math.ceil(float((end - start).norm()) / apart))
        points += [start + (end - start) * k / count for k in range(count)]
    return points


def point(curve: str, what: str, at: Tensor, digits: int = 3) -> Row:
    """A point of a curve of rows; `what` says what it is."""
    return {"curve": curve, "at": {"what": what, "x1": round(float(at[0]), digits)}, "x2": round(float(at[1]), digits)}


def _slice(network: nn.Module, box: tuple[float, float, float, float]) -> geometry.Slice | geometry.Raster:
    e1, e2 = torch.eye(2, dtype=torch.float64)
    return geometry.slice2d(network, torch.zeros(2, dtype=torch.float64), e1, e2, box)
