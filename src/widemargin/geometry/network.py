"""Reading a network as a chain of affine maps and kinks, in float64."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from widemargin import layers
from widemargin.checks import check_finite, check_floating, check_module
from widemargin.layers.forms import Affine, Form, zeros_like
from widemargin.modules import cast_input, evaluating, unwrap

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

    def forward(self, x: Tensor) -> Tensor:
        """Scores `[batch, outputs]` of samples in float64."""
        for step in self.steps:
            x = step.forward(x)
        return x.reshape(len(x), -1)  # the output of a binary network may be [batch]


def read(model: nn.Module, x: Tensor) -> Network:
    """The steps that `model` takes on `x`, by running it once on the first sample in evaluation mode.

    Raises:
        TypeError: a layer of the network is not supported, or the network computes something between its layers.
    """
    check_inputs("x", x)
    check_module(model)
    model = unwrap(model)
    sample = cast_input(model, x[:1].detach())
    trace = _Trace(sample)
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        stack.enter_context(torch.no_grad())
        for name, module in model.named_modules():
            if not any(True for _ in module.children()) or layers.rule("pieces", module) is not None:
                stack.callback(module.register_forward_pre_hook(partial(trace.enter, name)).remove)
                stack.callback(module.register_forward_hook(partial(trace.leave, name)).remove)
        scores = model(sample)
        if not isinstance(scores, Tensor):
            raise TypeError(f"model returns a {type(scores).__name__}, expected a tensor of scores")
        trace.follow(scores, "its end")
        network = Network(
            steps=tuple(trace.steps),
            names=tuple(trace.names),
            shapes=tuple(trace.shapes),
            shape=x.shape[1:],
            output=scores.shape[1:],
            device=sample.device,
        )
        _check_same(network, sample, scores)
    return network


class _Trace:
    def __init__(self, x: Tensor) -> None:
        self.steps: list[Form] = []
        self.names: list[str] = []
        self.shapes: list[torch.Size] = []
        self.last, self.version, self.before = x, x._version, "the input"

    def enter(self, name: str, module: nn.Module, inputs: tuple[object, ...]) -> None:
        if len(inputs) != 1 or not isinstance(x := inputs[0], Tensor):
            raise TypeError(f"layer {name!r} ({type(module).__name__}) takes {len(inputs)} inputs, expected one tensor")
        self.follow(x, f"layer {name!r}")
        rule = layers.rule("pieces", module) or layers.rule("affine", module)
        form: Form | None = None if rule is None else rule(module, x)
        if form is None:
            raise TypeError(f"layer {name!r} is {module!r}, which has no piecewise affine form, expected {_KNOWN}")
        self._add(name, form, x)

    def leave(self, name: str, _module: nn.Module, _inputs: tuple[object, ...], output: Tensor) -> None:
        self.last, self.version, self.before = output, output._version, f"layer {name!r}"

    def follow(self, x: Tensor, where: str) -> None:
        """Check that only the shape changed since the last layer, and note such a change."""
        same = x.data_ptr() == self.last.data_ptr() and x.numel() == self.last.numel() and x._version == self.version
        if not same:
            raise TypeError(
                f"model computes something between {self.before} and {where} that is not a module, expected a chain of "
                "modules (no functional activations, no residual sums)"
            )
        if x.shape != self.last.shape:
            shape = x.shape[1:]
            zeros = zeros_like(self.last)
            reshape = Affine(zeros=zeros, linear=lambda rows: rows.reshape(len(rows), *shape), moves=True)
            self._add("reshape", reshape, self.last)

    def _add(self, name: str, form: Form, x: Tensor) -> None:
        self.names.append(name)
        self.steps.append(form)
        self.shapes.append(x.shape[1:])


def against(outputs: int, labels: Tensor) -> Tensor:
    """Rows e_y − e_c `[batch, others, outputs]` of the classes c ≠ y, or (±1) for one output, in float64.

    A sample keeps its label while the products of all its rows with the scores are > 0.
    """
    if outputs == 1:
        return labels.double().reshape(-1, 1, 1)
    identity = torch.eye(outputs, dtype=torch.float64, device=labels.device)
    others = torch.stack([torch.cat((identity[:y], identity[y + 1 :])) for y in range(outputs)])
    return (identity[:, None] - others)[labels.long()]


def check_inputs(name: str, x: Tensor) -> None:
    """Raise unless `x` is a batch of finite floating-point samples."""
    check_floating(x, name, "[batch, ...]")
    if x.ndim < 2 or x.numel() == 0:
        raise ValueError(f"{name} has shape {list(x.shape)}, expected [batch, ...] with at least one sample")
    check_finite(x, name)


def _check_same(network: Network, x: Tensor, scores: Tensor) -> None:
    ours = network.forward(x.double())
    theirs = scores.double().reshape(ours.shape)
    close = 1e3 * torch.finfo(scores.dtype).eps * max(float(ours.abs().max()), 1.0)
    if float((ours - theirs).abs().max()) > close:
        raise TypeError("model gives other scores than the chain of its layers, expected modules without side effects")
