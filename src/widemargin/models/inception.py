"""Inception v3 as torchvision has it."""

from __future__ import annotations

import importlib.util

from torch import nn

from widemargin.models.arguments import check_count, check_flag

NEEDS = "inception-v3 needs torchvision, which is not installed: pip install 'widemargin[vision]'"


def is_available() -> bool:
    """Whether torchvision is installed."""
    return importlib.util.find_spec("torchvision") is not None


def inception_v3(*, classes: int = 1000, auxiliary: bool = True) -> nn.Module:
    """Inception v3 (Szegedy et al. 2016) for 299×299 images, with truncated-normal weights.

    Source: elsayed, §4.4 and appendix C (ImageNet, with the auxiliary head). In training mode with the auxiliary head
    the answer is torchvision's pair, whose `.logits` are the scores and whose `.aux_logits` are the head's; in
    evaluation mode it is the tensor of scores. The last layer is called `fc`, as torchvision has it.

    Args:
        classes: number of outputs.
        auxiliary: whether the network has the auxiliary head in its middle.
    """
    check_count("classes", classes)
    check_flag("auxiliary", auxiliary)
    if not is_available():
        raise ImportError(NEEDS)
    from torchvision.models import inception_v3 as build

    network: nn.Module = build(weights=None, num_classes=classes, aux_logits=auxiliary, init_weights=True)
    return network
