"""Any optimizer with a projection of the weights after each step (farhang, Recipe 1, step 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, overload

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin.checks import check_callable
from widemargin.optim.rows import ParamGroup, as_rows, check_layout, from_rows

Projection: TypeAlias = Callable[[Float[Tensor, "rows fan_in"]], Float[Tensor, "rows fan_in"]]
"""A weight as the matrix of its rows → a matrix of the same shape."""


def _forwarded(name: str) -> Any:
    return property(lambda self: getattr(self.optimizer, name), doc=f"`{name}` of `optimizer`.")


class Projected(torch.optim.Optimizer):
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
        for group in self.param_groups:
            self._project(group)

    optimizer: torch.optim.Optimizer
    projection: Projection

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """A step of the optimizer, followed by the projection."""
        loss = self.optimizer.step() if closure is None else self.optimizer.step(closure)
        for group in self.param_groups:
            self._project(group)
        return loss

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Add parameters to the optimizer; their weights are projected at once."""
        self.optimizer.add_param_group(param_group)
        self._project(self.param_groups[-1])

    param_groups = _forwarded("param_groups")
    state = _forwarded("state")
    defaults = _forwarded("defaults")
    zero_grad = _forwarded("zero_grad")
    state_dict = _forwarded("state_dict")  # can be loaded with and without the projection
    load_state_dict = _forwarded("load_state_dict")  # weights do not change
    register_state_dict_pre_hook = _forwarded("register_state_dict_pre_hook")
    register_state_dict_post_hook = _forwarded("register_state_dict_post_hook")
    register_load_state_dict_pre_hook = _forwarded("register_load_state_dict_pre_hook")
    register_load_state_dict_post_hook = _forwarded("register_load_state_dict_post_hook")

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
