from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import attacks, margins
from zoo import ZOO, Entry

ENTRIES = [entry for entry in ZOO if entry.name in {"toy-mlp", "odn-mnist-cnn", "farhang-mlp, binary", "wrn"}]


def textbook(
    network: nn.Module, start: Tensor, x: Tensor, y: Tensor, epsilon: float, step: float, steps: int
) -> Tensor:
    """Madry's ascent in l_2 for one sample x `[1, …]`."""
    z = start.clamp(0, 1)
    for _ in range(steps):
        z = z.detach().requires_grad_()
        scores = network(z)
        loss = F.softplus(-scores.reshape(()) * y) if scores.numel() == 1 else F.cross_entropy(scores, y)
        (slope,) = torch.autograd.grad(loss, z)
        offset = z.detach() + step * slope / slope.norm() - x
        z = (x + offset * min(1.0, epsilon / float(offset.norm()))).clamp(0, 1)
    return z


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
@pytest.mark.parametrize("random_start", [True, False])
def test_in_l2_it_is_the_loop_over_samples(entry: Entry, random_start: bool) -> None:
    network, x = entry.network(dtype=torch.float64), entry.inputs(3, dtype=torch.float64)
    y = entry.labels(3, dtype=torch.float64)
    start = random_point(x, 0.5, 2.0) if random_start else x
    expected = [textbook(network, start[[i]], x[[i]], y[[i]], 0.5, 0.2, 4) for i in range(3)]
    moved = attacks.pgd(network, x, y, 0.5, step=0.2, steps=4, p=2.0, random_start=random_start, seed=3)
    torch.testing.assert_close(moved, torch.cat(expected))


def random_point(x: Tensor, epsilon: float, p: float) -> Tensor:
    """Where `pgd(…, seed=3)` starts, inside the bounds or not."""
    return attacks.pgd(Indifferent(), x, torch.ones(len(x)), epsilon, p=p, seed=3, bounds=None, steps=1)


class Indifferent(nn.Module):
    """No input changes the score: an ascent stays where it starts."""

    def forward(self, x: Tensor) -> Tensor:
        return (0 * x).flatten(1).sum(dim=1)


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_in_l_inf_it_is_ifgsm_from_another_start(entry: Entry) -> None:
    network, x, y = entry.network(), entry.inputs(3), entry.labels(3)
    moved = attacks.pgd(network, x, y, 0.2, step=0.05, steps=6, random_start=False)
    torch.testing.assert_close(moved, attacks.ifgsm(network, x, y, 0.2, step=0.05, steps=6))
    # From a random start: k steps, then one more by hand.
    before = attacks.pgd(network, x, y, 0.2, step=0.05, steps=5, seed=1)
    once = attacks.fgsm(network, before, y, 0.05, bounds=(0.0, 1.0))
    expected = torch.minimum(torch.maximum(once, x - 0.2), x + 0.2)
    torch.testing.assert_close(attacks.pgd(network, x, y, 0.2, step=0.05, steps=6, seed=1), expected)


@pytest.mark.parametrize(("p", "dual"), [(math.inf, 1.0), (2.0, 2.0)])
def test_on_an_affine_binary_network_it_finds_the_worst_case(p: float, dual: float) -> None:
    """The smallest y·f over ‖δ‖_p ≤ ε is y·f(x) − ε‖w‖_q."""
    torch.manual_seed(0)
    network, x = nn.Linear(8, 1).double(), torch.rand(50, 8, dtype=torch.float64)
    y = (2 * torch.randint(2, (50,)) - 1).double()
    moved = attacks.pgd(network, x, y, 0.3, p=p, bounds=None, step=0.3, steps=60)
    expected = margins.output(network(x), y) - 0.3 * network.weight.norm(p=dual)
    torch.testing.assert_close(margins.output(network(moved), y), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("p", [math.inf, 2.0])
def test_starts_are_uniform_in_the_ball(p: float) -> None:
    """Each point's distance to the power of the dimension is uniform in [0, ε^d], its direction has no preference."""
    x = torch.zeros(20000, 3, dtype=torch.float64)
    start = random_point(x, 0.5, p)
    radius = (start.norm(dim=1, p=p) / 0.5) ** 3
    assert float(radius.max()) <= 1 + 1e-12
    quantiles = torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9], dtype=torch.float64)
    torch.testing.assert_close(torch.quantile(radius, quantiles), quantiles, rtol=0, atol=0.02)
    torch.testing.assert_close(start.mean(dim=0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=0.01)
    second = start.T @ start / len(start)
    # ∫ x_i² over the unit ball: 1/3 for the cube, 1/(d+2) for the sphere.
    expected = 0.25 * (1 / 3 if p == math.inf else 1 / 5) * torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(second, expected, rtol=0, atol=0.005)


@pytest.mark.parametrize("p", [math.inf, 2.0])
def test_seeds(p: float) -> None:
    entry = ENTRIES[1]
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(4, dtype=torch.float64), entry.labels(4)
    one = attacks.pgd(network, x, y, 0.2, steps=2, p=p, seed=0)
    assert torch.equal(attacks.pgd(network, x, y, 0.2, steps=2, p=p, seed=0), one)
    assert not torch.equal(attacks.pgd(network, x, y, 0.2, steps=2, p=p, seed=1), one)
    # Of one generator, a batch draws what its samples draw in turn.
    together = attacks.pgd(network, x, y, 0.2, steps=2, p=p, seed=torch.Generator().manual_seed(5))
    draw = torch.Generator().manual_seed(5)
    alone = [attacks.pgd(network, x[[i]], y[[i]], 0.2, steps=2, p=p, seed=draw) for i in range(4)]
    torch.testing.assert_close(together, torch.cat(alone))


@pytest.mark.parametrize("p", [math.inf, 2.0])
def test_where_there_is_no_gradient_it_stays_finite(p: float) -> None:
    x = torch.rand(4, 3)
    moved = attacks.pgd(Indifferent(), x, torch.ones(4), 0.1, p=p, random_start=False)
    assert torch.equal(moved, x)
