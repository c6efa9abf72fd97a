"""Nero: descent with every row of every weight on the sphere of centred unit vectors (farhang §3.2, step 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.optimizer import ParamsT

from widemargin._cuda import has_triton
from widemargin.checks import check_flag, check_number, check_several
from widemargin.optim.base import ClosureOptimizer
from widemargin.optim.projections import to_centred_unit_rows
from widemargin.optim.rows import ParamGroup, as_rows, check_layout, from_rows
from widemargin.types import HALF, wide

# Below this many numbers, tensors of one fan-in are copied into one matrix: dispatch costs more than the copies.
_SMALL = {"cpu": 1 << 13}
_SMALL_ELSEWHERE = 1 << 21
_LONGEST_FUSED = 1 << 14


class Nero(ClosureOptimizer):
    """p ← centred unit rows of p − lr·scale·g/√(v/(1−βᵗ)), v ← βv + (1−β)‖g‖², per row of each weight.

    Source: Liu et al. 2021, with the rule as in farhang's errata 10: neurons are rows; when a group is added its rows
    are centred and normalised, and scale is their mean norm, which is 1; g is 0 where v is 0; no momentum. Vectors are
    updated per entry and never projected, with scale the mean |p| (0.01 where that is 0). The same holds for rows of
    fan-in 1, which can't be both centred and unit, and, row by row, for parameters that opt out of the projection. A
    row that a step would make constant does not move. Frozen parameters are not changed.

    Args:
        params: parameters, named parameters, or groups of them; `optim.param_groups(model)` sets `axis` for transposed
            convolutions. Groups may override each of the settings below.
        lr: length of a step relative to the length of a row.
        beta: β, the decay of the running mean of the squared gradient norm.
        project: whether weights of this group are projected, now and after every step.
        axis: axis of the rows of a weight: 0, or 1 for transposed convolutions.
        groups: groups of a transposed convolution.
        foreach: whether tensors of one fan-in are updated as one matrix; None: the small ones are.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | int = 0.01,
        beta: float | int = 0.999,
        *,
        project: bool = True,
        axis: int = 0,
        groups: int = 1,
        foreach: bool | None = None,
    ) -> None:
        defaults = {"lr": lr, "beta": beta, "project": project, "axis": axis, "groups": groups, "foreach": foreach}
        _check_settings(defaults)
        check_several("params", params, "model.parameters()")
        super().__init__(params, defaults)

    @torch.no_grad()
    def add_param_group(self, param_group: ParamGroup) -> None:
        """Add parameters, with their own settings or the defaults; their rows are projected at once."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            _check_settings(group)
            starts = [_start(parameter, group, _called(group, n)) for n, parameter in enumerate(group["params"])]
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise
        for parameter, start in zip(group["params"], starts):
            if start is not None:
                parameter.copy_(start)
            rows = wide(as_rows(parameter, axis=group["axis"], groups=group["groups"]))
            lengths = torch.linalg.vector_norm(rows, dim=1)
            scale = float(lengths.double().mean()) if len(rows) else 0.0
            # A Python number, so that storing and loading never rounds it.
            self.state[parameter] = {"step": 0, "scale": scale or 0.01, "v": torch.zeros_like(lengths)}

    def update(self) -> None:
        """One step of every parameter that has a gradient."""
        for batch in _batches(list(self._with_gradients())):  # checks all before any of them moves
            _move(batch)

    def load_state_dict(self, state_dict: ParamGroup) -> None:
        """Load learning rates, β, layouts, scales, steps and v from a `state_dict` of Nero."""
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        for number in numbers:
            stored = state_dict["state"].get(number, {}).keys()
            if not {"step", "scale", "v"} <= stored:
                raise ValueError(f"state_dict holds {sorted(stored)} for parameter {number}, expected step, scale, v")
        super().load_state_dict(state_dict)
        for number, parameter in zip(numbers, (p for group in self.param_groups for p in group["params"])):
            if parameter.dtype in HALF:  # torch has rounded v to half precision
                self.state[parameter]["v"] = state_dict["state"][number]["v"].to(parameter.device, copy=True)

    def _with_gradients(self) -> Iterator[_Moved]:
        for group in self.param_groups:
            for number, parameter in enumerate(group["params"]):
                if parameter.grad is None or not parameter.numel():
                    continue
                if parameter.grad.layout != torch.strided:
                    layout = f"a gradient of layout {parameter.grad.layout}, expected torch.strided (sparse=False)"
                    raise RuntimeError(f"{_called(group, number)} has {layout}")
                yield _Moved(parameter, group, self.state[parameter])


def advance_(
    rows: Float[Tensor, "rows fan_in"],
    gradient: Float[Tensor, "rows fan_in"],
    v: Float[Tensor, " rows"],
    scale: Float[Tensor, " rows"] | float,
    *,
    lr: float | int | Tensor,
    beta: float | int,
    step: int | Tensor,
    constrained: bool,
) -> None:
    """Step number `step` (from 1) of the rule above, in place on `rows` and `v`.

    `lr` and `step` are numbers, or tensors of one number each for a step that a CUDA graph replays.
    """
    if constrained and _can_be_fused(rows, gradient):
        from widemargin.optim import fused

        fused.advance_(rows, gradient, v, lr * (1 - beta**step) ** 0.5 * scale, beta=beta)
        return
    v.mul_(beta).add_(_lengths(gradient).square_(), alpha=1 - beta)
    speed = (torch.where(v > 0, (v / (1 - beta**step)).rsqrt(), 0.0) * scale * lr).unsqueeze(1)
    if not constrained:
        rows.addcmul_(gradient, speed, value=-1)
        return
    new = torch.addcmul(rows, gradient, speed, value=-1)
    # A row moves by at most lr/√(1−β), if a gradient follows many zero gradients. The rounding of such a long step
    # remains in the mean of the row, which may itself become short: subtracting the mean a second time removes it.
    for _ in range(1 if not isinstance(lr, Tensor) and lr <= 0.9 * math.sqrt(1 - beta) else 2):
        new.sub_(new.mean(dim=1, keepdim=True))
    length = _lengths(new).unsqueeze(1)
    stays = length == 0
    rows.mul_(stays).addcmul_(new, length.masked_fill_(stays, 1.0).reciprocal_())


def _can_be_fused(rows: Tensor, gradient: Tensor) -> bool:
    """Whether `fused` supports them: contiguous rows of float32, short enough for the registers of a GPU."""
    is_plain = rows.dtype == gradient.dtype == torch.float32 and rows.stride(1) == gradient.stride(1) == 1
    return rows.is_cuda and is_plain and 1 < rows.shape[1] <= _LONGEST_FUSED and has_triton()


def _lengths(rows: Tensor) -> Tensor:
    """‖row‖₂. On a CPU, torch's norm adds up in sequence, with an error of 1e-5 for rows of a million."""
    if rows.shape[1] <= 4096 or rows.device.type != "cpu":
        return torch.linalg.vector_norm(rows, dim=1)
    return rows.square().sum(dim=1).sqrt_()


