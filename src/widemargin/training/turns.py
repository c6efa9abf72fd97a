"""The losses of successive training steps, and the CUDA graphs of their passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from widemargin._cuda import graphs
from widemargin.losses.protocol import Loss, is_capturable, needs_index, turns_of
from widemargin.training.batches import InMemory, Replica, Source
from widemargin.training.config import FitConfig
from widemargin.training.fingerprint import name_of


class Turns:
    """The cycle of losses of successive steps (`losses.protocol`); most trainings have one loss.

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


def why_no_cuda_graph(config: FitConfig, source: Source, replica: Replica) -> str | None:
    """Why the passes of `fit` can't be recorded as a CUDA graph, or None where they may be."""
    if not config.devices.cuda_graph:
        return "cuda_graph is False"
    if replica.processes > 1:
        return "there are several processes"
    if not isinstance(source, InMemory):
        return "the samples are not tensors, whose shapes and labels would be known"
    if needs_index(config.loss):
        return "the loss needs the positions of the samples"
    for part in (config.loss, *config.regularizers):
        if not is_capturable(part):
            return f"{name_of(part)} is not capturable: it may wait for the device"
    return graphs.why_not(replica.device)
