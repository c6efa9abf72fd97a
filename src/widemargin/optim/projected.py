"""Any optimizer, with a projection of the weights after each of its steps (farhang, Recipe 1, step 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, overload

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from widemargin.optim.rows import as_rows, check_layout, from_rows

Projection: TypeAlias = Callable[[Float[Tensor, "rows fan_in"]], Float[Tensor, "rows fan_in"]]
"""A weight as the matrix of its rows → a matrix of the same shape."""


class Projected(torch.optim.Optimizer):
    """W ← projection(W) now and after each step of `optimizer`, for each of its weights (not for vectors).

    It is the optimizer that it holds: parameter groups, state, learning-rate schedules, closures and state dicts are
    those of `optimizer`. A group with `project=False` is left as it is; a group of the weights of transposed
    convolutions says `axis=1` (`optim.param_groups` does both). Frozen parameters are left alone.

    Args:
        optimizer: any torch optimizer.
        projection: one of `optim.projections`, or any function of a matrix [rows, fan-in].
    """

    def __init__(self, optimizer: torch.optim.Optimizer, projection: Projection) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer is a {type(optimizer).__name__}, expected a torch optimizer")
        if not callable(projection):
            raise TypeError(f"projection is {projection!r}, expected a function of a weight")
        # Not the constructor: that would make parameter groups and a state of its own.
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
        """A step of the optimizer, and the projection."""
        loss = self.optimizer.step() if closure is None else self.optimizer.step(closure)
        for group in self.param_groups:
            self._project(group)
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the optimizer; its weights are projected at once."""
        self.optimizer.add_param_group(param_group)
        self._project(self.param_groups[-1])

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The optimizer's own."""
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The optimizer's own."""
        return self.optimizer.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The optimizer's own."""
        return self.optimizer.defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the optimizer does it."""
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """That of the optimizer: it can be loaded with the projection and without."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the optimizer does it; weights are not touched."""
        self.optimizer.load_state_dict(state_dict)

    def register_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """On the optimizer, whose state dict it is; likewise the three below."""
        return self.optimizer.register_state_dict_pre_hook(hook, prepend)

    def register_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:  # noqa: D102
        return self.optimizer.register_state_dict_post_hook(hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:  # noqa: D102
        return self.optimizer.register_load_state_dict_pre_hook(hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:  # noqa: D102
        return self.optimizer.register_load_state_dict_post_hook(hook, prepend)

    def __getstate__(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer, "projection": self.projection}

    def __repr__(self) -> str:
        return f"Projected({self.optimizer!r}, {getattr(self.projection, '__name__', self.projection)})"

    @torch.no_grad()
    def _project(self, group: dict[str, Any]) -> None:
        layout = {"axis": group.get("axis", 0), "groups": group.get("groups", 1)}
        for weight in group["params"]:
            if weight.ndim < 2 or not weight.requires_grad or not group.get("project", True):
                continue
            check_layout(weight, **layout)
            rows = as_rows(weight, **layout)
            new = self.projection(rows)
            if new.shape != rows.shape:
                raise ValueError(
                    f"projection gives shape {list(new.shape)} for a matrix {list(rows.shape)}, expected the same shape"
                )
            weight.copy_(from_rows(new, weight, **layout))
