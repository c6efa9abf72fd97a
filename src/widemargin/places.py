"""Places where margins are taken: the input of a network, its output, or the output of any of its modules.

A place is a zero tensor that is added to the input or to a module's output, and gradients are taken at that zero
tensor. A captured activation would not do: under `torch.compile`, autocast and wrappers it may not be in the graph of
the scores.

    with places.watch(model, ("input", "conv2")) as at:
        scores = model(x)
    at["conv2"]                      # zeros of the shape of conv2's output, a leaf in the graph of the scores
    at.gradients(scores[:, 0])       # {"input": …, "conv2": …}: one backward pass serves every place

**Samples must not mix.** Per-sample gradients are rows of the gradient of a sum over the batch, which is correct only
if a sample's scores don't depend on the other samples. BatchNorm in training mode mixes them, so `watch` raises unless
`statistics` is given: `"coupled"` differentiates through the batch statistics, as the papers' codes do; `"frozen"`
holds them constant in the gradients at the places (and only there: `loss.backward()` still flows through them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import ref

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from widemargin._autograd.frozen_batchnorm import Route, freeze
from widemargin._autograd.graph_search import is_computed_from
from widemargin._autograd.jacobian_products import batched_vjp, jvp
from widemargin._cuda.cudnn import without_cudnn
from widemargin.checks import check_choice, check_module, check_module_name, check_type
from widemargin.embeddings import embedding_places, first_embedding
from widemargin.modules import (
    ModelInputs,
    arguments,
    is_checkpointing,
    is_compiled,
    mixing_modules,
    scores_of,
    uncompiled,
    unwrap,
)
from widemargin.types import Args, Kwargs

BatchStatistics: TypeAlias = Literal["coupled", "frozen"]

INPUT, OUTPUT = "input", "output"
Places: TypeAlias = Sequence[str | nn.Module] | Literal["all"]
"""Place names and modules of a network, or `"all"`: the input and every layer with weights (see `check_places`)."""

if TYPE_CHECKING:
    _ZeroTensors = Mapping[str, Tensor]
else:  # beartype would look up an item of a Mapping[…], also before a forward pass has reached it
    _ZeroTensors = Mapping


class At(_ZeroTensors):
    """The places of one forward pass: name → the zero tensor added there, in the order of `watch`."""

    _sample_dims = 1
    """Number of leading dimensions of a zero tensor that count samples; gradients have one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._zeros: dict[str, Tensor | None] = dict.fromkeys(names)
        self.activations: dict[str, Tensor] = {}
        """What has reached every place in the forward pass, without its graph."""
        self._held_constant: Callable[[], AbstractContextManager[None]] = nullcontext
        self._is_compiled = False
        self._mixes: str | None = None
        self._pass_scores: ref[Tensor] | None = None
        self.moved: Callable[[Mapping[str, Tensor]], Tensor] | None = None
        """The scores of the same pass with steps added at some places, where the pass can be repeated."""

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._zeros:
            raise KeyError(f"{name!r} is not watched, expected one of {', '.join(map(repr, self._zeros))}")
        zero = self._zeros[name]
        if zero is None:
            raise ValueError(
                f"at has {name!r}, which no forward pass inside `watch` has reached, expected one that ran"
            )
        return zero

    def unreached(self) -> list[str]:
        """The places that no forward pass has reached yet."""
        return [name for name, zero in self._zeros.items() if zero is None]

    def __iter__(self) -> Iterator[str]:
        return iter(self._zeros)

    def __len__(self) -> int:
        return len(self._zeros)

    def __repr__(self) -> str:
        shapes = (f"{name!r}: {'not reached' if z is None else list(z.shape)}" for name, z in self._zeros.items())
        return f"At({{{', '.join(shapes)}}})"

    def add(self, name: str, value: Tensor) -> Tensor:
        """`value` plus the new zero tensor of the place `name`."""
        if self._zeros[name] is not None:
            raise ValueError(
                f"at has {name!r}, which ran more than once while watched, so its margin is not defined: "
                "name a module that runs once, and watch one forward pass at a time"
            )
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            raise RuntimeError(
                f"at has {name!r}, but gradients are switched off there: watch outside torch.no_grad and inference_mode"
            )
        # One expanded number: a full tensor of zeros would cost as much as the layer's own ReLU.
        zero = value.new_zeros(()).expand(value.shape).requires_grad_()
        self._zeros[name], self.activations[name] = zero, value.detach()
        return value + zero

    def note_scores(self, _: nn.Module, __: object, output: object) -> None:
        """Forward hook of the network: remembers the scores of the pass, without keeping them alive."""
        with suppress(TypeError):
            self._pass_scores = ref(scores_of(output))

    def belongs_to(self, scores: Tensor) -> bool:
        """Whether `scores` are those of the watched pass, or were computed from them or from the places."""
        own = None if self._pass_scores is None else self._pass_scores()
        found = [tensor for tensor in (*self._zeros.values(), own) if tensor is not None]
        return self._pass_scores is None or own is scores or is_computed_from(scores, found)

    def frozen_route(self) -> Route:
        """A route for the gradients of BatchNorm layers, which those at the places take with constant statistics."""
        route = Route()
        self._held_constant = route.frozen
        return route

    def gradients(self, outputs: Tensor, *, second_order: bool = False) -> dict[str, Tensor]:
        """∇ of the sum of `outputs` at every place; row k is the gradient of sample k where samples do not mix.

        The graph is kept for more gradients and for `loss.backward()`.
        """
        zeros = [self[name] for name in self]
        if second_order:
            self._check_second_order()
        if not outputs.requires_grad:  # a constant network
            return {name: torch.zeros_like(zero) for name, zero in zip(self, zeros)}
        with self._held_constant():
            grads = torch.autograd.grad(
                outputs.sum(), zeros, retain_graph=True, create_graph=second_order, materialize_grads=True
            )
        return {name: self._by_sample(grad, 0) for name, grad in zip(self, grads)}

    def columns(self, outputs: Tensor, *, second_order: bool = False) -> Iterator[dict[str, Tensor]]:
        """`gradients` of every column of `outputs` `[batch, k]`, in order and in chunks `[columns, batch, ...]`.

        A chunk is one batched backward pass, as large as the largest activation allows (`batched_vjp`), or one column
        if an operation of the network has no batching rule.
        """
        batched, columns, start = None, 1, 0
        if outputs.shape[1] > 1 and outputs.requires_grad and not self._is_compiled:
            batched = batched_vjp(outputs, [self[name] for name in self], second_order=second_order)
            columns = batched.columns
        while start < outputs.shape[1]:
            part, grads = outputs[:, start : start + columns], None
            if batched is not None:
                with self._held_constant():
                    grads = batched.gradients(part)
            if grads is not None:
                yield {name: self._by_sample(grad, 1) for name, grad in zip(self, grads)}
            else:
                columns, part = 1, part[:, :1]
                yield {name: g[None] for name, g in self.gradients(part, second_order=second_order).items()}
            start += part.shape[1]

    def along(self, outputs: Tensor, directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """J·u of `outputs` `[batch, k]` along directions u `[some, batch, ...]` at every place: `[some, batch, k]`.

        All columns at once, as in forward mode, but by two backward passes (`jvp`), so that the forward pass
        is an ordinary one.
        """
        if self._mixes is not None:
            raise ValueError(
                f"statistics is 'coupled', but {self._mixes!r} mixes the samples of a batch, so that the derivative "
                "along a direction is not a sample's own: choose statistics='frozen' or evaluation mode"
            )
        self._check_second_order()
        with self._held_constant():
            return dict(zip(self, jvp(outputs, [self[name] for name in self], [directions[name] for name in self])))

    def _check_second_order(self) -> None:
        if self._is_compiled:
            raise RuntimeError(
                "second_order=True needs a gradient of a gradient, which torch.compile does not give: "
                "pass the network as it was before torch.compile"
            )

    def _by_sample(self, grad: Tensor, first: int) -> Tensor:
        return grad if self._sample_dims == 1 else grad.flatten(first, first + self._sample_dims - 1)


class _Steps(At):
    """Steps that are added at places."""

    def __init__(self, steps: Mapping[str, Tensor]) -> None:
        super().__init__(list(steps))
        self._steps = steps

    def add(self, name: str, value: Tensor) -> Tensor:
        """`value` plus the step of the place `name`."""
        if is_checkpointing():
            raise RuntimeError(
                f"at has {name!r}, which is inside torch.utils.checkpoint and would be computed again without the step "
                "in the backward pass: name a module outside the checkpointed part"
            )
        return value + self._steps[name]


@contextmanager
def watch(model: nn.Module, places: Places = (INPUT,), *, statistics: BatchStatistics | None = None) -> Iterator[At]:
    """Watch `places` of `model` during one forward pass inside the `with` block.

    Args:
        model: any `nn.Module`, also wrapped (DDP, Fabric, `torch.compile`); names are those of the wrapped network. A
            compiled network runs uncompiled while a hidden place is watched or batch statistics are frozen, because
            hooks inside a compiled graph are not run.
        places: `"input"`, names of `model.named_modules()`, modules, or `"output"` (the module of that name if there is
            one, else the scores); or `"all"`, see `check_places`.
        statistics: treatment of BatchNorm in training mode in the gradients at the places, see above.
    """
    names = check_places(model, places)
    mixing = mixing_modules(model)
    if mixing and statistics is None:
        module = model.get_submodule(mixing[0])
        advice = "call model.eval(), or choose" if module.training else "it keeps no running statistics; choose"
        raise ValueError(
            f"statistics is None, but {mixing[0]!r} ({type(module).__name__}) mixes the samples of a batch, so "
            f"per-sample gradients are not defined: {advice} statistics='frozen' (per sample, batch statistics held "
            "constant) or 'coupled' (as the papers' codes do)"
        )
    check_choice("statistics", statistics, (None, "coupled", "frozen"))
    at = At(names)
    at._mixes = mixing[0] if mixing and statistics == "coupled" else None
    with ExitStack() as stack:
        modules = dict(unwrap(model).named_modules())
        hidden = set(names) & modules.keys() - {INPUT}
        if statistics == "frozen" or _compiles_hooks(model) or hidden:
            stack.enter_context(uncompiled(model))
        else:
            at._is_compiled = is_compiled(model)
        stack.enter_context(without_cudnn(modules.values()))
        if statistics == "frozen":
            route = at.frozen_route()
            for name in mixing:
                stack.callback(freeze(model.get_submodule(name), route).remove)
        for name in names:
            stack.callback(_attach(model, modules.get(name, model), name, at).remove)
        stack.callback(model.register_forward_hook(at.note_scores).remove)
        yield at


@contextmanager
def moved(model: nn.Module, steps: Mapping[str, Tensor]) -> Iterator[None]:
    """`model` with `steps[name]` added at every place `name`, in the forward passes inside the `with` block."""
    modules, add = dict(unwrap(model).named_modules()), _Steps(steps)
    with ExitStack() as stack:
        if steps.keys() != {INPUT} or _compiles_hooks(model):
            stack.enter_context(uncompiled(model))
        stack.enter_context(without_cudnn(modules.values()))  # as in `watch`: other kernels have other dropout masks
        for name in steps:
            stack.callback(_attach(model, modules.get(name, model), name, add).remove)
        yield


def _compiles_hooks(model: nn.Module) -> bool:
    """Whether hooks are compiled with the network, which was compiled in place by `model.compile()`."""
    return getattr(model, "_compiled_call_impl", None) is not None


def check_places(model: nn.Module, places: Places) -> tuple[str, ...]:
    """The names of `places`, or an error that names the first one that `model` does not have.

    `"all"` is the input (unless the network has an embedding) and every module without submodules that has parameters.
    A module is replaced by its name, and the network itself by `"output"`.
    """
    check_module(model)
    network = unwrap(model)
    names = {module: name or OUTPUT for name, module in network.named_modules()}
    if places == "all":
        has_embedding = any(map(_is_embedding, names))
        leaves = (m for m in names if not any(m.children()) and any(True for _ in m.parameters()))
        return (*(() if has_embedding else (INPUT,)), *(names[module] for module in leaves))
    if isinstance(places, (str, nn.Module)) or not isinstance(places, Iterable):
        given = f"a {type(places).__name__}" if isinstance(places, nn.Module) else repr(places)
        raise TypeError(f"at is {given}, expected 'all' or a sequence of place names and modules such as ('input',)")
    known = [INPUT, OUTPUT, *(name for name in names.values() if name != OUTPUT)]
    found: list[str] = []
    for place in places:
        name = names.get(place, place) if isinstance(place, nn.Module) else place
        check_module_name("at", name, known, network)
        if name in found:
            raise ValueError(f"at has {name!r} twice, expected each place once")
        found.append(name)
    if not found:
        raise ValueError("at is empty, expected at least one place such as 'input'")
    return tuple(found)


def check_watched(at: At, scores: Tensor) -> None:
    """Raise unless `at` are the places of the forward pass that gave `scores`."""
    check_type("at", at, At, "the places of places.watch(model, …)")
    if not at.belongs_to(scores):
        raise ValueError("at has the places of another forward pass, expected those of the pass that gave the scores")


def default_places(model: nn.Module, x: ModelInputs) -> tuple[str, ...]:
    """`("input",)`, or for integer inputs (tokens) the first embedding that a forward pass reaches."""
    x = arguments(model, x)
    first = _main_input(model, [x] if isinstance(x, Tensor) else list(map(x.__getitem__, x.keys())))
    if first.dtype == torch.uint8:
        raise TypeError(f"{_has_dtype(first.dtype)}; name a place with at=(…,) if they are tokens")
    return (INPUT,) if first.is_floating_point() else (first_embedding(model, x, first.dtype),)


def _attach(model: nn.Module, module: nn.Module, name: str, at: At) -> RemovableHandle:
    """Watch the place `name` at `module`: "output" is the network's output unless a module has that name."""
    if name == INPUT:
        # On the outermost wrapper and before its other hooks: the input is what the user passes.
        return model.register_forward_pre_hook(
            lambda _, args, kwargs: _add_to_input(model, at, args, kwargs), with_kwargs=True, prepend=True
        )
    return module.register_forward_hook(lambda _, __, output: _add_to_output(name, at, output))


def _add_to_input(model: nn.Module, at: At, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments of the network, with the zero tensor of the place "input" added to the first tensor of them."""
    tensors = {key: value for key, value in [*enumerate(args), *kwargs.items()] if isinstance(value, Tensor)}
    if not tensors:
        raise TypeError("the network was called without a tensor, so there is no place 'input'")
    x = _main_input(model, list(tensors.values()))
    key = next(key for key, value in tensors.items() if value is x)
    if not x.is_floating_point():
        if x.dtype == torch.uint8:
            raise TypeError(_has_dtype(x.dtype))
        first, *others = embedding_places(model, x.dtype)
        more = f"; other places there: {', '.join(map(repr, others))}" if others else ""
        raise TypeError(
            f"at has 'input', but the input has dtype {x.dtype} (tokens), which has no gradient: "
            f"take the margin at an embedding, at=({first!r},){more}"
        )
    x = at.add(INPUT, x)
    if is_compiled(model):  # the graph of a batch of varying size is not kept for a second backward pass
        torch._dynamo.mark_static(x)
    return ((*args[:key], x, *args[key + 1 :]), kwargs) if isinstance(key, int) else (args, {**kwargs, str(key): x})


def _main_input(model: nn.Module, tensors: Sequence[Tensor]) -> Tensor:
    """The first tensor; without an embedding, which may take it, the first one of floating-point numbers, if any."""
    if not tensors[0].is_floating_point() and not any(map(_is_embedding, unwrap(model).modules())):
        return next((tensor for tensor in tensors if tensor.is_floating_point()), tensors[0])
    return tensors[0]


def _is_embedding(module: nn.Module) -> bool:
    return isinstance(module, (nn.Embedding, nn.EmbeddingBag))


def _has_dtype(dtype: torch.dtype) -> str:
    return (
        f"the input has dtype {dtype}, expected floating point: scale the bytes of images to [0, 1] with x.float() / "
        "255 (wm.data.to_unit_range(x, bounds=(0, 255)))"
    )


def _add_to_output(name: str, at: At, output: Any) -> object:
    if isinstance(output, Tensor):
        if not output.is_floating_point():
            raise TypeError(f"at has {name!r}, whose output has dtype {output.dtype}, expected floating point")
        return at.add(name, output)
    if hasattr(output, "_replace") and isinstance(getattr(output, "logits", None), Tensor):
        return output._replace(logits=at.add(name, output.logits))
    if isinstance(output, (tuple, list)) and output and isinstance(output[0], Tensor):
        values = (at.add(name, output[0]), *output[1:])
        return type(output)(*values) if hasattr(output, "_fields") else type(output)(values)
    if isinstance(getattr(output, "logits", None), Tensor):
        output.logits = at.add(name, output.logits)
        return output
    if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor):
        return {**output, "logits": at.add(name, output["logits"])}
    raise TypeError(
        f"at has {name!r}, which returns a {type(output).__name__}, expected a tensor or a tuple of tensors"
    )
