"""Where a margin is taken: at the input of a network, at its output, or at the output of any module of it, by name.

A place is a zero tensor that is added to what passes there, and gradients are taken at that zero tensor. A captured
activation would not do: under `torch.compile`, autocast and wrappers it need not lie in the graph of the scores.

    with places.watch(model, ("input", "conv2")) as at:
        scores = model(x)
    at["conv2"]                      # zeros of the shape of conv2's output, a leaf in the graph of the scores
    at.gradients(scores[:, 0])       # {"input": …, "conv2": …}: one backward pass serves every place

**Samples must not mix.** A per-sample gradient is read off the gradient of a sum over the batch, which is right only if
a sample's scores don't depend on the other samples. BatchNorm in training mode breaks that, so `watch` refuses such a
network until it is told what to do: `statistics="coupled"` takes the gradients as they come, through the batch
statistics, as the papers' codes do; `statistics="frozen"` holds the batch statistics constant in the gradients at the
places (and only there: `loss.backward()` still flows through them).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from widemargin._autograd import batched_vjp
from widemargin._autograd.frozen_batchnorm import Route, freeze
from widemargin._autograd.jvp import pushed
from widemargin.modules import is_compiled, mixing_modules, uncompiled, unwrap

BatchStatistics: TypeAlias = Literal["coupled", "frozen"]

INPUT, OUTPUT = "input", "output"

if TYPE_CHECKING:
    _Places = Mapping[str, Tensor]
else:  # beartype would look up an item of a Mapping[…], also before a forward pass has reached it
    _Places = Mapping


class At(_Places):
    """The places of one forward pass: name → the zero tensor added there, in the order they were asked for."""

    _sample_dims = 1
    """How many leading dimensions of a zero tensor count samples; gradients have one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._zeros: dict[str, Tensor | None] = dict.fromkeys(names)
        self._route = Route()
        self._is_compiled = False
        self._mixes: str | None = None

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._zeros:
            raise KeyError(f"{name!r} is not watched, expected one of {', '.join(map(repr, self._zeros))}")
        zero = self._zeros[name]
        if zero is None:
            raise ValueError(f"at has {name!r}, which no forward pass has reached yet: run the network inside `watch`")
        return zero

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
        # One number, as often as it is needed: a tensor full of zeros would cost as much as the layer's own ReLU.
        zero = value.new_zeros(()).expand(value.shape).requires_grad_()
        self._zeros[name] = zero
        return value + zero

    def gradients(self, outputs: Tensor, *, second_order: bool = False) -> dict[str, Tensor]:
        """∇ of the sum of `outputs` at every place; row k is sample k's own gradient where samples do not mix.

        The graph is kept, so that more gradients can be taken and the loss can still go backward.
        """
        zeros = [self[name] for name in self]
        if second_order:
            self._check_second_order()
        if not outputs.requires_grad:  # a constant network
            return {name: torch.zeros_like(zero) for name, zero in zip(self, zeros)}
        with self._route.frozen():
            grads = torch.autograd.grad(
                outputs.sum(), zeros, retain_graph=True, create_graph=second_order, materialize_grads=True
            )
        return {name: self._by_sample(grad, 0) for name, grad in zip(self, grads)}

    def columns(self, outputs: Tensor, *, second_order: bool = False) -> Iterator[dict[str, Tensor]]:
        """`gradients` of every column of `outputs` `[batch, k]`, in order, some at a time: `[some, batch, ...]` each.

        Columns go back together as far as the largest activation allows (`together`), by one backward pass over a batch
        of cotangents; one by one where an operation of the network has no rule for such a batch.
        """
        way, some, start = None, 1, 0
        if outputs.shape[1] > 1 and outputs.requires_grad and not self._is_compiled:
            way = batched_vjp.way(outputs, [self[name] for name in self], second_order=second_order)
            some = way.some
        while start < outputs.shape[1]:
            part, grads = outputs[:, start : start + some], None
            if way is not None:
                with self._route.frozen():
                    grads = way.gradients(part)
            if grads is not None:
                found = {name: self._by_sample(grad, 1) for name, grad in zip(self, grads)}
            else:
                some, part = 1, part[:, :1]
                found = {name: g[None] for name, g in self.gradients(part, second_order=second_order).items()}
            yield found
            start += part.shape[1]

    def along(self, outputs: Tensor, directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """∇h·u of every column of `outputs` `[batch, k]` along directions u `[some, batch, ...]`: `[some, batch, k]`.

        At every place h, for all columns at once: what a forward-mode pass gives, however many columns there are. It is
        taken by two backward passes, as the derivative of Jᵀv·u in v, so that the forward pass need not know of it.
        """
        if self._mixes is not None:
            raise ValueError(
                f"statistics is 'coupled', but {self._mixes!r} mixes the samples of a batch, so that the derivative "
                "along a direction is not a sample's own: choose statistics='frozen' or evaluation mode"
            )
        self._check_second_order()
        with self._route.frozen():
            found = pushed(outputs, [self[name] for name in self], [directions[name] for name in self])
        return dict(zip(self, found))

    def _check_second_order(self) -> None:
        if self._is_compiled:
            raise RuntimeError(
                "second_order=True needs a gradient of a gradient, which torch.compile does not give: "
                "pass the network as it was before torch.compile"
            )

    def _by_sample(self, grad: Tensor, first: int) -> Tensor:
        return grad if self._sample_dims == 1 else grad.flatten(first, first + self._sample_dims - 1)


@contextmanager
def watch(
    model: nn.Module, places: Sequence[str] = (INPUT,), *, statistics: BatchStatistics | None = None
) -> Iterator[At]:
    """Watch `places` of `model` during one forward pass inside the `with` block, of any `nn.Module`, by module name.

    Args:
        model: any network, also wrapped (DDP, Fabric, `torch.compile`); names are those of the wrapped network. A
            compiled network runs uncompiled while a hidden place is watched, or batch statistics are frozen: hooks
            inside a compiled graph are not run.
        places: `"input"`, names out of `model.named_modules()`, or `"output"`: the module of that name if there is one,
            else the scores.
        statistics: what BatchNorm in training mode means for the gradients at the places, see above.
    """
    names = check_places(model, places)
    mixing = mixing_modules(model)
    if mixing and statistics is None:
        module = model.get_submodule(mixing[0])
        way_out = "call model.eval(), or choose" if module.training else "it keeps no running statistics; choose"
        raise ValueError(
            f"statistics is None, but {mixing[0]!r} ({type(module).__name__}) mixes the samples of a batch, so "
            f"per-sample gradients are not defined: {way_out} statistics='frozen' (per sample, batch statistics held "
            "constant) or 'coupled' (as the papers' codes do)"
        )
    if statistics not in (None, "coupled", "frozen"):
        raise ValueError(f"statistics is {statistics!r}, expected 'coupled' or 'frozen'")
    at = At(names)
    at._mixes = mixing[0] if mixing and statistics == "coupled" else None
    with ExitStack() as stack:
        compiles_its_own_hooks = getattr(model, "_compiled_call_impl", None) is not None  # model.compile()
        modules = dict(unwrap(model).named_modules())
        hidden = set(names) & modules.keys() - {INPUT}
        if statistics == "frozen" or compiles_its_own_hooks or hidden:
            stack.enter_context(uncompiled(model))
        else:
            at._is_compiled = is_compiled(model)
        if any(isinstance(module, nn.RNNBase) for module in modules.values()):
            # cuDNN's recurrent layers have no backward pass in evaluation mode.
            stack.callback(setattr, torch.backends.cudnn, "enabled", torch.backends.cudnn.enabled)
            torch.backends.cudnn.enabled = False
        if statistics == "frozen":
            for name in mixing:
                stack.callback(freeze(model.get_submodule(name), at._route).remove)
        for name in names:
            stack.callback(_attach(model, modules.get(name, model), name, at).remove)
        yield at


def check_places(model: nn.Module, places: Sequence[str]) -> tuple[str, ...]:
    """`places` as a tuple, or a `ValueError` that names the first one that `model` does not have."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, expected an nn.Module")
    if isinstance(places, str):
        raise TypeError(f"at is the string {places!r}, expected a sequence of place names such as ({places!r},)")
    names = tuple(places)
    if not names:
        raise ValueError("at is empty, expected at least one place such as 'input'")
    known = [name for name, _ in unwrap(model).named_modules() if name]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"at has {name!r} twice, expected each place once")
        if name not in (INPUT, OUTPUT, *known):
            close = difflib.get_close_matches(str(name), [INPUT, OUTPUT, *known], n=1)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"expected 'input', 'output' or one of: {', '.join(known)}"
            )
            raise ValueError(f"at has {name!r}, which is no module of {type(unwrap(model)).__name__}: {hint}")
    return names


def default_places(model: nn.Module, x: Tensor) -> tuple[str, ...]:
    """`("input",)`, or for integer inputs (tokens) the first embedding of the network."""
    return (INPUT,) if x.is_floating_point() else (_embedding(model),)


def _attach(model: nn.Module, module: nn.Module, name: str, at: At) -> RemovableHandle:
    """Watch the place `name`, which is `module`: "output" is the network's answer unless a module has that name."""
    if name == INPUT:
        # Before the other hooks of the network, and on the outermost wrapper: what the user passes is the input.
        return model.register_forward_pre_hook(
            lambda _, args, kwargs: _add_to_input(unwrap(model), at, args, kwargs), with_kwargs=True, prepend=True
        )
    return module.register_forward_hook(lambda _, __, output: _add_to_output(name, at, output))


def _add_to_input(
    model: nn.Module, at: At, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for index, value in enumerate(args):
        if isinstance(value, Tensor):
            _check_input(model, value)
            return (*args[:index], at.add(INPUT, value), *args[index + 1 :]), kwargs
    for key, value in kwargs.items():
        if isinstance(value, Tensor):
            _check_input(model, value)
            return args, {**kwargs, key: at.add(INPUT, value)}
    raise TypeError("the network was called without a tensor, so there is no place 'input'")


def _check_input(model: nn.Module, x: Tensor) -> None:
    if not x.is_floating_point():
        raise TypeError(
            f"at has 'input', but the input has dtype {x.dtype} (tokens), which has no gradient: "
            f"take the margin at the embedding, at=({_embedding(model)!r},)"
        )


def _embedding(model: nn.Module) -> str:
    for name, module in unwrap(model).named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            return name
    raise ValueError(
        f"the input is of integers and {type(unwrap(model)).__name__} has no nn.Embedding: name a module with at=(…,)"
    )


def _add_to_output(name: str, at: At, output: Any) -> Any:
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
    raise TypeError(
        f"at has {name!r}, which answers a {type(output).__name__}, expected a tensor or a tuple of tensors"
    )
