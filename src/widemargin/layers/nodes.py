"""Types of autograd nodes and of the gradients of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor

Node: TypeAlias = Any
"""A node of autograd; torch does not declare the tensors that it saved."""

WeightGradients: TypeAlias = tuple[Tensor | None, ...]
"""The gradients of the inputs of a node, in their order."""

WeightGradient: TypeAlias = Callable[[Tensor, Tensor], WeightGradients]
"""(gradient that arrives at the node, factor of each of its entries) → gradients of the inputs."""
