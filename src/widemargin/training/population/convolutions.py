"""Convolutions of many networks as batched matrix products.

`vmap` turns the convolutions of a stack into one grouped convolution, which GPUs do slowly. Here every network's
patches are copied into a matrix (im2col), and one batched product serves all networks, forward and backward:

    out[k] [batch·h·w, out] = patches[k] [batch·h·w, kernel·kernel·in] @ weight[k]ᵀ

Images lie in memory with their channels last, so that a patch is `kernel` runs of kernel·in numbers and the copy moves
whole runs. The price is memory: kernel² times the input of each layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin.training.population.lowered import lowered

Convolutions: TypeAlias = Literal["grouped", "matmul"]
CONVOLUTIONS: tuple[Convolutions, ...] = ("grouped", "matmul")


def convolve(
    x: Float[Tensor, "networks batch inputs height width"],
    weight: Float[Tensor, "networks outputs inputs kernel_height kernel_width"],
    bias: Float[Tensor, "networks outputs"] | None,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
) -> Float[Tensor, "networks batch outputs new_height new_width"]:
    """`F.conv2d` of every network, with zeros around the images."""
    networks, batch = x.shape[:2]
    rows, columns = weight.shape[-2:]
    last = F.pad(x.movedim(2, 4), (0, 0, padding[1], padding[1], padding[0], padding[0]))
    patches = last.unfold(2, rows, stride[0]).unfold(
        3, columns, stride[1]
    )  # [networks, batch, h, w, in, rows, columns]
    height, width = patches.shape[2:4]
    matrix = patches.permute(0, 1, 2, 3, 5, 6, 4).reshape(networks, batch * height * width, -1)
    kernel = weight.permute(0, 3, 4, 2, 1).flatten(1, 3)
    out = matrix.bmm(kernel) if bias is None else bias[:, None].baddbmm(matrix, kernel)
    return out.view(networks, batch, height, width, -1).movedim(4, 2)


@contextmanager
def by_matrix_products(network: nn.Module) -> Iterator[None]:
    """Inside the `with` block, and inside `vmap`, plain convolutions of `network` are matrix products."""
    with ExitStack() as stack:
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d) and is_plain(layer):
                stack.callback(delattr, layer, "_conv_forward")
                layer._conv_forward = partial(_forward, layer)  # type: ignore[method-assign]
        yield


def is_plain(layer: nn.Conv2d) -> bool:
    """Whether `convolve` knows how to: no groups, no dilation, zeros around the images."""
    return (
        layer.groups == 1
        and layer.dilation == (1, 1)
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    )


def _forward(layer: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.ndim != 4:
        return F.conv2d(x, weight, bias, layer.stride, layer.padding)
    assert not isinstance(layer.padding, str)
    return lowered(partial(convolve, stride=layer.stride, padding=layer.padding), x, weight, bias)
