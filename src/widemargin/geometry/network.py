"""A network read as a chain of piecewise affine steps, in float64; the network itself is left as it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, unfold
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from widemargin.geometry.steps import Affine, MaxPool, Slopes, Step
from widemargin.modules import cast_input, evaluating, unwrap

SlopesOf = Callable[[Any], tuple[float, float]]
_REGISTERED: dict[type[nn.Module], SlopesOf] = {
    nn.ReLU: lambda _: (0.0, 1.0),
    nn.LeakyReLU: lambda module: (module.negative_slope, 1.0),
}
_AVERAGES = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
_KNOWN = (
    "Linear, Conv, ReLU, LeakyReLU, PReLU of one slope, MaxPool1d and 2d, AvgPool, Flatten, Dropout, BatchNorm, "
    "activations with `slopes`"
)


def register(kind: type[nn.Module], slopes: SlopesOf) -> None:
    """Let `kind` be read as an activation of two slopes: `slopes(module)` gives those for h ≤ 0 and for h > 0.

    A module of your own needs no registration: an attribute `slopes`, (negative, positive), says the same.
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise TypeError(f"kind is {kind!r}, expected a class of nn.Module")
    _REGISTERED[kind] = slopes


@dataclass(frozen=True, kw_only=True)
class Network:
    """The steps of a network in the order in which they run, and the shape of an input."""

    steps: tuple[Step, ...]
    shape: torch.Size
    device: torch.device

    def double(self, x: Tensor) -> Tensor:
        """`x` in float64, where the network is."""
        return x.detach().to(self.device, torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        """Scores `[batch, outputs]` of samples in float64."""
        for step in self.steps:
            x = step.forward(x)
        return x.reshape(len(x), -1)  # a binary network may answer [batch]


def read(model: nn.Module, x: Tensor) -> Network:
    """The steps that `model` takes on `x`, found by running it once on the first sample in evaluation mode.

    Raises:
        TypeError: a layer of the network is none of the supported ones, or something happens between its layers.
    """
    check_inputs("x", x)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, expected an nn.Module")
    model = unwrap(model)
    trace = _Trace(x[:1])
    sample = cast_input(model, x[:1].detach())
    trace.last, trace.version = sample, sample._version
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        stack.enter_context(torch.no_grad())
        for name, module in model.named_modules():
            if _is_layer(module):
                stack.callback(module.register_forward_pre_hook(partial(trace.enter, name)).remove)
                stack.callback(module.register_forward_hook(partial(trace.leave, name)).remove)
        scores = model(sample)
        if not isinstance(scores, Tensor):
            raise TypeError(f"model gives a {type(scores).__name__}, expected a tensor of scores")
        trace.follow(scores, "its end")
        network = Network(steps=tuple(trace.steps), shape=x.shape[1:], device=sample.device)
        _check_same(network, sample, scores)
    return network


class _Trace:
    def __init__(self, x: Tensor) -> None:
        self.steps: list[Step] = []
        self.last = x
        self.version = 0
        self.before = "the input"

    def enter(self, name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if len(inputs) != 1 or not isinstance(inputs[0], Tensor):
            raise TypeError(f"layer {name!r} ({type(module).__name__}) takes {len(inputs)} inputs, expected one tensor")
        self.follow(inputs[0], f"layer {name!r}")
        self.steps.append(_step(name, module, inputs[0].shape[1:], inputs[0].device))

    def leave(self, name: str, _module: nn.Module, _inputs: tuple[Any, ...], output: Tensor) -> None:
        self.last, self.version, self.before = output, output._version, f"layer {name!r}"

    def follow(self, x: Tensor, where: str) -> None:
        """Check that nothing but a change of shape happened since the last layer, and note such a change."""
        same = x.data_ptr() == self.last.data_ptr() and x.numel() == self.last.numel() and x._version == self.version
        if not same:
            raise TypeError(
                f"model does something between {self.before} and {where} that is no layer of its own, expected a chain "
                "of modules (no functional activations, no residual sums)"
            )
        if x.shape != self.last.shape:
            shape = x.shape[1:]
            self.steps.append(Affine(name="reshape", linear=lambda rows: rows.reshape(len(rows), *shape), moves=True))


def check_inputs(name: str, x: Tensor) -> None:
    """Raise unless `x` is a batch of finite floating-point samples."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}, expected a tensor [batch, ...]")
    if not x.is_floating_point():
        raise TypeError(f"{name} has dtype {x.dtype}, expected a floating-point tensor")
    if x.ndim < 2 or x.numel() == 0:
        raise ValueError(f"{name} has shape {list(x.shape)}, expected [batch, ...] with at least one sample")
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{name} has a NaN or an infinity, expected finite numbers")


def _is_layer(module: nn.Module) -> bool:
    return not any(True for _ in module.children()) or type(module) in _REGISTERED or hasattr(module, "slopes")


def _step(name: str, module: nn.Module, shape: torch.Size, device: torch.device) -> Step:
    if type(module) in _REGISTERED or hasattr(module, "slopes"):
        negative, positive = _slopes(name, module)
        return Slopes(name=name, negative=negative, positive=positive)
    if isinstance(module, nn.PReLU) and module.num_parameters == 1:
        return Slopes(name=name, negative=float(module.weight), positive=1.0)
    if isinstance(module, nn.Linear):
        weight, bias = _double(module.weight), _double(module.bias)
        return Affine(name=name, linear=lambda x: nn.functional.linear(x, weight), bias=bias, weighted=True)
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        kernel, bias = _double(module.weight), _double(module.bias)
        shifted = None if bias is None else bias.reshape(-1, *(1,) * (len(shape) - 1))
        convolve = module._conv_forward
        return Affine(name=name, linear=lambda x: convolve(x, kernel, None), bias=shifted, weighted=True)
    if isinstance(module, _BatchNorm) and module.running_mean is not None and module.running_var is not None:
        scale = (_double(module.running_var) + module.eps).rsqrt()
        scale = scale if module.weight is None else scale * _double(module.weight)
        offset = -_double(module.running_mean) * scale
        offset = offset if module.bias is None else offset + _double(module.bias)
        wide = (-1, *(1,) * (len(shape) - 1))
        scale, offset = scale.reshape(wide), offset.reshape(wide)
        return Affine(name=name, linear=lambda x: x * scale, bias=offset)
    if isinstance(module, (nn.MaxPool1d, nn.MaxPool2d)) and not module.return_indices:
        return _max_pool(name, module, shape, device)
    if isinstance(module, _AVERAGES):
        return Affine(name=name, linear=module.forward)
    if isinstance(module, (_DropoutNd, nn.Identity)):
        return Affine(name=name, linear=lambda x: x, moves=True)
    if isinstance(module, (nn.Flatten, nn.Unflatten)):
        return Affine(name=name, linear=module.forward, moves=True)
    raise TypeError(f"layer {name!r} is {module!r}, which is not read as a piecewise affine map, expected {_KNOWN}")


def _slopes(name: str, module: nn.Module) -> tuple[float, float]:
    own: Any = _REGISTERED[type(module)](module) if type(module) in _REGISTERED else module.slopes
    if not (isinstance(own, tuple) and len(own) == 2 and all(math.isfinite(slope) for slope in own)):
        raise TypeError(f"layer {name!r} has slopes {own!r}, expected two finite numbers, for h ≤ 0 and for h > 0")
    return float(own[0]), float(own[1])


def _max_pool(name: str, module: nn.MaxPool1d | nn.MaxPool2d, shape: torch.Size, device: torch.device) -> MaxPool:
    flat = isinstance(module, nn.MaxPool1d)

    def pair(value: Any, along: int) -> tuple[int, int]:
        if flat:
            return along, int(value[0] if isinstance(value, tuple) else value)
        return (int(value[0]), int(value[1])) if isinstance(value, tuple) else (int(value), int(value))

    kernel, stride = pair(module.kernel_size, 1), pair(module.stride, 1)
    padding, dilation = pair(module.padding, 0), pair(module.dilation, 1)
    channels, (high, wide) = shape[0], (1, shape[1]) if flat else (shape[1], shape[2])
    # The index of each pixel plus 1, so that the zeros of the padding become −1.
    pixels = torch.arange(1.0, high * wide + 1, dtype=torch.float64, device=device).reshape(1, 1, high, wide)
    out = [
        _count(n, p, d, k, s, ceil=bool(module.ceil_mode))
        for n, p, d, k, s in zip((high, wide), padding, dilation, kernel, stride)
    ]
    # Windows of ceil_mode may reach over the far edge.
    over = [
        max(0, (o - 1) * s + d * (k - 1) + 1 - n - 2 * p)
        for o, n, p, d, k, s in zip(out, (high, wide), padding, dilation, kernel, stride)
    ]
    pixels = pad(pixels, (padding[1], padding[1] + over[1], padding[0], padding[0] + over[0]))
    windows = unfold(pixels, kernel, dilation=dilation, stride=stride)[0].T.round().long() - 1
    start = high * wide * torch.arange(channels, device=device)[:, None, None]
    every = torch.where(windows < 0, windows, windows + start).flatten(0, 1)
    return MaxPool(name=name, windows=every, shape=torch.Size((channels, *(out[1:] if flat else out))))


def _count(n: int, padding: int, dilation: int, kernel: int, stride: int, *, ceil: bool) -> int:
    """How many windows a pool has along a side, as PyTorch counts them."""
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= n + padding else count  # none may begin in the far padding


def _check_same(network: Network, x: Tensor, scores: Tensor) -> None:
    ours = network.forward(x.double())
    theirs = scores.double().reshape(ours.shape)
    close = 1e3 * torch.finfo(scores.dtype).eps * max(float(ours.abs().max()), 1.0)
    if float((ours - theirs).abs().max()) > close:
        raise TypeError(
            "model gives other scores than the chain of its layers, expected modules that only compute their output"
        )


def _double(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.detach().double()
