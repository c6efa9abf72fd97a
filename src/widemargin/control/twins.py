"""Twins by rejection: a sampled network, and one trained to the same outputs (farhang §4.2, Experiment 2)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from widemargin import population
from widemargin.checks import check_callable, check_count, check_module, check_number
from widemargin.control.accuracy import accuracies, on_the_sphere
from widemargin.data.samples import Samples, check_samples
from widemargin.data.seeds import generator
from widemargin.losses.classification import Target
from widemargin.margins.normalized import weights
from widemargin.modules import forward, scores_of
from widemargin.training.optimizers import MakesOptimizer, NeroOptimizer
from widemargin.training.schedules import Constant, Schedule

Sampled: TypeAlias = tuple[list[nn.Module], Tensor, int, int]
"""Networks, their outputs, the number of draws, and of networks with all labels right."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Twins:
    """Pairs of networks with the same outputs on a training set: `sampled` ones, and `trained` ones.

    `drawn` networks were sampled, of which `classified` had all labels right and `flipped` all of them wrong;
    `steps` and `losses` are those of the trained twins, and `until` is the limit of their losses.
    """

    sampled: list[nn.Module]
    trained: list[nn.Module]
    sampled_outputs: Float[Tensor, "pairs points"]
    trained_outputs: Float[Tensor, "pairs points"]
    drawn: int
    classified: int
    flipped: int
    steps: list[int]
    losses: list[float]
    until: float
    sampled_accuracies: Float[Tensor, " pairs"] | None
    trained_accuracies: Float[Tensor, " pairs"] | None

    @property
    def acceptance(self) -> float:
        """The fraction of the drawn networks that was accepted."""
        return (self.classified + self.flipped) / self.drawn

    @property
    def errors(self) -> Float[Tensor, " pairs"]:
        """‖f_trained − f_sampled‖₂/‖f_sampled‖₂ over the training points, of every pair."""
        differences = torch.linalg.vector_norm(self.trained_outputs - self.sampled_outputs, dim=1)
        return differences / torch.linalg.vector_norm(self.sampled_outputs, dim=1)

    @property
    def worst(self) -> float:
        """The largest of them, as in Table 1, which does not say relative to what."""
        return float(self.errors.max())

    @property
    def reached(self) -> Bool[Tensor, " pairs"]:
        """Whether each trained twin has a loss below `until`."""
        return torch.tensor([loss < self.until for loss in self.losses])

    def __str__(self) -> str:
        text = (
            f"{len(self.sampled)} pairs out of {self.drawn} draws ({self.classified} right, {self.flipped} flipped); "
            f"{int(self.reached.sum())} trained to a loss below {self.until:g}; worst relative error {self.worst:.3g}"
        )
        if self.sampled_accuracies is None or self.trained_accuracies is None:
            return text
        sampled, trained = self.sampled_accuracies.mean(), self.trained_accuracies.mean()
        return f"{text}; test accuracy {sampled:.2%} sampled, {trained:.2%} trained"


def rejection_twins(
    builder: Callable[[], nn.Module],
    train: Samples,
    *,
    pairs: int,
    test: Samples | None = None,
    seed: int = 0,
    until: float = 1e-6,
    steps: int = 20_000,
    optimizer: MakesOptimizer = NeroOptimizer(),  # noqa: B008 (both are frozen values)
    schedule: Schedule = Constant(),  # noqa: B008
    most_draws: int = 10_000_000,
    device: str | torch.device | None = None,
    progress: bool | None = None,
) -> Twins:
    """Draw networks until `pairs` of them classify `train`, and train a twin to the outputs of each.

    Sampling: every weight is N(0, 1), then W_l ← W_l·√d_l/‖W_l‖_F, until sign f(x_i) = y_i for all points; a network
    with all signs wrong is accepted too, with the sign of its last layer changed (errata 6). Training: fresh networks,
    by Nero on the full batch, until the mean of (f_trained(x_i) − f_sampled(x_i))² is below `until` (1e-6 in A.3).
    Both have ‖W_l‖_F = √d_l and inputs of norm √d_0, so that their Frobenius-normalized margins are their outputs.

    All networks are kept in memory. For large networks, draw a few pairs at a time with different seeds.

    Args:
        builder: gives a network without biases and with one output, such as `models.farhang_mlp(outputs=1, depth=7)`.
        train: a tiny binary training set, labels ±1: about one draw in 2^(n−1) is accepted, or fewer.
        pairs: how many.
        test: to measure the accuracies of both on.
        seed: of the draws and of the fresh networks. The draws are those of the device: a GPU draws others than a CPU.
        until: see above.
        steps: a twin that is not there after so many steps stays as it is; `Twins.reached` says which.
        optimizer: of the training.
        schedule: of its learning rate, (step, steps) → factor.
        most_draws: after so many draws it is an error not to have enough.
        device: where to draw and to train; by default where `builder` puts its networks. The networks stay there.
        progress: show bars; by default on a terminal only.
    """
    _check_arguments(builder, schedule, until, test)
    check_count("pairs", pairs)
    check_count("most_draws", most_draws, least=pairs)
    base = builder()
    names = _weight_names(base)
    where = next(base.parameters()).device if device is None else torch.device(device)
    base = base.to(where).eval()
    points = on_the_sphere(train, base)
    if not bool(((points.y == 1) | (points.y == -1)).all()) or not points.y.is_floating_point():
        raise ValueError("train has labels other than -1.0 and +1.0, expected a binary training set")
    with torch.no_grad():
        shape = forward(base, points.x).shape
    if shape.numel() != len(points):
        raise ValueError(f"builder gives networks with outputs {list(shape)}, expected one output for each sample")
    sampled, outputs, drawn, classified = _sample(base, names, points, pairs=pairs, seed=seed, most=most_draws)
    fresh = population.build(builder, [_seed(seed, number) for number in range(pairs)])
    alphas = outputs * points.y  # = |f(x_i)|, as all signs are right
    trained = population.fit(
        [network.to(where) for network in fresh],
        points,
        loss=[Target(alpha=tuple(targets)) for targets in alphas.tolist()],
        optimizer=optimizer,
        schedule=schedule,
        steps=steps,
        batch_size=None,
        until=until,
        progress=progress,
    )
    with torch.no_grad():
        trained_outputs = [scores_of(network.eval()(points.x)).reshape(-1) for network in trained.networks]
    return Twins(
        sampled=sampled,
        trained=trained.networks,
        sampled_outputs=outputs,
        trained_outputs=torch.stack(trained_outputs),
        drawn=drawn,
        classified=classified,
        flipped=pairs - classified,
        steps=trained.steps,
        losses=trained.losses,
        until=until,
        sampled_accuracies=None if test is None else accuracies(sampled, test),
        trained_accuracies=None if test is None else accuracies(trained.networks, test),
    )


