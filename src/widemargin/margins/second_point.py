"""Two forward passes in one training step: of a batch, and of the batch moved at some places of the network.

The slope s = ‖∇d‖ of a score difference d is ⟨u, ∇d⟩ with u the direction of steepest ascent. With u held constant its
gradient with respect to the weights is that of (d(x) − d(x − h·u))/h: one more forward pass instead of a double
backward. In a linear region of a ReLU network this is exact for every h; elsewhere to first order in h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin import norms, places
from widemargin._autograd.batch_statistics import KeptStatistics
from widemargin._autograd.distributed_stats import processes
from widemargin._autograd.repeated_rng import KeptMasks, RandomStates, random_states, with_random_states
from widemargin._autograd.repeated_state import RepeatedState
from widemargin.margins.distance import check_rows
from widemargin.modules import (
    ModelInputs,
    forward,
    is_compiled,
    mixing_modules,
    uncompiled,
    unwrap,
    updates_running_stats,
    without_running_stats,
)
from widemargin.places import At
from widemargin.types import Scores, wide

SecondOrder: TypeAlias = bool | Literal["second-point"]
"""The denominators of a margin in its gradient: as constants, by a double backward, or by a second point."""

PART = 1 / 4
"""The length of a step as a part of the spread of the data, in single and half precision."""


class TwoPasses:
    """The passes of `model` on a batch, with equal dropout masks and batch statistics.

    Running statistics count the batch once. Batch statistics are constants in the gradients at the places, and in
    `loss.backward()` they are not. While a CUDA graph is captured the masks are kept, and random functions whose
    numbers depend on their inputs raise a `RuntimeError`.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.network = model, unwrap(model)
        self._statistics, self._masks, self._state = KeptStatistics(), KeptMasks(), RepeatedState(self.network)
        self._states: RandomStates | None = None
        # Walking over the modules costs host time in every step, so it is done once where possible.
        self._streaming = [module for module in self.network.modules() if "masks_drawn" in vars(module)]
        self._streams: dict[nn.Module, int] = {}
        self.is_random, self._mixes = False, bool(mixing_modules(self.network))
        self._updates = any(map(updates_running_stats, self.network.modules()))
        self._is_compiled = self._mixes and is_compiled(self.model)
        has_sync = self._mixes and any(isinstance(m, nn.SyncBatchNorm) and m.training for m in self.network.modules())
        if has_sync and processes() > 1:
            raise TypeError(
                "the network has SyncBatchNorm, whose statistics of several processes a second pass can't use again: "
                "expected BatchNorm1d, 2d or 3d, or evaluation mode"
            )

    def first(self, x: ModelInputs, at: Sequence[str]) -> tuple[Scores, At]:
        """The scores of the batch, and the places `at` of their graph, whose `moved` repeats the pass."""
        with self.watching(at) as watched:
            return self.scores(x, watched), watched

    @contextmanager
    def watching(self, at: Sequence[str]) -> Iterator[At]:
        """Watch the places `at` in the first pass: call `scores` inside the `with` block."""
        watching = places.watch(self.model, at, statistics="coupled")
        with self._eager(), watching as watched, self._recorded(watched), self._state.recorded():
            yield watched

    def again(self, x: ModelInputs, at: Sequence[str]) -> tuple[Scores, At]:
        """As `first`, for some samples of the batch: with the batch statistics of `first` and new dropout masks."""
        watching = places.watch(self.model, at, statistics="coupled")
        self._rewind()
        with self._eager(), self._reused(), watching as watched:
            return self.scores(x, watched), watched

    def moved(self, x: ModelInputs, steps: Mapping[str, Tensor]) -> Scores:
        """The scores of the samples of the last pass, with `steps` added at the places."""
        statistics, moving = self._reused(), places.moved(self.model, steps)
        self._rewind()
        drawn = with_random_states(self._states, x.device, self._state.generators)
        masks = self._masks.reused(x.device)
        with self._eager(), statistics, moving, drawn, masks:
            return forward(self.model, x)

    def scores(self, x: ModelInputs, watched: At) -> Scores:
        """The scores of `x` in a pass that watches places; its random numbers are remembered for `moved`."""
        own = self._state.generators
        states, streams = random_states(x.device, own), self._own_streams()
        with self._masks.recorded(x.device):
            scores = forward(self.model, x)
        watched.moved = partial(self.moved, x)
        after = random_states(x.device, own)
        is_drawn = states is not None and after is not None and not states.equals(after)
        self._states, self._streams = states if is_drawn else None, streams
        self.is_random = is_drawn or bool(self._masks) or streams != self._own_streams()
        return scores

    @property
    def is_repeated(self) -> bool:
        """Whether `again` gave its samples the scores of `first`: no new masks, and the same layers with statistics."""
        return not self.is_random and self._statistics.has_same_calls

    def _rewind(self) -> None:
        """Reset dropout layers with random streams of their own to their positions before the last pass."""
        for module, count in self._streams.items():
            module.masks_drawn = count  # type: ignore[assignment]

    def _recorded(self, watched: At) -> AbstractContextManager[None]:
        return self._statistics.recorded(watched.frozen_route()) if self._mixes else nullcontext()

    @contextmanager
    def _reused(self) -> Iterator[None]:
        """Batch statistics of the first pass; running statistics stay as they are."""
        running = without_running_stats(self.network) if self._updates else nullcontext()
        with running, self._state.reused(), self._statistics.reused() if self._mixes else nullcontext():
            yield

    def _own_streams(self) -> dict[nn.Module, int]:
        """The positions of dropout layers with random streams of their own, which are those of populations."""
        return {module: module.masks_drawn for module in self._streaming}  # type: ignore[misc]

    def _eager(self) -> AbstractContextManager[None]:
        """Run the network uncompiled where BatchNorm mixes samples: compiled code ignores replaced functions."""
        return uncompiled(self.model) if self._is_compiled else nullcontext()


