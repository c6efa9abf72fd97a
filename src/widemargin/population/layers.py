"""Layers of a population: stacked forward passes, dropout masks per network, and layers that can't be stacked.

Inside `vmap` every layer works on one network. Layers with a rule "stacked" replace operations for which `vmap` has no
fast or no working rule by one operation on the stacked tensors `[networks, ...]`:

- Linear layers: out[k]ᵀ [out, batch] = weight[k] [out, in] @ x[k]ᵀ + bias[k]. `vmap` would compute x @ weightᵀ, whose
  gradient is transposed in memory and slow to read for every optimizer. Here gradients are laid out as the weights.
- BatchNorm and GroupNorm: `vmap` raises an error where it needs the memory layout of a tensor: BatchNorm on a GPU
  (torch 2.11), GroupNorm of images with their channels last (torch 2.13).
- Embeddings with a padding index: under `vmap` only the first network would leave that row untrained.
- Convolutions and pools: `conv_matmul`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from widemargin import layers
from widemargin._autograd.batch_statistics import batch_norm
from widemargin._autograd.frozen_batchnorm import Route, scale, switch
from widemargin.population import rng


@contextmanager
def stacked_layers(network: nn.Module, convolutions: str = "grouped") -> Iterator[None]:
    """Inside the `with` block, and inside `vmap`, layers of `network` with a stacked form run as one operation."""
    with ExitStack() as stack:
        for layer in network.modules():
            rule = layers.rule("stacked", layer)
            forward = None if rule is None else rule(layer, convolutions)
            if forward is not None and not isinstance(forward, nn.Module):
                layer.forward = forward
                stack.callback(delattr, layer, "forward")
        yield


def on_stacked(function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    """`function` of the stacked tensors `[networks, ...]`, differentiable by autograd.

    It may be called inside `vmap` only.
    """
    result: Tensor = _OnStacked.apply(function, *tensors)
    return result


class Dropout(nn.Module):
    """x·mask/(1 − p), with masks from the random stream `key` of one network's step and pass.

    `dims` trailing dimensions are dropped as a whole. `number` tells the dropout layers of a network apart.
    """

    def __init__(self, p: float, dims: int) -> None:
        super().__init__()
        self.p, self.dims, self.number, self.masks_drawn = p, dims, 0, 0
        self.key: Tensor | None = None

    def start(self, key: Tensor | None) -> None:
        """Draw from the beginning of the stream of `key`; None: drop nothing."""
        self.key, self.masks_drawn = key, 0

    def forward(self, x: Tensor) -> Tensor:
        """A new mask in each call."""
        if self.key is None or not self.training:
            return x
        self.masks_drawn += 1
        shape = x.shape[: x.ndim - self.dims]
        kept = rng.keep(self.key + self.number, self.masks_drawn, shape, self.p)
        kept = kept.view(*shape, *[1] * (x.ndim - len(shape)))
        return torch.where(kept, x / (1 - self.p), torch.zeros_like(x)) if self.p < 1 else torch.zeros_like(x)


def with_own_dropout(network: nn.Module) -> list[Dropout]:
    """Replace every dropout layer of `network` by a `Dropout` of the same name, and return them."""
    found: list[Dropout] = []
    for module in list(network.modules()):
        for name, layer in list(module.named_children()):
            rule = layers.rule("stacked", layer)
            own = None if rule is None else rule(layer, "grouped")
            if isinstance(own, Dropout):
                own.number = len(found)
                own.training = layer.training
                found.append(own)
                setattr(module, name, own)
    return found


def check_layers(network: nn.Module) -> None:
    """Raise an error that names the first layer which a population can't train as it would train alone."""
    for name, module in network.named_modules():
        if any(map(is_lazy, module.parameters(recurse=False))):
            raise ValueError(
                f"networks have a lazy layer {name!r}, expected initialised networks: run one forward pass first"
            )
        reason = _why_not(module)
        if reason is not None:
            kind = type(module).__name__ if any(module.children()) else module
            raise TypeError(
                f"networks have a layer {name!r}, {kind}, which a population can't train ({reason}): use fit"
            )


def _why_not(module: nn.Module) -> str | None:
    for name, value in vars(module).items():  # of the older weight_norm, and of pruning
        if isinstance(value, Tensor) and value.grad_fn is not None:
            return f"a hook computes its {name}"
    rule = layers.rule("unstackable", module)
    return None if rule is None else rule(module)