def _check_arguments(builder: object, schedule: object, until: float, test: object) -> None:
    check_callable("builder", builder, "lambda: models.farhang_mlp(outputs=1)", makes=nn.Module)
    check_callable("schedule", schedule, "training.Constant()")
    check_number("until", until, above=0.0)
    if test is not None:
        check_samples("test", test)


@torch.no_grad()
def _sample(base: nn.Module, names: list[str], points: Samples, *, pairs: int, seed: int, most: int) -> Sampled:
    """Draw many networks at once and keep those that classify all points, in the order they were drawn."""
    tensors = dict(base.named_parameters())
    like = tensors[names[0]]
    numbers = torch.Generator(device=like.device).manual_seed(_seed(seed, -1))
    size = sum(tensors[name].numel() for name in names) * like.element_size()
    bytes_at_once = 1 << (27 if like.device.type == "cpu" else 33)
    at_once = max(1, min(4096, bytes_at_once // size))
    networks: list[nn.Module] = []
    outputs: list[Tensor] = []
    drawn = classified = 0
    while len(networks) < pairs:
        count = min(at_once, most - drawn)
        if count == 0:
            raise ValueError(
                f"most_draws is {most}, after which {len(networks)} of {pairs} networks that classify the "
                f"{len(points)} training points were found: expected fewer points, fewer pairs, or more draws"
            )
        stack = {name: _drawn(tensors[name], count, numbers) for name in names}
        f = vmap(lambda w: scores_of(functional_call(base, w, (points.x,))))(stack).view(count, -1)
        signs = f.sign() * points.y
        right, wrong = (signs == 1).all(dim=1), (signs == -1).all(dim=1)
        for row in (right | wrong).nonzero().flatten().tolist():
            network = copy.deepcopy(base)
            for name in names:
                network.get_parameter(name).copy_(stack[name][row])
            if bool(wrong[row]):
                network.get_parameter(names[-1]).neg_()
            networks.append(network)
            outputs.append(f[row] if bool(right[row]) else -f[row])
            classified += int(right[row])
            if len(networks) == pairs:
                drawn += row + 1
                break
        else:
            drawn += count
    return networks, torch.stack(outputs), drawn, classified


def _drawn(like: Tensor, count: int, numbers: torch.Generator) -> Tensor:
    """`count` weights of N(0, 1), each of Frobenius norm √d_l."""
    drawn = torch.randn(count, *like.shape, generator=numbers, dtype=like.dtype, device=like.device)
    norms = torch.linalg.vector_norm(drawn.flatten(1), dim=1)
    return drawn.mul_((math.sqrt(len(like)) / norms).view(-1, *[1] * like.ndim))


def _weight_names(network: nn.Module) -> list[str]:
    """The parameters to draw; the last of them is the matrix of the output."""
    check_module(network, "the result of builder")
    # `weights` raises for biases, BatchNorm and other layers with parameters of their own.
    return [f"{layer}.weight" if layer else "weight" for layer, _ in weights(network)]


def _seed(seed: int, number: int) -> int:
    return generator(f"twin {number}", seed).initial_seed()
