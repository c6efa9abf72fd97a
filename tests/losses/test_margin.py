from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import oracles
import oracles_losses as slow
import widemargin as wm
import zoo
from laws import batch, slow_penalty, smooth_network
from widemargin.losses import Band, Hinge, MarginLoss


@pytest.mark.parametrize("entry", zoo.ZOO, ids=lambda entry: entry.name)
@pytest.mark.parametrize("penalty", [Hinge(gamma=2.0), Band(r=2.0, theta=1.0, mu=0.1)], ids=repr)
def test_the_printed_form_is_equation_15(entry: zoo.Entry, penalty: Hinge | Band) -> None:
    network = entry.network(dtype=torch.float64)
    x, y = entry.inputs(dtype=torch.float64), entry.labels(dtype=torch.float64)
    loss = MarginLoss(penalty=penalty, at=("input",), stabilize=None, epsilon=0.0)
    distances = oracles.distances(network, x, y, place="input", p=2.0)
    expected = [float(slow_penalty(penalty, 0)(torch.tensor(row[0], dtype=torch.float64))) for row in distances]
    torch.testing.assert_close(loss(network, x, y).detach(), torch.tensor(expected, dtype=torch.float64))


def test_epsilon_is_added_to_the_denominator() -> None:
    network, (x, y) = smooth_network(), batch()
    with wm.places.watch(network, ("input",)) as at:
        scores = network(x)
    lines = wm.margins.linearize(scores, y, at=at)
    expected = (1 - lines.difference / (0.5 + lines.slopes["input"])).clamp_min(0).squeeze(1)
    torch.testing.assert_close(MarginLoss(stabilize=None, epsilon=0.5)(network, x, y), expected)


def test_clip_caps_the_penalty_at_alpha_gamma() -> None:
    network, (x, y) = smooth_network(), batch()
    hinge = Hinge(gamma=0.05)
    free = MarginLoss(penalty=hinge, stabilize=None)(network, x, y)
    clipped = MarginLoss(penalty=hinge, stabilize=None, clip=2.0)(network, x, y)
    assert float(free.detach().max()) > 2 * 0.05
    torch.testing.assert_close(clipped, free.clamp_max(2 * 0.05))


def test_clip_for_each_place_and_class_by_loop() -> None:
    network, (x, y) = smooth_network(), batch()
    loss = MarginLoss(
        penalty=Hinge(gamma=(0.05, 0.02)),
        at=("input", "tanh1"),
        classes="all",
        aggregate="sum",
        stabilize=None,
        clip=3.0,
    )
    with wm.places.watch(network, loss.at) as at:
        scores = network(x)
    lines = wm.margins.linearize(scores, y, at=at, classes="all")
    expected = slow.margin_loss(
        lines.difference,
        lines.slopes,
        penalties=[slow_penalty(loss.penalty, place) for place in range(2)],
        aggregate="sum",
        epsilon=1e-6,
        lowest=[0.05 * (1 - 3.0), 0.02 * (1 - 3.0)],
    )
    torch.testing.assert_close(loss(network, x, y), expected)


def test_of_is_the_call_with_ones_own_forward_pass() -> None:
    network, (x, y) = smooth_network(), batch()
    loss = MarginLoss(at=("input", "tanh2"))
    with wm.places.watch(network, loss.at) as at:
        scores = network(x)
    torch.testing.assert_close(loss.of(scores, y, at=at), loss(network, x, y))
    with pytest.raises(ValueError, match=r"at watches .*at="):
        MarginLoss(at=("input",)).of(scores, y, at=at)


def test_binary_networks_and_logits_objects_have_a_loss() -> None:
    for entry in [e for e in zoo.ZOO if "binary" in e.traits]:
        loss = MarginLoss(cross_entropy=0.5)(entry.network(), entry.inputs(), entry.labels())
        assert bool(loss.isfinite().all())
    for entry in zoo.LOGITS:
        assert bool(MarginLoss()(entry.network(), entry.inputs(), entry.labels()).isfinite().all())


def test_batch_norm_in_training_mode_chooses_its_denominators() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4)).double()
    x, y = batch()
    values = {s: MarginLoss(statistics=s, stabilize=None)(network, x, y) for s in ("coupled", "frozen")}
    assert float((values["coupled"] - values["frozen"]).detach().abs().max()) > 1e-3


def test_frozen_statistics_leave_the_weight_gradient_to_flow_through_the_batch() -> None:
    """The gradient of the frozen loss is that of c_k·(f_y − f_i) of the network in training mode, c_k constant."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4)).double()
    x, y = batch()
    loss = MarginLoss(penalty=Hinge(gamma=100.0), statistics="frozen", stabilize=None)
    gradients = torch.autograd.grad(loss(network, x, y).mean(), list(network.parameters()))
    with wm.places.watch(network, ("input",), statistics="frozen") as at:
        scores = network(x)
    slope = wm.margins.linearize(scores, y, at=at).slopes["input"].squeeze(1)
    plain = -(wm.margins.output(network(x), y) / (1e-6 + slope)).mean()
    for got, expected in zip(gradients, torch.autograd.grad(plain, list(network.parameters())), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"penalty": 1.0}, "penalty is 1.0"),
        ({"at": "input"}, "at is 'input'"),
        ({"at": ()}, r"at is \(\)"),
        ({"p": 0.5}, "p is 0.5"),
        ({"penalty": Hinge(gamma=(1.0, 2.0))}, "gamma has 2 entries"),
        ({"aggregate": "mean"}, "aggregate is 'mean'"),
        ({"read_as": "odds"}, "read_as is 'odds'"),
        ({"statistics": "none"}, "statistics is 'none'"),
        ({"stabilize": "yes"}, "stabilize is 'yes'"),
        ({"second_order": "third"}, "second_order is 'third'"),
        ({"cross_entropy": -1.0}, "cross_entropy is -1.0"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], sentence: str, untyped: None) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        MarginLoss(**settings)


def test_it_is_a_value() -> None:
    assert MarginLoss(penalty=Hinge(gamma=2.0)) == MarginLoss(penalty=Hinge(gamma=2.0))
    assert hash(MarginLoss()) == hash(MarginLoss())
    assert "Hinge(gamma=1.0)" in repr(MarginLoss())


def test_batch_norm_in_training_mode_is_coupled_unless_told_otherwise() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2)).train()
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    frozen = MarginLoss(statistics="frozen")(model, x, y)
    torch.testing.assert_close(MarginLoss()(model, x, y), MarginLoss(statistics="coupled")(model, x, y))
    assert not torch.allclose(MarginLoss()(model, x, y), frozen, rtol=1e-3)
    with pytest.raises(ValueError, match="statistics is None"), wm.places.watch(model, ("input",)):
        pass
