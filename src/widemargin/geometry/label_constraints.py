"""The differences of scores that keep a label."""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


def against(outputs: int, label: Shaped[Tensor, ""]) -> Float[Tensor, "others outputs"]:
    """Rows e_y − e_c of the classes c ≠ y, or (±1) for a network of one output: its label stays while all are > 0."""
    if outputs == 1:
        return label.double().reshape(1, 1)
    rows = -torch.eye(outputs, dtype=torch.float64, device=label.device)
    rows[:, label.long()] += 1.0
    return rows[torch.arange(outputs, device=label.device) != label.long()]
