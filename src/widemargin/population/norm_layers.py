"""BatchNorm and GroupNorm of many networks as one operation, each with its own statistics, weights and biases.

`vmap` does the same, but raises an error where it needs the memory layout of a tensor: BatchNorm on a GPU (torch 2.11),
GroupNorm of images with their channels last (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from widemargin import layers
from widemargin._autograd.frozen_batchnorm import Route, scale, switch
from widemargin.population.vmap_lowering import on_stacked


def normalise(
    x: Float[Tensor, "networks batch channels ..."],
    mean: Float[Tensor, "networks channels"] | None,
    variance: Float[Tensor, "networks channels"] | None,
    weight: Float[Tensor, "networks channels"] | None,
    bias: Float[Tensor, "networks channels"] | None,
    *,
    by_batch: bool,
    momentum: float,
    eps: float,
) -> Float[Tensor, "networks batch channels ..."]:
    """`F.batch_norm` of every network; `mean` and `variance`, the running ones, are changed in place."""
    networks, _, channels = x.shape[:3]
    mean, variance, weight, bias = (None if v is None else v.view(-1) for v in (mean, variance, weight, bias))
    flat = x.transpose(0, 1).flatten(1, 2)  # [batch, networks·channels, ...]
    out = F.batch_norm(flat, mean, variance, weight, bias, by_batch, momentum, eps)
    return out.unflatten(1, (networks, channels)).transpose(0, 1)


def normalise_groups(
    x: Float[Tensor, "networks batch channels ..."],
    weight: Float[Tensor, "networks channels"] | None,
    bias: Float[Tensor, "networks channels"] | None,
    *,
    groups: int,
    eps: float,
) -> Float[Tensor, "networks batch channels ..."]:
    """`F.group_norm` of every network."""
    out = F.group_norm(x.flatten(0, 1), groups, eps=eps).view(x.shape)
    shape = (len(x), 1, x.shape[2], *[1] * (x.ndim - 3))
    out = out if weight is None else out * weight.view(shape)
    return out if bias is None else out + bias.view(shape)


@layers.register("stacked", nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def stacked_batch_norm(layer: _BatchNorm, _: str) -> Callable[[Tensor], Tensor]:
    """The forward pass of a layer inside `vmap`, by `normalise`."""
    return partial(_forward, layer)


@layers.register("stacked", nn.GroupNorm)
def stacked_group_norm(layer: nn.GroupNorm, _: str) -> Callable[[Tensor], Tensor]:
    """The forward pass of a layer inside `vmap`, by `normalise_groups`."""
    return partial(_forward_groups, layer)


@layers.register("unstackable", nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
def unstackable(layer: _BatchNorm) -> str | None:
    """The running mean over all batches divides by a counter, which vmap can't read."""
    if isinstance(layer, nn.SyncBatchNorm):
        return "it mixes the batches of several processes"
    return "its momentum is None" if layer.momentum is None and layer.track_running_stats else None


def freeze(module: nn.Module, route: Route) -> RemovableHandle:
    """As `_autograd.frozen_batchnorm.freeze`, for a layer that runs inside `vmap`."""
    assert isinstance(module, _BatchNorm)

    def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return on_stacked(lambda o, x, s: switch(o, x, s, route), output, inputs[0], scale(module, inputs[0]))

    return module.register_forward_hook(hook)


def _forward_groups(layer: nn.GroupNorm, x: Tensor) -> Tensor:
    return on_stacked(partial(normalise_groups, groups=layer.num_groups, eps=layer.eps), x, layer.weight, layer.bias)


def _forward(layer: _BatchNorm, x: Tensor) -> Tensor:
    layer._check_input_dim(x)
    counts = layer.training and layer.track_running_stats
    if counts and layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
    by_batch = layer.training or layer.running_mean is None
    remembered = counts or not by_batch
    mean, variance = (layer.running_mean, layer.running_var) if remembered else (None, None)
    momentum = 0.0 if layer.momentum is None else layer.momentum
    function = partial(normalise, by_batch=by_batch, momentum=momentum, eps=layer.eps)
    return on_stacked(function, x, mean, variance, layer.weight, layer.bias)
