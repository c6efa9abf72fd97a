"""The covariance of wide networks: the compositional arccosine kernel."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor

from widemargin.checks import check_count, check_floating

# Entries of a matrix that pass through all layers at once. On a CPU, a piece and its scratch fit in the cache, which
# halves the time; a GPU needs larger pieces.
PIECE_PER_THREAD = 2**15
PIECE_GPU = 2**25
OFF_SPHERE = 1e-5  # float32 data projected to the sphere lie about 1e-7 off it


@torch.no_grad()
def kernel(x1: Float[Tensor, "n ..."], x2: Float[Tensor, "m ..."], depth: int) -> Float64[Tensor, "n m"]:
    """Σ̂(x, x′) = h∘⋯∘h(xᵀx′/d_0), h applied `depth` − 1 times, for each x of `x1` and x′ of `x2`, in float64.

    h(t) = [√(1−t²) + t·(π − arccos t)]/π. Source: farhang §6.1 (Cho & Saul 2009; Lee et al. 2018); the covariance of
    the outputs of infinitely wide bias-free networks of `depth` weight matrices whose weights are N(0, 1/d_{l−1}); a
    prior scale σ per layer multiplies it by σ^{2·depth}. Depth 1 is xᵀx′/d_0.

    Erratum: the paper prints a plain ReLU, for which E[φφ] is h/2. The kernel belongs to φ = √2·ReLU, that of
    `models.farhang_mlp`.

    Assumes samples on the sphere of radius √d_0 (`wm.data.to_sphere`) and raises otherwise. Images are flattened. The
    absolute error is about 1e-16 per layer, at t = ±1 as elsewhere. No gradients are computed.

    Args:
        x1: samples [n, d_0] or [n, ...], of any floating dtype.
        x2: samples of the same length on the same device.
        depth: number L of weight matrices.
    """
    check_count("depth", depth)
    unit1, unit2 = unit_pair(x1, x2, ("x1", "x2"))
    return compose_(unit1 @ unit2.T, depth)


def unit_pair(
    x1: Shaped[Tensor, "n ..."], x2: Shaped[Tensor, "m ..."], names: tuple[str, str]
) -> tuple[Float64[Tensor, "n d0"], Float64[Tensor, "m d0"]]:
    """x/‖x‖₂ in float64 of two sets of samples on the same sphere, or a one-line error with the argument's name."""
    unit1, unit2 = _unit(x1, names[0]), _unit(x2, names[1])
    if unit1.shape[1] != unit2.shape[1]:
        raise ValueError(f"{names[1]} has d_0 = {unit2.shape[1]}, but {names[0]} has d_0 = {unit1.shape[1]}")
    if unit1.device != unit2.device:
        raise ValueError(f"{names[1]} is on {unit2.device}, but {names[0]} is on {unit1.device}")
    return unit1, unit2


def kernel_into(
    out: Float64[Tensor, "n m"], unit1: Float64[Tensor, "n d0"], unit2: Float64[Tensor, "m d0"], depth: int
) -> None:
    """Write the kernel of samples already divided by their norms into `out`, which may be part of a larger matrix."""
    torch.mm(unit1, unit2.T, out=out)
    compose_(out, depth)


def compose_(t: Float64[Tensor, "n m"], depth: int) -> Float64[Tensor, "n m"]:
    """h∘⋯∘h(t), `depth` − 1 times, in place and piece by piece, after clamping t to [−1, 1].

    In the form h(t) = max(t, 0) + g(|t|)/π with g(a) = √((1−a)(1+a)) − a·arccos a ≥ 0: near 1, h(t) is t plus a
    small number that is computed by itself; near −1, where h is small, the angles subtracted are of the size of
    π − arccos t, not near π. Exact at −1, 0 and 1.
    """
    t.clamp_(-1.0, 1.0)
    if depth == 1 or t.numel() == 0:
        return t
    piece = PIECE_GPU if t.device.type != "cpu" else PIECE_PER_THREAD * torch.get_num_threads()
    rows = min(len(t), max(1, piece // t.shape[1]))
    scratch = [torch.empty(rows, t.shape[1], dtype=t.dtype, device=t.device) for _ in range(3)]
    one = torch.ones((), dtype=t.dtype, device=t.device)
    for part in t.split(rows):
        size, g, angle = (s[: len(part)] for s in scratch)
        torch.abs(part, out=size)
        part.clamp_min_(0.0)
        for _ in range(depth - 1):
            torch.sub(one, size, out=g)
            torch.addcmul(g, g, size, out=g).sqrt_()  # √((1−a) + (1−a)a)
            g.addcmul_(size, torch.acos(size, out=angle), value=-1.0)
            part.add_(g, alpha=1.0 / math.pi)
            size = part  # h ≥ 0: from the second layer on, a is t
    return t


def _unit(x: Shaped[Tensor, "n ..."], name: str) -> Float64[Tensor, "n d0"]:
    """x/‖x‖₂ in float64, of samples on the sphere of radius √d_0.

    Dividing by the norm removes rounding off the sphere, so that the kernel of float32 data is positive semi-definite
    to the rounding of float64.
    """
    check_floating(x, name, "[n, d_0]")
    if x.requires_grad:
        raise ValueError(f"{name} requires gradients, which the kernel does not compute: pass {name}.detach()")
    if x.ndim < 2 or x.numel() == 0:
        raise ValueError(f"{name} has shape {list(x.shape)}, expected [n, d_0] with n and d_0 >= 1")
    if x.device.type == "mps":
        raise ValueError(f"{name} is on {x.device}, which has no float64: move it to the CPU")
    rows = x.flatten(1).to(torch.float64)
    norms = torch.linalg.vector_norm(rows, dim=1)
    radius = math.sqrt(rows.shape[1])
    tolerance = radius * max(OFF_SPHERE, torch.finfo(x.dtype).eps)
    off = (~((norms - radius).abs() <= tolerance)).nonzero()
    if len(off):
        index = int(off[0])
        norm = f"norm {norms[index].item():.6g} at index {index}"
        raise ValueError(f"{name} has {norm}, expected √d_0 = {radius:.6g}: project it with wm.data.to_sphere")
    return rows / norms.unsqueeze(1)
