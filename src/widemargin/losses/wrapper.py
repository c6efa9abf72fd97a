"""The base of losses that wrap another loss."""

from __future__ import annotations

import dataclasses
from functools import partial

from torch import Tensor, nn

from widemargin.losses.protocol import FastBackward, Loss, fast_backward, is_capturable, needs_index
from widemargin.split_backward.backward import Backward


class Wrapper:
    """`weight` · `loss(model, *prepare(model, x, y))`, with the fast backward and CUDA graph of `loss`.

    A subclass holds the wrapped loss as `loss` and overrides `prepare`, `weight` or both; both are constants for the
    gradient. A frozen dataclass is best, since `fit` recognises a checkpoint by the repr of its loss:

        @dataclass(frozen=True)
        class Flipped(losses.Wrapper):
            loss: losses.Loss

            def prepare(self, model, x, y):
                return x.flip(-1), y

    `capturable` follows the wrapped loss. Override it with False where `prepare` waits for the device or draws random
    numbers on the CPU, or where `weight` changes between steps.
    """

    loss: Loss

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """The inputs and labels that the wrapped loss takes."""
        return x, y

    @property
    def weight(self) -> float:
        """The factor of the wrapped loss."""
        return 1.0

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, *, index: Tensor | None = None) -> Tensor:
        """The loss of every sample."""
        extra = {} if index is None else {"index": index}
        return self.weight * self.loss(model, *self.prepare(model, x, y), **extra)

    @property
    def wrapped(self) -> Loss:
        """The wrapped loss."""
        return self.loss

    @property
    def needs_index(self) -> bool:
        """Whether the wrapped loss needs the positions of the samples."""
        return needs_index(self.loss)

    @property
    def capturable(self) -> bool:
        """Whether the wrapped loss may be captured in a CUDA graph."""
        return is_capturable(self.loss)

    @property
    def backward(self) -> FastBackward | None:
        """The fast backward of the wrapped loss at the prepared inputs, or None where it has none."""
        inner = fast_backward(self.loss)
        return None if inner is None else partial(self._backward, inner)

    def _backward(
        self,
        inner: FastBackward,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        scale: float | Tensor = 1.0,
        memory: int | None = None,
        is_replayed: bool = False,
    ) -> Backward:
        weight = self.weight
        x, y = self.prepare(model, x, y)
        done = inner(model, x, y, scale=weight * scale, memory=memory, is_replayed=is_replayed)
        return dataclasses.replace(done, values=weight * done.values)
