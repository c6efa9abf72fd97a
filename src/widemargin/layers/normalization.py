"""Rules of normalization layers.

The gradients of γ and β of a group norm need no more than two sums over the pixels of every channel c of every sample
k, of the gradient g that arrives (the formula of torch's own kernel, before it adds up samples):

    ∂γ_c = Σ_k c_k·γ_kc        γ_kc = (Σ g·x − mean·Σ g)/std        ∂β_c = Σ_k c_k·β_kc        β_kc = Σ g
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from widemargin._autograd import norm_jvp
from widemargin._cuda import has_triton
from widemargin.layers.forms import Affine, RootMeanSquare, Step, double, per_channel, zeros_like
from widemargin.layers.registry import WeightGradient, WeightGradients, register
from widemargin.layers.structure import diagonal
from widemargin.types import HALF, Node, wide

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


@register("normalizes", *BATCH_NORMS, *_INSTANCE_NORMS)
@register("normalizes", nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
def normalizes(_: nn.Module) -> bool:
    """Not homogeneous in the weights below, also without parameters."""
    return True


@register("affine", *BATCH_NORMS)
def batch_norm(module: _BatchNorm, x: Tensor) -> Affine | None:
    """γ(x − mean)/√(variance + ε) + β by running statistics; None without them."""
    if module.running_mean is None or module.running_var is None:
        return None
    scale = _scale(module, module.running_var)
    offset = -double(module.running_mean) * scale
    offset = offset if module.bias is None else offset + double(module.bias)
    return diagonal(per_channel(scale, x), per_channel(offset, x), x)


@register("lipschitz", *BATCH_NORMS)
def batch_norm_lipschitz(module: _BatchNorm, _: Tensor) -> float | None:
    """The largest |γ|/√(variance + ε); None without running statistics."""
    return None if module.running_var is None else float(_scale(module, module.running_var).abs().max())


def _scale(module: _BatchNorm, variance: Tensor) -> Tensor:
    scale = (double(variance) + module.eps).rsqrt()
    return scale if module.weight is None else scale * double(module.weight)


@register("steps", nn.GroupNorm)
def group_norm(module: nn.GroupNorm, x: Tensor) -> tuple[Step, ...]:
    """(x − mean)/√(variance + ε) over the channels and pixels of each group, then γ and β of each channel."""
    size = x[0].numel() // module.num_groups
    return *_standardized(x, size, module.eps), *_affine_end(module.weight, module.bias, x, per_channel=True)


@register("steps", *_INSTANCE_NORMS)
def instance_norm(
    module: nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d, x: Tensor
) -> tuple[Step, ...] | None:
    """As a group norm with a group per channel; None with running statistics."""
    if module.running_mean is not None:
        return None
    size = x[0, 0].numel()
    return *_standardized(x, size, module.eps), *_affine_end(module.weight, module.bias, x, per_channel=True)


@register("steps", nn.LayerNorm)
def layer_norm(module: nn.LayerNorm, x: Tensor) -> tuple[Step, ...]:
    """(x − mean)/√(variance + ε) over the last dimensions, then γ and β of each entry."""
    size = math.prod(module.normalized_shape)
    return *_standardized(x, size, module.eps), *_affine_end(module.weight, module.bias, x, per_channel=False)


@register("steps", nn.RMSNorm)
def rms_norm(module: nn.RMSNorm, x: Tensor) -> tuple[Step, ...]:
    """As a layer norm without the mean."""
    eps = torch.finfo(x.dtype).eps if module.eps is None else module.eps
    divided = RootMeanSquare(size=math.prod(module.normalized_shape), eps=eps)
    return divided, *_affine_end(module.weight, None, x, per_channel=False)


def _standardized(x: Tensor, size: int, eps: float) -> tuple[Step, ...]:
    """Centring of each group of `size` entries, and the division by the root of the variance + ε."""
    zeros = zeros_like(x)

    def centred(v: Tensor) -> Tensor:
        groups = v.reshape(len(v), -1, size)
        return (groups - groups.mean(dim=2, keepdim=True)).view(v.shape)

    def absolute(r: Tensor) -> Tensor:  # a row has 1 − 1/n once and −1/n else
        groups = r.reshape(len(r), -1, size)
        return ((1 - 2 / size) * groups + groups.mean(dim=2, keepdim=True)).view(r.shape)

    def row_norms(q: float, _: Tensor | None) -> Tensor:
        own, other = 1 - 1 / size, 1 / (size - 1 or 1)  # the others are this part of a row's own entry
        norm = own if q == math.inf else own * (1 + (size - 1) * other**q) ** (1 / q)
        return torch.full_like(zeros[0], norm)

    centring = Affine(zeros=zeros, linear=centred, absolute=absolute, transposed=centred, row_norms=row_norms, norm=1.0)
    return centring, RootMeanSquare(size=size, eps=eps)


def _affine_end(weight: Tensor | None, bias: Tensor | None, x: Tensor, *, per_channel: bool) -> tuple[Step, ...]:
    if weight is None:
        return ()
    ends = (1,) * (x.ndim - 2) if per_channel else ()
    offset = None if bias is None else double(bias).reshape(*bias.shape, *ends)
    return (diagonal(double(weight).reshape(*weight.shape, *ends), offset, x),)


@register("jvp", nn.GroupNorm, F.group_norm)
def group_norm_jvp(
    _: Callable[..., Tensor],
    value: Tensor,
    tangent: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor] | None:
    """By an operation of this package for all directions at once."""
    if value.ndim < 2:
        return None
    value, tangent = _as_autocast_does(value).contiguous(), _as_autocast_does(tangent).contiguous()
    batch, channels = value.shape[:2]
    sizes = batch, channels, math.prod(value.shape[2:]), num_groups
    out, mean, rstd = torch.ops.aten.native_group_norm(value, weight, bias, *sizes, eps)
    with torch.no_grad():
        rows = (batch, channels, -1)
        moved = norm_jvp.norm_jvp(tangent.reshape(rows), value.reshape(rows), mean, rstd, weight)
    return out, moved.reshape(value.shape)


@register("jvp", nn.LayerNorm, F.layer_norm)
def layer_norm_jvp(
    _: Callable[..., Tensor],
    value: Tensor,
    tangent: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """As the group norm."""
    value, tangent = _as_autocast_does(value).contiguous(), _as_autocast_does(tangent).contiguous()
    shape = list(normalized_shape)
    out, mean, rstd = torch.ops.aten.native_layer_norm(value, shape, weight, bias, eps)
    with torch.no_grad():
        rows, alone = (mean.numel(), math.prod(shape), 1), (mean.numel(), 1)
        flat = None if weight is None else weight.flatten()
        moved = norm_jvp.norm_jvp(
            tangent.reshape(rows), value.reshape(rows), mean.reshape(alone), rstd.reshape(alone), flat
        )
    return out, moved.reshape(value.shape)


def _as_autocast_does(tensor: Tensor) -> Tensor:
    """`tensor` in float32 where autocast runs normalization layers so: half precision on a GPU."""
    kind = tensor.device.type
    half = tensor.dtype in HALF
    return tensor.float() if half and kind == "cuda" and torch.is_autocast_enabled(kind) else tensor


@register("weight_gradient", nn.LayerNorm, "NativeLayerNormBackward0")
def layer_norm_gradient(node: Node, enters: tuple[int, ...]) -> WeightGradient | None:
    """Of γ and β."""
    if 0 in enters:
        return None
    saved = node._saved_input, node._saved_normalized_shape, node._saved_result1, node._saved_result2
    affine = node._saved_weight, node._saved_bias

    def gradients(gradient: Tensor, factors: Tensor) -> WeightGradients:
        result: WeightGradients = torch.ops.aten.native_layer_norm_backward(
            gradient * factors, *saved, *affine, [False, 1 in enters, 2 in enters]
        )
        return result

    return gradients


@register("gradient_sums", nn.GroupNorm, "NativeGroupNormBackward0")
def group_norm_sums(node: Node, gradient: Tensor) -> Tensor:
    """(γ_kc, β_kc) of the gradient that arrives at a group norm, `[2, batch, channels]`, never in half precision.

    torch's own kernel can't be used: for images with channels last on a CPU it crashes if the gradient of the images is
    not requested (torch 2.13).
    """
    x, mean, rstd = node._saved_input, node._saved_result1, node._saved_result2  # the last two [batch, groups]
    gradient, x, mean, rstd = (wide(tensor) for tensor in (gradient, x, mean, rstd))
    is_plain = gradient.dtype == x.dtype == torch.float32 and gradient.is_contiguous() and x.is_contiguous()
    if gradient.is_cuda and is_plain and has_triton():
        from widemargin._cuda import norm_kernels

        return norm_kernels.group_norm_sums(gradient, x, mean, rstd)
    pixels = list(range(2, gradient.ndim))
    beta = gradient.sum(pixels)
    by_group = (*mean.shape, -1)
    gamma = (gradient * x).sum(pixels).view(by_group) - beta.view(by_group) * mean.unsqueeze(2)
    return torch.stack([(gamma * rstd.unsqueeze(2)).view_as(beta), beta])
