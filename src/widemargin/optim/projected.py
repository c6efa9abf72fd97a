"""Any optimizer with a projection of the weights after each step (farhang, Recipe 1, step 3)."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin.checks import check_callable
from widemargin.optim.base import ClosureOptimizer
from widemargin.optim.rows import ParamGroup, as_rows, check_layout, from_rows

Projection: TypeAlias = Callable[[Float[Tensor, "rows fan_in"]], Float[Tensor, "rows fan_in"]]
"""A weight as the matrix of its rows → a matrix of the same shape."""


class Projected(ClosureOptimizer):
    """W ← projection(W) now and after each step of `optimizer`, for each of its weights (not for vectors).

    Parameter groups, state, learning-rate schedules, closures and state dicts are those of `optimizer`. Groups with
    `project=False` and frozen parameters are not projected; groups of weights of transposed convolutions have `axis=1`
    (`optim.param_groups` sets both).

    Args:
        optimizer: any torch optimizer.
        projection: one of `optim.projections`, or any function of a matrix [rows, fan-in].
    """

    def __init__(self, optimizer: torch.optim.Optimizer, projection: Projection) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer is a {type(optimizer).__name__}, expected a torch optimizer")
        check_callable("projection", projection, "optim.to_frobenius_sphere")
        # Not the base constructor, which would make other parameter groups and another state.
        self.__setstate__({"optimizer": optimizer, "projection": projection})
        self.update()

    optimizer: torch.optim.Optimizer
    projection: Projection

    def evaluate(self, closure: Callable[[], float] | None) -> float | None:
        """A step of the optimizer."""
        return self.optimizer.step() if closure is None else self.optimizer.step(closure)

    def update(self) -> None:
        """Project the weights of all groups."""
        for group in self.param_groups:
            self._project(group)

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Add parameters to the optimizer; their weights are projected at once."""
        self.optimizer.add_param_group(param_group)
        self._project(self.param_groups[-1])

    def __getstate__(self) -> ParamGroup:
        return {"optimizer": self.optimizer, "projection": self.projection}

    def __repr__(self) -> str:
        return f"Projected({self.optimizer!r}, {getattr(self.projection, '__name__', self.projection)})"

    @torch.no_grad()
    def _project(self, group: ParamGroup) -> None:
        layout = {"axis": group.get("axis", 0), "groups": group.get("groups", 1)}
        for weight in group["params"]:
            if weight.ndim < 2 or not weight.requires_grad or not group.get("project", True):
                continue
            check_layout(weight, **layout)
            rows = as_rows(weight, **layout)
            new = self.projection(rows)
            if new.shape != rows.shape:
                raise ValueError(f"projection returns shape {list(new.shape)}, expected {list(rows.shape)}")
            weight.copy_(from_rows(new, weight, **layout))


# A state dict can be loaded with and without the projection; loading it does not change weights.
_HOOKS = [f"register_{kind}_{when}_hook" for kind in ("state_dict", "load_state_dict") for when in ("pre", "post")]
for _name in ("param_groups", "state", "defaults", "zero_grad", "state_dict", "load_state_dict", *_HOOKS):
    setattr(Projected, _name, property(attrgetter(f"optimizer.{_name}"), doc=f"`{_name}` of `optimizer`."))
