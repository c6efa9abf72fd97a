"""Frozen batch statistics, see `widemargin._autograd.frozen_batchnorm`, of many networks at once."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from widemargin._autograd.frozen_batchnorm import Route, scale, switch
from widemargin.population.vmap_lowering import lowered


def freeze(module: nn.Module, route: Route) -> RemovableHandle:
    """As `frozen_batchnorm.freeze`, for a layer that runs inside `vmap`."""
    assert isinstance(module, _BatchNorm)

    def hook(_: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return lowered(lambda o, x, s: switch(o, x, s, route), output, inputs[0], scale(module, inputs[0]))

    return module.register_forward_hook(hook)
