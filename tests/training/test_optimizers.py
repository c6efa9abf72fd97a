from __future__ import annotations

from typing import Any

import pytest
import torch

from widemargin.training import Adam, RmsProp, Sgd


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (Sgd(lr=0.1), torch.optim.SGD, {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}),
        (Sgd(lr=0.1, momentum=0.9, nesterov=True), torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (Adam(lr=3e-4, weight_decay=0.1), torch.optim.AdamW, {"lr": 3e-4, "weight_decay": 0.1}),
        (RmsProp(lr=0.02, alpha=0.9), torch.optim.RMSprop, {"lr": 0.02, "alpha": 0.9, "momentum": 0.0}),
    ],
)
def test_values_make_torchs_optimizers(value: Any, kind: Any, expected: dict[str, Any]) -> None:
    made: Any = value([torch.nn.Parameter(torch.ones(2))])
    assert type(made) is kind
    assert {name: made.defaults[name] for name in expected} == expected


def test_adam_is_adam() -> None:
    """Without a weight decay AdamW takes the very steps of Adam."""
    ours, theirs = (torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    for parameter, optimizer in ((ours, Adam(lr=0.1)([ours])), (theirs, torch.optim.Adam([theirs], lr=0.1))):
        for _ in range(5):
            optimizer.zero_grad()
            parameter.pow(4).sum().backward()
            optimizer.step()
    assert torch.equal(ours, theirs)


def test_equal_values_are_equal_and_say_what_they_are() -> None:
    assert Sgd(lr=0.1) == Sgd(lr=0.1)
    assert repr(Sgd(lr=0.1)) == "Sgd(lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Sgd(lr=-1.0), "lr is -1.0, expected a number >= 0"),
        (lambda: Sgd(lr="fast"), "lr is 'fast', expected a number >= 0"),  # type: ignore[arg-type]
        (lambda: Sgd(lr=0.1, nesterov=True), "nesterov is True, but momentum is 0.0"),
        (lambda: Adam(weight_decay=float("nan")), "weight_decay is nan, expected a number >= 0"),
        (lambda: RmsProp(momentum=True), "momentum is True, expected a number >= 0"),
    ],
)
def test_bad_values_get_a_sentence(make: Any, sentence: str, untyped: None) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
