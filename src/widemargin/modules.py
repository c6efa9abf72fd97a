"""Properties and modes of any `nn.Module`: wrappers, evaluation mode, scores, dtype and device."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from widemargin.checks import check_dense, check_module, is_capturing
from widemargin.types import is_binary

_SOURCE = str(Path(__file__).parent)


class NamedInputs:
    """Tensors that a network takes by name, one row per sample: `input_ids`, `attention_mask` and others.

    `network(**inputs)` passes them. A name gives a tensor; an index, a slice or a tensor of rows gives those rows of
    all of them. The length is the number of samples.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        lengths = {name: len(tensor) for name, tensor in tensors.items()}
        if not lengths or len(set(lengths.values())) != 1:
            raise ValueError(f"the inputs have the lengths {lengths}, expected tensors of one length")
        self._tensors = dict(tensors)

    def keys(self) -> list[str]:
        """The names of the tensors."""
        return list(self._tensors)

    @property
    def first(self) -> Tensor:
        """The first tensor, whose dtype tells tokens from numbers."""
        return next(iter(self._tensors.values()))

    @overload
    def __getitem__(self, rows: str) -> Tensor: ...
    @overload
    def __getitem__(self, rows: int | slice | Tensor) -> NamedInputs: ...
    def __getitem__(self, rows: str | int | slice | Tensor) -> Tensor | NamedInputs:
        if isinstance(rows, str):
            return self._tensors[rows]
        if isinstance(rows, int) and not -len(self) <= rows < len(self):  # which also ends a loop over the samples
            raise IndexError(f"the inputs have {len(self)} samples, and none at {rows}")
        return self.map(lambda tensor: tensor[[rows] if isinstance(rows, int) else rows])

    def __len__(self) -> int:
        return len(self.first)

    def __repr__(self) -> str:
        return f"NamedInputs({', '.join(f'{name} {list(t.shape)}' for name, t in self._tensors.items())})"

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.first.device

    def map(self, change: Callable[[Tensor], Tensor]) -> NamedInputs:
        """The same names, each tensor changed."""
        return NamedInputs({name: change(tensor) for name, tensor in self._tensors.items()})

    def clone(self) -> NamedInputs:
        """Copies of the tensors."""
        return self.map(Tensor.clone)

    def is_inference(self) -> bool:
        """Whether a tensor was made in inference mode."""
        return any(tensor.is_inference() for tensor in self._tensors.values())

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> NamedInputs:
        """The tensors on `device`, those of floating point in `dtype`."""
        return self.map(lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype))


if TYPE_CHECKING:
    ModelInputs: TypeAlias = Tensor  # users' own losses and loops are written for tensors
else:
    ModelInputs = Tensor | NamedInputs
    """What a network is called with: one tensor, or tensors by name."""


def forward(model: nn.Module, x: ModelInputs) -> Tensor:
    """The scores of `model` for `x`, which is passed by names where it has them.

    Where torch refuses the shape or the dtype, a `ValueError` names them.
    """
    check_module(model)
    x = arguments(model, x)
    with explained(x):
        return scores_of(model(x) if isinstance(x, Tensor) else model(**x))


@contextmanager
def explained(x: ModelInputs) -> Iterator[None]:
    """Raise a `ValueError` that names the shape and the dtype of `x` where torch refuses them in the `with` block."""
    try:
        yield
    except (RuntimeError, IndexError) as error:  # an embedding raises an IndexError for a token that it does not have
        if _has_other_cause(error, x):
            raise
        given = f"x has shape {list(x.shape)} and dtype {x.dtype}" if isinstance(x, Tensor) else f"x is {x}"
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{given}, which the network can't take: {reason}") from error


