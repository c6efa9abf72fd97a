"""Margins of one batch, in whatever gradient mode a framework has called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from widemargin.margins.measurement import Measurement, measure
from widemargin.margins.output import Classes


def measured(
    model: nn.Module,
    x: object,
    y: object,
    *,
    at: Sequence[str | nn.Module] | None,
    p: float,
    classes: Classes = 1,
) -> Measurement:
    """`wm.measure` of one batch, also in inference mode, whose tensors have no gradients; `x` may have names."""
    with torch.inference_mode(False):
        batch = ordinary(x), ordinary(y)
        data: object = batch
        if isinstance(x, Mapping):
            data = DataLoader([batch], batch_size=None)  # type: ignore[arg-type]
        return measure(model, data, at=at, p=p, classes=classes, batch_size=2**31, progress=False)


def ordinary(batch: object) -> object:
    """The batch with copies of the tensors that were made in inference mode."""
    if isinstance(batch, Tensor):
        return batch.clone() if batch.is_inference() else batch
    if isinstance(batch, Mapping):
        return {key: ordinary(value) for key, value in batch.items()}
    return batch
