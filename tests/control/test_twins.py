"""Sampled and trained networks of the same outputs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from widemargin.control import Twins, rejection_twins
from widemargin.control.accuracy import accuracies
from widemargin.data import Samples, to_sphere
from widemargin.margins.normalized import frobenius, weights
from widemargin.models import farhang_mlp
from widemargin.training import Exponential


def builder() -> nn.Module:
    return farhang_mlp(inputs=12, width=32, depth=3, outputs=1)


def points(count: int, seed: int) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 12, generator=generator)
    return Samples(x, torch.where(x[:, 0] > 0, 1.0, -1.0))


@pytest.fixture(scope="module")
def twins() -> Twins:
    return rejection_twins(
        builder,
        points(4, 1),
        pairs=6,
        test=points(200, 2),
        seed=3,
        steps=3000,
        schedule=Exponential(factor=0.995),
        progress=False,
    )


def test_pairs_have_the_outputs_and_margins_of_each_other(twins: Twins) -> None:
    train = points(4, 1)
    x = to_sphere(train.x)
    assert len(twins.sampled) == len(twins.trained) == len(twins.losses) == 6
    assert bool(twins.reached.all())
    assert max(twins.losses) < 1e-6
    assert twins.worst == float(twins.errors.max()) < 0.01
    for k, (one, other) in enumerate(zip(twins.sampled, twins.trained)):
        f = one(x).detach().flatten()
        assert torch.allclose(f, twins.sampled_outputs[k], atol=1e-5)
        assert torch.equal(f.sign(), train.y)
        assert torch.allclose(other(x).detach().flatten(), twins.trained_outputs[k], atol=1e-5)
        assert float((twins.trained_outputs[k] - twins.sampled_outputs[k]).square().mean()) == pytest.approx(
            twins.losses[k], rel=0.01, abs=1e-9
        )
        for network in (one, other):
            for _, weight in weights(network):
                assert float(weight.detach().norm()) == pytest.approx(math.sqrt(len(weight)), rel=1e-5)
        margins = frobenius(one, train.x, train.y) - frobenius(other, train.x, train.y)
        assert float(margins.detach().abs().max()) < 3e-3


def test_acceptance_is_counted(twins: Twins) -> None:
    assert twins.classified + twins.flipped == 6
    assert twins.acceptance == 6 / twins.drawn
    # The oracle: one network after another, out of the same numbers.
    again = rejection_twins(builder, points(4, 1), pairs=3, seed=3, steps=1, progress=False)
    assert torch.equal(again.sampled_outputs, twins.sampled_outputs[:3])
    assert again.drawn < twins.drawn
    assert again.sampled_accuracies is None
    assert "3 pairs out of" in str(again)


def test_about_one_draw_in_eight_classifies_four_points() -> None:
    # In a wide linear network the outputs at orthogonal inputs are independent: each sign is right by half.
    x = 2 * torch.eye(4)
    train = Samples(x, torch.tensor([1.0, -1.0, -1.0, 1.0]))
    found = rejection_twins(lambda: nn.Linear(4, 1, bias=False), train, pairs=400, seed=0, steps=1, progress=False)
    assert found.acceptance == pytest.approx(1 / 8, rel=0.2)
    assert found.flipped == pytest.approx(200, abs=40)
    for network in found.sampled:
        assert torch.equal(network(x).flatten().sign(), train.y)


def test_accuracies_are_those_of_a_loop(twins: Twins) -> None:
    test = points(200, 2)
    assert twins.sampled_accuracies is not None
    for k, network in enumerate(twins.sampled):
        scores = [network(to_sphere(test.x[i : i + 1])).item() for i in range(200)]
        right = sum(score * float(label) > 0 for score, label in zip(scores, test.y))
        assert float(twins.sampled_accuracies[k]) == right / 200
    assert torch.equal(twins.sampled_accuracies, accuracies(twins.sampled, test))
    assert "test accuracy" in str(twins)


def test_accuracies_of_classes() -> None:
    network = nn.Linear(3, 3, bias=False)
    nn.init.eye_(network.weight)
    assert accuracies([network], Samples(torch.eye(3), torch.tensor([0, 1, 1]))).tolist() == [2 / 3]


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"pairs": 0}, ValueError, "pairs is 0"),
        ({"most_draws": 1}, ValueError, "most_draws is 1"),
        ({"most_draws": 2}, ValueError, "most_draws is 2"),
        ({"train": Samples(torch.ones(2, 12), torch.tensor([0, 1]))}, ValueError, "labels other than -1.0"),
        ({"train": None}, TypeError, "NoneType"),
        ({"builder": lambda: 3}, TypeError, "result of builder is a int"),
        ({"builder": lambda: nn.Linear(12, 2, bias=False)}, ValueError, "builder gives networks"),
        ({"builder": lambda: nn.Linear(12, 1)}, ValueError, "bias"),
        (
            {"builder": lambda: nn.Sequential(nn.Linear(12, 1, bias=False), nn.PReLU())},
            TypeError,
            "layer '1' is a PReLU",
        ),
    ],
)
def test_a_mistake_gets_its_sentence(change: dict[str, Any], error: type[Exception], sentence: str) -> None:
    setting: dict[str, Any] = {"builder": builder, "train": points(8, 1), "pairs": 2, "steps": 1, **change}
    with pytest.raises(error, match=sentence):
        rejection_twins(setting.pop("builder"), setting.pop("train"), **setting)
