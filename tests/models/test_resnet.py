from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from widemargin.models.elsayed import Norm
from widemargin.models.resnet import resnet


def test_resnet_18_has_its_weights() -> None:
    with torch.device("meta"):
        network = resnet()
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    widths, channels, expected = (64, 128, 256, 512), 64, 3 * 64 * 9 + 2 * 64
    for width in widths:
        expected += 9 * channels * width + 3 * 9 * width * width + 4 * 2 * width
        expected += 0 if width == channels else channels * width + 2 * width
        channels = width
    assert sum(weight.numel() for weight in network.parameters()) == expected + 512 * 10 + 10
    assert sum(isinstance(module, nn.BatchNorm2d) for module in network.modules()) == 20


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
@pytest.mark.parametrize("plain", [False, True])
def test_a_block_is_its_formula(norm: Norm, plain: bool) -> None:
    torch.manual_seed(0)
    network = resnet(widths=(8, 16), blocks=(1, 1), in_channels=1, classes=3, norm=norm, plain=plain).double().eval()
    parts = dict(network.named_modules())
    x = torch.rand(4, 1, 8, 8, dtype=torch.float64)

    def of(name: str, x: Tensor) -> Tensor:
        result: Tensor = parts[name](x)
        return result

    hidden = torch.relu(of("norm", of("conv", x)))
    for block in ("group1.block1", "group2.block1"):
        inner = torch.relu(of(f"{block}.norm1", of(f"{block}.conv1", hidden)))
        hidden = torch.relu(of(f"{block}.shortcut", hidden) + of(f"{block}.norm2", of(f"{block}.conv2", inner)))
    assert hidden.shape == (4, 16, 4, 4)
    torch.testing.assert_close(network(x), of("output", hidden.mean(dim=(2, 3))))


@pytest.mark.parametrize(("settings", "said"), [({"blocks": (1,)}, "blocks"), ({"norm": "layer"}, "norm")])
def test_bad_settings_are_told(settings: dict[str, object], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        resnet(**settings)  # type: ignore[arg-type]