def _has_other_cause(error: Exception, x: ModelInputs) -> bool:
    """Whether an error is not about the inputs: raised by this package, out of memory, of CUDA or of a capture."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_own = last.filename.startswith(_SOURCE) and str(last.line).startswith("raise")
    return is_own or isinstance(error, torch.OutOfMemoryError) or "CUDA error" in str(error) or is_capturing(x.device)


def arguments(model: nn.Module, x: ModelInputs) -> ModelInputs:
    """Those tensors of `x` that `model` has arguments for, in the order of these.

    Others are left out, as Hugging Face's Trainer leaves out unused columns. A single tensor whose name the network
    does not know is passed as it is.
    """
    if not isinstance(x, NamedInputs):
        check_dense(x, "x", "[batch, ...]")
        return x
    known = _argument_names(type(unwrap(model)))
    if known is None:
        return x
    names = [name for name in known if name in x.keys()]  # noqa: SIM118 (it is no mapping)
    if names:
        return cast("ModelInputs", NamedInputs({name: x[name] for name in names}))
    if len(x.keys()) == 1:
        return x.first
    raise TypeError(
        f"data has the inputs {', '.join(x.keys())}, expected arguments of {type(unwrap(model)).__name__}: "
        f"{', '.join(known) or 'it names none'}"
    )


@functools.lru_cache(maxsize=256)
def _argument_names(kind: type[nn.Module]) -> tuple[str, ...] | None:
    """The names of the arguments of `forward`; None where it takes any."""
    parameters = list(inspect.signature(kind.forward).parameters.values())[1:]  # without self
    names = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return None if not names and any(p.kind == p.VAR_KEYWORD for p in parameters) else names


def scores_of(output: Any) -> Tensor:
    """The scores in a network's output: a tensor, `logits` of an object or mapping, or else the first of a tuple.

    Raises a `TypeError` where there are none.
    """
    if isinstance(output, Tensor):
        return output
    scores = getattr(output, "logits", None)
    if isinstance(output, Mapping):
        scores = output.get("logits")
    elif isinstance(output, (tuple, list)) and output and not isinstance(scores, Tensor):
        scores = output[0]
    if not isinstance(scores, Tensor):
        raise TypeError(
            f"the network returned a {type(output).__name__}, expected a tensor, a tuple of tensors or `logits`"
        )
    return scores


def output_shapes(model: nn.Module, x: ModelInputs, names: Iterable[str]) -> dict[str, list[torch.Size | None]]:
    """The shapes of the outputs of modules in a forward pass in evaluation mode, one for each of their runs.

    Modules are in the order in which they run first, after those that do not.
    None stands for an output without a floating-point tensor. Gradients are switched on, without which transformers
    call fewer of their modules.
    """
    network = unwrap(model)
    found: dict[str, list[torch.Size | None]] = {name: [] for name in names}
    with ExitStack() as stack:
        for name in list(found):
            hook = network.get_submodule(name).register_forward_hook(functools.partial(_note_shape, found, name))
            stack.callback(hook.remove)
        with evaluating(network), uncompiled(network), torch.inference_mode(False), torch.enable_grad():
            forward(network, x.clone() if x.is_inference() else x)
    return found


def _note_shape(found: dict[str, list[torch.Size | None]], name: str, _: nn.Module, __: object, output: object) -> None:
    """Forward hook of `output_shapes`."""
    shapes = found[name] if found[name] else found.setdefault(name, found.pop(name))  # to the end
    try:
        tensor = scores_of(output)
    except TypeError:
        shapes.append(None)
    else:
        shapes.append(tensor.shape if tensor.is_floating_point() else None)


def unwrap(model: nn.Module) -> nn.Module:
    """The user's own network inside `torch.compile`, DDP, DataParallel and Fabric wrappers, and our own."""
    while True:
        if hasattr(model, "_orig_mod"):
            inner = model._orig_mod
        elif isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            inner = model.module
        elif type(model).__name__ == "_FabricModule":
            inner = model._forward_module
        elif hasattr(model, "wrapped_network"):  # of `probabilities.from_probabilities`
            inner = model.wrapped_network
        else:
            return model
        assert isinstance(inner, nn.Module)
        model = inner


def unwrap_ddp(model: nn.Module) -> nn.Module:
    """The network inside DDP, whose hooks would take an extra pass for part of a training step; still compiled."""
    return unwrap_ddp(model.module) if isinstance(model, nn.parallel.DistributedDataParallel) else model


def predict(model: nn.Module, x: Tensor, *, batch_size: int | None = None) -> Tensor:
    """The scores of `x` in evaluation mode, without gradients, computed `batch_size` samples at a time (None: all)."""
    with evaluating(model), torch.no_grad():
        parts = [forward(model, cast_input(model, part)) for part in x.split(batch_size or len(x))]
    if parts[0].ndim == 0:
        raise ValueError("scores has shape [], expected [batch, classes], or [batch] when binary")
    return torch.cat(parts)


