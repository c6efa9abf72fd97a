"""The loss that widens the margins of any classifier: cross-entropy plus the change of a step towards the boundary."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import get_args

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import norms, places
from widemargin._autograd.value_without_grad import value_without_grad
from widemargin.checks import check_choice, check_count, check_flag, check_number, check_place_names, is_capturing
from widemargin.losses.classification import CrossEntropy, ScoreLoss
from widemargin.losses.protocol import Loss, Stacking, is_capturable, stacking_of
from widemargin.losses.score_criterion import as_loss
from widemargin.margins.data_scale import DataScale, evenly_spaced
from widemargin.margins.output import against, strongest
from widemargin.margins.second_point import TwoPasses
from widemargin.modules import ModelInputs
from widemargin.places import At
from widemargin.probabilities import Outputs, check_are_scores, read_model
from widemargin.types import Labels, PerExample, Scores, is_binary, wide

FULL_WEIGHT_SAMPLES = 3000
"""Largest number of training samples at full weight; with more samples N the weight is (3000/N)²."""

MIN_AUGMENTED_SAMPLES = 30_000
"""Lower limit of N for augmented inputs: their weight is at most 0.01."""

BATCH_FRACTION, MIN_BATCH_SAMPLES = 1 / 8, 16
"""Fraction of a batch, and at least so many samples, whose term is computed above `FULL_WEIGHT_SAMPLES`."""

HUBER_DELTA = 10.0
"""Change of the score difference beyond which its penalty is linear, so that gradients are bounded."""


@dataclass(frozen=True, kw_only=True)
class WideMargin:
    """Cross-entropy + b·(a·c)²·(d(x) − d(x − σ·u))², the default loss of `fit`.

    d = f_y − f_i is the score difference to the strongest other class i, u the direction in which it falls fastest (a
    constant for the gradient), and σ a small step: to first order the second term is b·(a·c·σ·s)² with the slope
    s = ‖∇d‖_q. Where slopes are small, decision boundaries are far: the distance of a sample is d/s. The term costs a
    second forward pass and no double backward (`margins.second_point`).

    No setting is required. From the batch follow:

    - σ = min(mean standard deviation of the coordinates, 1/24 of the median distance to the nearest sample of another
      class), see `margins.data_scale`. It has the units of the data: multiply the data by k and the first layer by 1/k,
      and the training is the same. Features, and channels of images, may have units of their own: distances and steps
      are taken relative to their standard deviations.
    - a is the accuracy on the batch: the term is small early in training.
    - c says how clearly the classes are separated, see `margins.class_separation`: where they are parts of one cloud,
      wide margins are those of a nearest-neighbour rule, and the term fades.
    - b is 1, and less for samples of a common class whose strongest other class is rare, see `class_balance`.
    - the square becomes linear where the difference changes by more than 10, so that gradients are bounded.

    The second term acts as a prior, so its weight decreases with the number of training samples, if that is known
    (`samples`). With many samples a part of the batch is enough.

    Args:
        strength: factor of the second term.
        at: the places of the steps; the terms of several places are averaged, and each takes a pass of its own.
            None: the input, or the first embedding of a network that takes tokens.
        p: the norm of the distances that are widened, in [1, ∞].
        share: the part of the batch, evenly spread, whose second term is computed, with a weight of 1/share: unbiased,
            and cheaper (by arithmetic a step costs 7/3 of a cross-entropy step in full, 1 + 5/3·share with a share),
            but noisier. None: 1/8 and at least 16 samples where `samples` is above 3,000, else the whole batch.
        every: `fit` computes the second term in every `every`-th step, multiplied by `every`, and `base` alone in the
            others: unbiased over the steps, with fewer passes, but noisier. A call of the loss always computes the
            term; in a loop of your own, call `loss.turns[step % every]`.
        base: the loss of the scores that is added, or a criterion such as `torch.nn.CrossEntropyLoss()`;
            `CrossEntropy()` by default.
        read_as: `"probabilities"` for a network that ends in a softmax or sigmoid, see `margins.from_probabilities`.
        samples: the number N of training samples; the weight of the second term is min(1, (3000/N)²). `fit`,
            `population.fit` and `integrations.huggingface` fill it in; pass it in a loop of your own. None: the full
            weight, as for few samples.
        augmented: whether inputs change at random whenever they are drawn, as images by crops. Such samples count as
            30,000 at least, since the term costs accuracy there. `fit`, `integrations.huggingface` and `CropsAndFlips`
            fill it in; pass True in a loop of your own. None: unknown, as False.
    """

    strength: float = 1.0
    at: tuple[str, ...] | None = None
    p: float = 2.0
    share: float | None = None
    every: int = 1
    base: ScoreLoss | Callable[[Tensor, Tensor], Tensor] = field(default_factory=CrossEntropy)
    read_as: Outputs = "logits"
    samples: int | None = None
    augmented: bool | None = None

    def __post_init__(self) -> None:
        check_number("strength", self.strength, least=0.0)
        if self.share is not None:
            check_number("share", self.share, above=0.0, most=1.0)
        check_count("every", self.every)
        if self.samples is not None:
            check_count("samples", self.samples)
        if self.augmented is not None:
            check_flag("augmented", self.augmented)
        norms.check_p(self.p)
        check_choice("read_as", self.read_as, get_args(Outputs))
        if self.at is not None:
            object.__setattr__(self, "at", check_place_names(self.at))
        base = as_loss(self.base) if callable(self.base) else self.base
        if not isinstance(base, ScoreLoss):
            raise TypeError(f"base is {self.base!r}, expected a loss of the scores such as CrossEntropy()")
        object.__setattr__(self, "base", base)

    @property
    def of_scores(self) -> ScoreLoss:
        """The base as a loss of the scores."""
        assert isinstance(self.base, ScoreLoss)
        return self.base

    @property
    def stacking(self) -> Stacking | None:
        """Populations evaluate steps at the input for all networks at once."""
        is_plain = self.at in (None, (places.INPUT,)) and self.read_as == "logits"
        return "wide" if is_plain and stacking_of(self.base) == "scores" else None

    @property
    def capturable(self) -> bool:
        """Whether it may be captured in a CUDA graph: if the base may be."""
        return is_capturable(self.base)

    @property
    def weight(self) -> float:
        """The factor of the second term: `strength`, and less where there are many training samples."""
        return self.strength * min(1.0, (FULL_WEIGHT_SAMPLES / self.effective_samples) ** 2)

    @property
    def effective_samples(self) -> int:
        """Effective number of samples N in the weight (3000/N)².

        It is `samples`, at least `MIN_AUGMENTED_SAMPLES` for augmented inputs; 1 (full weight) if unknown.
        """
        return max(self.samples or 1, MIN_AUGMENTED_SAMPLES if self.augmented else 1)

    @property
    def has_many_samples(self) -> bool:
        """Whether the second term is computed for a part of the batch by default."""
        return self.effective_samples > FULL_WEIGHT_SAMPLES

    def share_of(self, batch: int) -> float:
        """The part of a batch of this size whose second term is computed."""
        if self.share is not None:
            return self.share
        return max(BATCH_FRACTION, min(1.0, MIN_BATCH_SAMPLES / batch)) if self.has_many_samples else 1.0

    def for_samples(self, samples: int) -> WideMargin:
        """The loss for so many training samples, unless their number is set already."""
        return replace(self, samples=samples) if self.samples is None else self

    def for_augmented(self) -> WideMargin:
        """The loss for augmented samples, unless `augmented` is set already."""
        return replace(self, augmented=True) if self.augmented is None else self

    @property
    def turns(self) -> tuple[Loss, ...]:
        """The losses of successive steps: the second term with `every` times the weight, then steps without it."""
        if self.every == 1:
            return (self,)
        without = self.of_scores if self.read_as == "logits" else replace(self, strength=0.0, every=1)
        return replace(self, strength=self.strength * self.every, every=1), *[without] * (self.every - 1)

    @value_without_grad
    def __call__(self, model: nn.Module, x: ModelInputs, y: Labels) -> PerExample:
        """The loss of every sample of a batch; without gradients (`torch.no_grad`) its value alone."""
        model = read_model(model, self.read_as)
        at = places.default_places(model, x) if self.at is None else self.at
        passes = TwoPasses(model)
        scores, watched = passes.first(x, at)
        check_are_scores(model, scores)
        loss, other = self.of_scores.of(scores, y), strongest_other(scores, y)
        if self.strength == 0:
            return loss
        difference = against(scores, y, other)[:, 0]
        weights = squared_accuracy(difference, 1) * class_balance(y[None], other, scores)[0]
        points = {name: _activations(watched, name, y)[None] for name in at}
        scales = {name: DataScale.of(values, y[None], self.p) for name, values in points.items()}
        separation = torch.stack([scale.separation for scale in scales.values()])
        share = self.share_of(len(y))
        if share == 1:
            own, rows = difference, torch.arange(len(y), device=x.device)
        else:
            rows = evenly_spaced(len(y), share, x.device)
            x, y, other, own = x[rows], y[rows], None if other is None else other[rows], difference[rows]
            scores, watched = passes.again(x, at)
            difference = against(scores, y, other)[:, 0]
            own = own if passes.is_repeated else difference
        gradients = watched.gradients(difference)
        steps = {name: scale.steps_down(gradients[name][None], self.p)[0] for name, scale in scales.items()}

        def moved(name: str, step: Tensor) -> Tensor:
            return against(passes.moved(x, {name: step}), y, other)[:, 0]

        ends = [where_finite(partial(moved, name), step) for name, step in steps.items()]
        factors = separation.to(own.dtype).square() * penalty(own - torch.stack(ends))
        terms = (self.weight * weights[rows] * factors.mean(dim=0)).to(loss.dtype)
        return loss + terms if share == 1 else loss.index_add(0, rows, terms * (len(loss) / len(rows)))


def strongest_other(scores: Scores, y: Labels) -> Tensor | None:
    """The strongest other class of every sample, `[batch, 1]`; None for a binary network."""
    return None if is_binary(scores) else strongest(wide(scores), y, 1)


def squared_accuracy(difference: PerExample, networks: int) -> PerExample:
    """a² of every sample, with a the accuracy of its network on the batch."""
    right = (difference.detach() > 0).to(difference.dtype).view(networks, -1)
    return right.mean(dim=1, keepdim=True).square().expand_as(right).flatten()


def class_balance(
    y: Shaped[Tensor, "networks batch"], other: Tensor | None, scores: Tensor
) -> Float[Tensor, "networks batch"]:
    """b = min(1, (√n_i + √½)²/n_y) of every sample; n counts its class y and the strongest other class i in the batch.

    Many samples of one class beside few of another would flatten the scores near the few: the terms on both sides of a
    boundary count as if there were n_i samples on each. √½ is a standard error of √n_i − √n_y, so that classes of about
    the same size have b = 1 although a batch varies. `other` is that of `strongest_other` for all samples in turn.
    """
    classes = 2 if is_binary(scores) else scores.shape[1]
    own = (y > 0).long() if other is None else y.long()
    rival = 1 - own if other is None else other.view_as(own)
    counts = (own[:, :, None] == torch.arange(classes, device=y.device)).sum(dim=1).to(wide(scores).dtype)
    own, rival = (counts.gather(1, index) for index in (own, rival))
    return ((rival.sqrt() + math.sqrt(0.5)).square() / own).clamp(max=1)


def where_finite(function: Callable[[Tensor], PerExample], step: Tensor) -> PerExample:
    """`function(step)`, with a step of 0 for samples where it is not finite, as the logarithm of a negative number.

    While a CUDA graph is captured it is not checked.
    """
    values = function(step)
    if is_capturing(values.device):
        return values
    outside = ~values.detach().isfinite()
    if not bool(outside.any()):
        return values
    return function(step.masked_fill(outside.view(-1, *[1] * (step.ndim - 1)), 0))


def penalty(change: Tensor) -> Tensor:
    """change², linear beyond `HUBER_DELTA`."""
    return 2 * F.huber_loss(change, torch.zeros_like(change), reduction="none", delta=HUBER_DELTA)


def _activations(watched: At, name: str, y: Labels) -> Tensor:
    """The activations at the place `name`, checked to have one row for each sample."""
    if watched[name].ndim == 0 or len(watched[name]) != len(y):
        shape = list(watched[name].shape)
        raise ValueError(f"at has {name!r} with activations {shape}, expected [batch, ...] with {len(y)} samples")
    return watched.activations[name]
