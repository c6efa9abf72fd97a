from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from widemargin.models.vit import Encoder, vit


def test_attention_is_torchs() -> None:
    torch.manual_seed(0)
    encoder, x = Encoder(8, 2).double(), torch.randn(3, 5, 8, dtype=torch.float64)
    q, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in encoder.inward(x).split(8, dim=2))
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(encoder.attention(x), encoder.outward(mixed))


def test_patches_are_cut_where_they_are() -> None:
    """The tokens are those of a convolution with stride `patch`."""
    torch.manual_seed(0)
    network = vit(in_channels=2, size=8, patch=2, width=8, layers=1, heads=2, classes=3).double()
    x = torch.randn(4, 2, 8, 8, dtype=torch.float64)
    seen: list[torch.Tensor] = []
    network.get_submodule("embedding").register_forward_hook(lambda _, __, out: seen.append(out))
    assert network(x).shape == (4, 3)
    weight, bias = (network.get_parameter(f"embedding.{name}") for name in ("weight", "bias"))
    cut = F.conv2d(x, weight.view(8, 2, 2, 2), bias, stride=2).flatten(2).mT
    torch.testing.assert_close(seen[0].view(4, 16, 8), cut)


@pytest.mark.parametrize(
    ("settings", "said"), [({"patch": 5}, "patch"), ({"heads": 3}, "heads"), ({"width": 0}, "width")]
)
def test_bad_settings_are_told(settings: dict[str, int], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        vit(**settings)
