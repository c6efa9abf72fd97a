from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import attacks
from widemargin.attacks.fgsm_pgd import excess, gradient
from zoo import LOGITS, RECURRENT, ZOO, Entry


def textbook(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """∇_x of the cross-entropy, sample by sample."""
    rows = []
    for i in range(len(x)):
        z = x[[i]].clone().requires_grad_()
        answer = network(z)
        scores = answer if isinstance(answer, Tensor) else answer.logits
        loss = F.softplus(-scores.reshape(()) * y[i]) if scores.numel() == 1 else F.cross_entropy(scores, y[[i]])
        rows.append(torch.autograd.grad(loss, z)[0])
    return torch.cat(rows)


@pytest.mark.parametrize("entry", [*ZOO, *LOGITS, *RECURRENT], ids=str)
def test_the_gradient_has_the_direction_of_that_of_the_cross_entropy(entry: Entry) -> None:
    network, x = entry.network(dtype=torch.float64), entry.inputs(4, dtype=torch.float64)
    y = entry.labels(4, dtype=torch.float64)
    ours, theirs = gradient(network, x, y), textbook(network, x, y)
    assert ours.shape == x.shape
    assert float(theirs.abs().amax()) > 0
    ratio = theirs.flatten(1).norm(dim=1) / ours.flatten(1).norm(dim=1)
    torch.testing.assert_close(theirs, ours * ratio.view(-1, *[1] * (x.ndim - 1)))


def test_cross_entropy_is_the_softplus_of_the_excess() -> None:
    scores, y = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    torch.testing.assert_close(F.softplus(excess(scores, y)), F.cross_entropy(scores, y, reduction="none"))


@pytest.mark.parametrize("classes", [1, 4])
def test_a_confident_network_is_attacked_all_the_same(classes: int) -> None:
    """Scores a thousand times as large give the same attack, where the cross-entropy has no gradient left."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, classes, bias=False))
    x = torch.rand(20, 9)
    scores = network(x).detach()
    y = scores.reshape(-1).sign() if classes == 1 else scores.argmax(dim=1)
    loud = copy.deepcopy(network)
    loud[2].weight = nn.Parameter(1e4 * network[2].get_parameter("weight").detach())
    assert (textbook(loud, x, y) == 0).flatten(1).all(dim=1).any()
    assert (gradient(loud, x, y) != 0).flatten(1).any(dim=1).all()
    if classes == 1:
        assert torch.equal(attacks.fgsm(loud, x, y, 0.1), attacks.fgsm(network, x, y, 0.1))


ATTACKS: dict[str, Callable[[nn.Module, Tensor, Tensor], Tensor]] = {
    "fgsm": lambda m, x, y: attacks.fgsm(m, x, y, 0.1),
    "ifgsm": lambda m, x, y: attacks.ifgsm(m, x, y, 0.1, step=0.03),
    "pgd": lambda m, x, y: attacks.pgd(m, x, y, 0.1, steps=3),
    "pgd, l_2": lambda m, x, y: attacks.pgd(m, x, y, 0.1, steps=3, p=2.0),
    "gaussian": lambda _, x, __: attacks.gaussian(x, 0.1),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_network_and_all_else_are_left_as_they_were(attack: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(9, 16), nn.BatchNorm1d(16), nn.Dropout(), nn.ReLU(), nn.Linear(16, 4))
    network.train()
    network[2].eval()  # on purpose
    network[0].weight.requires_grad_(False)
    kept = network[4].get_parameter("bias")
    kept.grad = torch.ones(4)
    state, modes = copy.deepcopy(network.state_dict()), [m.training for m in network.modules()]
    x, y, random = torch.rand(6, 9), torch.arange(6) % 4, torch.get_rng_state()
    before = x.clone()
    moved = attack(network, x, y)
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert [m.training for m in network.modules()] == modes
    assert [p.requires_grad for p in network.parameters()] == [False, True, True, True, True, True]
    assert all(p.grad is None for p in network.parameters() if p is not kept)
    assert torch.equal(kept.grad, torch.ones(4))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(x, before)
    assert not x.requires_grad
    assert not moved.requires_grad
    assert not torch.equal(moved, x)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_attack_is_that_of_evaluation_mode_with_gradients_switched_on(
    attack: Callable[[nn.Module, Tensor, Tensor], Tensor],
) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(9, 16), nn.BatchNorm1d(16), nn.Dropout(), nn.ReLU(), nn.Linear(16, 4))
    x, y = torch.rand(6, 9), torch.arange(6) % 4
    expected = attack(network.eval(), x, y)
    assert torch.equal(attack(network.train(), x, y), expected)
    with torch.no_grad():
        assert torch.equal(attack(network, x, y), expected)
    with torch.inference_mode():
        assert torch.equal(attack(network, x.clone(), y), expected)


@pytest.mark.parametrize("attack", ["fgsm", "ifgsm", "pgd", "pgd, l_2"])
@pytest.mark.parametrize("entry", [*ZOO, *LOGITS, *RECURRENT], ids=str)
def test_a_batch_is_its_samples_stacked_within_epsilon_and_bounds(entry: Entry, attack: str) -> None:
    network, x = entry.network(dtype=torch.float64), entry.inputs(3, dtype=torch.float64)
    y = entry.labels(3, dtype=torch.float64)
    together = ATTACKS[attack](network, x, y)
    assert together.shape == x.shape
    assert together.dtype == x.dtype
    assert float(together.min()) >= 0
    assert float(together.max()) <= 1
    distance = (together - x).flatten(1).norm(dim=1, p=2.0 if "l_2" in attack else torch.inf)
    assert float(distance.max()) <= 0.1 + 1e-12
    assert float(distance.max()) > 0.05
    if "pgd" not in attack:  # whose samples draw their starts from one stream: see test_pgd.py
        alone = [ATTACKS[attack](network, x[[i]], y[[i]]) for i in range(3)]
        torch.testing.assert_close(together, torch.cat(alone))


def test_autocast() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(9, 16), nn.Tanh(), nn.Linear(16, 4))
    x, y = torch.rand(6, 9), torch.arange(6) % 4
    with torch.autocast("cpu", dtype=torch.bfloat16):
        moved = attacks.fgsm(network, x, y, 0.1)
    assert moved.dtype == torch.float32
    assert float((moved == attacks.fgsm(network, x, y, 0.1)).double().mean()) > 0.9


def test_labels_and_scores_are_checked() -> None:
    network = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="y has 2 at index 1"):
        attacks.fgsm(network, torch.rand(2, 3), torch.tensor([0, 2]), 0.1)
    network.bias = nn.Parameter(torch.tensor([0.0, torch.nan]))
    with pytest.raises(ValueError, match=r"model has weights .bias. that are not finite"):
        attacks.fgsm(network, torch.rand(2, 3), torch.tensor([0, 1]), 0.1)
