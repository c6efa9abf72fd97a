"""The Frobenius norm of the whole Jacobian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin import places
from widemargin.checks import check_count
from widemargin.modules import scores_of
from widemargin.places import At, BatchStatistics
from widemargin.regularizers.second_pass import check_pass, check_settings, gradients_at, second_pass
from widemargin.types import Labels, PerExample, Scores, wide


@dataclass(frozen=True, kw_only=True)
class JacobianFrobenius:
    """λ ½‖J(x)‖²_F of every sample, with J the Jacobian of the k scores (Hoffman, Roberts, Yaida 2019, eqs. 3 to 5).

    ‖J‖²_F = k·E‖uᵀJ‖²_2 over u uniform on the unit sphere of the k scores. The mean over `projections` random
    directions is unbiased, at one backward pass each; the exact value takes k. Passes are batched (`At.columns`).
    Works with any network. Each sample has its own directions, drawn in each call from torch's global CPU generator.

    Args:
        weight: λ ≥ 0.
        projections: number of random directions, or None for the exact value.
        at: the place whose Jacobian it is.
        statistics: gradients through BatchNorm in training mode, see `places`.
    """

    weight: float
    projections: int | None = 1
    at: str = places.INPUT
    statistics: BatchStatistics = "coupled"
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self.weight, self.at, self.statistics)
        if self.projections is not None:
            check_count("projections", self.projections)

    def __call__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Labels,
        *,
        directions: Float[Tensor, "batch projections classes"] | None = None,
    ) -> PerExample:
        """The regularizer of every sample of a batch, by a forward pass of its own, see `second_pass`.

        `directions` are unit vectors u that replace the random ones.
        """
        with second_pass(model) as network, places.watch(network, (self.at,), statistics=self.statistics) as at:
            scores = scores_of(network(x))
        return self.of(scores, y, at=at, directions=directions)

    def of(
        self,
        scores: Scores,
        y: Labels,
        *,
        at: At,
        directions: Float[Tensor, "batch projections classes"] | None = None,
    ) -> PerExample:
        """The regularizer of every sample, given `scores` from a forward pass inside `places.watch(model, (at,))`."""
        check_pass(scores, y, at, self.at)
        f = wide(scores.reshape(len(scores), -1))
        outputs, scale = f, 1.0
        if self.projections is not None:
            u = _directions(len(f), self.projections, f.shape[1]) if directions is None else directions
            expected = (len(f), self.projections, f.shape[1])
            if u.shape != expected:
                raise ValueError(f"directions has shape {list(u.shape)}, expected {list(expected)}")
            outputs, scale = (u.to(f) * f[:, None]).sum(dim=2), f.shape[1] / self.projections
        elif directions is not None:
            raise ValueError("directions is given, but projections is None, which takes the exact value")
        total = f.new_zeros(len(f))
        for gradients in gradients_at(at, outputs):
            total = total + gradients.to(f.dtype).square().flatten(2).sum(dim=(0, 2))
        return self.weight * 0.5 * scale * total


def _directions(batch: int, projections: int, classes: int) -> Tensor:
    # Normal numbers by their quantiles: `torch.rand` gives a batch what it would give its samples in turn, which
    # `torch.randn` does not. 2⁻⁵⁴ replaces a drawn 0, whose quantile is infinite.
    uniform = torch.rand(batch, projections, classes, dtype=torch.float64)
    return torch.nn.functional.normalize(torch.special.ndtri(uniform.clamp_min(2.0**-54)), dim=2)
