from __future__ import annotations

import re
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widemargin import models
from widemargin.models.elsayed import WideBlock, mnist_cnn, wide_resnet


def parameters(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


def test_the_mnist_network_is_the_papers() -> None:
    network = mnist_cnn()
    convolutions = (1 * 25 + 1) * 32 + (32 * 25 + 1) * 64
    layers = (64 * 7 * 7 + 1) * 512 + (512 + 1) * 512 + (512 + 1) * 10
    assert parameters(network) == convolutions + layers == 1_926_026
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    kinds = [nn.Conv2d, nn.ReLU, nn.MaxPool2d] * 2 + [nn.Flatten] + [nn.Linear, nn.ReLU] * 2 + [nn.Linear]
    assert [type(layer) for layer in network] == kinds


def test_the_mnist_network_by_hand() -> None:
    network = mnist_cnn(size=8, widths=(3, 4), hidden=(6, 5), classes=4).double()
    x = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    weight = dict(network.named_parameters())
    out = x
    for layer in ("conv1", "conv2"):
        out = F.conv2d(out, weight[f"{layer}.weight"], weight[f"{layer}.bias"], padding=2).clamp(min=0)
        out = torch.stack([out[..., i::2, j::2] for i in (0, 1) for j in (0, 1)]).amax(dim=0)
    out = out.reshape(5, -1)
    for layer in ("fc1", "fc2"):
        out = (out @ weight[f"{layer}.weight"].T + weight[f"{layer}.bias"]).clamp(min=0)
    out = out @ weight["output.weight"].T + weight["output.bias"]
    torch.testing.assert_close(network(x), out)


def test_dropout_follows_each_hidden_layer_and_acts_in_training_only() -> None:
    network = mnist_cnn(size=8, widths=(3, 4), hidden=(64, 64), dropout=0.2)
    assert [type(layer) for layer in list(network)[-7:]] == [nn.Linear, nn.ReLU, nn.Dropout] * 2 + [nn.Linear]
    x = torch.rand(5, 1, 8, 8)
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))


def wide_count(depth: int, widen: int, classes: int) -> int:
    """Weights of a WRN with its norms, counted layer by layer."""
    total, inputs = 3 * 16 * 9, 16
    for width in (16 * widen, 32 * widen, 64 * widen):
        for block in range((depth - 4) // 6):
            total += 2 * inputs + inputs * width * 9 + 2 * width + width * width * 9
            if block == 0 and inputs != width:
                total += inputs * width
            inputs = width
    return total + 2 * inputs + (inputs + 1) * classes


@pytest.mark.parametrize(("depth", "widen", "known"), [(28, 10, 36_479_194), (16, 8, None), (10, 1, None)])
def test_a_wide_resnet_has_the_known_number_of_parameters(depth: int, widen: int, known: int | None) -> None:
    with torch.device("meta"):
        network = wide_resnet(depth=depth, widen=widen)
    assert parameters(network) == wide_count(depth, widen, 10)
    assert known is None or parameters(network) == known


def test_wrn_28_10_has_28_convolutions() -> None:
    with torch.device("meta"):
        network = wide_resnet()
    assert sum(isinstance(module, nn.Conv2d) for module in network.modules()) == 28
    strides = [
        module.stride for module in network.modules() if isinstance(module, nn.Conv2d) and module.stride != (1, 1)
    ]
    assert strides == [(2, 2)] * 4  # the first convolution and the shortcut of groups 2 and 3


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_the_norm_can_be_chosen(norm: str) -> None:
    kinds = {"batch": nn.BatchNorm2d, "group": nn.GroupNorm, "none": nn.Identity}
    network = wide_resnet(depth=16, widen=1, base=4, groups=2, norm=norm, classes=7)  # type: ignore[arg-type]
    found = [type(module) for module in network.modules() if isinstance(module, tuple(kinds.values()))]
    assert found == [kinds[norm]] * (2 * 6 + 1)
    assert network(torch.rand(2, 3, 12, 12)).shape == (2, 7)


@pytest.mark.parametrize(("inputs", "stride"), [(4, 1), (6, 1), (6, 2)])
def test_a_block_by_hand(inputs: int, stride: int) -> None:
    block = WideBlock(inputs, 6, stride, "group", 2).double()
    x = torch.randn(3, inputs, 8, 8, dtype=torch.float64)
    assert (block.shortcut is None) == (inputs == 6 and stride == 1)

    def activate(out: Tensor, norm: nn.Module) -> Tensor:
        assert isinstance(norm, nn.GroupNorm)
        return F.group_norm(out, 2, norm.weight, norm.bias).clamp(min=0)

    first = activate(x, block.norm1)
    branch = F.conv2d(first, block.conv1.weight, stride=stride, padding=1)
    branch = F.conv2d(activate(branch, block.norm2), block.conv2.weight, padding=1)
    skip = x if block.shortcut is None else F.conv2d(first, block.shortcut.weight, stride=stride)
    torch.testing.assert_close(block(x), skip + branch)


def test_group_norm_does_not_couple_samples_in_training_and_batch_norm_does() -> None:
    x = torch.rand(4, 3, 8, 8)
    for norm, coupled in (("group", False), ("batch", True)):
        network = wide_resnet(depth=10, widen=1, base=4, groups=2, norm=norm)  # type: ignore[arg-type]
        gap = (network(x)[:2] - network(x[:2])).abs().max().item()
        assert (gap > 1e-3) == coupled


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"depth": 27}, "depth is 27"),
        ({"depth": 4}, "depth is 4"),
        ({"widen": 0}, "widen is 0"),
        ({"norm": "group", "groups": 3}, "groups is 3.* 16"),
    ],
)
def test_bad_settings_of_a_wide_resnet(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wide_resnet(**settings)  # type: ignore[arg-type]


def test_bad_settings_of_the_mnist_network() -> None:
    with pytest.raises(ValueError, match=r"^classes is 0,"):
        mnist_cnn(classes=0)
    with pytest.raises(ValueError, match="size"):
        mnist_cnn(size=3)
    with pytest.raises(ValueError, match=r"^dropout is 1.0,"):
        mnist_cnn(dropout=1.0)


def test_without_torchvision_a_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchvision", "torchvision.models"):
        monkeypatch.setitem(sys.modules, name, None)
    sentence = "inception-v3 needs torchvision, which is not installed: pip install 'widemargin[vision]'"
    with pytest.raises(ImportError, match=re.escape(sentence)):
        models.build("inception-v3")
    told = models.describe("inception-v3")
    assert (told.parameters, told.places, told.needs) == (None, (), sentence)


def test_bad_settings_come_before_the_missing_package() -> None:
    with pytest.raises(ValueError, match=r"^classes is 0,"):
        models.build("inception-v3", classes=0)


def test_with_torchvision() -> None:
    pytest.importorskip("torchvision")
    told = models.describe("inception-v3")
    assert told.parameters == 27_161_264
    assert told.places[0] == "input"
    assert told.places[-1] == "fc"
    with torch.device("meta"):
        network = models.inception_v3(classes=7)
        assert network(torch.zeros(2, 3, 299, 299)).logits.shape == (2, 7)
        assert network.eval()(torch.zeros(2, 3, 299, 299)).shape == (2, 7)
