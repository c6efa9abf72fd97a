"""A network as a chain of affine maps and kinks in float64: patterns, affine maps and Jacobians at points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from widemargin import layers
from widemargin.checks import check_batch, check_module, check_scores_and_labels
from widemargin.layers.forms import Affine, Form
from widemargin.layers.trace import Call
from widemargin.modules import cast_input, unwrap

_KNOWN = (
    "Linear, Conv, ReLU, LeakyReLU, PReLU of one slope, MaxPool, AvgPool, Flatten, Dropout, BatchNorm, activations "
    "with `slopes`"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """The forms of a network's layers in the order in which they run, their names, and the shapes that enter them.

    `output` is the shape of the scores; all shapes are without the batch.
    """

    steps: tuple[Form, ...]
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    shape: torch.Size
    output: torch.Size
    device: torch.device

    @property
    def widest(self) -> int:
        """The number of entries of the largest layer."""
        return max(shape.numel() for shape in (*self.shapes, self.output))

    @cached_property
    def lipschitz(self) -> tuple[float, ...]:
        """The l_2 Lipschitz constant of every step."""
        return tuple(step.lipschitz for step in self.steps)

    def double(self, x: Tensor) -> Tensor:
        """`x` in float64 on the network's device."""
        return x.detach().to(self.device, torch.float64)

    def towards(self, x: Tensor, labels: Tensor) -> Tensor:
        """`against` of the labels of samples, after a check of them."""
        labels, outputs = labels.to(self.device), self.output.numel()
        check_scores_and_labels(torch.zeros(len(x), outputs, device=self.device), labels)
        return against(outputs, labels)

    def forward(self, x: Tensor) -> Tensor:
        """Scores `[batch, outputs]` of samples in float64."""
        for step in self.steps:
            x = step.forward(x)
        return x.reshape(len(x), -1)  # the output of a binary network may be [batch]


@torch.no_grad()
def read(model: nn.Module, x: Tensor) -> Network:
    """The steps that `model` takes on `x`, by running it once on the first sample in evaluation mode.

    Raises:
        TypeError: a layer of the network is not supported, or the network is not a chain, see `layers.read_chain`.
    """
    check_batch(x, "x")
    check_module(model)
    calls, scores = layers.read_chain(model, x, "pieces", "affine")
    network = Network(
        steps=tuple(map(_form, calls)),
        names=tuple(call.name for call in calls),
        shapes=tuple(call.x.shape[1:] for call in calls),
        shape=x.shape[1:],
        output=scores.shape[1:],
        device=scores.device,
    )
    expected = network.forward(network.double(cast_input(unwrap(model), x[:1])))
    close = 1e3 * torch.finfo(scores.dtype).eps * max(float(expected.abs().max()), 1.0)
    if float((expected - scores.double().reshape(expected.shape)).abs().max()) > close:
        raise TypeError("model gives other scores than the chain of its layers, expected modules without side effects")
    return network


def _form(call: Call) -> Form:
    form = layers.form_of(call.module, call.x)
    if form is None:
        raise TypeError(f"layer {call.name!r} is {call.module!r}, which is not piecewise affine, expected {_KNOWN}")
    return form


def against(outputs: int, labels: Tensor) -> Tensor:
    """Rows e_y − e_c `[batch, others, outputs]` of the classes c ≠ y, or (±1) for one output, in float64.

    A sample keeps its label while the products of all its rows with the scores are > 0.
    """
    if outputs == 1:
        return labels.double().reshape(-1, 1, 1)
    identity = torch.eye(outputs, dtype=torch.float64, device=labels.device)
    own, every = labels.long()[:, None], torch.arange(outputs, device=labels.device).expand(len(labels), -1)
    return identity[own] - identity[every[every != own].view(len(labels), outputs - 1)]


@dataclass(frozen=True, kw_only=True)
class AffineMap:
    """f(x) = F·x + d on the region of each sample: `F` is `[batch, outputs, *input]`, `d` is `[batch, outputs]`."""

    F: Tensor
    d: Tensor

    def __call__(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch outputs"]:
        """F·x + d, sample by sample."""
        return torch.einsum("bon,bn->bo", self.F.flatten(2), x.double().flatten(1)) + self.d


def pattern(model: nn.Module, x: Float[Tensor, "batch ..."]) -> dict[str, Shaped[Tensor, "batch ..."]]:
    """The piece of each unit: per activation whether h > 0, per max-pool the position of the maximum in its window.

    Source: sokolic §III-A, the matrices S_l(x) of (6). At h = 0 a unit counts as not active. Two points of one pattern
    lie in one region, which is convex.
    """
    network = read(model, x)
    x = network.double(x)
    found: dict[str, Tensor] = {}
    with torch.no_grad():
        for name, step in zip(network.names, network.steps):
            if not isinstance(step, Affine):
                found[name] = step.pattern(x)
            x = step.forward(x)
    return found


def affine(model: nn.Module, x: Float[Tensor, "batch ..."]) -> AffineMap:
    """F(x) and d(x) with f(x′) = F·x′ + d for every x′ in the region of x (sokolic (6)), in float64.

    Erratum 1 of sokolic: the products run from layer L down to 1; F is applied as it stands here (the paper's is its
    transpose). f is the whole `model`: for features without their classifier, give the network without its last layer.
    """
    network = read(model, x)
    x = network.double(x)
    F = jacobians(network, x)
    with torch.no_grad():
        d = network.forward(x) - torch.einsum("bon,bn->bo", F.flatten(2), x.flatten(1))
    return AffineMap(F=F, d=d)


def jacobian(model: nn.Module, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch outputs ..."]:
    """J(x) = Π_i S_i(x) W_i, from layer L down to 1 (sokolic (7)), `[batch, outputs, *input]`, in float64.

    It is constant on a region (erratum 1: the paper says piecewise linear), and equals F(x) of (6).
    """
    network = read(model, x)
    return jacobians(network, network.double(x))


def jacobians(network: Network, x: Tensor) -> Tensor:
    """J of samples in float64: one backward pass per output, whose samples do not mix."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        y = network.forward(x)
        if not y.requires_grad:  # no step at all
            return torch.zeros(*y.shape, *x.shape[1:], dtype=y.dtype, device=y.device)
        rows = [torch.autograd.grad(y[:, o].sum(), x, retain_graph=True)[0] for o in range(y.shape[1])]
    return torch.stack(rows, dim=1)
