"""Certified radii by Lipschitz constants: output margin over the product of operator norms."""

from __future__ import annotations

import torch
from torch import Tensor

from widemargin import norms
from widemargin.certify.relaxation import SLACK
from widemargin.layers.forms import Affine, RootMeanSquare, Step, Sum
from widemargin.layers.network import Network
from widemargin.layers.trace import INPUT

MOST = 1e9
"""Largest certified radius: that of a constant network is infinite."""


@torch.no_grad()
def lipschitz_radius(network: Network, x: Tensor, rows: Tensor, p: float) -> Tensor:
    """min_c (f_y − f_c)/(‖(w_y − w_c)·W‖_2·L) of samples in float64, `rows` being those of `layers.network.against`.

    W are the affine layers at the end of the network, and L is the l_2 Lipschitz constant of what is below them: the
    product of the constants of layers that follow each other, the sum over the branches of a residual sum, 1/√ε of a
    group or layer norm. For a chain of layers this is γ_out/Π‖W‖_2 (sokolic, Theorem 5). The l_2 radius also holds for
    p < 2, and divided by n^{1/2 − 1/p} for p > 2. 0 for a misclassified sample.

    Raises:
        TypeError: a layer has no known constant.
    """
    known = constants(network)  # first: a layer without one may not run in float64
    end = len(network.steps) - 1
    gaps = (rows * network.forward(x)[:, None]).sum(dim=2)
    coefficients = rows.reshape(*rows.shape[:2], *network.output)
    while end > INPUT and isinstance(step := network.steps[end], Affine):
        coefficients = step.adjoint(coefficients.flatten(0, 1)).unflatten(0, rows.shape[:2])
        end = network.inputs[end][0]
    slopes = norms.lp(coefficients.flatten(0, 1), 2.0).view(rows.shape[:2]) * known[end]
    larger = x[0].numel() ** (0.5 - 1 / p) if p > 2 else 1.0
    radii = gaps.clamp(min=0) / (slopes * larger * (1 + SLACK)).clamp(min=torch.finfo(slopes.dtype).tiny)
    return radii.amin(dim=1).clamp(max=MOST)


def constants(network: Network) -> dict[int, float]:
    """The l_2 Lipschitz constant of the output of every step as a function of the network's input."""
    found = {INPUT: 1.0}
    for number, (step, sources) in enumerate(zip(network.steps, network.inputs)):
        below = [found[source] for source in sources]
        if isinstance(step, Sum):
            found[number] = sum(abs(weight) * constant for weight, constant in zip(step.weights, below))
        else:
            found[number] = _constant(network, number, step) * below[0]
    return found


def _constant(network: Network, number: int, step: Step) -> float:
    assert not isinstance(step, Sum)
    name, module = network.names[number], network.modules[number]
    if isinstance(step, RootMeanSquare):
        if step.eps == 0:
            raise TypeError(f"layer {name!r} is {module!r}, which has no Lipschitz constant with eps = 0")
        return step.eps**-0.5
    if step.lipschitz is None:
        raise TypeError(f"layer {name!r} is {module!r}, whose Lipschitz constant is not known")
    return step.lipschitz
