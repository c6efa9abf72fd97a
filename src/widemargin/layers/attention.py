"""Rules of attention."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from widemargin.layers.registry import register
from widemargin.types import HALF

_FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
"""Not the memory-efficient and the cuDNN kernels: inside `jvp` they treat their input as one without a gradient and do
not save what their backward pass needs: it failed (the first) or gave NaN gradients (the second)."""


@register("jvp", nn.MultiheadAttention, F.scaled_dot_product_attention)
def attention_jvp(
    _: Callable[..., Tensor],
    q: Tensor,
    dq: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor] | None:
    """softmax(s)·v of s = q·kᵀ·scale by the fused kernels, and its derivative by plain products.

    With P = softmax(s): dP = P∘(ds − Σ P∘ds), and dP·v + P·dv.
    """
    (k, dk), (v, dv) = forward_ad.unpack_dual(key), forward_ad.unpack_dual(value)
    is_plain = attn_mask is None and not dropout_p and not is_causal and not enable_gqa
    if dk is None or dv is None or not is_plain:
        return None
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    with sdpa_kernel(_FUSED):
        out = F.scaled_dot_product_attention(q, k, v, scale=scale)
    with torch.no_grad():
        wide = torch.float32 if q.dtype in HALF else q.dtype
        p = torch.softmax((q @ k.mT).to(wide) * scale, dim=-1)
        ds = (dq @ k.mT + q @ dk.mT).to(wide) * scale
        dp = p * (ds - (p * ds).sum(dim=-1, keepdim=True))
        moved = dp.to(v.dtype) @ v + p.to(v.dtype) @ dv
    return out, moved.to(out.dtype)
