"""Reading a network as a chain of affine maps and kinks, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from widemargin import layers
from widemargin.checks import check_batch, check_module, check_scores_and_labels
from widemargin.layers.forms import Form
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
    module = call.module
    rule = layers.rule("pieces", module) or layers.rule("affine", module)
    form: Form | None = None if rule is None else rule(module, call.x)
    if form is None:
        raise TypeError(f"layer {call.name!r} is {module!r}, which has no piecewise affine form, expected {_KNOWN}")
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
