"""Values of losses and regularizers where gradients are switched off."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, cast

import torch
from torch import Tensor

from widemargin.modules import NamedInputs

P = ParamSpec("P")


def value_without_grad(call: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Under `no_grad` or `inference_mode`, run `call` with gradients enabled and return the detached value.

    Inference tensors among the arguments are copied, since autograd refuses them.
    """

    @functools.wraps(call)
    def with_gradients(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        if torch.is_grad_enabled():
            return call(*args, **kwargs)
        with torch.inference_mode(False), torch.enable_grad():
            usable = cast("Callable[..., Tensor]", call)
            return usable(*map(_usable, args), **{name: _usable(value) for name, value in kwargs.items()}).detach()

    return with_gradients


def _usable(value: object) -> object:
    return value.clone() if isinstance(value, Tensor | NamedInputs) and value.is_inference() else value
