"""The objective of every network of a stack: mean loss plus regularizers, by passes that serve all networks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.func import vmap

from widemargin._autograd.batch_statistics import KeptStatistics
from widemargin.checks import check_scores_and_labels
from widemargin.losses import MarginLoss, ScoreLoss, Target, WideMargin, scale_free
from widemargin.losses.classification import squared
from widemargin.losses.margin import cross_entropy
from widemargin.losses.protocol import Loss, needs_index, stacking_of, values_of
from widemargin.losses.wide_margin import class_balance, penalty, squared_accuracy, strongest_other, where_finite
from widemargin.margins.data_scale import DataScale, evenly_spaced
from widemargin.margins.distance import Linearization
from widemargin.margins.output import against
from widemargin.modules import without_running_stats
from widemargin.places import INPUT
from widemargin.population.batches import StackedBatch
from widemargin.population.rng import Streams
from widemargin.population.stack import Stack
from widemargin.regularizers import Jacobian, JacobianFrobenius
from widemargin.training.config import Regularizer


class Objective:
    """Losses, one a network, and regularizers, the same for all.

    Those with a `stacking` (see `losses.protocol`) take one pass for all networks; anything else is called network by
    network. So is a stack of one, which is what training alone does, unless `at_once`: the steps are to be recorded as
    a CUDA graph.
    """

    def __init__(
        self,
        losses: Sequence[Loss],
        regularizers: Sequence[Regularizer],
        samples: int,
        device: torch.device,
        *,
        at_once: bool = False,
        gradient_clip: float | int | None = None,
    ) -> None:
        self.fewest, self.gradient_clip = 1 if at_once else 2, gradient_clip
        self.losses, self.regularizers, self.device = list(losses), tuple(regularizers), device
        self._alphas: Tensor | None = None
        if {stacking_of(loss) for loss in losses} == {"targets"}:
            self._alphas = _alphas(cast("Sequence[Target]", losses), samples).to(device)
        self._group()

    def keep(self, index: Tensor) -> None:
        """Keep the networks at `index` alone."""
        self.losses = [self.losses[k] for k in index.tolist()]
        self._alphas = None if self._alphas is None else self._alphas[index]
        self._group()

    def backward(self, stack: Stack, batch: StackedBatch, keys: Sequence[Tensor | None], streams: Streams) -> Tensor:
        """The mean losses `[networks]`; sets `.grad` of `stack.trained()` to the gradients of the objectives.

        `keys` are those of the dropout masks, of the loss and of each regularizer.
        """
        trained = list(stack.trained().values())
        for parameter in trained:
            parameter.grad = None
        loss = total = self._loss(stack, batch, keys[0], streams)
        for regularizer, key in zip(self.regularizers, keys[1:], strict=True):
            total = total + self._penalty(stack, batch, regularizer, key, streams)
        gradients: Sequence[Tensor | None] = torch.autograd.grad(total.sum(), trained, allow_unused=True)
        if self.gradient_clip is not None:
            gradients = clipped(gradients, self.gradient_clip)
        for parameter, gradient in zip(trained, gradients):
            parameter.grad = gradient
        return loss.detach()

    def _group(self) -> None:
        """Group networks with equal losses; losses that can't be compared are a group each."""
        groups: dict[Hashable, list[int]] = {}
        for number, loss in enumerate(self.losses if self._alphas is None else ()):
            groups.setdefault(_key(loss), []).append(number)
        self._groups = [(self.losses[rows[0]], torch.tensor(rows, device=self.device)) for rows in groups.values()]
        passes = {(stacking_of(loss), _lines(loss)) for loss, _ in self._groups}
        is_alike = len(passes) == 1 and not any(needs_index(loss) for loss, _ in self._groups)
        self._stacking = passes.pop()[0] if is_alike else None

    def _loss(self, stack: Stack, batch: StackedBatch, key: Tensor | None, streams: Streams) -> Tensor:
        """The mean loss of every network, `[networks]`."""
        if len(stack) >= self.fewest:
            if self._alphas is not None:
                return self._targets(stack, batch, key, self._alphas)
            if self._stacking == "scores":
                return self._scores(stack, batch, key)
            if self._stacking == "margins":
                return self._margins(stack, batch, key, cast("MarginLoss", self.losses[0]))
            if self._stacking == "wide" and batch.x.is_floating_point():  # tokens have their place at an embedding
                return self._wide(stack, batch, key, cast("WideMargin", self.losses[0]))
        return _one_by_one(stack, batch, self.losses, key, streams)

    def _scores(self, stack: Stack, batch: StackedBatch, key: Tensor | None) -> Tensor:
        """Losses of the scores, by one forward pass."""
        scores, _ = stack.scores(batch.x, keys=key)
        f, y = scores.unflatten(0, (len(stack), -1)), batch.y

        def of(loss: ScoreLoss, rows: Tensor | slice) -> Tensor:
            return loss.of(f[rows].flatten(0, 1), y[rows].flatten())

        return self._by_group(of)

    def _targets(self, stack: Stack, batch: StackedBatch, key: Tensor | None, alphas: Tensor) -> Tensor:
        """Farhang's loss with an α for every network, or for every sample of every network."""
        scores, _ = stack.scores(batch.x, keys=key)
        y = batch.y.flatten()
        check_scores_and_labels(scores, y, finite=True)
        alpha = alphas[:, None].expand_as(batch.y) if alphas.ndim == 1 else alphas.gather(1, batch.index)
        values = squared(scores, y, alpha.flatten().to(scores.dtype))
        return values.view(len(stack), -1).mean(dim=1)

    def _margins(self, stack: Stack, batch: StackedBatch, key: Tensor | None, first: MarginLoss) -> Tensor:
        """One forward pass and a backward pass a class for all; each network's batch has statistics of its own."""
        y = batch.y.flatten()
        scores, at = stack.scores(batch.x, at=first.at, keys=key, statistics=first.statistics)
        lines = first.linearize(scores, y, at)
        by_network = (len(self.losses), -1)
        entropy = cross_entropy(scores, y).view(by_network)
        difference = lines.difference.unflatten(0, by_network)
        slopes = {name: slope.unflatten(0, by_network) for name, slope in lines.slopes.items()}

        def of(loss: MarginLoss, rows: Tensor | slice) -> Tensor:
            def penalize(d: Tensor, s: dict[str, Tensor]) -> Tensor:
                return loss.penalize(Linearization(difference=d, slopes=s), without_scale=scale_free.composed)

            values = vmap(penalize)(difference[rows], {name: slope[rows] for name, slope in slopes.items()})
            return values + loss.cross_entropy * entropy[rows] if loss.cross_entropy else values

        return self._by_group(of)

    def _wide(self, stack: Stack, batch: StackedBatch, key: Tensor | None, first: WideMargin) -> Tensor:
        """`WideMargin` by one second pass for all; steps and accuracies are those of each network."""
        kept, y, x, share = KeptStatistics(), batch.y, batch.x, first.share_of(batch.y.shape[1])
        is_part = share < 1
        scale = DataScale.of(x, y, first.p)
        scores, at = stack.scores(x, at=() if is_part else (INPUT,), keys=key, kept=kept)
        other = strongest_other(scores, y.flatten())
        difference = own = against(scores, y.flatten(), other)[:, 0]
        weights = squared_accuracy(difference, len(stack)).view_as(y) * class_balance(y, other, scores)
        weights = weights * scale.separation.square()[:, None]
        with without_running_stats(stack.base):
            if is_part:
                rows = evenly_spaced(y.shape[1], share, y.device)
                own = own.view(len(stack), -1)[:, rows].flatten()
                x, y, weights = x[:, rows], y[:, rows], weights[:, rows]
                other = None if other is None else other.view(len(stack), -1)[:, rows].reshape(-1, 1)
                with kept.reused():
                    again, at = stack.scores(x, at=(INPUT,), keys=key)
                difference = against(again, y.flatten(), other)[:, 0]
                own = difference if stack.dropouts or not kept.has_same_calls else own  # masks are those of the part
            steps = scale.steps_down(at.gradients(difference)[INPUT].view_as(x), first.p)

            def moved(step: Tensor) -> Tensor:
                with kept.reused():
                    scores, _ = stack.scores(x + step.view_as(x), keys=key)
                return against(scores, y.flatten(), other)[:, 0]

            ends = where_finite(moved, steps.flatten(0, 1))
        terms = weights * penalty(own - ends).view_as(weights)
        if is_part:
            weight = batch.y.shape[1] / len(rows)
            terms = torch.zeros_like(batch.y, dtype=terms.dtype).index_add(1, rows, terms * weight)
        f = scores.unflatten(0, (len(stack), -1))

        def of(loss: WideMargin, rows: Tensor | slice) -> Tensor:
            return (
                loss.of_scores.of(f[rows].flatten(0, 1), batch.y[rows].flatten()) + loss.weight * terms[rows].flatten()
            )

        return self._by_group(of)

    def _penalty(
        self, stack: Stack, batch: StackedBatch, regularizer: Regularizer, key: Tensor | None, streams: Streams
    ) -> Tensor:
        if len(stack) >= self.fewest and stacking_of(regularizer) == "frobenius":
            return self._frobenius(stack, batch, cast("JacobianFrobenius", regularizer), key, streams)
        if len(stack) < self.fewest or stacking_of(regularizer) != "jacobian":
            return _one_by_one(stack, batch, [regularizer] * len(stack), key, streams)
        jacobian, classifier = cast("Jacobian", regularizer), stack.classifier(batch.x)
        with without_running_stats(stack.base):
            scores, at = stack.scores(batch.x, at=(jacobian.at,), statistics=jacobian.statistics, keys=key)
        classes = None
        if not jacobian.form.endswith("sum"):
            drawn = []
            for k, y in enumerate(batch.y):
                with streams.of(k):
                    drawn.append(jacobian.draw(y, classifier.shape[1]))
            classes = torch.cat(drawn)
        rows = _own_rows(classifier, len(scores))
        values = jacobian.of(scores, batch.y.flatten(), at=at, classifier=rows, classes=classes)
        return values.view(len(stack), -1).mean(dim=1)

    def _frobenius(
        self, stack: Stack, batch: StackedBatch, part: JacobianFrobenius, key: Tensor | None, streams: Streams
    ) -> Tensor:
        """One pass of its own for all; the random directions are those of each network."""
        with without_running_stats(stack.base):
            scores, at = stack.scores(batch.x, at=(part.at,), statistics=part.statistics, keys=key)
        drawn, outputs = [], scores[0].numel()
        for k in range(len(stack) if part.projections is not None else 0):
            with streams.of(k):
                drawn.append(part.draw(batch.y.shape[1], outputs, batch.y.device))
        values = part.of(scores, batch.y.flatten(), at=at, directions=torch.cat(drawn) if drawn else None)
        return values.view(len(stack), -1).mean(dim=1)

    def _by_group(self, of: Callable[..., Tensor]) -> Tensor:
        """The mean of every network, where `of(loss, rows)` gives the values of the networks in `rows`, in order."""
        if len(self._groups) == 1:
            return of(self._groups[0][0], slice(None)).view(len(self.losses), -1).mean(dim=1)
        parts = [of(loss, rows).view(len(rows), -1).mean(dim=1) for loss, rows in self._groups]
        order = torch.cat([rows for _, rows in self._groups]).argsort()
        return torch.cat(parts)[order]


