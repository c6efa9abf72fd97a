from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

import widemargin as wm
from training.cases import network, samples
from widemargin import losses, optim
from widemargin.data import Samples
from widemargin.training import SGD, AdamW, Nero, RMSprop


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (SGD(lr=0.1), torch.optim.SGD, {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}),
        (SGD(lr=0.1, momentum=0.9, nesterov=True), torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (AdamW(lr=3e-4, weight_decay=0.1), torch.optim.AdamW, {"lr": 3e-4, "weight_decay": 0.1}),
        (RMSprop(lr=0.02, alpha=0.9), torch.optim.RMSprop, {"lr": 0.02, "alpha": 0.9, "momentum": 0.0}),
    ],
)
def test_values_make_torchs_optimizers(value: Any, kind: Any, expected: dict[str, Any]) -> None:
    made: Any = value([torch.nn.Parameter(torch.ones(2))])
    assert type(made) is kind
    assert {name: made.defaults[name] for name in expected} == expected


def test_a_function_that_returns_something_else_is_refused() -> None:
    def made(parameters: Any) -> Any:
        torch.optim.SGD(parameters, lr=0.1)

    with pytest.raises(TypeError, match="optimizer is None, expected a function that returns a torch optimizer"):
        wm.fit(network(), samples(), loss=losses.CrossEntropy(), optimizer=made, epochs=1)


@pytest.mark.parametrize("optimizer", [Nero(), optim.Nero, partial(optim.Nero, lr=0.02)])
def test_nero_projects_the_output_units_of_transposed_convolutions(optimizer: Any) -> None:
    torch.manual_seed(0)
    transposed = torch.nn.ConvTranspose2d(2, 3, 3)
    model = torch.nn.Sequential(transposed, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(75, 3))
    model.get_parameter("3.bias").requires_grad_(False)
    data = Samples(torch.randn(12, 2, 3, 3), torch.arange(12) % 3)
    wm.fit(model, data, loss=losses.CrossEntropy(), optimizer=optimizer, epochs=2, batch_size=6)
    by_unit = transposed.weight.detach().transpose(0, 1).flatten(1)
    torch.testing.assert_close(by_unit.norm(dim=1), torch.ones(3), rtol=1e-5, atol=0)


def test_adam_is_adam() -> None:
    """Without a weight decay AdamW takes the very steps of Adam."""
    ours, theirs = (torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    for parameter, optimizer in ((ours, AdamW(lr=0.1)([ours])), (theirs, torch.optim.Adam([theirs], lr=0.1))):
        for _ in range(5):
            optimizer.zero_grad()
            parameter.pow(4).sum().backward()
            optimizer.step()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_rmsprop_with_eps_inside_the_root(momentum: float, weight_decay: float) -> None:
    """Against the equation, number by number."""
    start, lr, alpha, eps = [1.0, -2.0, 0.5], 0.1, 0.9, 0.3
    parameter = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
    value = RMSprop(
        lr=lr, alpha=alpha, momentum=momentum, eps=eps, weight_decay=weight_decay, eps_inside_sqrt=True
    )  # fmt: skip
    optimizer = value([parameter])
    weights, squares, buffers = list(start), [0.0] * 3, [0.0] * 3
    for _ in range(4):
        optimizer.zero_grad()
        parameter.pow(4).sum().backward()
        optimizer.step()
        for i, w in enumerate(weights):
            gradient = 4 * w**3 + weight_decay * w
            squares[i] = alpha * squares[i] + (1 - alpha) * gradient**2
            buffers[i] = momentum * buffers[i] + gradient / math.sqrt(squares[i] + eps)
            weights[i] = w - lr * buffers[i]
    torch.testing.assert_close(parameter.tolist(), weights, rtol=1e-12, atol=0)


def test_rmsprop_with_eps_inside_the_root_goes_on_from_its_state() -> None:
    value = RMSprop(momentum=0.5, eps_inside_sqrt=True)
    whole, parts = (torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    first, second, third = value([whole]), value([parts]), value([parts])
    for number in range(6):
        if number == 3:
            third.load_state_dict(second.state_dict())
        for parameter, optimizer in ((whole, first), (parts, second if number < 3 else third)):
            optimizer.zero_grad()
            parameter.pow(4).sum().backward()
            optimizer.step()
    assert torch.equal(whole, parts)


def test_equal_values_are_equal_and_say_what_they_are() -> None:
    assert SGD(lr=0.1) == SGD(lr=0.1)
    assert repr(SGD(lr=0.1)) == "SGD(lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: SGD(lr=-1.0), "lr is -1"),
        (lambda: SGD(lr="fast"), "lr is 'fast'"),  # type: ignore[arg-type]
        (lambda: SGD(lr=0.1, nesterov=True), "nesterov is True, but momentum is 0.0"),
        (lambda: AdamW(weight_decay=float("nan")), "weight_decay is nan"),
        (lambda: RMSprop(momentum=True), "momentum is True"),
    ],
)
def test_bad_values_get_a_sentence(make: Any, sentence: str, untyped: None) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        make()
