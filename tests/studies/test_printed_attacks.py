"""Attacks as elsayed prints them, against the library's and against arithmetic."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from widemargin import attacks
from widemargin.studies import measurements, printed_attacks, samples
from widemargin.studies.samples import Parts


def affine(gap: float) -> tuple[nn.Linear, Tensor, Tensor]:
    """Three classes, of which the first is right by `gap`."""
    network = nn.Linear(4, 3)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, -1.0, 2.0, 0.5], [0.1, 0.2, -0.1, 0.3], [-0.2, 0.1, 0.3, -0.1]]))
        network.bias.copy_(torch.tensor([gap, 0.0, -1.0]))
    return network, torch.full((2, 4), 0.5), torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize("name", ["fgsm", "ifgsm"])
def test_both_attacks_are_one_where_no_gradient_is_lost(name: str) -> None:
    network, x, y = affine(2.0)
    printed = getattr(printed_attacks, name)(network, x, y, 0.1, bounds=(0.0, 1.0))
    torch.testing.assert_close(printed, getattr(attacks, name)(network, x, y, 0.1, bounds=(0.0, 1.0)))


def test_a_large_margin_masks_the_plain_gradient() -> None:
    network, x, y = affine(40.0)
    w = network.weight.detach()
    # p of the label rounds to 1: what is left follows the strongest other class, whose own score it raises.
    torch.testing.assert_close(printed_attacks.plain_gradient(network, x, y).sign(), w[1].sign().expand(2, 4))
    safe = attacks.fgsm(network, x, y, 0.1, bounds=None) - x
    torch.testing.assert_close(safe.sign(), (w[1] - w[0]).sign().expand(2, 4))
    weak = printed_attacks.fgsm(network, x, y, 0.1, bounds=None)

    def margin(at: Tensor) -> Tensor:
        scores = network(at).detach()
        return scores[:, 0] - scores[:, 1]

    assert (margin(weak) > margin(x + safe)).all()


def test_images_leave_the_unit_box_only_if_they_are_not_clipped() -> None:
    network, x, y = affine(1.0)
    edge = torch.zeros_like(x)
    inside = printed_attacks.ifgsm(network, edge, y, 0.3, bounds=(0.0, 1.0))
    outside = printed_attacks.ifgsm(network, edge, y, 0.3, bounds=None)
    assert float(inside.min()) == 0.0
    assert float(outside.min()) == pytest.approx(-0.3)
    assert float((outside - edge).abs().max()) <= 0.3 + 1e-6
    torch.testing.assert_close(printed_attacks.fgsm(network, x, y, 0.0, bounds=None), x)


def test_a_measurement_names_the_variant() -> None:
    whole = samples.synthetic((4,), 20, classes=3)
    parts = Parts(train=whole.train, validation=whole.train, whole=whole, test_count=None)
    network, _, _ = affine(0.0)
    subject = measurements.Subject(network=network, parts=parts, seed=0, networks=lambda _: network)
    settings = {"kind": "attack", "attack": "fgsm", "epsilons": [0.5], "curve": "printed"}
    for extra in ({}, {"clip": False}, {"gradient": "plain"}, {"clip": False, "gradient": "plain"}):
        row = measurements.take({**settings, **extra}, subject)
        move = (attacks if "gradient" not in extra else printed_attacks).fgsm
        x, y = whole.test.x, whole.test.y
        moved = move(network, x, y, 0.5, bounds=None if "clip" in extra else (0.0, 1.0))
        right = float((network(moved).argmax(dim=1) == y).double().mean())
        assert row["points"] == [{"curve": "printed", "at": {"epsilon": 0.5}, "accuracy": pytest.approx(right)}]
    with pytest.raises(ValueError, match="gradient is 'other'"):
        measurements.take({**settings, "gradient": "other"}, subject)
