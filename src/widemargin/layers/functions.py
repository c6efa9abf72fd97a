"""Functions of torch as modules, so that a network may call either.

A rule is keyed by the name of the function without underscores: `relu` is F.relu, torch.relu, x.relu() and x.relu_().
It takes the tensors that depend on the network's input, the output, and the arguments of the function, which it names
as torch does. None: the call is not supported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin.layers.registry import register
from widemargin.layers.structure import Add, Entries, Rescale, Reshape

Size: TypeAlias = int | Sequence[int]
UnaryRule: TypeAlias = Callable[..., nn.Module | None]

Kinds: TypeAlias = "dict[int, Callable[..., nn.Module]]"

# Module types by the number of axes of an image.
_AVERAGE_POOLS: Kinds = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}
_ADAPTIVE: Kinds = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}
_MAX_POOLS: Kinds = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
_CONVOLUTIONS: Kinds = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_BATCH_NORMS: Kinds = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def unary(*names: str) -> Callable[[UnaryRule], UnaryRule]:
    """Decorator: the rule of functions whose first argument alone depends on the network's input."""

    def decorate(function: UnaryRule) -> UnaryRule:
        def checked(
            entering: Sequence[Tensor], out: Tensor, input: Tensor, *arguments: object, **named: object
        ) -> nn.Module | None:
            is_first = len(entering) == 1 and input is entering[0]
            return call_or_none(function, out, input, *arguments, **named) if is_first else None

        register("as_module", *names)(checked)
        return function

    return decorate


def call_or_none(function: UnaryRule, *arguments: object, **named: object) -> nn.Module | None:
    """The result of a rule; None for arguments that it does not know."""
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError:
        return None
    return function(*arguments, **named)


@unary("relu")
def relu(*_: object, **__: object) -> nn.Module:
    """max(x, 0)."""
    return nn.ReLU()


@unary("clamp", "clamp_min")
def clamp(_: Tensor, __: Tensor, min: object = None, max: object = None) -> nn.Module | None:
    """A ReLU, if the range is [0, ∞)."""
    return nn.ReLU() if isinstance(min, (int, float)) and min == 0 and max is None else None


@unary("leaky_relu")
def leaky_relu(_: Tensor, __: Tensor, negative_slope: float | int = 0.01, **___: object) -> nn.Module:
    """x for x > 0, negative_slope·x else."""
    return nn.LeakyReLU(negative_slope)


