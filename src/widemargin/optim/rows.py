"""Rows of a weight: one per output unit, at the axis where the layer keeps its output units.

Linear and convolutional layers keep an output unit at dim 0. A transposed convolution keeps `[in, out/groups, ...]`:
its output channels are at dim 1, once per group.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from widemargin import layers
from widemargin.checks import check_count, check_module, check_several
from widemargin.modules import unwrap

ParamGroup: TypeAlias = dict[str, Any]
"""Parameters and settings of an optimizer, as torch has them."""


def param_groups(model: nn.Module, *, unprojected: Collection[str] = ()) -> list[ParamGroup]:
    """The parameters of `model` as groups with the axis of their rows, and whether they are projected.

    `Nero(optim.param_groups(model), lr=0.01)` is `Nero(model.parameters(), lr=0.01)` except for transposed
    convolutions, in groups of `axis=1`, and the parameters named in `unprojected`, in groups of `project=False`.
    """
    check_module(model)
    check_several("unprojected", unprojected, "('0.weight',)")
    known = dict(unwrap(model).named_parameters())
    for name in unprojected:
        if name not in known:
            raise ValueError(f"unprojected has {name!r}, expected names of parameters: {', '.join(known)}")
    layouts: dict[int, tuple[int, int]] = {}
    for layer in unwrap(model).modules():
        row_axis = layers.rule("row_axis", layer)
        if row_axis is not None:
            layouts[id(layer.weight)] = row_axis(layer)
    found: dict[tuple[bool, int, int], list[nn.Parameter]] = {}
    for name, parameter in known.items():
        found.setdefault((name not in unprojected, *layouts.get(id(parameter), (0, 1))), []).append(parameter)
    return [
        {"params": parameters, "project": project, "axis": axis, "groups": groups}
        for (project, axis, groups), parameters in found.items()
    ]


def as_rows(weight: Tensor, *, axis: int = 0, groups: int = 1) -> Float[Tensor, "rows fan_in"]:
    """`weight` as a matrix with a row per output unit: a view where the memory allows it.

    A vector or a number has a row per entry, whatever the axis.
    """
    if weight.ndim < 2:
        return weight.reshape(-1, 1)
    check_layout(weight, axis, groups)
    if axis == 0:
        return weight.flatten(1)
    split = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    return split.permute(0, 2, 1, 3).reshape(groups * weight.shape[1], -1)


def from_rows(rows: Float[Tensor, "rows fan_in"], like: Tensor, *, axis: int = 0, groups: int = 1) -> Tensor:
    """The inverse of `as_rows`, in the shape of `like`."""
    if axis == 0 or like.ndim < 2:
        return rows.reshape(like.shape)
    inner, outer = like.shape[0] // groups, like.shape[1]
    return rows.reshape(groups, outer, inner, -1).permute(0, 2, 1, 3).reshape(like.shape)


def check_layout(weight: Tensor, axis: int, groups: int) -> None:
    """Raise unless the rows of a weight of this shape can be at `axis`, in `groups` groups."""
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise TypeError(f"axis is {axis!r}, expected 0, or 1 for the weight of a transposed convolution")
    if axis not in (0, 1):
        raise ValueError(f"axis is {axis!r}, expected 0, or 1 for the weight of a transposed convolution")
    check_count("groups", groups)
    if groups > 1 and (axis == 0 or weight.shape[0] % groups):
        # At axis 0 every output channel has its own kernel already, whatever the groups of the convolution are.
        where = f"a weight of shape {list(weight.shape)} at axis {axis}"
        raise ValueError(f"groups is {groups} for {where}, expected 1 at axis 0, a divisor of dim 0 at axis 1")
