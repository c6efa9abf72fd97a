"""Losses of all networks at once are those of every network alone, whatever the loss says about its evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from population.one_by_one import MLP, networks, samples
from widemargin import losses, regularizers
from widemargin.losses.protocol import stacking_of, values_of
from widemargin.population.batches import StackedData
from widemargin.population.objective import Objective
from widemargin.population.rng import Streams
from widemargin.population.stack import Stack

CPU = torch.device("cpu")


class Own(losses.ScoreLoss):
    def of(self, scores: Tensor, y: Tensor) -> Tensor:
        return scores.gather(1, y[:, None]).squeeze(1).neg().exp()


class Indexed(losses.ScoreLoss):
    needs_index = True

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, *, index: Tensor | None = None) -> Tensor:
        assert index is not None
        return super().__call__(model, x, y) * index

    def of(self, scores: Tensor, y: Tensor) -> Tensor:
        return scores[:, 0].square()


class Doubled(losses.CrossEntropy):
    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return 2 * super().__call__(model, x, y)


class Squared(losses.MarginLoss):
    def of(self, *arguments: Any, **settings: Any) -> Tensor:
        return super().of(*arguments, **settings).square()


@dataclass(frozen=True)
class Halved(losses.Wrapper):
    loss: losses.Loss

    def prepare(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x / 2, y


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (losses.CrossEntropy(), "scores"),
        (Own(), "scores"),
        (losses.Target(), "targets"),
        (losses.large_margin(), "margins"),
        (losses.MarginLoss(probes=2, classes="all"), None),
        (regularizers.Jacobian(weight=1.0, form="sum"), "jacobian"),
        (regularizers.JacobianFrobenius(weight=1.0, projections=None), "frobenius"),
        (losses.WideMargin(share=0.5), "wide"),
        (losses.WideMargin(at=("2",)), None),
        (Halved(losses.CrossEntropy()), None),
        (Doubled(), None),
        (Indexed(), None),
        (Squared(), None),
        (lambda model, x, y: model(x).square().sum(1), None),
    ],
)
@pytest.mark.parametrize("others", [(), (losses.CrossEntropy(),), (losses.Target(alpha=3.0), losses.SoftHinge())])
def test_one_pass_gives_the_loss_of_every_network(loss: Any, expected: str | None, others: tuple[Any, ...]) -> None:
    """Also after networks with other losses are done."""
    assert stacking_of(loss) == expected
    if isinstance(loss, losses.MarginLoss) and loss.probes is not None:
        return  # random
    given, data, each = networks(MLP, 2 + len(others)), samples(), [loss, loss, *others]
    objective, stack = Objective(each, (), len(data), CPU), Stack(given, CPU)
    table = StackedData([data] * len(given), range(len(given)), None)
    index = torch.arange(len(data))
    pairs = zip(each, given)
    alone = torch.stack([values_of(one, network, data.x, data.y, index).mean() for one, network in pairs]).detach()
    for left in (len(given), 2):
        for part in (objective, stack, table):
            part.keep(torch.arange(left))
        values = objective.backward(stack, table.batch(0), [None], Streams(table.seeds, 0, CPU))
        torch.testing.assert_close(values, alone[:left])
        assert any(parameter.grad is not None for parameter in stack.trained().values())