def predicted_labels(scores: Tensor) -> Tensor:
    """The class with the highest score of each sample; for a binary network 1 where the score is positive, else -1."""
    return torch.where(scores.reshape(-1) > 0, 1, -1) if is_binary(scores) else scores.argmax(dim=1)


def cast_input(model: nn.Module, x: ModelInputs) -> ModelInputs:
    """`x` on the device and in the dtype of the parameters; integers, and any `x` under autocast, keep their dtype."""
    parameter = floating_parameter(model)
    if parameter is None:
        return x
    autocast = torch.is_autocast_enabled(parameter.device.type)
    if isinstance(x, NamedInputs):
        return x.to(parameter.device, None if autocast else parameter.dtype)
    keep = not x.is_floating_point() or autocast
    return x.to(parameter.device, x.dtype if keep else parameter.dtype)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put `model` in evaluation mode inside the `with` block, then every module of it back in the mode it had.

    `model.train()` afterwards would also switch layers that the user had set to evaluation mode.
    """
    with in_mode(model, training=False):
        yield


@contextmanager
def in_training_mode(model: nn.Module) -> Iterator[None]:
    """Put `model` in training mode inside the `with` block, unless it is in it: then every module keeps its mode.

    So a part that the user had put in evaluation mode, such as a frozen backbone with BatchNorm, stays in it.
    """
    if model.training:
        yield
        return
    with in_mode(model, training=True):
        yield


@contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Put `model` in training or evaluation mode inside the `with` block, then every module back in the mode it had."""
    changed = [module for module in model.modules() if module.training != training]
    model.train(training)
    try:
        yield
    finally:
        for module in changed:
            module.training = not training


@contextmanager
def without_weight_gradients(model: nn.Module) -> Iterator[None]:
    """Switch off gradients of the parameters inside the `with` block: a backward pass leaves their `.grad` alone."""
    with ExitStack() as stack:
        for parameter in (p for p in model.parameters() if p.requires_grad):
            stack.callback(parameter.requires_grad_)
            parameter.requires_grad_(False)
        yield


@contextmanager
def without_running_stats(network: nn.Module) -> Iterator[None]:
    """Leave the running statistics of BatchNorm and InstanceNorm layers unchanged inside the `with` block."""
    with ExitStack() as stack:
        for module in filter(updates_running_stats, network.modules()):
            # InstanceNorm updates statistics that it has, whatever `track_running_stats` is.
            name, value = ("track_running_stats", False) if isinstance(module, _BatchNorm) else ("momentum", 0.0)
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield


def updates_running_stats(module: nn.Module) -> bool:
    """Whether `module` is a BatchNorm or InstanceNorm layer that updates its running statistics in a forward pass."""
    return isinstance(module, _NormBase) and module.training and module.track_running_stats


@contextmanager
def uncompiled(model: nn.Module) -> Iterator[None]:
    """Run `model` uncompiled inside the `with` block: a compiled network ignores hooks that are added later."""
    with torch.compiler.set_stance("force_eager") if is_compiled(model) else nullcontext():
        yield


def is_compiled(model: nn.Module) -> bool:
    """Whether `torch.compile` was applied to `model`, or to a module inside it."""
    # `hasattr` of a module that lacks the attribute is slow, and training asks in every step.
    return any("_orig_mod" in m._modules or m._compiled_call_impl is not None for m in model.modules())


def is_checkpointing() -> bool:
    """Whether a function runs that `torch.utils.checkpoint` will run again in the backward pass."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and hooks[0].__module__ == "torch.utils.checkpoint"


def mixing_modules(model: nn.Module) -> list[str]:
    """Names of the modules that now mix the samples of a batch: normalisation by batch statistics."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    ]


def fewest_samples(model: nn.Module) -> int:
    """The fewest samples of a training batch: two with BatchNorm in training mode, which needs a variance."""
    with in_training_mode(model):
        return 2 if mixing_modules(model) else 1


def floating_parameter(model: nn.Module) -> nn.Parameter | None:
    """The first floating-point parameter of `model`, which tells its dtype and device; None if there is none."""
    return next((p for p in model.parameters() if p.is_floating_point()), None)
