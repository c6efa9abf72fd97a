"""Attacks and brackets of NumPy arrays, pandas frames and names of classes: those of the same tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from widemargin import attacks, certify
from widemargin.modules import NamedInputs

X = np.random.default_rng(0).uniform(0.2, 0.8, (6, 3))
Y = np.arange(6) % 3
NAMES = pd.Series(np.array(["cat", "dog", "emu"])[Y])
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fgsm": lambda net, x, y: attacks.fgsm(net, x, y, 0.1),
    "ifgsm": lambda net, x, y: attacks.ifgsm(net, x=x, y=y, epsilon=0.1),
    "pgd": lambda net, x, y: attacks.pgd(net, x, y, 0.1, steps=2),
    "minimal": lambda net, x, y: attacks.minimal(net, x, y, search="own").points,
    "bracket": lambda net, x, y: wm.bracket(net, x, y, search="own").upper,
    "radius": lambda net, x, y: certify.radius(net, x, y).values,
    "explain": lambda net, x, y: torch.stack([one.changed for one in wm.explain(net, x, y, search="own", steps=4)]),
    "curve": lambda net, x, y: torch.tensor([row["accuracy"] for row in attacks.curve(net, (x, y), [0.0, 0.1])]),
}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3))


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_arrays_give_what_tensors_give(function: Callable[..., Tensor]) -> None:
    net = network()
    expected = function(net, torch.tensor(X, dtype=torch.float32), torch.tensor(Y))
    single = torch.tensor(X, dtype=torch.float32)
    for x, y in ((X, Y), (pd.DataFrame(X), NAMES), (single, NAMES.tolist()), (single.double(), torch.tensor(Y))):
        found = function(net, x, y)
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_names_have_to_be_as_many_as_the_scores(function: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match=r"y has 2 classes \('cat', 'dog'\), but the network has 3 scores"):
        function(network(), X[:2], NAMES[:2])


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_bytes_are_refused_with_their_cure(function: Callable[..., Tensor]) -> None:
    with pytest.raises(TypeError, match=r"dtype torch\.uint8.*x\.float\(\) / 255"):
        function(network(), (255 * X).astype(np.uint8), Y)


def test_noise_and_binary_networks() -> None:
    x = torch.tensor(X)
    assert torch.equal(attacks.gaussian(X, 0.1), attacks.gaussian(x, 0.1))  # type: ignore[arg-type]
    net = nn.Sequential(nn.Linear(3, 1)).double()
    signs = np.where(Y > 0, 1.0, -1.0)
    found = attacks.fgsm(net, X, signs, 0.1)  # type: ignore[arg-type]
    assert torch.equal(found, attacks.fgsm(net, x, torch.tensor(signs), 0.1))
    with pytest.raises(ValueError, match=r"one score|1 scores: it takes labels -1\.0 and 1\.0"):
        attacks.fgsm(net, X, NAMES, 0.1)  # type: ignore[arg-type]


def test_explanations_need_no_labels_and_take_tokens_and_their_own_order_of_classes() -> None:
    net = network()
    (one, *_), (two, *_) = wm.explain(net, X, search="own"), wm.explain(net, torch.tensor(X), None, search="own")  # type: ignore[arg-type]
    assert torch.equal(one.changed, two.changed)
    assert [e.class_name(2) for e in wm.explain(net, X[:3], NAMES[:3], search="own")] == ["2 emu"] * 3  # type: ignore[arg-type]
    found = wm.explain(net, X, NAMES, classes=("emu", "cat", "dog"), search="own", steps=2)  # type: ignore[arg-type]
    assert [e.label for e in found] == [1, 2, 0] * 2
    with pytest.raises(ValueError, match="y has 'emu' at index 2"):
        wm.explain(net, X, NAMES, classes=("cat", "dog", "eel"))  # type: ignore[arg-type]
    text = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 3))
    tokens = np.arange(18).reshape(6, 3) % 9
    expected = wm.explain(text, torch.tensor(tokens), torch.tensor(Y), search="own", steps=2)
    for x, y in ((tokens, Y), (tokens.tolist(), NAMES), (tokens, None)):
        found = wm.explain(text, x, y, search="own", steps=2)  # type: ignore[arg-type]
        assert torch.equal(found[0].changed, expected[0].changed)


@pytest.mark.parametrize("kind", [dict, NamedInputs])
def test_inputs_by_name_are_refused(kind: Any) -> None:
    x = kind({"input_ids": torch.ones(2, 3), "mask": torch.ones(2, 3)})
    with pytest.raises(TypeError, match=r"x is a .* of input_ids, mask, expected one tensor"):
        attacks.fgsm(nn.Linear(3, 2), x, torch.tensor([0, 1]), 0.1)
