"""The small network: any shape of images and tables, inputs of any scale."""

from __future__ import annotations

import pytest
import torch

from widemargin.diagnostics.default_network import Standardize, default_network


@pytest.mark.parametrize("shape", [(5,), (3, 4), (1, 8, 8), (3, 32, 20), (1, 2, 2), (4, 28, 28)])
def test_it_fits_any_inputs(shape: tuple[int, ...]) -> None:
    x = 1000 * torch.randn(6, *shape)
    assert default_network(x, 7)()(x).shape == (6, 7)


def test_inputs_are_standardised_by_feature_or_channel() -> None:
    x = torch.randn(50, 3) * torch.tensor([1.0, 100.0, 0.0]) + 7
    out = Standardize(x)(x)
    torch.testing.assert_close(out.mean(dim=0), torch.zeros(3), atol=1e-4, rtol=0.0)
    torch.testing.assert_close(out.std(dim=0, correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-4, rtol=0.0)
    images = 5 * torch.randn(8, 2, 4, 4) + 3
    out = Standardize(images)(images)
    torch.testing.assert_close(out.mean(dim=(0, 2, 3)), torch.zeros(2), atol=1e-5, rtol=0.0)


def test_tokens_have_no_default() -> None:
    with pytest.raises(TypeError, match="build"):
        default_network(torch.zeros(4, 9, dtype=torch.long), 2)
