"""The same margins on a GPU as on the CPU; passed over where there is none."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import zoo
from step_cost.transformer import VisionTransformer
from widemargin import margins, places
from widemargin._autograd import forward_mode
from widemargin.losses import MarginLoss
from widemargin.margins import normalized

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

EVERY = [*zoo.ZOO, *zoo.TOKENS, *zoo.RECURRENT, *zoo.LOGITS]


@pytest.mark.parametrize("entry", EVERY, ids=str)
def test_measure(entry: zoo.Entry) -> None:
    """Also recurrent layers, which have no backward pass in evaluation mode in cuDNN."""
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(dtype=torch.float64), entry.labels()
    at = (entry.place,) if entry.vocabulary else ("input", entry.place)
    expected = margins.measure(network, (x, y), at=at, p=3.0)
    measured = margins.measure(network.to(DEVICE), (x, y), at=at, p=3.0, batch_size=2)
    for place in at:
        assert measured.margins[place].device.type == "cpu"
        torch.testing.assert_close(
            measured.margins[place], expected.margins[place], rtol=1e-6, atol=1e-9, equal_nan=True
        )
    assert torch.equal(measured.predictions, expected.predictions)


@pytest.mark.parametrize("statistics", ["coupled", "frozen"])
@pytest.mark.parametrize("second_order", [False, True])
def test_batch_norm_in_training(statistics: places.BatchStatistics, second_order: bool) -> None:
    """Autograd runs in threads of its own there: the switch between the two ways must reach them."""
    torch.manual_seed(0)
    here = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(4 * 4 * 4, 3)
    ).double()
    there = copy.deepcopy(here).to(DEVICE)
    x, y = torch.randn(8, 2, 6, 6, dtype=torch.float64), torch.arange(8) % 3
    results = []
    for network, device in ((here, "cpu"), (there, DEVICE)):
        with places.watch(network, ("input", "1"), statistics=statistics) as at:
            scores = network(x.to(device))
        result = margins.distance(scores, y.to(device), at=at, second_order=second_order)
        torch.stack(list(result.values())).sum().backward()
        results.append({name: values.detach().cpu() for name, values in result.items()})
    torch.testing.assert_close(results[1], results[0], rtol=1e-7, atol=1e-10)
    for a, b in zip(here.parameters(), there.parameters()):
        assert a.grad is not None
        assert b.grad is not None
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-6, atol=1e-9)


def test_autocast() -> None:
    entry = zoo.ZOO[3]
    network, x, y = entry.network(), entry.inputs(64), entry.labels(64)
    expected = margins.measure(network, (x, y)).margins["input"]
    with torch.autocast(DEVICE, torch.bfloat16):
        measured = margins.measure(network.to(DEVICE), (x, y)).margins["input"]
    assert ((measured / expected) - 1).abs().median() < 0.05


def test_normalized() -> None:
    entry = next(e for e in zoo.ZOO if e.name == "farhang-cnn")
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(dtype=torch.float64), entry.labels()
    expected = normalized.spectral(network, x, y)
    measured = normalized.spectral(network.to(DEVICE), x.to(DEVICE), y.to(DEVICE))
    torch.testing.assert_close(measured.cpu(), expected, rtol=1e-8, atol=0)


@pytest.mark.parametrize("probes", [1, 3])
@pytest.mark.parametrize("half", [False, True])
def test_estimates_of_a_transformer(probes: int, half: bool) -> None:
    """Forward mode through attention and norms, and the gradient of what it gives."""
    torch.manual_seed(0)
    here = VisionTransformer(size=16, patch=4, width=64, depth=2, heads=2, classes=5)
    there = copy.deepcopy(here).to(DEVICE)
    x, y = torch.rand(6, 3, 16, 16), torch.arange(6) % 5
    u = torch.randn(probes, *x.shape)
    loss = MarginLoss(classes="all", probes=probes, aggregate="max" if probes == 1 else "sum")
    loss(here, x, y, directions={"input": u}).mean().backward()
    with torch.autocast(DEVICE, torch.bfloat16, enabled=half):
        values = loss(there, x.to(DEVICE), y.to(DEVICE), directions={"input": u.to(DEVICE)})
    values.mean().backward()
    assert forward_mode.run(there, x.to(DEVICE), u.to(DEVICE)) is not None
    close = 0.2 if half else 1e-3
    for a, b in zip(here.parameters(), there.parameters()):
        assert a.grad is not None
        assert b.grad is not None
        assert float((b.grad.cpu() - a.grad).norm()) <= close * float(a.grad.norm()) + 1e-6
