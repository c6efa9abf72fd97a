"""Checks of what the functions of this room take, each a sentence with the name, the value and what was expected."""

from __future__ import annotations

import math
import numbers

import torch
from jaxtyping import Float64, Shaped
from torch import Tensor

OFF_SPHERE = 1e-5  # float32 data projected to the sphere lie about 1e-7 off it


def on_sphere(x: Shaped[Tensor, "n ..."], name: str) -> Float64[Tensor, "n d0"]:
    """x/‖x‖₂ in float64, of samples that must lie on the sphere of radius √d_0.

    What rounding left off the sphere is removed, so that the kernel of float32 data is positive semi-definite to
    float64's rounding and not to float32's.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}, expected a tensor [n, d_0]")
    if not x.is_floating_point():
        raise TypeError(f"{name} has dtype {x.dtype}, expected a floating-point tensor")
    if x.requires_grad:
        raise ValueError(f"{name} requires gradients, but none flow through the kernel: pass {name}.detach()")
    if x.ndim < 2 or x.numel() == 0:
        raise ValueError(f"{name} has shape {list(x.shape)}, expected [n, d_0] with n and d_0 of at least 1")
    if x.device.type == "mps":
        raise ValueError(f"{name} is on {x.device}, which has no float64: move it to the CPU")
    rows = x.flatten(1).to(torch.float64)
    norms = torch.linalg.vector_norm(rows, dim=1)
    radius = math.sqrt(rows.shape[1])
    tolerance = radius * max(OFF_SPHERE, torch.finfo(x.dtype).eps)
    off = (~((norms - radius).abs() <= tolerance)).nonzero()
    if len(off):
        at = int(off[0])
        raise ValueError(
            f"{name} has norm {norms[at].item():.6g} at index {at}, expected √d_0 = {radius:.6g}: "
            f"project it with wm.data.to_sphere"
        )
    return rows / norms.unsqueeze(1)


def check_pair(x1: Tensor, x2: Tensor, names: tuple[str, str]) -> None:
    """Raise unless both have samples of the same length on the same device."""
    if x1.shape[1] != x2.shape[1]:
        raise ValueError(f"{names[1]} has d_0 = {x2.shape[1]}, but {names[0]} has d_0 = {x1.shape[1]}")
    if x1.device != x2.device:
        raise ValueError(f"{names[1]} is on {x2.device}, but {names[0]} is on {x1.device}")


def check_signs(y: Shaped[Tensor, " n"], n: int, name: str, of: str) -> None:
    """Raise unless `y` is n float labels −1 and +1, one for each sample of `of`."""
    if not isinstance(y, Tensor):
        raise TypeError(f"{name} is a {type(y).__name__}, expected a tensor [n] of -1.0 and 1.0")
    if not y.is_floating_point():
        raise TypeError(f"{name} has dtype {y.dtype}, expected float labels -1.0 and 1.0")
    if y.shape != (n,):
        raise ValueError(f"{name} has shape {list(y.shape)}, expected [{n}], one label for each sample of {of}")
    bad = (y.abs() != 1).nonzero()
    if len(bad):
        at = int(bad[0])
        raise ValueError(f"{name} has {y[at].item():g} at index {at}, expected -1 or 1")


def check_count(value: int, name: str, least: int = 1) -> None:
    """Raise unless `value` is an integer ≥ `least` (a bool is not one)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} is {value!r}, expected an integer of at least {least}")
    if value < least:
        raise ValueError(f"{name} is {value}, expected an integer of at least {least}")


def check_number(value: float, name: str, *, above: float | None = None, least: float | None = None) -> None:
    """Raise unless `value` is a finite number, above `above` or at least `least`."""
    expected = f"a finite number above {above:g}" if above is not None else f"a finite number of at least {least:g}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}, expected {expected}")
    if not math.isfinite(value) or (above is not None and value <= above) or (least is not None and value < least):
        raise ValueError(f"{name} is {value}, expected {expected}")


def check_scale(sigma: float, depth: int) -> None:
    """Raise unless σ^{2L}, the prior's variance, is a number that float64 has."""
    check_number(sigma, "sigma", above=0.0)
    try:
        variance = float(sigma) ** (2 * depth)
    except OverflowError:
        variance = math.inf
    if not 0 < variance < math.inf:
        raise ValueError(f"sigma is {sigma:g}, whose prior variance sigma^(2·{depth}) is {variance:g} in float64")
