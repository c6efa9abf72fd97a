"""Functions of a network, inputs and labels that also take arrays, frames and names of classes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from widemargin.checks import check_floating, check_module, check_several
from widemargin.data.opening import Opened
from widemargin.data.reading import column_names, read_inputs, read_pair
from widemargin.modules import cast_input, predict

P = ParamSpec("P")
T = TypeVar("T")


def takes_arrays(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, whose arguments `x` and `y` may be NumPy arrays or pandas objects, and `y` names of classes.

    They become tensors on the device and in the dtype of the argument `model`. Names of classes become indices in
    sorted order, and have to be as many as the scores of the network. Tensors are passed on as they are.
    """
    return _reading(function, takes_tokens=False)


def takes_arrays_or_tokens(function: Callable[P, T]) -> Callable[P, T]:
    """As `takes_arrays`, for a function of tokens too, which names the classes by its argument `classes`.

    Names in `y` become indices in the order of `classes`. Where these are not given, they are the names in `y`, sorted.
    The argument `names` is by default the names of the columns of a frame.
    """
    return _reading(function, takes_tokens=True)


def _reading(function: Callable[P, T], *, takes_tokens: bool) -> Callable[P, T]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        if isinstance(given["x"], Tensor) and isinstance(given.get("y"), Tensor | None):
            return function(*args, **kwargs)
        if takes_tokens:
            given.setdefault("names", column_names(given["x"]))
        if given.get("y") is None:
            given["x"] = read_inputs(given["x"])
            return function(*bound.args, **bound.kwargs)
        known: tuple[str, ...] = ()
        if takes_tokens and "classes" in given:
            check_several("classes", given["classes"], "('cat', 'dog')")
            known = given["classes"] = tuple(map(str, given["classes"]))
        samples, model = read_pair(given["x"], given["y"], classes=known or None), given["model"]
        check_module(model)
        x = cast_input(model, samples.x)
        if not takes_tokens or x.dtype == torch.uint8:
            check_floating(x, "x")
        if samples.classes:
            opened = Opened(samples, samples.classes, are_complete=bool(known))
            opened.check_classes(predict(model, x[:1]))
        if takes_tokens:
            given["classes"] = samples.classes
        given["x"], given["y"] = x, samples.y.to(x.device)
        return function(*bound.args, **bound.kwargs)

    return reading
