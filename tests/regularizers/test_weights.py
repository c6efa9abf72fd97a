from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import named
from widemargin.regularizers import ClassifierPenalty, WeightDecay
from zoo import LOGITS, TOKENS, ZOO, Entry


def small() -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    return nn.Sequential(*layers).double()


def squares(*layers: nn.Module) -> float:
    """Σ w² over the weights of `layers`, number by number."""
    return sum(w.item() ** 2 for layer in layers for w in layer.get_parameter("weight").flatten())


def test_weight_decay_is_the_sum_of_squares_of_matrices_and_kernels_without_a_half() -> None:
    network = small()
    expected = 0.3 * squares(network[0], network[4])
    value = WeightDecay(weight=0.3)(network, torch.rand(2, 1, 4, 4), torch.tensor([0, 1]))
    assert value.shape == ()
    assert value.item() == pytest.approx(expected, rel=1e-12)


def test_its_slope_is_the_weight_decay_of_an_optimizer_with_half_the_weight() -> None:
    network = nn.Linear(4, 3, bias=False).double()
    other = copy.deepcopy(network)
    WeightDecay(weight=0.05)(network).backward()
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    other.weight.grad = torch.zeros_like(other.weight)
    torch.optim.SGD(other.parameters(), lr=0.1, weight_decay=0.1).step()
    torch.testing.assert_close(network.weight, other.weight)


def test_named_layers_with_all_that_is_inside_them() -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4)), nn.Linear(4, 2))
    block = network[1]
    assert isinstance(block, nn.Sequential)
    one = WeightDecay(weight=1.0, layers=("1.0",))(network)
    both = WeightDecay(weight=1.0, layers=("1",))(network)
    assert one.item() == pytest.approx(squares(block[0]), rel=1e-5)
    assert both.item() == pytest.approx(squares(block[0], block[1]), rel=1e-5)
    # What is named twice counts once.
    torch.testing.assert_close(WeightDecay(weight=1.0, layers=("1", "1.0"))(network), both)


def test_a_shared_weight_counts_once() -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    assert WeightDecay(weight=1.0)(network).item() == pytest.approx(squares(network[0]), rel=1e-5)


def test_a_parametrized_weight_counts_as_what_it_gives() -> None:
    layer = weight_norm(nn.Linear(4, 3).double())
    value = WeightDecay(weight=1.0)(nn.Sequential(layer))
    assert value.item() == pytest.approx(sum(w.item() ** 2 for w in layer.weight.flatten()), rel=1e-12)
    # ‖g v/‖v‖‖²_F = Σ g²: the direction v has no slope.
    g, v = layer.parametrizations.weight.original0, layer.parametrizations.weight.original1
    slopes = torch.autograd.grad(value, (g, v))
    torch.testing.assert_close(slopes[0], 2 * g)
    torch.testing.assert_close(slopes[1], torch.zeros_like(v))


@pytest.mark.parametrize("entry", [*ZOO, *LOGITS, *TOKENS], ids=str)
def test_the_classifier_is_found(entry: Entry) -> None:
    """In the networks of the zoo, the last linear layer that is defined is the one that gives the scores."""
    network = entry.network().train()
    buffers = [buffer.clone() for buffer in network.buffers()]
    state = torch.get_rng_state()
    value = ClassifierPenalty(weight=0.3)(network, entry.inputs(), entry.labels())
    last = [m for m in network.modules() if isinstance(m, nn.Linear)][-1]
    assert value.shape == ()
    assert value.item() == pytest.approx(0.3 * squares(last), rel=1e-5)
    torch.testing.assert_close(torch.autograd.grad(value, last.weight)[0], 0.6 * last.weight)
    assert all(module.training for module in network.modules())
    assert all(torch.equal(buffer, kept) for buffer, kept in zip(network.buffers(), buffers))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_classifier_may_be_the_whole_network() -> None:
    network = nn.Linear(3, 2)
    value = ClassifierPenalty(weight=0.5)(network, torch.rand(4, 3))
    torch.testing.assert_close(torch.autograd.grad(value, network.weight)[0], network.weight)


def test_the_classifier_by_name_needs_no_data() -> None:
    network = small()
    value = ClassifierPenalty(weight=2.0, layer="4")(network)
    assert value.item() == pytest.approx(2 * squares(network[4]), rel=1e-12)


@pytest.mark.parametrize(
    ("regularizer", "network", "error", "sentence"),
    [
        (WeightDecay(weight=1.0, layers=("fc1",)), small(), ValueError, "layers has 'fc1'"),
        (WeightDecay(weight=1.0, layers=("1",)), small(), ValueError, "layers has '1'"),
        (WeightDecay(weight=1.0), nn.ReLU(), ValueError, "model is a ReLU"),
        (ClassifierPenalty(weight=1.0, layer="0"), small(), TypeError, "layer is '0', a Conv2d"),
        (ClassifierPenalty(weight=1.0, layer="5"), small(), ValueError, "layer has '5'"),
        (ClassifierPenalty(weight=1.0), small(), TypeError, "x is None and layer is None"),
    ],
)
def test_bad_networks_get_one_sentence(
    regularizer: WeightDecay | ClassifierPenalty, network: nn.Module, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        regularizer(network)


def test_scores_behind_a_softmax_have_no_classifier() -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.Softmax(dim=1))
    with pytest.raises(ValueError, match=r"Sequential.*'0'"):
        ClassifierPenalty(weight=1.0)(network, torch.rand(2, 3))


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"weight": -1.0}, ValueError, "weight is -1.0"),
        ({"weight": 1.0, "layers": "fc1"}, TypeError, "layers is 'fc1'"),
        ({"weight": 1.0, "layers": ()}, TypeError, "layers is empty"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_bad_settings_get_one_sentence(settings: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        WeightDecay(**settings)


def test_inputs_by_name() -> None:
    case = named.case()
    assert WeightDecay(weight=1.0)(case.masked, case.by_name, case.y) == WeightDecay(weight=1.0)(case.fixed)
    found = ClassifierPenalty(weight=1.0)(case.masked, case.by_name, case.y)
    assert found == ClassifierPenalty(weight=1.0)(case.fixed, case.values, case.y)
