"""Numbers of a loss as tensors: kept on the loss, and no part of its value."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from widemargin import losses
from widemargin.losses.kept_tensors import KeptTensors

NUMBERS = (0.1, 0.2, 0.3)


def test_a_tensor_is_made_once_for_every_name_and_dtype() -> None:
    kept, single, double = KeptTensors(), torch.empty(2), torch.empty(2, dtype=torch.float64)
    first = kept.get("weights", NUMBERS, single)
    assert first.tolist() == torch.tensor(NUMBERS).tolist()
    assert kept.get("weights", NUMBERS, single) is first
    assert kept.get("weights", NUMBERS, double).tolist() == list(NUMBERS)
    assert kept.get("others", (4.0,), single).tolist() == [4.0]


@pytest.mark.parametrize("index", [None, torch.tensor([0, 3]), torch.tensor([-1, 0])], ids=str)
def test_positions_outside_of_the_training_set(index: Tensor | None) -> None:
    with pytest.raises(ValueError, match=r"index .*weights"):
        KeptTensors().at("weights", NUMBERS, index, torch.empty(2))


@pytest.mark.parametrize(
    "build", [lambda: losses.Target(alpha=NUMBERS), lambda: losses.Weighted(samples=NUMBERS, classes=(1, 2))]
)
def test_a_used_loss_is_equal_to_a_new_one(build: Callable[[], losses.Target | losses.Weighted]) -> None:
    loss, network, x, index = build(), nn.Linear(4, 2), torch.randn(3, 4), torch.tensor([2, 0, 1])
    y = torch.tensor([0, 1, 1])
    with torch.inference_mode():
        expected = loss(network, x, y, index=index).clone()
    assert loss == build()
    assert hash(loss) == hash(build())
    assert repr(loss) == repr(build())
    assert len(pickle.dumps(loss)) < len(pickle.dumps(build())) + 200
    for one in (loss, copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        values = one(network, x, y, index=index)
        values.mean().backward()
        torch.testing.assert_close(values, expected)
