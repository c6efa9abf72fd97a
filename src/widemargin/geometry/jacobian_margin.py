"""The Jacobian bound of the input margin (sokolic (19)) of a network on the plane, exactly."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin.checks import check_batch, check_count, check_number
from widemargin.geometry.cells import partition
from widemargin.geometry.lines import walk
from widemargin.geometry.network import jacobians, read
from widemargin.geometry.polygons import Plane
from widemargin.layers.network import Network
from widemargin.types import Labels, PerExample

_SEEN = 16  # directions that are tried first, so that a small box of cells is enough
_HALVINGS = 60  # of a sector, to about 1e-18 of a turn
_ROWS = 2**14  # sectors per chunk


def jacobian_margin(
    model: nn.Module,
    x: Float[Tensor, "batch 2"],
    y: Labels,
    *,
    reach: float | int = 10.0,
    tolerance: float = 1e-6,
    max_cells: int = 20_000,
) -> PerExample:
    """sup{c : ‖x − x_i‖ ≤ c ⟹ r^J(x) > 1} (sokolic (19)), a lower bound of γ_in, for inputs of two dimensions.

    r^J(x) > 1 is ‖∇̄(f_y − f_c)‖_2·‖x − x_i‖ < f_y − f_c for every c ≠ y, with ∇̄ the average of the gradient from x_i
    to x, (10), and v = v_y − v_c (erratum 6: only where all regions of the ball can be enumerated). The
    corners of all cells around it cut the turn into sectors, in which every ray visits the same cells and crosses their
    borders at t_j(θ) = t_j/cos(θ − φ_j), so that ∇̄·t is known in closed form. Its smallest t is found by halving
    sectors, each with a bound from below: the answer is not above (19), and within `tolerance` of it, relatively.

    Args:
        model: a network that `geometry` reads, biases allowed.
        x: samples in the plane.
        y: class indices, or ±1 for a network of one output; a misclassified sample has 0 (erratum 2).
        reach: largest distance; a sample whose ball is larger gets `reach`, which is then a lower bound.
        tolerance: relative, of the answer.
        max_cells: more cells than that around a sample are an error.
    """
    check_batch(x, "x")
    if x.ndim != 2 or x.shape[1] != 2:
        raise ValueError(f"x has shape {list(x.shape)}, expected [batch, 2]: (19) is only exact in the plane")
    check_number("reach", reach, above=0.0)
    check_number("tolerance", tolerance, above=0.0)
    check_count("max_cells", max_cells)
    network = read(model, x)
    x = network.double(x)
    found = [
        _one(network, point[None], towards, float(reach), tolerance, max_cells, index)
        for index, (point, towards) in enumerate(zip(x, network.towards(x, y)))
    ]
    return torch.tensor(found, dtype=torch.float64, device=x.device)


def _one(
    network: Network, x: Tensor, towards: Tensor, reach: float, tolerance: float, max_cells: int, index: int
) -> float:
    with torch.no_grad():
        gaps = towards @ network.forward(x)[0]
    if not bool((gaps > 0).all()):
        return 0.0
    # Along any ray the first crossing is an upper bound: beyond it no cell matters.
    angles = torch.arange(_SEEN, dtype=torch.float64, device=x.device) * (2 * math.pi / _SEEN)
    rays = Rays.along(network, x, angles, torch.full_like(angles, reach), towards)
    best = min(float(rays.first_crossings(gaps).min()), reach)
    e1, e2 = torch.eye(2, dtype=torch.float64, device=x.device)
    box = Plane.through(network, x[0], e1, e2, (-best, best, -best, best))
    found = partition(network, box, tolerance=1e-12 * best, max_cells=max_cells)
    if found is None:
        raise ValueError(f"x[{index}] has more than {max_cells} cells within {best:.6g}: see max_cells and reach")
    corners = found[0].corners.flatten(0, 1)
    turn = torch.atan2(corners[:, 1], corners[:, 0]).unique()
    low, high = turn, torch.cat((turn[1:], turn[:1] + 2 * math.pi))
    middle = (low + high) / 2
    edge = best / torch.maximum(middle.cos().abs(), middle.sin().abs())
    return _smallest(Rays.along(network, x, middle, edge, towards), low, high, gaps, best, tolerance)


def _smallest(rays: Rays, low: Tensor, high: Tensor, gaps: Tensor, best: float, tolerance: float) -> float:
    """The smallest t of all sectors, from below: sectors are halved until none may hold a smaller one."""
    sector = torch.arange(len(low), device=low.device)
    for _ in range(_HALVINGS):
        parts = torch.arange(len(sector), device=low.device).split(_ROWS)
        pairs = [rays.bounds(sector[part], low[part], high[part], gaps, best) for part in parts]
        lower, upper = torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs])
        best = min(best, float(upper.min()))
        may_improve = lower < best * (1 - tolerance)
        if not bool(may_improve.any()):
            return best * (1 - tolerance)
        sector, low, high, lower = sector[may_improve], low[may_improve], high[may_improve], lower[may_improve]
        middle = (low + high) / 2
        sector, low, high = sector.repeat(2), torch.cat((low, middle)), torch.cat((middle, high))
    return float(lower.min())


class Rays:
    """Rays from one point, and on each the gradients `[rays, classes, pieces, 2]` of the cells that it visits.

    The border after a piece lies on the line of normal φ at the distance d: a ray of another angle θ meets it at
    d/cos(θ − φ). By continuity the gradient jumps along the normal, which is how φ is known.
    """

    def __init__(self, gradients: Tensor, jumps: Tensor, crossings: Tensor, angles: Tensor) -> None:
        self.gradients = gradients
        self.jumps = torch.linalg.vector_norm(gradients.diff(dim=2), dim=3)  # [rays, classes, borders]
        phase = torch.atan2(jumps[..., 1], jumps[..., 0])  # [rays, borders]
        across = (angles[:, None] - phase).cos()
        self.phase = torch.where(across < 0, phase + math.pi, phase)
        self.distance = crossings * across.abs()
        # No jump, or the noise of one: no border, and the piece after it has no beginning of its own.
        size = torch.linalg.vector_norm(gradients, dim=3).amax(dim=(1, 2))[:, None]
        self.real = torch.linalg.vector_norm(jumps, dim=2) > 1e-12 * size
        self.angles = angles

    @classmethod
    def along(cls, network: Network, x: Tensor, angles: Tensor, length: Tensor, towards: Tensor) -> Rays:
        """Rays of `length` from `x`."""
        u = torch.stack((angles.cos(), angles.sin()), dim=1)
        owner, low, high = walk(network, x.expand(len(u), -1).contiguous(), x + length[:, None] * u)
        inside = ((low + high) / 2 * length[owner])[:, None] * u[owner]
        J = torch.einsum("co,pon->pcn", towards, jacobians(network, x + inside))
        count = torch.bincount(owner, minlength=len(u))
        first = count.cumsum(0) - count
        # Rays of fewer pieces are filled with their last one, after borders without a jump.
        place = torch.minimum(torch.arange(int(count.max()), device=owner.device)[None], count[:, None] - 1)
        index = first[:, None] + place
        gradients = J[index].transpose(1, 2)
        jumps = gradients.diff(dim=2)
        strongest = torch.linalg.vector_norm(jumps, dim=3).argmax(dim=1)  # the class that shows the normal best
        chosen = jumps.gather(1, strongest[:, None, :, None].expand(-1, 1, -1, 2))[:, 0]
        return cls(gradients, chosen, (high * length[owner])[index[:, :-1]], angles)

    def first_crossings(self, gaps: Tensor) -> Tensor:
        """Per ray the least t with ‖∇̄(f_y − f_c)‖·t ≥ f_y − f_c for some c."""
        every = torch.arange(len(self.angles), device=self.angles.device)
        return self.bounds(every, self.angles, self.angles, gaps, math.inf)[1]

    def bounds(self, rays: Tensor, low: Tensor, high: Tensor, gaps: Tensor, end: float) -> tuple[Tensor, Tensor]:
        """Per sector a t that the first crossing of none of its rays is below, and that of its middle ray."""
        phase, distance, real = self.phase[rays], self.distance[rays], self.real[rays]

        def times(angle: Tensor) -> Tensor:
            t = distance / (angle[:, None] - phase).cos().clamp(min=1e-300)
            return torch.where(real, t, 0.0).cummax(dim=1).values.clamp(max=end)

        middle = (low + high) / 2
        here = times(middle)
        sides = torch.stack((times(low), times(high), here))
        # A border is nearest at the foot of its normal, if that lies in the sector.
        off = torch.remainder(phase - middle[:, None] + math.pi, 2 * math.pi) - math.pi
        foot = torch.where(real & (off.abs() < (high - low)[:, None] / 2), distance, here).cummax(dim=1).values
        least = torch.minimum(sides.amin(dim=0), foot).clamp(max=end)
        moved = torch.maximum(sides.amax(dim=0) - here, here - least)
        shift = torch.cumsum(self.jumps[rays] * moved[:, None], dim=2)  # of ∇̄·t, by the borders up to each
        shift = torch.nn.functional.pad(shift, (1, 0))
        begin = torch.cat((torch.zeros_like(low)[:, None], here, least), dim=1).sort(dim=1).values
        gradients = self.gradients[rays]
        piece = torch.searchsorted(here, begin, right=True)
        wide = piece[:, None].expand(-1, gradients.shape[1], -1)
        gradients = gradients.gather(2, wide[..., None].expand(-1, -1, -1, 2))
        passed = torch.searchsorted(least.contiguous(), begin, right=True)[:, None].expand_as(wide)
        targets = gaps[None, :, None].expand(len(rays), -1, begin.shape[1])
        exact = _first(gradients, begin, targets)
        below = exact if bool((low == high).all()) else _first(gradients, begin, targets - shift.gather(2, passed))
        return below, exact


def _first(gradients: Tensor, begin: Tensor, targets: Tensor) -> Tensor:
    """Per ray the least t at which the sum of gradients·width up to it is as long as the target of its piece."""
    widths = begin.diff(dim=1)
    steps = gradients[:, :, :-1] * widths[:, None, :, None]
    start = torch.cat((torch.zeros_like(gradients[:, :, :1]), steps.cumsum(dim=2)), dim=2)
    a, b = gradients.square().sum(dim=3), (start * gradients).sum(dim=3)
    c = start.square().sum(dim=3) - targets.clamp(min=0).square()
    root = (b.square() - a * c).clamp(min=0).sqrt()
    # The form of the root that does not cancel; a gradient of 0 never gets there.
    t = torch.where(b >= 0, -c / (b + root), (root - b) / a)
    t = torch.where(c >= 0, 0.0, t).nan_to_num(nan=math.inf, posinf=math.inf)
    ends = torch.cat((widths, torch.full_like(begin[:, :1], math.inf)), dim=1)[:, None]
    return torch.where(t <= ends, begin[:, None] + t, math.inf).amin(dim=(1, 2))