@unary("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
def dropout(_: Tensor, __: Tensor, p: float | int = 0.5, training: bool = True, **___: object) -> nn.Module | None:
    """The identity in evaluation mode."""
    return None if training and p > 0 else nn.Identity()


@unary("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as")
def reshape(out: Tensor, x: Tensor, *_: object, **__: object) -> nn.Module | None:
    """The same entries of each sample in another shape."""
    return Reshape(out.shape[1:]) if out.dtype == x.dtype and len(out) == len(x) else None


@unary("permute")
def permute(_: Tensor, x: Tensor, *dims: Size) -> nn.Module | None:
    """Entries in another order, if samples stay first."""
    order = [dim % x.ndim for dim in _numbers(*dims)]
    return Entries(partial(torch.permute, dims=tuple(order)), moves=True) if order[0] == 0 else None


@unary("transpose", "swapaxes", "swapdims")
def transpose(_: Tensor, x: Tensor, dim0: int, dim1: int) -> nn.Module | None:
    """Two axes exchanged, if samples stay first."""
    axes = dim0 % x.ndim, dim1 % x.ndim
    return None if 0 in axes else Entries(partial(torch.transpose, dim0=axes[0], dim1=axes[1]), moves=True)


@unary("mT")
def matrix_transpose(_: Tensor, x: Tensor, *__: object) -> nn.Module | None:
    """The last two axes exchanged."""
    return None if x.ndim < 3 else Entries(partial(torch.transpose, dim0=-1, dim1=-2), moves=True)


@unary("mean")
def mean(_: Tensor, x: Tensor, dim: Size | None = None, keepdim: bool = False) -> nn.Module | None:
    """The mean over axes of a sample."""
    dims = _axes(x, dim)
    return None if dims is None else Entries(partial(torch.mean, dim=dims, keepdim=keepdim))


@unary("sum")
def total(_: Tensor, x: Tensor, dim: Size | None = None, keepdim: bool = False) -> nn.Module | None:
    """The sum over axes of a sample."""
    dims = _axes(x, dim)
    return None if dims is None else Entries(partial(torch.sum, dim=dims, keepdim=keepdim))


@unary("pad")
def pad(
    _: Tensor, x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | int | None = None
) -> nn.Module | None:
    """Zeros around images."""
    is_plain = mode == "constant" and not value and len(pad) < 2 * x.ndim
    return Entries(partial(F.pad, pad=tuple(pad))) if is_plain else None


@unary("getitem")
def getitem(_: Tensor, __: Tensor, index: object) -> nn.Module | None:
    """A part of each sample: slices and numbers."""
    parts = index if isinstance(index, tuple) else (index,)
    plain = all(part is Ellipsis or (isinstance(part, (int, slice)) and not isinstance(part, bool)) for part in parts)
    if not plain or parts[0] != slice(None):
        return None
    return Entries(lambda v: v[parts])


@unary("avg_pool1d", "avg_pool2d", "avg_pool3d")
def average_pool(
    _: Tensor,
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> nn.Module | None:
    """An average pool."""
    if x.ndim < 3 or divisor_override is not None:
        return None
    axes = x.ndim - 2
    how = (_each(stride, axes) if stride else None, _each(padding, axes), ceil_mode, count_include_pad)
    return _AVERAGE_POOLS[axes](_each(kernel_size, axes), *how)


@unary("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def adaptive_average_pool(_: Tensor, x: Tensor, output_size: Size) -> nn.Module | None:
    """An average pool by the size of its output."""
    return _ADAPTIVE[x.ndim - 2](output_size) if x.ndim > 2 else None


@unary("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(
    _: Tensor,
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> nn.Module | None:
    """A max-pool."""
    if x.ndim < 3 or return_indices:
        return None
    axes = x.ndim - 2
    how = (_each(stride, axes) if stride else None, _each(padding, axes), _each(dilation, axes))
    return _MAX_POOLS[axes](_each(kernel_size, axes), *how, ceil_mode=ceil_mode)


@unary("linear")
def linear(_: Tensor, __: Tensor, weight: Tensor, bias: Tensor | None = None) -> nn.Module | None:
    """A linear layer of the given weight."""
    if weight.ndim != 2:
        return None
    return _with(nn.Linear(weight.shape[1], weight.shape[0], device="meta"), weight=weight, bias=bias)


@unary("conv1d", "conv2d", "conv3d")
def convolution(
    _: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> nn.Module | None:
    """A convolution of the given kernel."""
    axes = weight.ndim - 2
    if x.ndim != weight.ndim:
        return None
    kind, size = _CONVOLUTIONS[axes], tuple(weight.shape[2:])
    how = (padding if isinstance(padding, str) else _each(padding, axes), _each(dilation, axes), groups)
    layer = kind(weight.shape[1] * groups, len(weight), size, _each(stride, axes), *how, device="meta")
    return _with(layer, weight=weight, bias=bias)


@unary("batch_norm")
def batch_norm(
    _: Tensor,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    _momentum: float = 0.1,
    eps: float = 1e-5,
    **__: object,
) -> nn.Module | None:
    """A batch norm in evaluation mode."""
    if training or running_mean is None or running_var is None:
        return None
    layer = _with(_BATCH_NORMS[x.ndim - 2](len(running_mean), eps, device="meta"), weight=weight, bias=bias)
    layer.running_mean, layer.running_var = running_mean, running_var
    return layer.eval()


@unary("group_norm")
def group_norm(
    _: Tensor, x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> nn.Module:
    """A group norm."""
    return _with(nn.GroupNorm(num_groups, x.shape[1], eps, device="meta"), weight=weight, bias=bias)


@unary("layer_norm")
def layer_norm(
    _: Tensor,
    __: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> nn.Module:
    """A layer norm."""
    return _with(nn.LayerNorm(list(normalized_shape), eps, device="meta"), weight=weight, bias=bias)


@unary("rms_norm")
def rms_norm(
    _: Tensor, __: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> nn.Module:
    """A root mean square norm."""
    return _with(nn.RMSNorm(list(normalized_shape), eps, device="meta"), weight=weight)


@register("as_module", "add", "radd", "iadd")
def add(
    entering: Sequence[Tensor], out: Tensor, input: object, other: object, *, alpha: float | int = 1
) -> nn.Module | None:
    """input + alpha·other."""
    return _combination(entering, out, (input, 1.0), (other, float(alpha)))


@register("as_module", "sub", "subtract", "isub")
def subtract(
    entering: Sequence[Tensor], out: Tensor, input: object, other: object, *, alpha: float | int = 1
) -> nn.Module | None:
    """input − alpha·other."""
    return _combination(entering, out, (input, 1.0), (other, -float(alpha)))


@register("as_module", "rsub")
def subtract_from(entering: Sequence[Tensor], out: Tensor, input: object, other: object) -> nn.Module | None:
    """other − input."""
    return _combination(entering, out, (other, 1.0), (input, -1.0))


@register("as_module", "mul", "multiply", "rmul", "imul")
def multiply(entering: Sequence[Tensor], out: Tensor, input: object, other: object) -> nn.Module | None:
    """The product with a constant."""
    if len(entering) != 1 or entering[0].shape != out.shape:
        return None
    factor = _constant(other if input is entering[0] else input, out)
    return None if factor is None else Rescale(factor, torch.zeros_like(factor, requires_grad=False))


@register("as_module", "div", "divide", "true_divide", "truediv", "itruediv")
def divide(
    entering: Sequence[Tensor], out: Tensor, input: object, other: object, *, rounding_mode: str | None = None
) -> nn.Module | None:
    """The quotient by a constant."""
    if len(entering) != 1 or input is not entering[0] or entering[0].shape != out.shape or rounding_mode:
        return None
    divisor = _constant(other, out)
    if divisor is None or bool((divisor == 0).any()):
        return None
    factor = 1 / divisor.double()
    return Rescale(factor, torch.zeros_like(factor, requires_grad=False))


@unary("neg", "negative")
def negative(out: Tensor, _: Tensor) -> nn.Module:
    """−x."""
    return Rescale(-torch.ones_like(out[0]), torch.zeros_like(out[0]))


def _combination(
    entering: Sequence[Tensor], out: Tensor, first: tuple[object, float], second: tuple[object, float]
) -> nn.Module | None:
    if any(tensor.shape != out.shape for tensor in entering):
        return None
    if len(entering) == 2:
        return Add((first[1], second[1]))
    is_first = first[0] is entering[0]
    (_, weight), (other, scale) = (first, second) if is_first else (second, first)
    constant = _constant(other, out)
    return None if constant is None else Rescale(torch.full_like(constant, weight).detach(), scale * constant)


def _constant(value: object, out: Tensor) -> Tensor | None:
    """A number or tensor in a shape that broadcasts against a sample of `out`; None if samples have different ones."""
    if not isinstance(value, Tensor):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return torch.tensor(value, dtype=torch.float64, device=out.device) if is_number else None
    if value.ndim == out.ndim:
        return value[0] if bool((value == value[:1]).all()) else None
    return value


def _axes(x: Tensor, dim: Size | None) -> tuple[int, ...] | None:
    """Axes of samples; None if samples would be mixed."""
    dims = () if dim is None else tuple(axis % x.ndim for axis in _numbers(dim))
    return None if not dims or 0 in dims else dims


def _numbers(*values: Size) -> tuple[int, ...]:
    """Numbers that are given one by one or as one sequence."""
    return tuple(number for value in values for number in ((value,) if isinstance(value, int) else value))


def _each(value: Size, axes: int) -> tuple[int, ...]:
    """One number for each axis."""
    numbers = _numbers(value)
    return numbers * axes if len(numbers) == 1 else numbers


def _with(layer: nn.Module, **tensors: Tensor | None) -> nn.Module:
    """`layer` with these tensors as its parameters."""
    for name, tensor in tensors.items():
        if tensor is not None and not isinstance(tensor, nn.Parameter):
            tensor = nn.Parameter(tensor, requires_grad=tensor.requires_grad)
        setattr(layer, name, tensor)
    return layer
