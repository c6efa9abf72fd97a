"""Inception v3 from torchvision."""

from __future__ import annotations

from torch import nn

from widemargin._io.optional import import_optional
from widemargin.checks import check_count, check_flag


def inception_v3(*, classes: int = 1000, auxiliary: bool = True) -> nn.Module:
    """Inception v3 (Szegedy et al. 2016) for 299×299 images, with truncated-normal weights.

    Source: elsayed, §4.4 and appendix C (ImageNet, with the auxiliary head). In training mode with the auxiliary head
    the output is torchvision's pair, whose `.logits` are the scores and whose `.aux_logits` are the head's; in
    evaluation mode it is the tensor of scores. The last layer is called `fc`, as in torchvision.

    Args:
        classes: number of outputs.
        auxiliary: whether the network has the auxiliary head in its middle.
    """
    check_count("classes", classes)
    check_flag("auxiliary", auxiliary)
    build = import_optional("torchvision.models", "inception-v3").inception_v3
    network: nn.Module = build(weights=None, num_classes=classes, aux_logits=auxiliary, init_weights=True)
    return network
