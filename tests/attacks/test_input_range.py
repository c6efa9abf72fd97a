from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from widemargin import attacks

X, Y = torch.tensor([[0.1, 0.9], [0.2, 0.3]]), torch.tensor([0, 1])
NETWORK = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("x", "epsilon", "settings", "error", "sentence"),
    [
        (X, -0.1, {}, ValueError, "epsilon is -0.1"),
        (X, math.inf, {}, ValueError, "epsilon is inf"),
        (X, "0.1", {}, TypeError, "epsilon is '0.1'"),
        (X, 0.1, {"bounds": (1.0, 0.0)}, ValueError, r"bounds is \(1.0, 0.0\)"),
        (X, 0.1, {"bounds": 1.0}, TypeError, "bounds is 1.0"),
        (X + 0.5, 0.1, {}, ValueError, r"x has 1.4 at index 0.*bounds=\(0.0, 1.0\)"),
        (X * torch.nan, 0.1, {}, ValueError, "x has nan at index 0"),
        (X.long(), 0.1, {}, TypeError, "x has dtype torch.int64"),
        (None, 0.1, {}, TypeError, "x is a NoneType"),
    ],
)
@pytest.mark.parametrize("attack", ["fgsm", "ifgsm", "pgd"])
@pytest.mark.usefixtures("untyped")
def test_what_every_attack_refuses(
    attack: str, x: Any, epsilon: Any, settings: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        getattr(attacks, attack)(NETWORK, x, Y, epsilon, **settings)


@pytest.mark.parametrize(
    ("attack", "settings", "sentence"),
    [
        ("ifgsm", {"step": 0.0}, "step is 0.0"),
        ("ifgsm", {"steps": 0}, "steps is 0"),
        ("ifgsm", {"step": 0.01, "steps": 9}, "steps is 9.* 10"),
        ("pgd", {"step": -1.0}, "step is -1.0"),
        ("pgd", {"steps": 2.5}, "steps is 2.5"),
        ("pgd", {"p": 1.0}, "p is 1.0"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_steps_and_norms(attack: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        getattr(attacks, attack)(NETWORK, X, Y, 0.1, **settings)


@pytest.mark.parametrize("attack", ["fgsm", "ifgsm", "pgd"])
def test_a_size_of_zero_moves_nothing(attack: str) -> None:
    moved = getattr(attacks, attack)(NETWORK, X, Y, 0)
    assert torch.equal(moved, X)
    assert moved.data_ptr() != X.data_ptr()
