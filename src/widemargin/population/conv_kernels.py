"""Triton kernels for the convolutions of many networks: matrix products without copied patches.

    out[k] [batch·h·w, out] = patches[k] [batch·h·w, kernel·kernel·in] @ weight[k] [out, kernel·kernel·in]ᵀ

as in `conv_matmul`, but each program reads its patches from the images. Two kernels suffice for all derivatives, since
a convolution of stride 1 is linear in images and in weights:

    ∂/∂images: the convolution of the gradient with the flipped weights      ∂/∂weights: `correlate`

Images are `[networks, batch, height, width, channels]`, in float32, multiplied as TF32 where cuDNN may do that too.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeAlias

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from widemargin._autograd.needed_grads import needed_grads, non_leaf

Ctx: TypeAlias = Any
"""The context of an autograd function."""


def convolve(
    x: Float[Tensor, "networks batch height width inputs"],
    weight: Float[Tensor, "networks outputs rows columns inputs"],
    bias: Float[Tensor, "networks outputs"] | None = None,
    padding: tuple[int, int] = (0, 0),
) -> Float[Tensor, "networks batch new_height new_width outputs"]:
    """out[k, b, h, w, o] = bias[k, o] + Σ_rci x[k, b, h + r, w + c, i]·weight[k, o, r, c, i], with zeros around x."""
    out: Tensor = _Convolve.apply(non_leaf(x), non_leaf(weight), None if bias is None else non_leaf(bias), padding)
    return out


def can_convolve(
    x: Float[Tensor, "networks batch height width inputs"],
    weight: Float[Tensor, "networks outputs rows columns inputs"],
) -> bool:
    """Whether these kernels support the tensors: float32, and positions of 32 bits."""
    largest = x[0, ..., 0].numel() * max(x.shape[-1], weight.shape[1])
    return x.dtype == weight.dtype == torch.float32 and largest < 2**31


def pool(x: Float[Tensor, "images height width channels"]) -> Float[Tensor, "images new_height new_width channels"]:
    """`F.max_pool2d(…, 2)` of images with their channels last."""
    out: Tensor = _Pool.apply(x)
    return out


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, x: Tensor) -> Tensor:
        x = x.contiguous()
        images, height, width, channels = x.shape
        out = x.new_empty(images, height // 2, width // 2, channels)
        which = torch.empty_like(out, dtype=torch.int8)
        _launch_pool(x, out, which, is_backward=False)
        ctx.save_for_backward(which)
        ctx.shape = x.shape
        return out

    @staticmethod
    def backward(ctx: Ctx, gradient: Tensor) -> Tensor:
        (which,) = ctx.saved_tensors
        out: Tensor = _Unpool.apply(gradient, which, ctx.shape)
        return out


class _Unpool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, gradient: Tensor, which: Tensor, shape: torch.Size) -> Tensor:
        ctx.save_for_backward(which)
        even = shape[1] % 2 == 0 and shape[2] % 2 == 0
        out = gradient.new_empty(shape) if even else gradient.new_zeros(shape)
        _launch_pool(out, gradient.contiguous(), which, is_backward=True)
        return out

    @staticmethod
    def backward(ctx: Ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        (which,) = ctx.saved_tensors
        rows, columns = which.shape[1:3]
        cut = gradient[:, : 2 * rows, : 2 * columns].unflatten(2, (columns, 2)).unflatten(1, (rows, 2))
        four = cut.movedim(2, 3).flatten(3, 4)  # [images, rows, columns, 4, channels]
        return four.gather(3, which.unsqueeze(3).long()).squeeze(3), None, None


def _launch_pool(images: Tensor, pools: Tensor, which: Tensor, *, is_backward: bool) -> None:
    _, height, width, channels = images.shape
    _pool[(triton.cdiv(pools.numel(), 1024),)](
        images, pools, which, pools.numel(), CHANNELS=channels, WIDTH=width, SIZE=height * width,
        NEW_WIDTH=width // 2, NEW_SIZE=(height // 2) * (width // 2), NUMBERS=1024, IS_BACKWARD=is_backward, num_warps=4,
    )  # fmt: skip


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Ctx, x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.padding = padding
        return multiply(_padded(x, padding), weight.contiguous(), bias)

    @staticmethod
    def backward(ctx: Ctx, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias, _ = needed_grads(ctx)
        return (
            _transposed(gradient, weight, ctx.padding) if wants_x else None,
            _Correlate.apply(x, non_leaf(gradient), ctx.padding) if wants_weight else None,
            gradient.sum(dim=(1, 2, 3)) if wants_bias else None,
            None,
        )


class _Correlate(torch.autograd.Function):
    """weight[k, o, r, c, i] = Σ_bhw x[k, b, h + r, w + c, i]·gradient[k, b, h, w, o]."""

    @staticmethod
    def forward(ctx: Ctx, x: Tensor, gradient: Tensor, padding: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, gradient)
        ctx.padding = padding
        return correlate(_padded(x, padding), gradient.contiguous())

    @staticmethod
    def backward(ctx: Ctx, weight: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, gradient = ctx.saved_tensors
        wants_x, wants_gradient, _ = needed_grads(ctx)
        return (
            _transposed(gradient, weight, ctx.padding) if wants_x else None,
            convolve(x, weight, None, ctx.padding) if wants_gradient else None,
            None,
        )


def _padded(x: Tensor, padding: tuple[int, int]) -> Tensor:
    return F.pad(x, (0, 0, padding[1], padding[1], padding[0], padding[0])).contiguous()


def _transposed(gradient: Tensor, weight: Tensor, padding: tuple[int, int]) -> Tensor:
    rows, columns = weight.shape[2:4]
    around = rows - 1 - padding[0], columns - 1 - padding[1]
    return convolve(gradient, weight.flip(2, 3).transpose(1, 4), None, around)


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The convolution, `[networks, batch, new_height, new_width, outputs]`."""
    networks, batch, height, width, inputs = x.shape
    outputs, rows, columns = weight.shape[1:4]
    new_height, new_width = height - rows + 1, width - columns + 1
    out = x.new_empty(networks, batch, new_height, new_width, outputs)
    places = batch * new_height * new_width
    inner = 32 if inputs % 32 == 0 or inputs * rows * columns > 16 else 16
    block = (128 if outputs > 32 else 256, max(16, min(64, triton.next_power_of_2(outputs))), inner)
    grid = (triton.cdiv(places, block[0]), triton.cdiv(outputs, block[1]), networks)
    _multiply[grid](
        x, weight, weight if bias is None else bias.contiguous(), out, places, outputs,
        x.stride(0), weight.stride(0), out.stride(0),
        WIDTH=width, SIZE=height * width, CHANNELS=inputs, ROWS=rows, COLUMNS=columns,
        NEW_WIDTH=new_width, NEW_SIZE=new_height * new_width,
        PLACES=block[0], OUTPUTS=block[1], INNER=inner, HAS_BIAS=bias is not None, PRECISION=_precision(),
        num_warps=4 if outputs > 16 else 8, num_stages=3,
    )  # fmt: skip
    return out


