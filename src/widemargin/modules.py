"""A network in evaluation mode for a while, and then exactly as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put `model` in evaluation mode inside the `with` block, then every module of it back in the mode it had.

    `model.train()` afterwards would not do: it would wake layers that the user had put to evaluation on purpose.
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
