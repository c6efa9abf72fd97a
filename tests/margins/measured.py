"""The distances of a batch, and norms to take them in."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from widemargin import margins, places
from widemargin.modules import scores_of

P = (1.0, 1.25, 2.0, 3.0, 10.0, math.inf)


def distance(network: Callable[..., Any], x: Tensor, y: Tensor, at: tuple[str, ...] = ("input",), **how: Any) -> Any:
    assert isinstance(network, nn.Module)
    with places.watch(network, at) as zeros:
        scores = scores_of(network(x))
    return margins.distance(scores, y, at=zeros, **how)
