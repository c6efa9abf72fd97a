"""Linear layers of many networks as one batched matrix product.

out[k]ᵀ [out, batch] = weight[k] [out, in] @ x[k]ᵀ + bias[k]

`vmap` would compute x @ weightᵀ, whose gradient is transposed in memory and slow to read for every optimizer. Here the
gradients have the memory layout of the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import layers
from widemargin.population.vmap_lowering import on_stacked


def transform(
    x: Float[Tensor, "networks batch inputs"],
    weight: Float[Tensor, "networks outputs inputs"],
    bias: Float[Tensor, "networks outputs"] | None,
) -> Float[Tensor, "networks batch outputs"]:
    """`F.linear` of every network."""
    out = weight.bmm(x.mT) if bias is None else bias[:, :, None].baddbmm(weight, x.mT)
    return out.mT


@layers.register("stacked", nn.Linear)
def stacked(layer: nn.Linear, _: str) -> Callable[[Tensor], Tensor]:
    """The forward pass of a layer inside `vmap`, by `transform` for inputs `[batch, inputs]`."""
    return partial(_forward, layer)


def _forward(layer: nn.Linear, x: Tensor) -> Tensor:
    if x.ndim != 2:
        return F.linear(x, layer.weight, layer.bias)
    return on_stacked(transform, x, layer.weight, layer.bias)
