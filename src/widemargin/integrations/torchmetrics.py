"""A torchmetrics metric: the distance of samples to the decision boundary."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin._io.optional import import_optional
from widemargin.checks import check_choice
from widemargin.integrations.batches import measured
from widemargin.margins.distribution import Distribution
from widemargin.margins.output import Classes

if TYPE_CHECKING:
    from torchmetrics import Metric
else:
    Metric = import_optional("torchmetrics", "integrations.torchmetrics").Metric

Statistic = Literal["mean", "median", "minimum", "share negative"]
STATISTICS: dict[str, Callable[[Distribution], float]] = {
    "mean": lambda d: d.mean,
    "median": lambda d: d.quantile(0.5),
    "minimum": lambda d: d.minimum,
    "share negative": lambda d: d.share_negative,
}


class MarginDistance(Metric):  # type: ignore[misc]
    """A statistic of the linearised l_p distances to the decision boundary, as `wm.measure` has them.

    `update(model, x, y)` measures a batch in evaluation mode, also without gradients and in inference mode. The
    distances of all samples are kept (4 bytes a sample and place), so that the value of several processes is exact.
    Samples whose gradient is zero have no distance and are left out.

    `compute()` gives one number for one place, and for several places a number for each name.

    Args:
        p: the norm of the distance, in [1, ∞].
        at: names of places: modules, "input" or "output". None: the input, or the first embedding of a network that
            takes tokens.
        statistic: "mean", "median", "minimum" or "share negative", the share of misclassified samples.
        classes: number of other classes, strongest first, or "all"; the smallest distance counts.
        **kwargs: of `torchmetrics.Metric`.
    """

    is_differentiable = False
    full_state_update = False
    distances: list[Tensor]
    right: Tensor
    total: Tensor

    def __init__(
        self,
        p: float | int = 2.0,
        at: Sequence[str] | None = None,
        *,
        statistic: Statistic = "mean",
        classes: Classes = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        p = float(p) if isinstance(p, int) else p
        norms.check_p(p)
        check_choice("statistic", statistic, STATISTICS)
        if at is not None and (isinstance(at, str) or not at or not all(isinstance(name, str) for name in at)):
            raise TypeError(f"at is {at!r}, expected None or a sequence of names of places such as ('input',)")
        self.p, self.statistic, self.classes = p, statistic, classes
        self.at = None if at is None else tuple(at)
        # Flat: a process without samples gathers an empty tensor, which has one dimension.
        self.add_state("distances", default=[], dist_reduce_fx="cat")
        self.add_state("right", default=torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("total", default=torch.tensor(0), dist_reduce_fx="sum")

    @property
    def higher_is_better(self) -> bool:
        """Whether larger values are better, as `torchmetrics.MetricTracker` asks."""
        return self.statistic != "share negative"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the places; "input" stands for the first embedding where that was the default."""
        return self.at or ("input",)

    def update(self, model: nn.Module, x: object, y: object) -> None:
        """Measure the samples of a batch; `x` is a tensor, or a mapping of tensors that the network takes by name."""
        found = measured(model, x, y, at=self.at, p=self.p, classes=self.classes)
        rows = torch.stack(list(found.margins.values()), dim=1).float()
        self.distances.append(rows.flatten().to(self.device))
        self.right += int((found.predictions == found.labels).sum())
        self.total += len(found)

    def compute(self) -> Any:
        """The statistic of all samples since the last reset: a tensor, or one for each of several places."""
        values = {
            name: torch.tensor(STATISTICS[self.statistic](d), device=self.device)
            for name, d in self._distributions().items()
        }
        return next(iter(values.values())) if len(values) == 1 else values

    def statistics(self) -> tuple[dict[str, Distribution], float]:
        """The distribution of the distances at every place and the accuracy, of the samples of all processes."""
        with self.sync_context():
            return self._distributions(), int(self.right) / int(self.total) if int(self.total) else math.nan

    def _distributions(self) -> dict[str, Distribution]:
        parts = self.distances if isinstance(self.distances, list) else [self.distances]
        rows = torch.cat([*parts, torch.empty(0, device=self.device)]).view(-1, len(self.names))
        return {name: Distribution.of(column) for name, column in zip(self.names, rows.unbind(dim=1), strict=True)}
