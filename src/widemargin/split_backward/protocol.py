"""The protocol of losses that can be split."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from widemargin.margins.distance import Linearization
from widemargin.margins.estimation import Directions
from widemargin.margins.output import Classes, Reading
from widemargin.margins.second_point import SecondOrder
from widemargin.modules import ModelInputs
from widemargin.places import At, BatchStatistics


@runtime_checkable
class SplitLoss(Protocol):
    """A loss of score differences and of their slopes at some places, with the attributes of `losses.MarginLoss`."""

    @property
    def at(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def p(self) -> float: ...  # noqa: D102
    @property
    def classes(self) -> Classes: ...  # noqa: D102
    @property
    def probes(self) -> int | None: ...  # noqa: D102
    @property
    def aggregate(self) -> Literal["max", "sum"]: ...  # noqa: D102
    @property
    def read_as(self) -> Reading: ...  # noqa: D102
    @property
    def cross_entropy(self) -> float: ...  # noqa: D102
    @property
    def second_order(self) -> SecondOrder: ...  # noqa: D102
    @property
    def statistics(self) -> BatchStatistics: ...  # noqa: D102

    def forward(self, model: nn.Module, x: ModelInputs) -> tuple[Tensor, At, Directions]:
        """The scores, the watched places, and the directions of `probes`."""
        ...

    def of(self, scores: Tensor, y: Tensor, *, at: At, directions: Directions) -> Tensor:
        """The loss of every sample."""
        ...

    def penalize(self, lines: Linearization) -> Tensor:
        """The loss of every sample, given score differences and slopes."""
        ...

    def chosen(self, difference: Tensor, at: At, directions: Directions) -> dict[str, Tensor]:
        """At every place the column of `difference` that `probes` choose."""
        ...
