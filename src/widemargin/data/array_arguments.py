"""Functions of a network, inputs and labels that also take arrays, frames and names of classes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from torch import Tensor

from widemargin.checks import check_floating, check_module
from widemargin.data.opening import Opened
from widemargin.data.reading import read_inputs, read_pair
from widemargin.modules import cast_input, predict

P = ParamSpec("P")
T = TypeVar("T")


def takes_arrays(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, whose arguments `x` and `y` may be NumPy arrays or pandas objects, and `y` names of classes.

    They become tensors on the device and in the dtype of the argument `model`. Names of classes become indices in
    sorted order, and have to be as many as the scores of the network. Tensors are passed on as they are.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        if isinstance(given["x"], Tensor) and isinstance(given.get("y"), Tensor | None):
            return function(*args, **kwargs)
        if "y" not in given:
            given["x"] = read_inputs(given["x"])
        else:
            samples, model = read_pair(given["x"], given["y"]), given["model"]
            check_module(model)
            x = cast_input(model, samples.x)
            check_floating(x, "x")
            if samples.classes:
                opened = Opened(samples, samples.classes, are_complete=False)
                opened.check_classes(predict(model, x[:1]))
            given["x"], given["y"] = x, samples.y.to(x.device)
        return function(*bound.args, **bound.kwargs)

    return reading
