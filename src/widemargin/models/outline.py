"""Which modules of a network can be places of a margin."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn


def places(network: nn.Module, input_shape: tuple[int, ...]) -> tuple[str, ...]:
    """List "input" and the modules that run exactly once and give a tensor, in the order in which they end.

    The network is run on one zero input of the device and dtype of its weights, in evaluation mode, without
    gradients; its training mode is restored. A container is listed where it ends: a residual block after its layers.
    """
    runs: Counter[str] = Counter()
    order: list[str] = []

    def note(name: str, output: object) -> None:
        runs[name] += 1
        if isinstance(output, Tensor):
            order.append(name)

    handles = [
        module.register_forward_hook(lambda _module, _args, output, name=name: note(name, output))
        for name, module in network.named_modules()
        if name
    ]
    modes = [(module, module.training) for module in network.modules()]
    like = next(network.parameters())
    try:
        network.eval()
        with torch.no_grad():
            network(torch.zeros(1, *input_shape, device=like.device, dtype=like.dtype))
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
    return ("input", *(name for name in order if runs[name] == 1))
