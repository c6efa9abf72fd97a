"""Argument checks: one function a rule, one wording a rule.

Every error names the argument, its value and what was expected.
"""

from __future__ import annotations

import difflib
import math
import numbers
import operator
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from widemargin.types import is_binary

_Limit: TypeAlias = float | None
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Raise unless `value` is an integer >= `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} is {value!r}, expected an integer >= {least}")
    if value < least:
        raise ValueError(f"{name} is {value}, expected an integer >= {least}")


def check_counts(name: str, values: object, *, length: int | None = None) -> None:
    """Raise unless `values` is a tuple or list of integers >= 1, of the given length where there is one."""
    if not isinstance(values, tuple | list):
        raise TypeError(f"{name} is {values!r}, expected a tuple of positive integers")
    if length is not None and len(values) != length:
        raise ValueError(f"{name} has {len(values)} entries, expected {length}")
    for index, value in enumerate(values):
        check_count(f"{name}[{index}]", value)


def check_number(
    name: str, value: object, *, above: _Limit = None, least: _Limit = None, below: _Limit = None, most: _Limit = None
) -> None:
    """Raise unless `value` is a finite real number within the given limits (`above` and `below` exclude the limit)."""
    bounds = {">": above, ">=": least, "<": below, "<=": most}
    limits = {sign: limit for sign, limit in bounds.items() if limit is not None}
    words = " and ".join(f"{sign} {limit:g}" for sign, limit in limits.items())
    expected = f"expected a finite number {words}".rstrip()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}, {expected}")
    number = float(value)
    if not math.isfinite(number) or not all(_COMPARE[sign](number, limit) for sign, limit in limits.items()):
        raise ValueError(f"{name} is {value}, {expected}")


def check_numbers(
    name: str, values: object, *, least: _Limit = None, above: _Limit = None, below: _Limit = None
) -> None:
    """Raise unless `values` is a tuple or list, not empty, of finite numbers within the limits."""
    if not isinstance(values, tuple | list):
        raise TypeError(f"{name} is {values!r}, expected a tuple or list of numbers")
    if not values:
        raise ValueError(f"{name} is empty, expected at least one number")
    for index, value in enumerate(values):
        check_number(f"{name}[{index}]", value, least=least, above=above, below=below)


def check_choice(name: str, value: object, options: Collection[object]) -> None:
    """Raise unless `value` is one of `options`; the error suggests the closest name."""
    if not isinstance(value, str | int | float | None) or value not in options:
        close = difflib.get_close_matches(value.lower(), map(str, options), n=1) if isinstance(value, str) else []
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, options))}{hint}")


def check_module_name(name: str, value: object, known: Collection[str], model: nn.Module) -> None:
    """Raise unless `value` is one of the names `known` of modules of `model`; the error suggests the closest name."""
    if value not in known:
        given = f"a {type(value).__name__}" if isinstance(value, nn.Module) else repr(value)
        close = difflib.get_close_matches(str(value), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"expected one of: {', '.join(known)}"
        raise ValueError(f"{name} has {given}, which is no module of {type(model).__name__}: {hint}")


def check_place_names(places: object) -> tuple[str, ...]:
    """The names of places of any network, as settings of a loss; raises unless they are a tuple or list of names."""
    if not isinstance(places, (tuple, list)) or not places or not all(isinstance(name, str) for name in places):
        raise TypeError(f"at is {places!r}, expected a tuple of place names such as ('input',)")
    return tuple(places)


def check_flag(name: str, value: object) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, expected True or False")


def check_names(name: str, values: object) -> None:
    """Raise unless `values` is a sequence of texts, such as names of classes; a single text is none."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not all(isinstance(v, str) for v in values):
        raise TypeError(f"{name} is {values!r}, expected a tuple or list of names")


def check_several(name: str, values: object, example: str) -> None:
    """Raise unless `values` can be iterated over and is no text; `example` says what of."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} is {values!r}, expected a sequence such as {example}")


def check_type(name: str, value: object, expected: type | tuple[type, ...], words: str) -> None:
    """Raise unless `value` is of a type `expected`, in words: "a Slice of geometry.slice2d"."""
    if not isinstance(value, expected):
        given = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
        raise TypeError(f"{name} is {given}, expected {words}")


def check_path(name: str, value: object) -> None:
    """Raise unless `value` is the name of a file or folder."""
    check_type(name, value, (str, os.PathLike), "a path")


def check_seed(seed: object, name: str = "seed") -> None:
    """Raise unless `seed` is an integer of 64 bits."""
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral):
        raise TypeError(f"{name} is {seed!r}, expected an integer")
    if not -(2**63) <= int(seed) < 2**64:
        raise ValueError(f"{name} is {seed}, expected an integer of 64 bits")


def check_module(model: object, name: str = "model") -> None:
    """Raise unless `model` is an `nn.Module`."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{name} is a {type(model).__name__}, expected an nn.Module")


def check_weights(model: nn.Module, name: str = "model") -> None:
    """Raise unless all parameters and buffers of `model` are finite; the error names the first that is not."""
    for key, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise ValueError(
                f"{name} has {key!r} of a lazy module, expected an initialised network: run one forward pass first"
            )
        if tensor.is_meta:
            raise ValueError(f"{name} has {key!r} on the device meta, which has no values: move it with to_empty()")
        if tensor.is_floating_point() and not skips_values(tensor) and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} has weights {key!r} that are not finite, expected finite numbers")


def check_callable(name: str, value: object, example: str, *, makes: type | None = None) -> None:
    """Raise unless `value` is a callable that is not a class; `example` shows one.

    A class of `makes` is fine, since a call makes such an object; one of losses is a mistake for an object of it.
    """
    is_maker = makes is not None and isinstance(value, type) and issubclass(value, makes)
    if not callable(value) or (isinstance(value, type) and not is_maker):
        shown = repr(value)
        shown = f"a {type(value).__name__}" if "\n" in shown else shown  # as an optimizer of torch has several lines
        raise TypeError(f"{name} is {shown}, expected a callable such as {example}")


def check_dense(tensor: object, name: str, shape: str = "") -> None:
    """Raise unless `tensor` is a tensor with values in memory: not sparse, complex or on the device meta."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, expected a tensor {shape}".rstrip())
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name} is a sparse tensor, expected a dense one: pass {name}.to_dense()")
    if tensor.is_meta:
        raise ValueError(f"{name} is on the device meta, which has no values: expected a tensor on a CPU or GPU")
    if tensor.is_complex():
        raise TypeError(f"{name} has dtype {tensor.dtype}, expected real numbers")


def check_floating(tensor: object, name: str, shape: str = "") -> None:
    """Raise unless `tensor` is a dense floating-point tensor; `shape` describes the expected one."""
    check_dense(tensor, name, shape)
    assert isinstance(tensor, Tensor)
    if not tensor.is_floating_point():
        cure = ": scale bytes to [0, 1] with x.float() / 255" if tensor.dtype == torch.uint8 else ""
        raise TypeError(f"{name} has dtype {tensor.dtype}, expected a floating-point tensor{cure}")


def check_batch(x: object, name: str) -> None:
    """Raise unless `x` is a batch of finite floating-point samples."""
    check_floating(x, name, "[batch, ...]")
    assert isinstance(x, Tensor)
    if x.ndim < 2 or x.numel() == 0:
        raise ValueError(f"{name} has shape {list(x.shape)}, expected [batch, ...] with at least one sample")
    check_finite(x, name)


def check_images(x: object, name: str) -> None:
    """Raise unless `x` is a batch of floating-point images."""
    shape = "[batch, channels, height, width]"
    check_floating(x, name, shape)
    assert isinstance(x, Tensor)
    if x.ndim != 4 or x.numel() == 0:
        raise ValueError(f"{name} has shape {list(x.shape)}, expected {shape} with at least one image")


def check_one(x: object, name: str) -> None:
    """Raise unless `x` is one finite floating-point sample, without a batch."""
    check_floating(x, name, "[...]")
    assert isinstance(x, Tensor)
    if not x.numel() or x.ndim == 0:
        raise ValueError(f"{name} has shape {list(x.shape)}, expected one sample")
    check_finite(x[None], name)


def check_scores_and_labels(scores: Tensor, labels: Tensor, *, finite: bool = False) -> None:
    """Raise a `ValueError` or `TypeError` unless `scores` and `labels` fit each other, and with `finite` are finite."""
    check_floating(scores, "scores", "[batch, classes] or [batch]")
    check_dense(labels, "y", "[batch]")
    if scores.ndim not in (1, 2):
        raise ValueError(f"scores has shape {list(scores.shape)}, expected [batch, classes], or [batch] when binary")
    if labels.ndim != 1:
        raise ValueError(f"y has shape {list(labels.shape)}, expected [batch]")
    if scores.shape[0] == 0:
        raise ValueError("scores is an empty batch, expected at least one sample")
    if scores.ndim == 2 and scores.shape[1] == 0:
        raise ValueError("scores has no classes, expected at least one score per sample")
    if len(labels) != len(scores):
        raise ValueError(f"y has {len(labels)} entries, but scores has {len(scores)} samples")
    if labels.device != scores.device:
        raise ValueError(f"y is on {labels.device}, but scores is on {scores.device}")
    if skips_values(labels):
        return
    if is_binary(scores):
        check_signs(labels)
    else:
        check_class_indices(labels, scores.shape[1])
    if finite:
        check_finite(scores, "scores")


def check_labels(labels: object, samples: int, name: str = "y") -> None:
    """Raise unless `labels` is a dense tensor of one label per sample, before the scores of a network are known."""
    check_dense(labels, name, "[batch]")
    assert isinstance(labels, Tensor)
    if labels.ndim != 1:
        raise ValueError(f"{name} has shape {list(labels.shape)}, expected [batch]")
    if len(labels) != samples:
        raise ValueError(f"{name} has {len(labels)} entries, but x has {samples} samples")
    if labels.dtype == torch.bool:
        raise TypeError(f"{name} has dtype torch.bool, expected class indices, or -1.0 and 1.0 for one score a sample")


def check_index(index: object, samples: int, name: str = "index") -> None:
    """Raise unless `index` is a tensor with one integer per sample."""
    check_dense(index, name, "[samples]")
    assert isinstance(index, Tensor)
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"{name} has dtype {index.dtype}, expected integers")
    if index.shape != (samples,):
        raise ValueError(f"{name} has shape {list(index.shape)}, expected [{samples}], one entry per sample")


def check_signs(labels: Tensor, name: str = "y") -> None:
    """Raise unless `labels` are floats -1 and 1, the labels of networks with one score per sample."""
    if not labels.is_floating_point():
        raise TypeError(f"{name} has dtype {labels.dtype}, expected float labels -1.0 and 1.0 (one score per sample)")
    bad = (labels.abs() != 1).nonzero()
    if len(bad):
        index = int(bad[0])
        raise ValueError(
            f"{name} has {labels[index].item():g} at index {index}, expected -1 or 1 (one score per sample)"
        )


def check_class_indices(labels: Tensor, classes: int, name: str = "y") -> None:
    """Raise unless `labels` are integers from 0 to `classes` - 1."""
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"{name} has dtype {labels.dtype}, expected class indices ({classes} classes)")
    bad = ((labels < 0) | (labels >= classes)).nonzero()
    if len(bad):
        index = int(bad[0])
        raise ValueError(f"{name} has {int(labels[index])} at index {index}, expected 0..{classes - 1}")


def check_finite(tensor: Tensor, name: str) -> None:
    """Raise a `ValueError` that names the first sample of `tensor` with a NaN or an infinity."""
    if skips_values(tensor):
        return
    bad = ~torch.isfinite(tensor.detach()).flatten(1 if tensor.ndim > 1 else 0)
    rows = bad.any(dim=1) if bad.ndim > 1 else bad
    if bool(rows.any()):
        index = int(rows.nonzero()[0])
        value = tensor.detach()[index].flatten()
        raise ValueError(
            f"{name} has {value[~torch.isfinite(value)][0].item()} at index {index}, expected finite numbers"
        )


_SKIP_VALUES: ContextVar[bool] = ContextVar("skips", default=False)


@contextmanager
def without_value_checks(skip: bool = True) -> Iterator[None]:
    """Check shapes and dtypes only inside the `with` block; `without_value_checks(False)` checks values again."""
    before = _SKIP_VALUES.set(skip)
    try:
        yield
    finally:
        _SKIP_VALUES.reset(before)


def is_capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured on `device`, so that tensors have no values yet."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def skips_values(tensor: Tensor) -> bool:
    """Whether values are not checked: the caller checks them, or a CUDA graph is being captured and there are none."""
    return _SKIP_VALUES.get() or is_capturing(tensor.device)


@contextmanager
def deferred_checks(scores: Tensor, labels: Tensor) -> Iterator[DeferredChecks]:
    """Skip value checks of scores and labels inside the `with` block; `DeferredChecks.wait` raises their errors."""
    checks = DeferredChecks(scores, labels)
    with without_value_checks():
        yield checks


class DeferredChecks:
    """Checks of scores and labels that are launched now and read later, so that the GPU is not idle meanwhile.

    `labels` are the given ones clamped to the valid range, so that no kernel fails before `wait`. On a CPU the checks
    raise at once. During the capture of a CUDA graph there are no values to check.
    """

    def __init__(self, scores: Tensor, labels: Tensor) -> None:
        self._scores, self._given = scores.detach(), labels
        self.labels = labels
        self._failed: Tensor | None = None
        self._event: torch.cuda.Event | None = None
        with without_value_checks():
            check_scores_and_labels(scores, labels)
        if is_capturing(labels.device):
            return
        if not needs_sync(labels) or is_binary(scores) or labels.is_floating_point() or labels.dtype == torch.bool:
            self._raise()
            return
        self.labels = labels.clamp(0, scores.shape[1] - 1)
        # A sum with a term that is not finite is not finite; `_raise` sorts out sums that merely overflow.
        failed = (self.labels != labels).any() | ~torch.isfinite(self._scores.sum(dtype=torch.float32))
        self._failed = torch.empty((), dtype=torch.bool, pin_memory=labels.is_cuda)
        self._failed.copy_(failed, non_blocking=True)
        if labels.is_cuda:
            self._event = torch.cuda.Event()
            self._event.record()

    def wait(self) -> None:
        """Raise the error of `check_scores_and_labels`, if any."""
        if self._failed is None:
            return
        if self._event is not None:
            self._event.synchronize()
        if bool(self._failed):
            self._raise()

    def _raise(self) -> None:
        with without_value_checks(False):
            check_scores_and_labels(self._scores, self._given, finite=True)


def needs_sync(labels: Tensor) -> bool:
    """Whether reading a value that depends on `labels` waits for a GPU."""
    return labels.is_cuda