@contextmanager
def explained() -> Iterator[None]:
    """Raise a `TypeError` of one line where `vmap` refuses an operation inside the `with` block."""
    try:
        yield
    except RuntimeError as error:
        if "vmap" not in str(error) and "Batching rule" not in str(error):
            raise
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        raise TypeError(f"networks have an operation which a population can't train ({reason}): use fit") from error


def transform(
    x: Float[Tensor, "networks batch inputs"],
    weight: Float[Tensor, "networks outputs inputs"],
    bias: Float[Tensor, "networks outputs"] | None,
) -> Float[Tensor, "networks batch outputs"]:
    """`F.linear` of every network."""
    out = weight.bmm(x.mT) if bias is None else bias[:, :, None].baddbmm(weight, x.mT)
    return out.mT


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
    out = batch_norm(flat, mean, variance, weight, bias, by_batch, momentum, eps)
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


def freeze(module: nn.Module, route: Route) -> RemovableHandle:
    """As `_autograd.frozen_batchnorm.freeze`, for a layer that runs inside `vmap`."""
    assert isinstance(module, _BatchNorm)

    def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return on_stacked(lambda o, x, s: switch(o, x, s, route), output, inputs[0], scale(module, inputs[0]))

    return module.register_forward_hook(hook)


@layers.register("stacked", nn.Linear)
def _stacked_linear(layer: nn.Linear, _: str) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        if x.ndim != 2:
            return F.linear(x, layer.weight, layer.bias)
        return on_stacked(transform, x, layer.weight, layer.bias)

    return forward


@layers.register("stacked", nn.Embedding)
def _stacked_embedding(layer: nn.Embedding, _: str) -> Callable[[Tensor], Tensor] | None:
    padding = layer.padding_idx
    if padding is None:
        return None

    def forward(x: Tensor) -> Tensor:
        out = F.embedding(x, layer.weight, None, layer.max_norm, layer.norm_type, layer.scale_grad_by_freq)
        return torch.where(x.eq(padding)[..., None], out.detach(), out)

    return forward


@layers.register("stacked", nn.GroupNorm)
def _stacked_group_norm(layer: nn.GroupNorm, _: str) -> Callable[[Tensor], Tensor]:
    function = partial(normalise_groups, groups=layer.num_groups, eps=layer.eps)
    return lambda x: on_stacked(function, x, layer.weight, layer.bias)


@layers.register("stacked", nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def _stacked_batch_norm(layer: _BatchNorm, _: str) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
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

    return forward


def _dropout(dims: int, layer: _DropoutNd, _: str) -> Dropout | None:
    return Dropout(layer.p, dims) if layer.p > 0 else None


for _dims, _kind in enumerate((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)):
    layers.register("stacked", _kind)(partial(_dropout, _dims))


@layers.register("unstackable", nn.RNNBase, nn.AlphaDropout, nn.FeatureAlphaDropout)
def _no_vmap(_: nn.Module) -> str:
    return "vmap has no rule for it"


@layers.register("unstackable", nn.MultiheadAttention)
def _unstackable_attention(layer: nn.MultiheadAttention) -> str | None:
    return "vmap has no rule for its dropout" if layer.dropout > 0 else None


@layers.register("unstackable", nn.Embedding, nn.EmbeddingBag)
def _unstackable_embedding(layer: nn.Embedding | nn.EmbeddingBag) -> str | None:
    return "its gradient is sparse" if layer.sparse else None


@layers.register("unstackable", nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
def _unstackable_batch_norm(layer: _BatchNorm) -> str | None:
    if isinstance(layer, nn.SyncBatchNorm):
        return "it mixes the batches of several processes"
    # The running mean over all batches divides by a counter, which vmap can't read.
    return "its momentum is None" if layer.momentum is None and layer.track_running_stats else None


@runtime_checkable
class _VmapInfo(Protocol):
    batch_size: int


class _OnStacked(torch.autograd.Function):
    """Only its rule for `vmap` is used; autograd records the operations inside of it."""

    @staticmethod
    def forward(function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:  # noqa: ARG004
        raise RuntimeError(f"{function} needs stacked tensors, but is called outside of vmap")

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[object, ...], output: Tensor) -> None:
        """Nothing is saved, since `forward` never runs."""

    @staticmethod
    def vmap(
        info: _VmapInfo, in_dims: tuple[int | None, ...], function: Callable[..., Tensor], *tensors: Tensor | None
    ) -> tuple[Tensor, int]:
        stacked = [_networks_first(tensor, dim, info.batch_size) for tensor, dim in zip(tensors, in_dims[1:])]
        return function(*stacked), 0


def _networks_first(tensor: Tensor | None, dim: int | None, count: int) -> Tensor | None:
    if tensor is None:
        return None
    return tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
