"""The losses of successive training steps, and the CUDA graphs of their passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from widemargin._cuda import graphs
from widemargin.losses.protocol import Loss, turns_of


class Turns:
    """The losses that a training takes in turn (`losses.protocol`): most have one, which every step has.

    Every loss has a CUDA graph of its own; the graphs share their memory, since one runs at a time.
    """

    def __init__(self, loss: Loss) -> None:
        self._losses = turns_of(loss)
        self._captured: dict[int, graphs.CapturedStep] = {}

    def loss(self, step: int) -> Loss:
        """The loss of a step."""
        return self._losses[step % len(self._losses)]

    def capture(
        self,
        passes: Callable[..., graphs.Result],
        device: torch.device,
        parameters: Sequence[Tensor],
        before_capture: Callable[[], object],
    ) -> None:
        """Replay `passes` from CUDA graphs from now on, one for every loss; they read `loss(step)` themselves."""
        each = {id(loss) for loss in self._losses}
        pool = graphs.shared_pool(device, len(each))
        self._captured = {
            loss: graphs.CapturedStep(passes, device, parameters, before_capture=before_capture, pool=pool)
            for loss in each
        }

    def captured(self, step: int) -> graphs.CapturedStep | None:
        """The passes of a step as a CUDA graph, or None where they can't be one."""
        found = self._captured.get(id(self.loss(step)))
        return None if found is None or found.why_not else found

    @property
    def is_captured(self) -> bool:
        """Whether passes are replayed from CUDA graphs."""
        return bool(self._captured)

    def close(self) -> str | None:
        """Free the memory of the CUDA graphs; why one of them could not be captured, or None."""
        captured, self._captured = self._captured, {}
        return next((one.why_not for one in captured.values() if one.why_not), None)