class _Moved(NamedTuple):
    parameter: Tensor
    group: ParamGroup
    state: ParamGroup

    def rows(self, tensor: Tensor | None) -> Tensor:
        assert tensor is not None
        return wide(as_rows(tensor, axis=self.group["axis"], groups=self.group["groups"]))

    def back(self, rows: Tensor) -> Tensor:
        return from_rows(rows, self.parameter, axis=self.group["axis"], groups=self.group["groups"])


def _batches(moved: Iterable[_Moved]) -> Iterator[list[_Moved]]:
    """Lists of parameters that are updated as one matrix."""
    found: dict[tuple[object, ...], list[_Moved]] = {}
    for number, one in enumerate(moved):
        parameter, group = one.parameter, one.group
        one.state["step"] += 1
        together = group["foreach"]
        if together is None:
            together = parameter.numel() <= _SMALL.get(parameter.device.type, _SMALL_ELSEWHERE)
        key = (parameter.device, parameter.dtype, _fan_in(parameter, group), _is_constrained(parameter, group))
        alike = (*key, group["lr"], group["beta"], one.state["step"], None if together else number)
        found.setdefault(alike, []).append(one)
    yield from found.values()


def _move(batch: list[_Moved]) -> None:
    first, alone = batch[0], len(batch) == 1
    each = [one.state["v"] for one in batch]
    counts = [len(v) for v in each]
    rows = _joined([one.rows(one.parameter) for one in batch])
    v, scale = _joined(each), first.state["scale"]
    if not alone:
        scale = torch.ones_like(v)
        torch._foreach_mul_(list(scale.split(counts)), [one.state["scale"] for one in batch])
    gradient = _joined([one.rows(one.parameter.grad) for one in batch])
    setting = {"lr": first.group["lr"], "beta": first.group["beta"], "step": first.state["step"]}
    advance_(rows, gradient, v, scale, constrained=_is_constrained(first.parameter, first.group), **setting)
    if not alone:
        torch._foreach_copy_(each, list(v.split(counts)))
    if rows.data_ptr() != first.parameter.data_ptr():
        parts = [one.back(part) for one, part in zip(batch, rows.split(counts))]
        torch._foreach_copy_([one.parameter for one in batch], parts)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _is_constrained(parameter: Tensor, group: ParamGroup) -> bool:
    return group["project"] and parameter.ndim > 1 and _fan_in(parameter, group) > 1


def _fan_in(parameter: Tensor, group: ParamGroup) -> int:
    if parameter.ndim < 2 or not parameter.numel():
        return 1
    return parameter.numel() // (len(parameter) if group["axis"] == 0 else group["groups"] * parameter.shape[1])


def _called(group: ParamGroup, number: int) -> str:
    which = repr(group["param_names"][number]) if "param_names" in group else number
    return f"parameter {which} of shape {list(group['params'][number].shape)}"


def _check_settings(settings: ParamGroup) -> None:
    check_number("lr", settings["lr"], least=0.0)
    check_number("beta", settings["beta"], least=0.0, below=1.0)
    check_flag("project", settings["project"])
    if settings["foreach"] is not None:
        check_flag("foreach", settings["foreach"])


def _start(parameter: Tensor, group: ParamGroup, called: str) -> Tensor | None:
    """The projection of a parameter, None if it is not projected; raises if it can't be one of the group."""
    if not parameter.is_floating_point():
        raise TypeError(f"{called} has dtype {parameter.dtype}, expected real floating-point parameters")
    if parameter.ndim > 1:
        check_layout(parameter, group["axis"], group["groups"])
    if not (_is_constrained(parameter, group) and parameter.requires_grad):
        return None
    try:
        return to_centred_unit_rows(parameter, axis=group["axis"], groups=group["groups"])
    except ValueError as error:
        reason = str(error).removeprefix("weight ")
        raise ValueError(f"{called} {reason}: initialize it differently, or in a group with project=False") from None
