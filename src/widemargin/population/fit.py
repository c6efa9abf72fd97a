"""Train many networks of one architecture as one program."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from widemargin._autograd.preserve_rng import preserve_rng
from widemargin._cuda import graphs
from widemargin._io.progress import ProgressBars
from widemargin.checks import (
    check_callable,
    check_choice,
    check_count,
    check_flag,
    check_number,
    check_seed,
    check_several,
)
from widemargin.losses.protocol import Loss, for_samples
from widemargin.losses.score_criterion import as_loss
from widemargin.modules import floating_parameter, predict
from widemargin.population.batches import samples_of
from widemargin.population.chunks import Chunk, choose
from widemargin.population.conv_matmul import CONVOLUTIONS, Convolutions, why_not_fused
from widemargin.population.optimizers import stackable
from widemargin.population.run import NetworkResult, PopulationConfig, PopulationRun
from widemargin.population.stack import check_alike
from widemargin.training.config import Regularizer, regularizers_of
from widemargin.training.optimizers import MakesOptimizer
from widemargin.training.schedules import Constant, Schedule

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class Population:
    """Trained networks, how many steps each took, the mean loss of its last batch, and in which chunks they trained.

    `no_cuda_graph` says why there was no CUDA graph; it is None where most steps were replayed from one.
    """

    networks: list[nn.Module]
    steps: list[int]
    losses: list[float]
    chunks: list[int]
    no_cuda_graph: str | None = None

    def __len__(self) -> int:
        return len(self.networks)


def build(builder: Callable[[], nn.Module], seeds: Sequence[int]) -> list[nn.Module]:
    """A network from `builder` for every seed, with torch's generator seeded by it; the generator is left as it was."""
    check_callable("builder", builder, "lambda: models.toy_mlp()", makes=nn.Module)
    networks = []
    for seed in _checked_seeds(seeds):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            networks.append(builder())
    return networks


def fit(
    networks: Sequence[nn.Module],
    data: object,
    *,
    loss: Loss | Sequence[Loss],
    optimizer: MakesOptimizer | Sequence[MakesOptimizer],
    steps: int,
    batch_size: int | None = 128,
    seeds: Sequence[int] | None = None,
    regularizers: Iterable[Regularizer] = (),
    schedule: Schedule = Constant(),  # noqa: B008 (a frozen value)
    until: float | None = None,
    chunk: int | None = None,
    convolutions: Convolutions | None = None,
    cuda_graph: bool | None = None,
    gradient_clip: float | int | None = None,
    device: str | torch.device | None = None,
    progress: bool | None = None,
) -> Population:
    """Train `networks`, which are left as they are, and return trained copies.

    The same weights as training them one by one with the same seeds, up to rounding: every network's order of samples,
    dropout masks and batch statistics are its own. Without dropout they are also those of `fit` with that seed.

    Args:
        networks: networks of one architecture; `build(builder, seeds)` makes them.
        data: one data set for all (its training set), or a sequence of data sets of equal size, one a network. Inputs
            that networks share are kept once.
        loss: one loss for all, or a sequence of one a network. Losses of scores, `Target` with different α, and
            `MarginLoss` with different penalties train as one; any others are computed network by network.
        optimizer: `training.SGD`, `AdamW`, `RMSprop`, `Nero`, or a `functools.partial` of torch's with the same
            settings; or a sequence of one a network, which differ in their learning rates alone.
        steps: at most so many steps for every network.
        batch_size: samples of a step of each network; None: all of them, in their order.
        seeds: of the order of the samples and the dropout masks, one a network; by default 0, 1, 2, …
        regularizers: as of `fit`, the same for all.
        schedule: as of `fit`, with a step for an epoch: (step, steps) → factor of the learning rate.
        until: a network whose mean loss on a batch is below this, before the step that it is for, is done, and no
            longer trained with the others.
        chunk: how many networks to train at once; by default as many as are fastest, by measuring. Where the memory
            of a GPU does not suffice the chunk is halved, with a warning.
        convolutions: `"grouped"`, `"matmul"`, or on a GPU `"fused"`, see `population.conv_matmul`; by default the
            fastest, by measuring.
        cuda_graph: whether steps are recorded as a CUDA graph and replayed, without the overhead of Python. By default
            they are on a GPU, where they can be: batches of one size (a smaller last batch of an epoch runs without),
            and losses and regularizers that serve all networks at once. `Population.no_cuda_graph` says why not; with
            True that is an error.
        gradient_clip: the largest global norm of the gradients of each network, as of `fit`.
        device: where to train; by default where the first network is. The copies are where the networks are.
        progress: show bars of the networks and the steps; by default on a terminal only.
    """
    _check_arguments(networks, schedule, cuda_graph)
    networks = list(networks)
    check_alike(networks)
    count = len(networks)
    check_count("steps", steps)
    for name, least_one in {"batch_size": batch_size, "chunk": chunk}.items():
        if least_one is not None:
            check_count(name, least_one)
    for name, limit in {"until": until, "gradient_clip": gradient_clip}.items():
        if limit is not None:
            check_number(name, limit, above=0.0)
    check_choice("convolutions", convolutions, (None, *CONVOLUTIONS))
    weight = floating_parameter(networks[0])
    assert weight is not None
    where = weight.device if device is None else torch.device(device)
    if convolutions == "fused" and why_not_fused(where) is not None:
        raise ValueError(f"convolutions is 'fused', but {why_not_fused(where)}")
    if cuda_graph and graphs.why_not(where) is not None:
        raise ValueError(f"cuda_graph is True, but {graphs.why_not(where)}")
    seeds = list(range(count)) if seeds is None else _checked_seeds(seeds)
    samples = samples_of(data, count, where, weight.dtype)
    predict(copy.deepcopy(networks[0]), samples[0].x[:1])  # raises where the network can't take the inputs
    plan = PopulationConfig(
        networks=networks,
        data=samples,
        losses=_losses(loss, [len(own) for own in samples]),
        optimizers=stackable(_each("optimizer", optimizer, count, "training.SGD(lr=0.1)"), networks[0]),
        seeds=_each("seeds", seeds, count),
        regularizers=regularizers_of(regularizers),
        steps=steps,
        batch_size=batch_size,
        schedule=schedule,
        until=until,
        device=where,
        cuda_graph=cuda_graph,
        gradient_clip=gradient_clip,
    )
    with preserve_rng(where), torch.enable_grad():
        chosen = choose(plan, size=chunk, convolutions=convolutions)
        with closing(ProgressBars({"Networks": count, "Steps": steps}, progress=progress)) as bars:
            return _train(plan, chosen, bars)