def steps_down(gradients: Mapping[str, Tensor], lengths: Mapping[str, Tensor], p: float) -> dict[str, Tensor]:
    """The steps along which functions with these gradients fall fastest, of l_p length `lengths` `[batch]` or `[1]`."""
    return {
        name: -(norms.steepest(g, p) * lengths[name].view(-1, *[1] * (g.ndim - 1))).to(g.dtype)
        for name, g in gradients.items()
    }


def slopes(
    at: At,
    outputs: Float[Tensor, "batch columns"],
    of: Callable[[Tensor], Tensor],
    *,
    lengths: Mapping[str, Tensor],
    p: float = 2.0,
    least: float | None = None,
) -> dict[str, Float[Tensor, "batch columns"]]:
    """(g(x) − g(x − h·u))/h of every sample, column g of `outputs` and place: ‖∇g‖_q to first order in h.

    `of` maps the scores of a moved pass to the columns; `lengths` are the h. Each column and place takes one forward
    pass. Training can make the result negative while ‖∇g‖_q stays, so minimise its square or absolute value. With
    `least` a slope is at least that fraction of ‖∇g‖_q.
    """
    if at.moved is None:
        raise ValueError(
            "second_order is 'second-point', but at belongs to a pass that can't be repeated: call the function with "
            "(model, x, y), or take scores and places from TwoPasses(model).first(x, places)"
        )
    columns: dict[str, list[Tensor]] = {name: [] for name in at}
    for gradients in at.columns(outputs):
        for name, column in ((name, column) for name, part in gradients.items() for column in part):
            steps, number = steps_down({name: column}, lengths, p), len(columns[name])
            slope = (outputs[:, number] - of(at.moved(steps))[:, number]) / lengths[name]
            if least is not None:
                slope = torch.maximum(slope, least * norms.lp(column, norms.dual(p)))
            columns[name].append(slope)
    return {name: torch.stack(rows, dim=1) for name, rows in columns.items()}


def lengths_of(at: At, scores: Scores, p: float = 2.0) -> dict[str, Float[Tensor, 1]]:
    """h at every place, the l_p length of a step for `slopes`: a part of the spread of the data there.

    h = √v·min(1, r·D^(1/p − 1/2)) with √v the `deviation` in D coordinates, and 1 where the data do not vary. Too small
    an h is bad for two reasons: rounding changes a slope by ε/h, and a ReLU that switches within the step adds 1/h to a
    weight gradient, so that gradients are noisier by 1/√h. Therefore r = 1/4 up to float32, above the ε^(1/3) of
    bfloat16 (0.2), and at least ε'·√D, with ε' the machine epsilon of the numbers at the place: a shorter step would be
    lost. In float64 r = ε^(1/3) = 6·10⁻⁶, which gives derivatives to be compared with exact ones.
    """
    lengths: dict[str, Tensor] = {}
    for name, values in at.activations.items():
        check_rows(name, values, samples=len(scores))
        width, size, epsilon = values[0].numel(), deviation(values[None]), torch.finfo(values.dtype).eps
        is_double = scores.dtype == values.dtype == torch.float64
        part = epsilon ** (1 / 3) if is_double else max(PART, epsilon * width**0.5)
        lengths[name] = min(1.0, part * width ** (1 / p - 0.5)) * torch.where(size > 0, size, torch.ones_like(size))
    return lengths


def deviation(points: Float[Tensor, "networks batch ..."]) -> Float[Tensor, " networks"]:
    """√v of every network's batch, v the variance of a coordinate over the batch, the mean over the coordinates.

    For a single sample v is the variance over its coordinates.
    """
    flat = wide(points.detach().reshape(*points.shape[:2], -1))
    return flat.var(dim=1 if flat.shape[1] > 1 else 2, correction=0).mean(dim=1).sqrt()
