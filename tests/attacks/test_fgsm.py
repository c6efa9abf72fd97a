from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import attacks, data, margins
from widemargin.attacks.fgsm_pgd import excess
from zoo import ZOO, Entry

ENTRIES = [entry for entry in ZOO if entry.name in {"toy-mlp", "odn-mnist-cnn", "farhang-mlp, binary", "wrn"}]


def binary() -> tuple[nn.Linear, Tensor, Tensor]:
    torch.manual_seed(0)
    network, x = nn.Linear(8, 1).double(), torch.rand(50, 8, dtype=torch.float64)
    return network, x, (2 * torch.randint(2, (50,)) - 1).double()


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 2.0])
def test_on_an_affine_binary_network_it_is_the_worst_case(epsilon: float) -> None:
    """The smallest y·f over ‖δ‖_∞ ≤ ε is y·f(x) − ε‖w‖_1; inside the cube each coordinate goes as far as it may."""
    network, x, y = binary()
    w = network.weight.detach()[0]
    free = attacks.fgsm(network, x, y, epsilon, bounds=None)
    torch.testing.assert_close(
        margins.output(network(free), y), margins.output(network(x), y) - epsilon * w.abs().sum()
    )
    low, high = (x - epsilon).clamp(0, 1), (x + epsilon).clamp(0, 1)
    worst = torch.minimum(y[:, None] * w * low, y[:, None] * w * high).sum(dim=1) + y * network.bias
    boxed = attacks.fgsm(network, x, y, epsilon)
    torch.testing.assert_close(margins.output(network(boxed), y), worst)


def test_on_an_affine_network_of_two_classes_it_is_the_worst_case() -> None:
    torch.manual_seed(0)
    network, x, y = nn.Linear(8, 2).double(), torch.rand(50, 8, dtype=torch.float64), torch.randint(2, (50,))
    w = network.weight.detach()
    free = attacks.fgsm(network, x, y, 0.1, bounds=None)
    expected = margins.output(network(x), y) - 0.1 * (w[0] - w[1]).abs().sum()
    torch.testing.assert_close(margins.output(network(free), y), expected)


def textbook(network: nn.Module, x: Tensor, y: Tensor, epsilon: float, step: float, steps: int) -> Tensor:
    """Elsayed's equation with its erratum, sample by sample, pixel by pixel."""
    found = []
    for i in range(len(x)):
        z = x[[i]].clone()
        for _ in range(steps):
            z = z.detach().requires_grad_()
            scores = network(z)
            loss = F.softplus(-scores.reshape(()) * y[i]) if scores.numel() == 1 else F.cross_entropy(scores, y[[i]])
            (slope,) = torch.autograd.grad(loss, z)
            pixels = []
            for now, grad, first in zip(z.flatten().tolist(), slope.flatten().tolist(), x[i].flatten().tolist()):
                moved = now + step * ((grad > 0) - (grad < 0))
                pixels.append(min(max(moved, first - epsilon, 0.0), first + epsilon, 1.0))
            z = torch.tensor(pixels, dtype=x.dtype).view_as(z)
        found.append(z)
    return torch.cat(found)


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_fgsm_and_ifgsm_are_their_equations(entry: Entry) -> None:
    network, x = entry.network(dtype=torch.float64), entry.inputs(3, dtype=torch.float64)
    y = entry.labels(3, dtype=torch.float64)
    torch.testing.assert_close(attacks.fgsm(network, x, y, 0.2), textbook(network, x, y, 0.2, 0.2, 1))
    moved = attacks.ifgsm(network, x, y, 0.2, step=0.07, steps=5)
    torch.testing.assert_close(moved, textbook(network, x, y, 0.2, 0.07, 5))
    # By default ten steps of ε/10; 3·0.1 needs three steps of 0.1, though in floating point it is a little more.
    torch.testing.assert_close(attacks.ifgsm(network, x, y, 0.2), textbook(network, x, y, 0.2, 0.02, 10))
    assert math.ceil(3 * 0.1 / 0.1) == 4
    moved = attacks.ifgsm(network, x, y, 3 * 0.1, step=0.1)
    torch.testing.assert_close(moved, textbook(network, x, y, 0.3, 0.1, 3))


def test_one_step_of_ifgsm_is_fgsm() -> None:
    entry = ENTRIES[0]
    network, x, y = entry.network(), entry.inputs(), entry.labels()
    torch.testing.assert_close(attacks.ifgsm(network, x, y, 0.1, step=0.1), attacks.fgsm(network, x, y, 0.1))


def test_more_steps_are_stronger_on_average() -> None:
    digits = data.load("digits")
    x, y = digits.test.x[:100], digits.test.y[:100]
    network = trained(digits.train.x, digits.train.y)
    with torch.no_grad():
        clean, once, often = (
            excess(network(moved), y).mean()
            for moved in (x, attacks.fgsm(network, x, y, 0.2), attacks.ifgsm(network, x, y, 0.2))
        )
    assert clean < once < often


def trained(x: Tensor, y: Tensor) -> nn.Sequential:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()
    return network


def test_foolbox_gives_the_same() -> None:
    foolbox = pytest.importorskip("foolbox", exc_type=ImportError, reason="foolbox can't be imported")
    digits = data.load("digits")
    x, y = digits.test.x[:50], digits.test.y[:50]
    network = trained(digits.train.x, digits.train.y).eval()
    theirs = foolbox.attacks.LinfFastGradientAttack(random_start=False)
    _, moved, _ = theirs(foolbox.PyTorchModel(network, bounds=(0, 1), device="cpu"), x, y, epsilons=0.1)
    # Equal but where a component of the gradient is lost in rounding.
    assert float(((moved - attacks.fgsm(network, x, y, 0.1)).abs() < 1e-6).double().mean()) > 0.999
