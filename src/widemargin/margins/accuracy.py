"""How many samples a network answers rightly."""

from __future__ import annotations

import torch
from torch import nn

from widemargin.data.samples import Samples
from widemargin.modules import evaluating, scores_of
from widemargin.types import is_binary


@torch.no_grad()
def accuracy(network: nn.Module, part: Samples, batch_size: int = 2000) -> float:
    """The share of samples whose label the network answers, in evaluation mode; the sign for a binary network."""
    weight = next(network.parameters())
    right = torch.zeros((), dtype=torch.int64, device=weight.device)
    with evaluating(network):
        for x, y in zip(part.x.split(batch_size), part.y.split(batch_size)):
            scores = scores_of(network(x.to(weight.device, weight.dtype)))
            y = y.to(weight.device)
            right += ((scores.reshape(-1) * y > 0) if is_binary(scores) else (scores.argmax(dim=1) == y)).sum()
    return float(right) / len(part)
