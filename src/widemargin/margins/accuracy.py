"""Accuracy of a network on labelled samples."""

from __future__ import annotations

from torch import nn

from widemargin.data.samples import Samples
from widemargin.modules import predict
from widemargin.types import is_binary


def accuracy(network: nn.Module, part: Samples, batch_size: int = 2000) -> float:
    """The share of samples that the network classifies correctly, in evaluation mode.

    A sample of a binary network is correct if score · y > 0: a score of 0 is an error for both labels.
    """
    scores = predict(network, part.x, batch_size=batch_size)
    y = part.y.to(scores.device)
    correct = scores.reshape(-1) * y > 0 if is_binary(scores) else scores.argmax(dim=1) == y
    return int(correct.sum()) / len(part)
