from __future__ import annotations

import copy
import functools
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import widemargin as wm
from widemargin import attacks, data, margins
from widemargin.attacks.curve import AttackRow

EPSILONS = (0, 0.05, 0.1)


def accuracies(rows: list[AttackRow]) -> list[float]:
    return [row["accuracy"] for row in rows]


@pytest.fixture(scope="module")
def digits() -> data.Data:
    """All of the training set, a hundred samples to test on."""
    whole = data.load("digits")
    return data.Data(whole.name, whole.train, whole.test.select(torch.arange(100)), whole.classes, whole.bounds)


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    built = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    train = data.load("digits").train
    optimizer = torch.optim.Adam(built.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(built(train.x), train.y).backward()
        optimizer.step()
    return built


@pytest.fixture(scope="module")
def one() -> nn.Sequential:
    return network(0)


@pytest.fixture(scope="module")
def other() -> nn.Sequential:
    return network(1)


def test_on_an_affine_binary_network_the_curve_has_a_closed_form() -> None:
    """Right within ε in l_∞ are the samples with y·f(x) > ε‖w‖_1."""
    torch.manual_seed(0)
    affine, x = nn.Linear(8, 1), torch.randn(500, 8)
    scores = affine(x).detach().reshape(-1)
    y = (scores + 0.3 * torch.randn(500)).sign()
    epsilons = [0.0, 0.02, 0.1, 0.3]
    size = affine.weight.detach().abs().sum()
    expected = [float((scores * y > epsilon * size).double().mean()) for epsilon in epsilons]
    rows = attacks.curve(affine, (x, y), epsilons, bounds=None, batch_size=64)
    assert accuracies(rows) == pytest.approx(expected, abs=1e-12)
    assert 1 > expected[0] > expected[1] > expected[2] > expected[3] > 0
    assert [row["samples"] for row in rows] == [500] * 4
    assert [row["correct"] for row in rows] == [round(500 * accuracy) for accuracy in expected]


@pytest.mark.parametrize("attack", ["fgsm", "ifgsm", "pgd", "gaussian"])
def test_without_attack_it_is_the_accuracy_and_batches_do_not_matter(
    one: nn.Sequential, digits: data.Data, attack: str
) -> None:
    rows = attacks.curve(one, digits, EPSILONS, attack=attack)
    assert rows[0]["accuracy"] == wm.measure(one, digits).accuracy
    assert attacks.curve(one, digits, EPSILONS, attack=attack, batch_size=33) == rows
    assert accuracies(rows) == sorted(accuracies(rows), reverse=True)
    assert json.loads(json.dumps(rows)) == rows
    assert [(row["attack"], row["epsilon"]) for row in rows] == [(attack, float(e)) for e in EPSILONS]
    assert {row["box"] for row in rows} == {"none" if attack == "gaussian" else "white"}


@pytest.mark.parametrize("attack", ["fgsm", "ifgsm", "pgd"])
def test_transferred_from_itself_is_white_box(
    one: nn.Sequential, other: nn.Sequential, digits: data.Data, attack: str
) -> None:
    white = attacks.curve(one, digits, EPSILONS, attack=attack)
    assert attacks.curve(one, digits, EPSILONS, attack=attack, source=one) == white
    twin = attacks.curve(one, digits, EPSILONS, attack=attack, source=copy.deepcopy(one))
    assert accuracies(twin) == accuracies(white)
    assert {row["box"] for row in twin} == {"black"}
    transferred = attacks.curve(one, digits, EPSILONS, attack=attack, source=other)
    assert transferred[0]["accuracy"] == white[0]["accuracy"]
    assert transferred[2]["accuracy"] > white[2]["accuracy"]


def test_transferred_inputs_are_made_on_the_source_and_judged_by_the_model(
    one: nn.Sequential, other: nn.Sequential, digits: data.Data
) -> None:
    x, y = digits.test.x, digits.test.y
    moved = attacks.fgsm(other, x, y, 0.1)
    expected = float((margins.output(one(moved), y) > 0).double().mean())
    (row,) = attacks.curve(one, digits, [0.1], source=other)
    assert row["accuracy"] == pytest.approx(expected, abs=1e-12)
    # A source of another precision.
    (row,) = attacks.curve(one, digits, [0.1], source=copy.deepcopy(other).double())
    assert row["accuracy"] == pytest.approx(expected, abs=0.01)


def test_attacks_of_ones_own(one: nn.Sequential, digits: data.Data) -> None:
    def nothing(model: nn.Module, x: Tensor, y: Tensor, epsilon: float, /, *, bounds: Any) -> Tensor:
        assert bounds == (0.0, 1.0)
        return x

    rows = attacks.curve(one, digits, [0.1], attack=nothing)
    assert rows[0]["attack"] == "nothing"
    assert rows[0]["accuracy"] == wm.measure(one, digits).accuracy
    weak = functools.partial(attacks.pgd, steps=2, step=0.01, random_start=False)
    rows = attacks.curve(one, digits, [0.1], attack=weak)
    assert rows[0]["attack"] == "pgd(steps=2, step=0.01, random_start=False)"
    assert rows[0]["accuracy"] == attacks.curve(one, digits, [0.02], attack="ifgsm")[0]["accuracy"]


def test_bounds_are_those_of_the_data() -> None:
    seen = []

    def look(model: nn.Module, x: Tensor, y: Tensor, epsilon: float, /, *, bounds: Any) -> Tensor:
        seen.append(bounds)
        return x

    flat = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    for source in ("digits", data.load("digits").test):
        attacks.curve(copy.deepcopy(flat), source, [0.1], attack=look, batch_size=1000)
    attacks.curve(nn.Linear(2, 2), "toy", [0.1], attack=look, batch_size=1000)
    attacks.curve(nn.Linear(2, 2), "toy", [0.1], attack=look, batch_size=1000, bounds=(-3.0, 3.0))
    assert seen == [(0.0, 1.0), (0.0, 1.0), None, (-3.0, 3.0)]
    with pytest.raises(ValueError, match=r"x has .* at index 0.*bounds=\(0.0, 1.0\)"):
        attacks.curve(nn.Linear(2, 2), data.load("toy").test, [0.1])


def test_a_loader_is_taken_as_it_is(one: nn.Sequential, digits: data.Data) -> None:
    loader = DataLoader(TensorDataset(digits.test.x, digits.test.y), batch_size=50)
    assert attacks.curve(one, loader, EPSILONS) == attacks.curve(one, digits, EPSILONS)


def test_both_networks_are_left_as_they_were(digits: data.Data) -> None:
    torch.manual_seed(0)
    pair = [nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.BatchNorm1d(9), nn.Linear(9, 10)) for _ in range(2)]
    states, random = [copy.deepcopy(each.state_dict()) for each in pair], torch.get_rng_state()
    for attack in ("pgd", "fgsm"):
        attacks.curve(pair[0], digits, [0.1], attack=attack, source=pair[1])
    for each, state in zip(pair, states):
        assert all(torch.equal(value, state[name]) for name, value in each.state_dict().items())
        assert all(module.training for module in each.modules())
        assert all(p.grad is None and p.requires_grad for p in each.parameters())
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize(
    ("epsilons", "settings", "error", "sentence"),
    [
        ([], {}, ValueError, "epsilons"),
        ([0.1, -0.1], {}, ValueError, "epsilons is -0.1"),
        ([0.1], {"attack": "fgms"}, ValueError, "attack is 'fgms'"),
        ([0.1], {"attack": 3}, ValueError, "attack is 3"),
        ([0.1], {"attack": "gaussian", "source": nn.Linear(2, 2)}, ValueError, "source.*'gaussian'"),
        ([0.1], {"bounds": (2.0, 1.0)}, ValueError, r"bounds is \(2.0, 1.0\)"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_bad_arguments_get_one_sentence(
    epsilons: list[float], settings: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        attacks.curve(nn.Linear(2, 2), "toy", epsilons, **settings)


def test_an_attack_of_ones_own_needs_no_bounds_and_stays_in_those_of_the_data() -> None:
    seen: list[Tensor] = []

    def push(model: nn.Module, x: Tensor, y: Tensor, epsilon: float) -> Tensor:
        return x + epsilon

    class Seeing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return super().forward(x)

    torch.manual_seed(0)
    x, y = torch.rand(6, 4), torch.arange(6) % 2
    (row,) = attacks.curve(Seeing(4, 2), (x, y), [0.9], attack=push)
    torch.testing.assert_close(seen[-1], (x + 0.9).clamp(0, 1))
    assert (row["attack"], row["box"]) == ("push", "white")
    attacks.curve(Seeing(4, 2), (x, y), [0.9], attack=push, bounds=None)
    torch.testing.assert_close(seen[-1], x + 0.9)
    attacks.curve(Seeing(4, 2), (x, y), [0.1], attack=lambda model, x, y, epsilon, **rest: x * rest["bounds"][1])
