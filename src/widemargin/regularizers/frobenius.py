"""The Frobenius norm of the whole Jacobian, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin import places
from widemargin.checks import check_finite, check_scores_and_labels
from widemargin.modules import scores_of
from widemargin.places import At, BatchStatistics
from widemargin.regularizers.arguments import check_place, check_statistics, check_weight, gradients_at
from widemargin.regularizers.second_pass import second_pass
from widemargin.types import Labels, PerExample, Scores, wide


@dataclass(frozen=True, kw_only=True)
class JacobianFrobenius:
    """λ ½‖J(x)‖²_F of every sample, with J the Jacobian of the k scores (Hoffman, Roberts, Yaida 2019, eqs. 3 to 5).

    ‖J‖²_F = k·E‖uᵀJ‖²_2 over u uniform on the unit sphere of the k scores: the mean of that over `projections` drawn
    directions is unbiased, at one backward pass each; exactly it takes k. Passes are taken together (`At.columns`).
    Works with any network; samples get directions of their own, drawn anew in each call from torch's global CPU
    generator.

    Args:
        weight: λ ≥ 0.
        projections: number of drawn directions, or None for the exact value.
        at: the place whose Jacobian it is.
        statistics: gradients through BatchNorm in training mode, see `places`.
    """

    weight: float
    projections: int | None = 1
    at: str = places.INPUT
    statistics: BatchStatistics = "coupled"
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_weight(self.weight)
        check_place(self.at)
        check_statistics(self.statistics)
        n = self.projections
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
            raise ValueError(f"projections is {n!r}, expected an integer >= 1, or None for the exact value")

    def __call__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Labels,
        *,
        directions: Float[Tensor, "batch projections classes"] | None = None,
    ) -> PerExample:
        """The regularizer of every sample of a batch, by a forward pass of its own, see `second_pass`.

        `directions` are unit vectors u to take instead of drawn ones.
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
        check_scores_and_labels(scores, y)
        check_finite(scores, "scores")
        if tuple(at) != (self.at,):
            raise ValueError(f"at watches {tuple(at)}, but the regularizer has at={self.at!r}")
        f = wide(scores.reshape(len(scores), -1))
        count = f.shape[1]
        if self.projections is None:
            if directions is not None:
                raise ValueError("directions is given, but projections is None, which takes the exact value")
            outputs, scale = f, 1.0
        else:
            u = self._draw(len(f), count) if directions is None else self._checked(directions, len(f), count)
            outputs = (u.to(f) * f[:, None]).sum(dim=2)
            scale = count / self.projections
        total = f.new_zeros(len(f))
        for gradients in gradients_at(at, outputs):
            total = total + gradients.to(f.dtype).square().flatten(2).sum(dim=(0, 2))
        return self.weight * 0.5 * scale * total

    def _draw(self, batch: int, count: int) -> Tensor:
        # Normal numbers by their quantiles: `torch.rand` gives a batch what it would give its samples in turn, as
        # `torch.randn` does not. 2⁻⁵⁴ stands for a drawn 0, whose quantile is infinite.
        uniform = torch.rand(batch, self.projections or 1, count, dtype=torch.float64)
        return torch.nn.functional.normalize(torch.special.ndtri(uniform.clamp_min(2.0**-54)), dim=2)

    def _checked(self, directions: Tensor, batch: int, count: int) -> Tensor:
        expected = (batch, self.projections, count)
        if directions.shape != expected:
            raise ValueError(f"directions has shape {list(directions.shape)}, expected {list(expected)}")
        return directions
