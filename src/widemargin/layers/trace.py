"""The layers that run in a forward pass, in their order, and the chain that they may be.

Hooks on the modules record one forward pass; any container is followed: `nn.Sequential`, its subclasses, and modules
with a `forward` of their own. This is the one place where networks are read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from widemargin.layers.registry import rule
from widemargin.layers.structure import Reshape
from widemargin.modules import cast_input, evaluating, mixing_modules, scores_of, uncompiled, unwrap


@dataclass(frozen=True, kw_only=True, eq=False)
class Call:
    """One run of a layer, and the first sample `[1, ...]` that entered it."""

    name: str
    module: nn.Module
    x: Tensor


def read_chain(model: nn.Module, x: Tensor, *capabilities: str) -> tuple[list[Call], Tensor]:
    """The layers of a network in which each takes the output of the one before, and the scores of the first sample.

    A change of shape between two modules is a layer too, a `Reshape`. See `Trace` for the names.

    Raises:
        TypeError: the network computes something else between its layers, or normalizes by batch statistics.
    """
    network = unwrap(model)
    with evaluating(network):
        for name in mixing_modules(network):
            layer = network.get_submodule(name)
            raise TypeError(f"layer {name!r} is {layer!r}, which keeps no running statistics: it is not a fixed map")
    trace = Trace(network, cast_input(network, x[:1].detach().clone()), *capabilities)
    if trace.gap is not None:
        raise TypeError(f"{trace.gap}, expected a chain of modules (no functional activations, no residual sums)")
    return trace.calls, trace.scores


class Trace:
    """One forward pass in evaluation mode: the layers that run, the scores, and why they are not a chain, if so.

    A layer is a module without children, or one that has a rule for one of `capabilities`. It has the name that
    `named_modules` gives it; a module with several names has them in turn, and `name#2` in a second run under one.
    """

    def __init__(self, network: nn.Module, x: Tensor, *capabilities: str) -> None:
        self.calls: list[Call] = []
        self.gap: str | None = None
        self._runs: Counter[nn.Module] = Counter()
        self._running = [("", network)]  # containers, outermost first
        self._names: defaultdict[nn.Module, list[str]] = defaultdict(list)
        for name, module in network.named_modules(remove_duplicate=False):
            self._names[module].append(name)
        with ExitStack() as stack:
            for context in (torch.inference_mode(False), evaluating(network), uncompiled(network), torch.no_grad()):
                stack.enter_context(context)
            x = x.clone() if x.is_inference() else x  # tensors of inference mode have no version
            self._last, self._version, self._before = x, x._version, "the input"
            self._watch(network, capabilities, stack, set())
            self.scores = scores_of(network(x))
            self._follow(self.scores, "its end")

    def _watch(self, module: nn.Module, capabilities: tuple[str, ...], stack: ExitStack, seen: set[nn.Module]) -> None:
        seen.add(module)
        contains = type(module).forward is nn.Sequential.forward or any(True for _ in module.children())
        is_layer = not contains or any(rule(name, module) is not None for name in capabilities)
        stack.callback(module.register_forward_pre_hook(partial(self._enter, is_layer)).remove)
        stack.callback(module.register_forward_hook(partial(self._leave, is_layer)).remove)
        for child in () if is_layer else module.children():
            if child not in seen:
                self._watch(child, capabilities, stack, seen)

    def _enter(self, is_layer: bool, module: nn.Module, inputs: tuple[object, ...]) -> None:
        names, run = self._names[module], self._runs[module]
        self._runs[module] += 1
        name = names[run] if run < len(names) else f"{names[0]}#{run + 1}"
        x = inputs[0] if len(inputs) == 1 else None
        if isinstance(x, Tensor):
            self._follow(x, f"layer {name!r}")
        if not is_layer:
            self._running.append((name, module))
        elif isinstance(x, Tensor):
            self.calls.append(Call(name=name, module=module, x=x[:1].clone()))
            self._before = f"layer {name!r}"
        else:
            self._break(f"layer {name!r} is a {type(module).__name__} of {len(inputs)} inputs instead of one tensor")

    def _leave(self, is_layer: bool, module: nn.Module, _inputs: tuple[object, ...], output: object) -> None:
        if is_layer and isinstance(output, Tensor):
            self._last, self._version = output, output._version
        elif is_layer:
            self._break(f"{self._before} is a {type(module).__name__}, which returns a {type(output).__name__}")
        else:
            if isinstance(output, Tensor):
                self._follow(output, "its end")
            self._running.pop()

    def _follow(self, x: Tensor, where: str) -> None:
        """Note whether anything but the shape changed since the last layer, and a change of shape as a layer."""
        last, same_shape = self._last, x.shape == self._last.shape
        same = x.data_ptr() == last.data_ptr() and x.numel() == last.numel() and x._version == self._version
        same &= x.stride() == last.stride() if same_shape else x.is_contiguous() and last.is_contiguous()
        if not same:
            name, module = self._running[-1]
            called = f"layer {name!r}" if name else "model"
            what = f"computes something that is not a module between {self._before} and {where}"
            self._break(f"{called} is a {type(module).__name__}, which {what}")
        elif not same_shape:
            self.calls.append(Call(name="reshape", module=Reshape(x.shape[1:]), x=last[:1].clone()))
        self._last, self._version = x, x._version

    def _break(self, reason: str) -> None:
        self.gap = self.gap or reason
