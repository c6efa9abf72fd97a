"""Margins of one batch, in whatever gradient mode a framework has called."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from widemargin.margins.measurement import Measurement, measure
from widemargin.margins.output import Classes


def measured(
    model: nn.Module,
    batch: object,
    *,
    at: Sequence[str | nn.Module] | None,
    p: float,
    classes: Classes = 1,
) -> Measurement:
    """`wm.measure` of one batch (x, y), also in inference mode, whose tensors have no gradients."""
    with torch.inference_mode(False):
        return measure(model, ordinary(batch), at=at, p=p, classes=classes, batch_size=2**31, progress=False)


def ordinary(batch: object) -> object:
    """The batch with copies of the tensors that were made in inference mode."""
    if isinstance(batch, Tensor):
        return batch.clone() if batch.is_inference() else batch
    if isinstance(batch, dict):
        return {key: ordinary(value) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return tuple(ordinary(value) for value in batch)
    return batch
