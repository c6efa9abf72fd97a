"""The layers that run in a forward pass, what each takes, and the chain that they may be.

One forward pass is recorded: modules by hooks, functions between modules by a mode of torch. Any container is followed:
`nn.Sequential`, its subclasses, and modules with a `forward` of their own. This is the one place where networks are
read. A recorded pass, unlike `torch.fx.symbolic_trace`, may ask for shapes and lengths; as there, Python code that
depends on the values of the data is refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from widemargin.checks import check_batch, check_module, check_weights
from widemargin.layers.functions import call_or_none
from widemargin.layers.registry import lookup, rule
from widemargin.modules import cast_input, evaluating, explained, mixing_modules, scores_of, uncompiled, unwrap

Args: TypeAlias = tuple[object, ...]
Named: TypeAlias = dict[str, object]

INPUT = -1
"""The number of the network's input among its calls."""

_NO_VALUES = frozenset(
    {
        *(
            "shape",
            "size",
            "dim",
            "ndim",
            "ndimension",
            "numel",
            "nelement",
            "len",
            "stride",
            "storage_offset",
            "names",
        ),
        *(
            "dtype",
            "device",
            "layout",
            "element_size",
            "itemsize",
            "get_device",
            "data_ptr",
            "version",
            "output_nr",
            "hash",
        ),
        *("is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized", "is_mkldnn", "is_nested", "is_leaf", "is_conj"),
        *("is_neg", "is_contiguous", "is_floating_point", "is_complex", "is_inference", "is_signed", "is_same_size"),
        *("requires_grad", "grad_fn", "zeros_like", "ones_like", "full_like", "empty_like"),
        *("new_zeros", "new_ones", "new_full", "new_empty"),
    }
)
"""Functions of a tensor whose results do not depend on its values."""
_SAME = frozenset(
    {
        *("contiguous", "clone", "detach", "data", "cpu", "cuda"),
        *("to", "float", "double", "half", "bfloat16", "type_as"),
    }
)
"""Functions whose result has the values of their input."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Call:
    """One run of a layer, the first sample `[1, ...]` of its first input, and the numbers of the calls that it takes.

    `INPUT` is the number of the network's input.
    """

    name: str
    module: nn.Module
    x: Tensor
    inputs: tuple[int, ...]


class UnreadFunction(nn.Module):
    """A call of a function of torch that has no rule."""

    def __init__(self, function: str, container: nn.Module) -> None:
        super().__init__()
        self.function, self.container = function, type(container).__name__

    def __repr__(self) -> str:
        return f"the function {self.function} in {self.container}"

    def forward(self, *_: Tensor) -> Tensor:
        """Not known."""
        raise TypeError(f"{self!r} has no rule")


def read_chain(model: nn.Module, x: Tensor, *capabilities: str) -> tuple[list[Call], Tensor]:
    """The layers of a network in which each takes the output of the one before, and the scores of the first sample.

    Functions of torch are layers too, see `layers.functions`. See `Trace` for the names.

    Raises:
        TypeError: the network is not a chain, or normalizes by batch statistics.
    """
    trace = read_trace(model, x, *capabilities)
    for number, call in enumerate(trace.calls):
        if isinstance(call.module, UnreadFunction):
            raise TypeError(f"layer {call.name!r} is {call.module!r}, which is not known, expected a chain of layers")
        if call.inputs != (number - 1,):
            many = f"takes {len(call.inputs)} inputs" if len(call.inputs) > 1 else "does not take the output before it"
            raise TypeError(f"layer {call.name!r} {many}, expected a chain of layers (no residual sums)")
    if trace.output != len(trace.calls) - 1:
        raise TypeError("the scores are not the output of the last layer, expected a chain of layers")
    return trace.calls, trace.scores[:1]


def read_trace(model: nn.Module, x: Tensor, *capabilities: str) -> Trace:
    """A recorded pass of the first sample, twice: so it is seen which axis is that of samples.

    Raises:
        TypeError: the operations of the network can't be followed, or it normalizes by batch statistics.
    """
    check_module(model)
    check_batch(x, "x")
    network = unwrap(model)
    check_weights(network)
    with evaluating(network):
        for name in mixing_modules(network):
            layer = network.get_submodule(name)
            raise TypeError(f"layer {name!r} is {layer!r}, which keeps no running statistics: it is not a fixed map")
    trace = Trace(network, cast_input(network, x[:1].detach().repeat_interleave(2, dim=0)), *capabilities)
    if trace.fault is not None:
        raise TypeError(trace.fault)
    return trace


class Trace:
    """One forward pass in evaluation mode: the layers that run, the scores and the number of the call that gave them.

    A layer is a module of torch without children, a module that has a rule for one of `capabilities`, or a function. A
    module has the name that `named_modules` gives it; one with several names has them in turn, and `name#2` in a second
    run under one. A module of one's own without children and rules is read by the functions that it calls, and is one
    layer if these are not known. `fault` says why the operations could not be followed.
    """

    def __init__(self, network: nn.Module, x: Tensor, *capabilities: str) -> None:
        self.calls: list[Call] = []
        self.fault: str | None = None
        self.output = INPUT
        self._runs: Counter[object] = Counter()
        self._running = [_Running("", network, 0)]  # containers, outermost first
        self._inside = 0  # layers that are running
        self._names: defaultdict[nn.Module, list[str]] = defaultdict(list)
        self._numbers: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensor → (number of its call, version)
        for name, module in network.named_modules(remove_duplicate=False):
            self._names[module].append(name)
        with ExitStack() as stack:
            for context in (torch.inference_mode(False), evaluating(network), uncompiled(network), torch.no_grad()):
                stack.enter_context(context)
            x = x.clone()  # a layer may change it in place, and tensors of inference mode have no version
            self._samples = len(x)
            self._keep(x, INPUT)
            self._watch(network, capabilities, stack, set())
            stack.enter_context(_Functions(self._call))
            with explained(x):
                self.scores = scores_of(network(x))
        found = self._followed([self.scores])
        self.output = found[0] if found else INPUT
        if not found and self.calls:
            self._break("model", network, "returns scores that no operation of torch gave")

    def _watch(self, module: nn.Module, capabilities: tuple[str, ...], stack: ExitStack, seen: set[nn.Module]) -> None:
        seen.add(module)
        has_rule = any(rule(name, module) is not None for name in capabilities)
        is_torch = type(module).__module__.startswith("torch.") and not any(True for _ in module.children())
        is_sequential = type(module).forward is nn.Sequential.forward
        is_layer = has_rule or (is_torch and not is_sequential) or isinstance(module, nn.MultiheadAttention)
        enter, leave = partial(self._enter, is_layer), partial(self._leave, is_layer)
        stack.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
        stack.callback(module.register_forward_hook(leave).remove)
        for child in () if is_layer else module.children():
            if child not in seen:
                self._watch(child, capabilities, stack, seen)

    def _enter(self, is_layer: bool, module: nn.Module, inputs: Args, named: Named) -> None:
        if self._inside:
            self._inside += is_layer
            return
        self._inside += 1  # operations of this function are none of the network
        names, run = self._names[module], self._runs[module]
        self._runs[module] += 1
        name = names[run] if run < len(names) else f"{names[0]}#{run + 1}"
        entering = self._entering(inputs, named)
        numbers = tuple(self._followed(entering))
        first = entering[0][:1].clone() if entering else None
        if is_layer and not entering:
            self._break(f"layer {name!r}", module, "takes no output of an operation that is followed")
        self._running.append(_Running(name, module, len(self.calls), numbers, first))
        self._inside -= not is_layer

    def _leave(self, is_layer: bool, module: nn.Module, _inputs: Args, output: object) -> None:
        if self._inside > is_layer:
            self._inside -= is_layer
            return
        self._inside = 1
        run = self._running.pop() if len(self._running) > 1 else self._running[0]
        if is_layer:
            self._note(run, output)
        elif run.x is not None and not any(True for _ in module.children()):
            inner = self.calls[run.start :]
            if any(isinstance(call.module, UnreadFunction) for call in inner):
                del self.calls[run.start :]
                self._note(run, output)
                for tensor, (number, version) in list(self._numbers.items()):
                    self._numbers[tensor] = min(number, run.start), version
        self._inside = 0

    def _note(self, run: _Running, output: object) -> None:
        """Note one call of a layer, whose outputs are followed from here."""
        if run.x is None:
            return
        self.calls.append(Call(name=run.name, module=run.module, x=run.x, inputs=run.numbers))
        for tensor in _tensors(output):
            self._keep(tensor, len(self.calls) - 1)

    def _call(self, function: Callable[..., object], args: Args, named: Named) -> object:
        """Run a function between layers and note it."""
        key = _key(function)
        entering = [] if self._inside or key in _NO_VALUES else self._entering(args, named)
        if not entering:
            return function(*args, **named)
        numbers, has_samples = self._followed(entering), entering[0].ndim > 0
        first = (entering[0][:1] if has_samples else entering[0]).clone()
        output = function(*args, **named)
        container = self._running[-1]
        tensors = _tensors(output)
        if not tensors:
            self._break(container.label, container.module, f"reads values of its data in Python (by {key})")
            return output
        module: nn.Module = UnreadFunction(key, container.module)
        if isinstance(output, Tensor):
            if key in _SAME and output.is_floating_point() and output.shape == entering[0].shape:
                self._keep(output, numbers[0])
                return output
            if has_samples and output.ndim and len(output) == self._samples:
                as_module = lookup("as_module").get(key)
                found = as_module and call_or_none(as_module, entering, output, *args, **named)
                module = found or module
        base = f"{container.name}.{key}" if container.name else key
        self._runs[base] += 1
        name = base if self._runs[base] == 1 else f"{base}#{self._runs[base]}"
        self._note(_Running(name, module, 0, tuple(numbers), first), output)
        return output

    def _entering(self, args: object, named: object) -> list[Tensor]:
        """The tensors that depend on the network's input."""
        return [tensor for tensor in _tensors((args, named)) if tensor in self._numbers]

    def _followed(self, tensors: Sequence[Tensor]) -> list[int]:
        """The numbers of the calls that gave these tensors."""
        found = []
        for tensor in tensors:
            number, version = self._numbers.get(tensor, (INPUT, None))
            if version is None:
                return []
            if tensor._version != version:
                running = self._running[-1]
                self._break(running.label, running.module, "changes tensors in place where that can't be followed")
            found.append(number)
        return found

    def _keep(self, tensor: Tensor, number: int) -> None:
        self._numbers[tensor] = number, tensor._version

    def _break(self, where: str, module: nn.Module, why: str) -> None:
        self.fault = self.fault or f"{where} is a {type(module).__name__}, which {why}"


@dataclass(frozen=True)
class _Running:
    """A module that is running: its name, the number of calls before it, and what it takes."""

    name: str
    module: nn.Module
    start: int
    numbers: tuple[int, ...] = ()
    x: Tensor | None = None

    @property
    def label(self) -> str:
        return f"layer {self.name!r}" if self.name else "model"


class _Functions(TorchFunctionMode):
    """Passes every call of a function of torch on."""

    def __init__(self, call: Callable[[Callable[..., object], Args, Named], object]) -> None:
        super().__init__()
        self._call = call

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: Args = (), kwargs: Named | None = None
    ) -> object:
        return self._call(func, args, kwargs or {})


def _key(function: Callable[..., object]) -> str:
    """The name of a function without underscores, or of the property that it gets."""
    name = getattr(function, "__name__", type(function).__name__)
    if name == "__get__":
        name = getattr(getattr(function, "__self__", None), "__name__", name)
    return name.strip("_")


def _tensors(values: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