def correlate(x: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of the weights, `[networks, outputs, rows, columns, inputs]`, of the gradient of `multiply`."""
    networks, batch, height, width, inputs = x.shape
    new_height, new_width, outputs = gradient.shape[2:]
    rows, columns = height - new_height + 1, width - new_width + 1
    places, taps = batch * new_height * new_width, rows * columns * inputs
    # 32 outputs at most: for 64 the compiler uses Hopper's instructions, which need both factors transposed in memory,
    # and that costs more than they save.
    block = (max(16, min(32, triton.next_power_of_2(outputs))), 128 if taps > 64 else 32, 32)
    tiles = triton.cdiv(outputs, block[0]) * triton.cdiv(taps, block[1])
    # Few networks have few tiles: then several programs share the places, and their sums are added.
    parts = max(1, min(4 * _processors(x.device) // (tiles * networks), triton.cdiv(places, 8 * block[2])))
    each = triton.cdiv(triton.cdiv(places, parts), block[2]) * block[2]
    out = x.new_empty(parts, networks, outputs, rows, columns, inputs)
    _correlate[(tiles, networks, parts)](
        x, gradient, out, places, outputs, taps, x.stride(0), gradient.stride(0), out.stride(1), out.stride(0),
        WIDTH=width, SIZE=height * width, CHANNELS=inputs, COLUMNS=columns,
        NEW_WIDTH=new_width, NEW_SIZE=new_height * new_width,
        OUTPUTS=block[0], TAPS=block[1], PLACES=block[2], EACH=each, PRECISION=_precision(),
        num_warps=4, num_stages=3,
    )  # fmt: skip
    return out[0] if parts == 1 else out.sum(dim=0)


def _precision() -> str:
    return "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"  # three products of TF32: about as exact as float32


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


def _multiply_kernel(  # type: ignore[no-untyped-def]
    x, weight, bias, out, places, outputs,
    x_stride, weight_stride, out_stride,
    WIDTH: tl.constexpr, SIZE: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    NEW_WIDTH: tl.constexpr, NEW_SIZE: tl.constexpr,
    PLACES: tl.constexpr, OUTPUTS: tl.constexpr, INNER: tl.constexpr, HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    network = tl.program_id(2).to(tl.int64)
    place = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    inside = tl.minimum(place, places - 1)  # rows beyond the last repeat it and are not written
    image, position = inside // NEW_SIZE, inside % NEW_SIZE
    corner = (image * SIZE + position // NEW_WIDTH * WIDTH + position % NEW_WIDTH) * CHANNELS
    x += network * x_stride
    weight += network * weight_stride
    column = tl.minimum(output, outputs - 1)
    inner = tl.arange(0, INNER)
    TAPS: tl.constexpr = ROWS * COLUMNS * CHANNELS
    total = tl.zeros((PLACES, OUTPUTS), dtype=tl.float32)
    for step in range(0, (TAPS + INNER - 1) // INNER):
        if CHANNELS % INNER == 0:  # channels of one tap, which the compiler can see to be contiguous
            tap, piece = step // (CHANNELS // INNER), step % (CHANNELS // INNER)
            offset = (tap // COLUMNS * WIDTH + tap % COLUMNS) * CHANNELS + piece * INNER + inner
            patches = tl.load(x + corner[:, None] + offset[None, :])
            weights = tl.load(weight + column[None, :] * TAPS + (step * INNER + inner)[:, None])
        else:
            number = step * INNER + inner
            tap = number // CHANNELS
            offset = (tap // COLUMNS * WIDTH + tap % COLUMNS) * CHANNELS + number % CHANNELS
            is_tap = number < TAPS
            patches = tl.load(x + corner[:, None] + offset[None, :], mask=is_tap[None, :], other=0.0)
            weights = tl.load(weight + column[None, :] * TAPS + number[:, None], mask=is_tap[:, None], other=0.0)
        total = tl.dot(patches, weights, total, input_precision=PRECISION)
    if HAS_BIAS:
        total += tl.load(bias + network * outputs + column)[None, :]
    target = out + network * out_stride + place[:, None].to(tl.int64) * outputs + output[None, :]
    tl.store(target, total, mask=(place < places)[:, None] & (output < outputs)[None, :])


def _correlate_kernel(  # type: ignore[no-untyped-def]
    x, gradient, out, places, outputs, taps, x_stride,
    gradient_stride, out_stride, part_stride,
    WIDTH: tl.constexpr, SIZE: tl.constexpr, CHANNELS: tl.constexpr, COLUMNS: tl.constexpr,
    NEW_WIDTH: tl.constexpr, NEW_SIZE: tl.constexpr,
    OUTPUTS: tl.constexpr, TAPS: tl.constexpr, PLACES: tl.constexpr, EACH: tl.constexpr, PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    network, part = tl.program_id(1).to(tl.int64), tl.program_id(2)
    across = tl.cdiv(taps, TAPS)
    output = tl.program_id(0) // across * OUTPUTS + tl.arange(0, OUTPUTS)
    number = tl.program_id(0) % across * TAPS + tl.arange(0, TAPS)
    is_tap, is_output = number < taps, output < outputs
    tap = number // CHANNELS
    offset = (tap // COLUMNS * WIDTH + tap % COLUMNS) * CHANNELS + number % CHANNELS
    x += network * x_stride
    gradient += network * gradient_stride
    total = tl.zeros((OUTPUTS, TAPS), dtype=tl.float32)
    for start in range(0, EACH, PLACES):
        place = part * EACH + start + tl.arange(0, PLACES)
        is_place = place < places
        image, position = place // NEW_SIZE, place % NEW_SIZE
        corner = (image * SIZE + position // NEW_WIDTH * WIDTH + position % NEW_WIDTH) * CHANNELS
        known = is_place[:, None] & is_tap[None, :]
        patches = tl.load(x + corner[:, None] + offset[None, :], mask=known, other=0.0)
        known = is_place[:, None] & is_output[None, :]
        gradients = tl.load(gradient + place[:, None] * outputs + output[None, :], mask=known, other=0.0)
        total = tl.dot(tl.trans(gradients), patches, total, input_precision=PRECISION)
    target = out + part * part_stride + network * out_stride + output[:, None] * taps + number[None, :]
    tl.store(target, total, mask=is_output[:, None] & is_tap[None, :])


def _pool_kernel(  # type: ignore[no-untyped-def]
    images, pools, which, count,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, NEW_WIDTH: tl.constexpr, NEW_SIZE: tl.constexpr,
    NUMBERS: tl.constexpr, IS_BACKWARD: tl.constexpr,
) -> None:  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * NUMBERS + tl.arange(0, NUMBERS)
    inside = number < count
    channel, place = number % CHANNELS, number // CHANNELS
    image, position = place // NEW_SIZE, place % NEW_SIZE
    corner = (image * SIZE + position // NEW_WIDTH * (2 * WIDTH) + position % NEW_WIDTH * 2) * CHANNELS + channel
    if IS_BACKWARD:
        gradient = tl.load(pools + number, mask=inside, other=0.0)
        largest = tl.load(which + number, mask=inside, other=0)
        for k in tl.static_range(4):
            target = images + corner + (k // 2 * WIDTH + k % 2) * CHANNELS
            tl.store(target, tl.where(largest == k, gradient, 0.0), mask=inside)
    else:
        best = tl.load(images + corner, mask=inside, other=0.0)
        found = tl.zeros((NUMBERS,), dtype=tl.int8)
        for k in tl.static_range(1, 4):
            value = tl.load(images + corner + (k // 2 * WIDTH + k % 2) * CHANNELS, mask=inside, other=0.0)
            larger = (value > best) | (value != value)  # as torch does it: NaN wins
            best = tl.where(larger, value, best)
            found = tl.where(larger, k, found).to(tl.int8)
        tl.store(pools + number, best, mask=inside)
        tl.store(which + number, found, mask=inside)


# Triton compiles the source of the function itself, not of a wrapper that checks types.
_multiply, _correlate, _pool = (
    triton.jit(inspect.unwrap(kernel)) for kernel in (_multiply_kernel, _correlate_kernel, _pool_kernel)
)
