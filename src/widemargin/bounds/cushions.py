"""Layer and interlayer cushions and activation contraction: noise damping on real data (odn, Definitions 1–3).

f^i is the output of weight layer i before its activation, φ(f^i) the input of the next weight layer, after activations
and pools. All norms are taken in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin.bounds.chain import Link, chain_of
from widemargin.checks import check_count, check_seed
from widemargin.margins.normalized import Biases
from widemargin.modules import cast_input, evaluating, uncompiled, unwrap

EXACT_UNITS = 2048
"""Largest number of units above the first layer for exact Jacobian norms by default: one backward pass per unit."""
DEFAULT_PROBES = 64


@dataclass(frozen=True, kw_only=True)
class Interlayer:
    """μ_{i,j}, and ‖J^{i,j}‖_F at the sample where it is smallest, with its standard error (0 if exact)."""

    lower: str
    upper: str
    cushion: float
    norm: float
    standard_error: float


@dataclass(frozen=True, kw_only=True)
class Cushions:
    """The cushions of a network on a data set; `probes` is 0 if the Jacobian norms are exact."""

    layer: dict[str, float]
    minimal: dict[str, float]
    interlayer: tuple[Interlayer, ...]
    contraction: Annotated[float, "c"]
    width: Annotated[int, "ρ"]
    standard_error: Annotated[float, "largest s.e. of ‖J‖_F"]
    probes: int


def cushions(
    model: nn.Module,
    x: Tensor,
    *,
    probes: int | None = None,
    seed: int = 0,
    batch_size: int = 256,
    biases: Biases = "refuse",
) -> Cushions:
    """Layer cushions, interlayer cushions and activation contraction of a network on data (odn, Definitions 1 to 3).

    The largest μ_i and μ_{i,j}, and the smallest c, with for every sample

        μ_i ‖W_i‖_F ‖φ(f^{i−1})‖ ≤ ‖f^i‖,   μ_{i,j} ‖J^{i,j}‖_F ‖f^i‖ ≤ ‖f^j‖,   ‖φ(f^i)‖ ≥ ‖f^i‖/c,

    and μ_{i→} = min{1/√ρ, min_{j>i} μ_{i,j}}, with ρ the largest number of output units of a layer. Erratum 6: the
    paper prints ‖φ(f^{i−1})‖ in the second one, but J^{i,j} acts on f^i, as in Arora et al. 2018.

    ‖J‖_F is exact, with one backward pass per unit, or the root of the mean of ‖Jᵀz‖² over random signs z, an unbiased
    estimate of ‖J‖_F². The smallest of many noisy cushions tends to be too low.

    Args:
        model: a chain of layers without biases, see `chain.chain_of`.
        x: the training inputs.
        probes: random z per layer; 0 for exact norms; by default exact for networks of at most 2048 units above the
            first layer, else 64.
        seed: seed of the probes.
        batch_size: samples at a time.
        biases: refuse a network with biases, or run it with them, where cushions may exceed 1.
    """
    check_count("batch_size", batch_size)
    check_count("probes", 2 if probes is None else probes, least=0)
    check_seed(seed)
    if probes == 1:
        raise ValueError("probes is 1, expected 0 for exact norms, or at least 2 for a standard error")
    weights = chain_of(model, x, biases=biases).weights
    if probes is None:
        probes = 0 if sum(link.units for link in weights[1:]) <= EXACT_UNITS else DEFAULT_PROBES
    network = unwrap(model)
    generator = torch.Generator().manual_seed(seed)
    names, frobenius = [link.name for link in weights], [link.frobenius for link in weights]
    layer = [math.inf] * len(weights)
    between: dict[tuple[int, int], Interlayer] = {}
    contraction = 1.0
    for batch in x.split(batch_size):
        with evaluating(network), uncompiled(network), torch.enable_grad():
            inputs, outputs = _run(network, weights, cast_input(network, batch))
            before = [norms.lp(h.detach().double(), 2.0) for h in inputs]
            after = [norms.lp(h.detach().double(), 2.0) for h in outputs]
            for i, size in enumerate(frobenius):
                layer[i] = min(layer[i], float(_ratio(after[i], size * before[i]).min()))
                if i + 1 < len(weights):
                    contraction = max(contraction, float(_ratio(after[i], before[i + 1], empty=1.0).max()))
            for j in range(1, len(weights)):
                for i, (squared, error) in enumerate(_jacobian_norms(outputs, j, probes, generator)):
                    mu = _ratio(after[j], squared.sqrt() * after[i])
                    worst = int(mu.argmin())
                    cushion, norm, spread = float(mu[worst]), float(squared[worst].sqrt()), float(error[worst])
                    spread = spread / (2 * norm) if norm else 0.0  # of a root: d√s = ds/(2√s)
                    new = Interlayer(lower=names[i], upper=names[j], cushion=cushion, norm=norm, standard_error=spread)
                    between[i, j] = min(between.get((i, j), new), new, key=lambda one: one.cushion)
    width = max(link.units for link in weights)
    return Cushions(
        layer=dict(zip(names, layer, strict=True)),
        minimal={
            name: min([width**-0.5, *(m.cushion for (low, _), m in between.items() if low == i)])
            for i, name in enumerate(names)
        },
        interlayer=tuple(between[key] for key in sorted(between)),
        contraction=contraction,
        width=width,
        standard_error=max((one.standard_error for one in between.values()), default=0.0),
        probes=probes,
    )


def _run(network: nn.Module, weights: Iterable[Link], x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs and outputs of every weight layer, in one graph."""
    inputs, outputs = [], []

    def record(_: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        inputs.append(args[0])
        outputs.append(output)
        return output.clone()  # an in-place activation must not overwrite it

    with ExitStack() as stack:
        for module in {link.module for link in weights}:
            stack.callback(module.register_forward_hook(record).remove)
        network(x.detach().requires_grad_().clone())  # in the graph also if no weight requires a gradient
    return inputs, outputs


def _jacobian_norms(
    outputs: list[Tensor], j: int, probes: int, generator: torch.Generator
) -> list[tuple[Tensor, Tensor]]:
    """For every i < j: ‖J^{i,j}‖_F² of each sample, and its standard error."""
    target = outputs[j].flatten(1)
    lower = outputs[:j]
    total = [torch.zeros(len(target), dtype=torch.float64, device=target.device) for _ in lower]
    squares = [torch.zeros_like(t) for t in total]
    for k in range(probes or target.shape[1]):
        z = torch.zeros_like(target)
        if probes:
            z += (2 * torch.randint(0, 2, target.shape, generator=generator) - 1).to(target)
        else:
            z[:, k] = 1.0
        for t, s, gradient in zip(total, squares, torch.autograd.grad(target, lower, z, retain_graph=True)):
            size = norms.lp(gradient.double(), 2.0).square()
            t += size
            s += size.square()
    if not probes:
        return [(t, torch.zeros_like(t)) for t in total]
    means = [t / probes for t in total]
    errors = [((s / probes - m.square()).clamp(min=0) / (probes - 1)).sqrt() for s, m in zip(squares, means)]
    return list(zip(means, errors, strict=True))


def _ratio(above: Tensor, below: Tensor, *, empty: float = math.inf) -> Tensor:
    """Their quotient; `empty` where both are 0 and the inequality holds for any value."""
    return torch.where((above == 0) & (below == 0), torch.full_like(above, empty), above / below)
