"""The steps of a piecewise affine network, in float64: affine maps, two-sloped activations, and max-pools.

A step acts on rows `[rows, *shape]`. An affine function on a line or a plane is carried through the network as a stack
of rows, one per direction and one for the constant; only the constant row meets the biases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Affine:
    """x ↦ linear(x) + bias. `weighted`: a layer with a weight matrix W_i, whose norm stands in (12)."""

    name: str
    linear: Callable[[Tensor], Tensor]
    bias: Tensor | None = None  # broadcasts against the rows of linear(x)
    weighted: bool = False
    moves: bool = False  # only moves entries (flatten, dropout): no norm of its own

    def forward(self, x: Tensor) -> Tensor:
        """The map on samples."""
        y = self.linear(x)
        return y if self.bias is None else y + self.bias

    def stacked(self, stack: Tensor) -> Tensor:
        """The map on stacks `[cells, k, *shape]`, whose last row is the constant."""
        y = self.linear(stack.flatten(0, 1)).unflatten(0, stack.shape[:2])
        if self.bias is None:
            return y
        constant = y[:, -1:] + self.bias
        return torch.cat((y[:, :-1], constant), dim=1)


@dataclass(frozen=True, kw_only=True)
class Slopes:
    """h ↦ positive·h for h > 0 and negative·h for h ≤ 0, entry by entry; S_i(x) of (6) holds the slopes."""

    name: str
    negative: float
    positive: float

    def forward(self, x: Tensor) -> Tensor:
        """The activation of samples; its derivative at 0 is `negative` (sokolic: 0 for a ReLU)."""
        return torch.where(x > 0, self.positive * x, self.negative * x)

    def pattern(self, x: Tensor) -> Tensor:
        """Which entries are positive: bool, of the shape of `x`."""
        return x > 0

    def rivals(self, stack: Tensor) -> Tensor:
        """Per unit the affine functions whose largest decides: (h, 0), as `[cells, k, units, 2]`."""
        flat = stack.flatten(2)
        return torch.stack((flat, torch.zeros_like(flat)), dim=3)

    def stacked(self, stack: Tensor, winners: Tensor) -> Tensor:
        """The activation of stacks, `winners[cell, unit]` being 0 where h is positive and 1 where it is not."""
        slopes = stack.new_tensor((self.positive, self.negative))[winners]
        return stack * slopes.reshape(len(stack), 1, *stack.shape[2:])


@dataclass(frozen=True, kw_only=True)
class MaxPool:
    """The largest entry of each window; `windows[unit, place]` is an index into the flat input, −1 for padding."""

    name: str
    windows: Tensor
    shape: torch.Size  # of the output, without the batch

    def forward(self, x: Tensor) -> Tensor:
        """The maxima of samples; the first of equal entries wins."""
        entries = self._entries(x.flatten(1))
        place = entries.detach().argmax(dim=2, keepdim=True)
        return entries.gather(2, place).reshape(len(x), *self.shape)

    def pattern(self, x: Tensor) -> Tensor:
        """The place in its window of each maximum: int64, of the shape of the output."""
        return self._entries(x.flatten(1)).argmax(dim=2).reshape(len(x), *self.shape)

    def rivals(self, stack: Tensor) -> Tensor:
        """The entries of each window, as `[cells, k, units, places]`; padding never wins."""
        flat = stack.flatten(2)
        entries = flat[:, :, self.windows.clamp(min=0)]
        outside = self.windows < 0
        entries[:, :, outside] = 0.0
        entries[:, -1, outside] = -torch.inf
        return entries

    def stacked(self, stack: Tensor, winners: Tensor) -> Tensor:
        """The winning entry of each window, `winners[cell, unit]` being its place."""
        units = torch.arange(len(self.windows), device=stack.device)
        index = self.windows[units, winners]
        chosen = stack.flatten(2).gather(2, index[:, None, :].expand(-1, stack.shape[1], -1))
        return chosen.reshape(len(stack), stack.shape[1], *self.shape)

    def _entries(self, flat: Tensor) -> Tensor:
        padded = torch.cat((flat, torch.full_like(flat[:, :1], -torch.inf)), dim=1)
        return padded[:, self.windows]  # −1 reads the last column


Kink: TypeAlias = Slopes | MaxPool
"""A step with several pieces."""

Step: TypeAlias = Affine | Slopes | MaxPool
"""Any step."""
