"""Networks on the plane: their exact slice around some samples, and the exact input margins of these."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin import geometry
from widemargin.data import Samples
from widemargin.types import PerExample


def sliced(network: nn.Module, box: tuple[float, float, float, float]) -> geometry.Slice:
    """All cells in a box (left, right, bottom, top)."""
    e1, e2 = torch.eye(2, dtype=torch.float64)
    piece = geometry.slice2d(network, torch.zeros(2, dtype=torch.float64), e1, e2, box)
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
    """The box that reaches so far to both sides of a point, and `shape` times as far up and down."""
    x, y = centre.tolist()
    return (x - reach, x + reach, y - shape * reach, y + shape * reach)


def input_margins(network: nn.Module, samples: Samples) -> PerExample:
    """γ_in of every sample (sokolic, 14), in float64; 0 where it is misclassified.

    Where no boundary is within the box, its edge stands for it: a lower bound.
    """
    x = samples.x.double()
    return geometry.exact_margin(whole(network, x), x, samples.y, outside="edge")
