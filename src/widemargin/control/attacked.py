"""Twins by attack: the same training margins, with and without randomly labelled points beside them (farhang §4.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin import population
from widemargin.checks import check_callable, check_numbers
from widemargin.control.accuracy import accuracies, on_the_sphere
from widemargin.data.samples import Samples, check_samples
from widemargin.data.seeds import generator
from widemargin.losses.classification import Target
from widemargin.margins.normalized import frobenius
from widemargin.modules import evaluating, forward
from widemargin.training.optimizers import MakesOptimizer, NeroOptimizer
from widemargin.training.schedules import Exponential, Schedule
from widemargin.types import is_binary


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackedTwins:
    """For every target α a `control` network, trained on the clean points, and an `attacked` one, on more points.

    The margins are Frobenius-normalized, of the clean points alone, a row a target; `accuracies` are those on the clean
    points, `test_accuracies` those on the test set, None where there was none.
    """

    targets: tuple[float, ...]
    control: list[nn.Module]
    attacked: list[nn.Module]
    control_margins: Float[Tensor, "targets points"]
    attacked_margins: Float[Tensor, "targets points"]
    control_losses: list[float]
    attacked_losses: list[float]
    control_test_accuracies: Float[Tensor, " targets"] | None
    attacked_test_accuracies: Float[Tensor, " targets"] | None

    @property
    def control_accuracies(self) -> Float[Tensor, " targets"]:
        """The fraction of the clean points with a margin > 0."""
        return (self.control_margins > 0).double().mean(dim=1)

    @property
    def attacked_accuracies(self) -> Float[Tensor, " targets"]:
        """The fraction of the clean points with a margin > 0."""
        return (self.attacked_margins > 0).double().mean(dim=1)


def attacked_twins(
    builder: Callable[[], nn.Module],
    train: Samples,
    attack: Samples,
    *,
    targets: Sequence[float] = (1.0,),
    test: Samples | None = None,
    seed: int = 0,
    steps: int = 100_000,
    optimizer: MakesOptimizer = NeroOptimizer(),  # noqa: B008 (both are frozen values)
    schedule: Schedule = Exponential(factor=0.99997),  # noqa: B008
    until: float | None = None,
    device: str | torch.device | None = None,
    progress: bool | None = None,
) -> AttackedTwins:
    """Train twins to the same margins α, one on `train`, one on `train` and `attack` with random labels.

    farhang §4.2, Experiment 1, and A.2: full-batch Nero of learning rate 0.01 on ‖f(x_i) − α·y_i‖², 100,000 steps, the
    learning rate times 0.99997 in each (errata 3). Twins start from the same weights, all pairs from the same seed.

    Args:
        builder: gives a network without biases, such as `models.farhang_mlp(width=2048, depth=2)`.
        train: the clean points; 500 of MNIST in the paper.
        attack: points whose labels are replaced by uniformly random ones; 1000 in the paper (errata 7).
        targets: a pair for each α.
        test: to measure accuracies on.
        seed: of the weights at the start and of the random labels.
        steps: at most so many for each network.
        optimizer: of both.
        schedule: of its learning rate, (step, steps) → factor.
        until: stop a network whose mean loss is below this.
        device: where to train; by default where `builder` puts its networks.
        progress: show bars; by default on a terminal only.
    """
    check_callable("builder", builder, "lambda: models.farhang_mlp(depth=2)", makes=nn.Module)
    check_callable("schedule", schedule, "training.Constant()")
    check_numbers("targets", targets, above=0.0)
    alphas = tuple(float(target) for target in targets)
    if test is not None:
        check_samples("test", test)
    (start,) = population.build(builder, [generator("attacked twins", seed).initial_seed()])
    start = start if device is None else start.to(device)
    clean = on_the_sphere(train, start)
    more = on_the_sphere(attack, start, "attack")
    with torch.no_grad(), evaluating(start):
        scores = forward(start, clean.x[:1])
    labels = _random_labels(len(more), scores, clean.y, seed)
    joint = Samples(torch.cat([clean.x, more.x]), torch.cat([clean.y, labels]))
    losses = [Target(alpha=alpha) for alpha in alphas]
    settings: dict[str, Any] = {"optimizer": optimizer, "schedule": schedule, "steps": steps, "until": until}
    settings |= {"loss": losses, "batch_size": None, "progress": progress}
    control, attacked = (population.fit([start] * len(alphas), data, **settings) for data in (clean, joint))
    return AttackedTwins(
        targets=alphas,
        control=control.networks,
        attacked=attacked.networks,
        control_margins=_margins(control.networks, clean),
        attacked_margins=_margins(attacked.networks, clean),
        control_losses=control.losses,
        attacked_losses=attacked.losses,
        control_test_accuracies=None if test is None else accuracies(control.networks, test),
        attacked_test_accuracies=None if test is None else accuracies(attacked.networks, test),
    )


def _random_labels(count: int, scores: Tensor, y: Tensor, seed: int) -> Tensor:
    drawn = torch.randint(2 if is_binary(scores) else scores.shape[1], (count,), generator=generator("attack", seed))
    return (2 * drawn - 1 if is_binary(scores) else drawn).to(y)


def _margins(networks: Sequence[nn.Module], points: Samples) -> Tensor:
    with torch.no_grad():
        return torch.stack([frobenius(network, points.x, points.y) for network in networks])