def _check_arguments(networks: object, schedule: object, cuda_graph: object) -> None:
    check_several("networks", networks, "population.build(builder, range(10))")
    check_callable("schedule", schedule, "training.Cosine()")
    if cuda_graph is not None:
        check_flag("cuda_graph", cuda_graph)


def _checked_seeds(seeds: Sequence[int]) -> list[int]:
    check_several("seeds", seeds, "range(10)")
    found = list(seeds)
    for seed in found:
        check_seed(seed, "seeds")
    return found


def _train(plan: PopulationConfig, chunk: Chunk, bars: ProgressBars) -> Population:
    results: dict[int, NetworkResult] = {}
    size, sizes = chunk.size, list[int]()
    no_cuda_graph: str | None = None
    while len(results) < len(plan):
        members = range(len(results), min(len(results) + size, len(plan)))
        try:
            part, why_not = _train_together(plan, members, chunk.convolutions, bars)
        except torch.OutOfMemoryError:
            if len(members) == 1:
                raise
            size = len(members) // 2
        else:
            results.update(part)
            sizes.append(len(members))
            no_cuda_graph = no_cuda_graph or why_not
            continue
        # Outside of the except block the tensors of the failed attempt are freed.
        if plan.device.type == "cuda":
            torch.cuda.empty_cache()
        warnings.warn(f"{len(members)} networks at once do not fit in memory, continuing with {size}", stacklevel=3)
    networks, steps, losses = zip(*(results[k] for k in range(len(plan))))
    return Population(
        networks=list(networks), steps=list(steps), losses=list(losses), chunks=sizes, no_cuda_graph=no_cuda_graph
    )


def _train_together(
    plan: PopulationConfig, members: range, convolutions: Convolutions, bars: ProgressBars
) -> tuple[dict[int, NetworkResult], str | None]:
    """The results of the networks `members`, and why there was no CUDA graph."""
    with closing(PopulationRun(plan, members, convolutions)) as run:
        results = run.train(partial(bars.update, "Steps"))
    bars.update("Networks", members[-1] + 1)
    return results, run.no_cuda_graph or (None if run.was_recorded else "the training is too short for one")


def _losses(loss: Loss | Sequence[Loss], samples: list[int]) -> list[Loss]:
    """The loss of every network, for its number of training samples; criteria `(scores, y)` become losses."""
    given = [as_loss(one) for one in loss] if isinstance(loss, (list, tuple)) else as_loss(loss)
    each = _each("loss", given, len(samples), "losses.CrossEntropy()")
    return [for_samples(one, count) for one, count in zip(each, samples, strict=True)]


def _each(name: str, value: T | Sequence[T], count: int, example: str = "") -> list[T]:
    values: list[T] = list(value) if isinstance(value, (list, tuple)) else [value] * count  # type: ignore[list-item]
    if len(values) != count:
        raise ValueError(f"{name} has {len(values)} entries, but there are {count} networks, expected one for each")
    for one in values if example else ():
        check_callable(name, one, example, makes=torch.optim.Optimizer if name == "optimizer" else None)
    return values