def clipped(gradients: Sequence[Tensor | None], most: float | int) -> tuple[Tensor | None, ...]:
    """`gradients` `[networks, ...]` with a global norm of at most `most` a network, as `clip_grad_norm_` clips them."""
    norms = [torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients if g is not None]
    factor = (most / (torch.linalg.vector_norm(torch.stack(norms), dim=0) + 1e-6)).clamp(max=1.0)
    return tuple(g if g is None else g * factor.view(-1, *[1] * (g.ndim - 1)) for g in gradients)


def _key(loss: Loss) -> Hashable:
    try:
        hash(loss)
    except TypeError:  # a loss with a list or a tensor in it
        return id(loss)
    return loss  # type: ignore[return-value]


def _alphas(losses: Sequence[Target], samples: int) -> Tensor:
    """α of every network `[networks]`, or of every sample of every network `[networks, samples]`."""
    tables = [torch.as_tensor(loss.alpha, dtype=torch.float64) for loss in losses]
    for number, table in enumerate(tables):
        if table.ndim and len(table) != samples:
            raise ValueError(
                f"loss {number} has {len(table)} alphas, expected one number, or one for each of the {samples} samples"
            )
    each = any(table.ndim for table in tables)
    return torch.stack([table.expand(samples) if each else table for table in tables])


def _own_rows(matrices: Tensor, samples: int) -> Callable[[Tensor], Tensor]:
    """Classes `[samples, n]` to rows of each sample's own network, of `matrices` `[networks, classes, features]`."""
    networks, count, _ = matrices.shape
    rows = matrices.flatten(0, 1)
    first = torch.arange(networks, device=rows.device).repeat_interleave(samples // networks) * count
    return lambda classes: rows[first[:, None] + classes]


def _lines(loss: Loss) -> tuple[object, ...]:
    """Settings in which losses must agree to share their passes."""
    names = {
        "margins": ("at", "p", "classes", "read_as", "second_order", "statistics"),
        "wide": ("p", "share", "has_many_samples"),
    }
    return tuple(getattr(loss, name) for name in names.get(stacking_of(loss) or "", ()))


def _one_by_one(
    stack: Stack, batch: StackedBatch, functions: Sequence[Regularizer], key: Tensor | None, streams: Streams
) -> Tensor:
    """Losses or regularizers, by a loop over the networks."""
    values = []
    for k, function in enumerate(functions):
        with stack.network(k, None if key is None else key[k]) as network, streams.of(k):
            values.append(values_of(function, network, batch.x[k], batch.y[k], batch.index[k]).mean())
    return torch.stack(values)
