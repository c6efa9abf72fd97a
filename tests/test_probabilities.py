"""Networks that end in a softmax or a sigmoid are noticed, and read as scores they are the network without it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from widemargin import attacks, losses, margins
from widemargin.probabilities import FromProbabilities, without_head
from widemargin.training import SGD, Measure


class Functional(nn.Module):
    """A network that computes probabilities by functions."""

    def __init__(self, layers: nn.Module, head: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layers, self.head = layers, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x))


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(dim=1)


def _case(kind: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, nn.Sequential, Tensor, Tensor]:
    """A network of probabilities, the same network of scores, a batch and its labels."""
    torch.manual_seed(0)
    binary = "sigmoid" in kind
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1 if binary else 3)).to(dtype)
    x, y = torch.rand(12, 4, dtype=dtype), torch.arange(12) % 3
    heads: dict[str, Callable[[], nn.Module]] = {
        "softmax": lambda: nn.Sequential(*layers, nn.Softmax(dim=1)),
        "nested softmax": lambda: nn.Sequential(nn.Identity(), nn.Sequential(layers, nn.Softmax(dim=-1))),
        "function": lambda: Functional(layers, _softmax),
        "sigmoid": lambda: nn.Sequential(*layers, nn.Sigmoid()),
    }
    return heads[kind](), layers, x, 2.0 * (y > 0).to(dtype) - 1 if binary else y


KINDS = ["softmax", "nested softmax", "function", "sigmoid"]


@pytest.mark.parametrize("kind", KINDS)
def test_read_as_probabilities_is_the_network_without_its_end(kind: str) -> None:
    network, layers, x, y = _case(kind)
    found, expected = wm.measure(network, (x, y), read_as="probabilities"), wm.measure(layers, (x, y))
    torch.testing.assert_close(found.margins["input"], expected.margins["input"])
    torch.testing.assert_close(found.output, expected.output)
    assert found.accuracy == expected.accuracy
    for make in (
        lambda **how: losses.MarginLoss(cross_entropy=1.0, **how),
        lambda **how: losses.MarginLoss(second_order="second-point", **how),
        losses.WideMargin,
    ):
        torch.testing.assert_close(make(read_as="probabilities")(network, x, y), make()(layers, x, y))
    read = margins.from_probabilities(network)
    torch.testing.assert_close(losses.CrossEntropy()(read, x, y), losses.CrossEntropy()(layers, x, y))
    torch.testing.assert_close(
        attacks.pgd(network, x, y, 0.1, steps=3, read_as="probabilities"), attacks.pgd(layers, x, y, 0.1, steps=3)
    )
    how: dict[str, Any] = {"search": "own", "steps": 4}
    one, two = attacks.minimal(network, x, y, read_as="probabilities", **how), attacks.minimal(layers, x, y, **how)
    torch.testing.assert_close(one.distances, two.distances, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_unread_probabilities_are_noticed_everywhere(kind: str) -> None:
    network, _, x, y = _case(kind)
    tries: list[Callable[[], object]] = [
        lambda: wm.measure(network, (x, y)),
        lambda: losses.MarginLoss()(network, x, y),
        lambda: losses.MarginLoss().backward(network, x, y),
        lambda: losses.WideMargin()(network, x, y),
        lambda: losses.CrossEntropy()(network, x, y),
        lambda: losses.as_loss(nn.BCEWithLogitsLoss())(network, x, y),
        lambda: attacks.pgd(network, x, y, 0.1, steps=1),
        lambda: attacks.minimal(network, x, y),
        lambda: attacks.curve(network, (x, y), [0.1]),
        lambda: wm.bracket(network, x, y),
        lambda: wm.fit(network, (x, y), loss=losses.CrossEntropy(), epochs=1, callbacks=[Measure(every=None)]),
        lambda: wm.fit(network, (x, y), epochs=1),
    ]
    for one in (*tries, *tries[:1]):  # the second time, too
        with pytest.raises(ValueError, match="read_as='probabilities'"):
            one()


def test_scores_are_left_alone() -> None:
    torch.manual_seed(0)
    x, y = torch.rand(6, 4), torch.arange(6) % 3
    squeezed = nn.Sequential(nn.Linear(4, 3), nn.Hardtanh(0.0, 1.0))  # in [0, 1], but no probabilities
    assert len(wm.measure(squeezed, (x, y))) == 6
    logs = nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(dim=1))
    torch.testing.assert_close(wm.measure(logs, (x, y)).output, wm.measure(logs[0], (x, y)).output)
    inside = nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=1), nn.Linear(4, 3))
    losses.WideMargin()(inside, x, y)


@pytest.mark.parametrize("kind", ["softmax", "function"])
def test_fit_trains_the_network_without_its_end(kind: str) -> None:
    network, layers, x, y = _case(kind)
    other = copy.deepcopy(layers)
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 6, "optimizer": SGD(lr=0.1)}
    for loss in (losses.WideMargin(), nn.CrossEntropyLoss()):
        found = wm.fit(network, (x, y), loss=loss, read_as="probabilities", **settings)
        expected = wm.fit(other, (x, y), loss=loss, **settings)
        for one, two in zip(network.parameters(), other.parameters()):
            torch.testing.assert_close(one, two)
        names = ("loss", "accuracy", "distance at input")
        for name in names:
            assert found.history.last()[name] == pytest.approx(expected.history.last()[name])


def test_a_criterion_of_probabilities_gets_them() -> None:
    network, layers, x, y = _case("sigmoid")
    other = copy.deepcopy(layers)
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 6, "optimizer": SGD(lr=0.1)}
    wm.fit(network, (x, y), loss=nn.BCELoss(), read_as="probabilities", **settings)
    wm.fit(other, (x, y), loss=nn.BCEWithLogitsLoss(), **settings)
    for one, two in zip(network.parameters(), other.parameters()):
        torch.testing.assert_close(one, two)


def test_certificates_take_the_layer_off() -> None:
    network, layers, x, y = _case("softmax")
    how: dict[str, Any] = {"search": "own", "steps": 3, "attack_steps": 4}
    x, y = x[:2], y[:2]
    found = wm.bracket(network, x, y, read_as="probabilities", **how)
    torch.testing.assert_close(found.lower, wm.bracket(layers, x, y, **how).lower, rtol=1e-3, atol=1e-6)
    assert not found.notes
    other, *_ = _case("function")
    assert wm.bracket(other, x, y, read_as="probabilities", **how).notes
    assert without_head(layers) is layers


def test_a_layer_keeps_scores_that_probabilities_round_away() -> None:
    network, layers, x, y = _case("sigmoid", torch.float32)
    with torch.no_grad():
        layers[-1].weight.mul_(1e3)  # type: ignore[operator]
    assert bool((network(x) == 0).any())
    torch.testing.assert_close(margins.from_probabilities(network)(x), layers(x))
    with pytest.raises(ValueError, match="scores has"):
        wm.measure(Functional(layers, torch.sigmoid), (x, y), read_as="probabilities")


def test_a_place_at_the_end_is_still_a_place() -> None:
    network, _, x, y = _case("softmax")
    found = wm.measure(network, (x, y), at=("input", "3", "0"), read_as="probabilities")
    assert all(bool(mask.all()) for mask in found.valid.values())
    # The distance of p to where two are equal, linearised in log p.
    p = network(x).detach()
    own, others = p.gather(1, y[:, None])[:, 0], p.scatter(1, y[:, None], 0.0).amax(dim=1)
    expected = (own.log() - others.log()) / (own**-2 + others**-2).sqrt()
    torch.testing.assert_close(found.margins["3"], expected)


def test_what_is_no_probability_gets_a_sentence() -> None:
    _, layers, x, y = _case("softmax")
    with pytest.raises(ValueError, match=r"expected numbers in \[0, 1\]"):
        wm.measure(layers, (x, y), read_as="probabilities")
    with pytest.raises(ValueError, match="add up to"):
        wm.measure(Functional(layers, torch.sigmoid), (x, y), read_as="probabilities")
    several = nn.Sequential(*layers, nn.Sigmoid())
    found = wm.measure(several, (x, y), read_as="probabilities")
    torch.testing.assert_close(found.output, wm.measure(layers, (x, y)).output)
    with wm.places.watch(layers) as at, pytest.raises(ValueError, match="read_as"):
        margins.distance(layers(x), y, at=at, read_as="probabilities")
    assert isinstance(margins.from_probabilities(margins.from_probabilities(several)), FromProbabilities)
