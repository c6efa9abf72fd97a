"""The margin loss of three papers: a penalty of the margin at some places of the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import norms, places
from widemargin._autograd import forward_mode
from widemargin._autograd.value_without_grad import value_without_grad
from widemargin.checks import check_choice, check_count, check_number, check_place_names
from widemargin.losses import scale_free
from widemargin.losses.penalties import Hinge, Penalty
from widemargin.losses.protocol import Stacking
from widemargin.margins import estimation, second_point
from widemargin.margins.distance import Linearization, choose, linearize
from widemargin.margins.estimation import Directions
from widemargin.margins.output import Classes, Reading, against, differences, of_scores, strongest
from widemargin.margins.second_point import SecondOrder
from widemargin.modules import ModelInputs, forward
from widemargin.places import At, BatchStatistics
from widemargin.probabilities import check_are_scores, read_model
from widemargin.split_backward.backward import Backward, split_backward
from widemargin.types import Labels, PerClass, PerExample, Scores, is_binary, wide


@dataclass(frozen=True, kw_only=True)
class MarginLoss:
    """Σ_places A_i penalty(m_i) + λ·cross-entropy, with m_i = (f_y − f_i)/(ε + ‖∇f_y − ∇f_i‖_q) (elsayed, eq. 15).

    With a `Hinge` it is elsayed's large-margin loss, with a `Band` odn's. The denominators are constants for the
    gradient, as in elsayed §4.1, unless `second_order`. By default the loss has its scale-free form
    (see `losses.scale_free`); `stabilize=None` gives the printed one.

    Use it for the papers' losses, for distances that should reach a known value, and at many places at nearly the cost
    of cross-entropy (`backward`). It can underfit, since constant denominators let slopes grow with score differences:
    as a default for any network and data take `WideMargin`.

    **Denominators in the gradient.** `second_order=True` differentiates them exactly, by a double backward.
    `"second-point"` replaces a slope s = ‖∇d‖_q by (d(x) − d(x − h·u))/h, with u the direction of steepest ascent, a
    constant: one more forward pass a class and place, and no second derivatives, which fused attention and
    `torch.compile` do not have. With one class and place a step costs 7/3 of a cross-entropy step by arithmetic.

    - h is a quarter of the spread of the data at the place, and much smaller in float64, see `second_point.lengths_of`.
      In a linear region of a ReLU network the result is exact for every h, elsewhere to first order in h; s is at
      least a tenth of the exact slope. Gradients also contain the change of s by ReLUs that switch within the step,
      which a double backward leaves out: they differ from its gradients by tens of percent in a batch.
    - bfloat16 autocast changes the values of the samples by a few percent (below 10 %), their mean by less than 3 %.
    - Batch statistics are those of the first pass, constant in the gradients at the places whatever `statistics` is.
      Dropout masks are the same in all passes.
    - In float64, where h is tiny, a ReLU that switches is rare but adds 1/h: train with True there.

    Args:
        penalty: `Hinge(gamma=…)` or `Band(r=…, theta=…, mu=…)`.
        at: the places whose margins count; their penalties are added.
        p: the norm of the distance, in [1, ∞].
        classes: number of the strongest other classes, or `"all"`; each costs a backward pass.
        probes: None: all those classes exactly. A number m (for p = 2): by m random directions, at a cost that does
            not grow with the number of classes, see `margins.estimate`. With `aggregate="sum"`, m ≥ 2, the margins
            are its unbiased estimates (their penalties are not unbiased, and the scale-free form's floor cuts the
            smallest slopes). With `aggregate="max"`, m ≥ 1, they choose the class of every sample and place, whose
            slope is then exact: a biased choice, which can miss the largest penalty and never exceeds it. Directions
            are drawn in each call from torch's generator of the device.
        aggregate: A_i, the largest penalty over those classes or their sum.
        read_as: f_i as logits or softmax probabilities (elsayed errata 1 and 2: γ of 200 to 20000 belongs to softmax),
            or `"probabilities"` of a network that ends in a softmax or sigmoid, read as logits.
        cross_entropy: weight λ of an added cross-entropy term (elsayed errata 7).
        clip: α > 0 caps the penalty of badly misclassified points, which then get no gradient: margins are clipped
            below at γ(1 − α) (elsayed errata 3; its code has 2 by default and 4 for MNIST).
        second_order: keep the denominators in the gradient: True exactly, `"second-point"` by a second forward pass.
        statistics: gradients at places through BatchNorm in training mode: `"coupled"` through the batch statistics, as
            the papers' codes do, or `"frozen"`, per sample with constant statistics; see `places`.
        stabilize: `"scale-free"`, or None for the printed form.
        epsilon: ε of the printed form.
    """

    penalty: Penalty = field(default_factory=Hinge)
    at: tuple[str, ...] = ("input",)
    p: float = 2.0
    classes: Classes = 1
    probes: int | None = None
    aggregate: Literal["max", "sum"] = "max"
    read_as: Reading = "logits"
    cross_entropy: float = 0.0
    clip: float | None = None
    second_order: SecondOrder = False
    statistics: BatchStatistics = "coupled"
    stabilize: Literal["scale-free"] | None = "scale-free"
    epsilon: float = 1e-6
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.penalty, Penalty):
            raise TypeError(f"penalty is {self.penalty!r}, expected Hinge(…) or Band(…)")
        object.__setattr__(self, "at", check_place_names(self.at))
        norms.check_p(self.p)
        self.penalty.check_places(len(self.at))
        if self.classes != "all":
            check_count("classes", self.classes)
        check_choice("aggregate", self.aggregate, ("max", "sum"))
        check_choice("read_as", self.read_as, get_args(Reading))
        check_choice("statistics", self.statistics, ("coupled", "frozen"))
        check_choice("second_order", self.second_order, (False, True, "second-point"))
        check_choice("stabilize", self.stabilize, ("scale-free", None))
        if self.probes is not None:
            self._check_probes(self.probes)
        check_number("cross_entropy", self.cross_entropy, least=0.0)
        if self.clip is not None:
            check_number("clip", self.clip, above=0.0)
        check_number("epsilon", self.epsilon, least=0.0)

    @property
    def stacking(self) -> Stacking | None:
        """Populations evaluate margins of all networks at once; probes and second points network by network."""
        is_plain = self.probes is None and self.second_order != "second-point" and self.read_as != "probabilities"
        return "margins" if is_plain else None

    @value_without_grad
    def __call__(self, model: nn.Module, x: ModelInputs, y: Labels, *, directions: Directions = None) -> PerExample:
        """The loss of every sample of a batch, by one forward pass of `model` and a backward pass per class.

        `directions` are those of `probes`, `[probes, batch, ...]` at every place, which replace the random ones.
        Without gradients (`torch.no_grad`) the value alone.
        """
        scores, at, directions = self.forward(model, x, directions=directions)
        return self.of(scores, y, at=at, directions=directions)

    def backward(
        self,
        model: nn.Module,
        x: ModelInputs,
        y: Labels,
        *,
        scale: float | Tensor = 1.0,
        memory: int | None = None,
        is_replayed: bool = False,
    ) -> Backward:
        """Add to `.grad` what `(scale * loss(model, x, y).mean()).backward()` adds, by the cheapest exact method.

        The split backward (`split_backward.backward`) where it is exact, autograd's two backward passes elsewhere.
        Exact means equal up to the rounding of another order of the same operations. Whether samples mix is tested once
        for each network and form of batch: one more forward pass, of 8 samples. Call it under `torch.autocast` as you
        would call the loss; only the forward pass and the loss run under it.

        Args:
            model: any network, wrapped or not.
            x: a batch.
            y: its labels.
            scale: a factor of the objective: of a GradScaler, or the share of this batch in a larger one.
            memory: the most bytes of gradients to keep; beyond it two backward passes are taken. None: no limit.
            is_replayed: the call is, or will be, captured in a CUDA graph, in which launches cost nothing.
        """
        return split_backward(model, self, x, y, scale, memory, is_replayed)

    def forward(
        self, model: nn.Module, x: ModelInputs, *, directions: Directions = None
    ) -> tuple[Scores, At, Directions]:
        """The forward pass of the loss: scores, the watched places, and the directions of `probes`, if any."""
        model = read_model(model, self.read_as)
        if self.probes is not None and self.at == (places.INPUT,) and isinstance(x, Tensor):
            u = torch.randn(self.probes, *x.shape, device=x.device) if directions is None else directions[places.INPUT]
            directions = {places.INPUT: u}
            if (carried := forward_mode.run(model, x, u)) is not None:
                check_are_scores(model, carried[0])
                return *carried, directions
        if self.second_order == "second-point":
            scores, at = second_point.TwoPasses(model).first(x, self.at)
        else:
            with places.watch(model, self.at, statistics=self.statistics) as at:
                scores = forward(model, x)
        check_are_scores(model, scores)
        return scores, at, directions

    def of(self, scores: Scores, y: Labels, *, at: At, directions: Directions = None) -> PerExample:
        """The loss of every sample, given `scores` from a forward pass inside `places.watch(model, loss.at) as at`.

        With `second_order="second-point"` scores and places are those of `TwoPasses(model).first(x, loss.at)`. With
        `read_as="probabilities"` the scores are those of `margins.from_probabilities(model)`.
        """
        places.check_watched(at, scores)
        if tuple(at) != self.at:
            raise ValueError(f"at watches {tuple(at)}, but the loss has at={self.at}")
        lengths = second_point.lengths_of(at, scores, self.p) if self.second_order == "second-point" else None
        scores = wide(scores)
        if lengths is not None:
            lines = self._second_point(scores, y, at, lengths)
        elif self.probes is None:
            lines = self.linearize(scores, y, at)
        else:
            lines = self._probed(scores, y, at, estimation.draw(at, self.probes) if directions is None else directions)
        loss = self.penalize(lines)
        if self.cross_entropy:
            loss = loss + self.cross_entropy * cross_entropy(scores, y)
        return loss

    def penalize(
        self, lines: Linearization, *, without_scale: scale_free.WithoutScale = scale_free.without_scale
    ) -> PerExample:
        """The loss without its cross-entropy term, given score differences and their slopes at the places.

        Inside `torch.func.vmap` pass `without_scale=scale_free.composed`.
        """
        return self._scale_free(lines, without_scale) if self.stabilize else self._printed(lines)

    def linearize(self, scores: Scores, y: Labels, at: At) -> Linearization:
        """Score differences and their slopes at the places, each by a backward pass."""
        how, second = of_scores(self.read_as), bool(self.second_order)
        return linearize(scores, y, at=at, p=self.p, classes=self.classes, read_as=how, second_order=second)

    def _second_point(self, scores: Tensor, y: Tensor, at: At, lengths: Mapping[str, Tensor]) -> Linearization:
        difference = differences(scores, y, classes=self.classes, read_as=of_scores(self.read_as))
        others = None if is_binary(scores) else strongest(scores, y, difference.shape[1])

        def of(moved: Tensor) -> Tensor:
            return against(moved, y, others, read_as=of_scores(self.read_as))

        slopes = second_point.slopes(at, difference, of, lengths=lengths, p=self.p, least=scale_free.FLOOR)
        return Linearization(difference=difference, slopes=slopes)

    def _probed(self, scores: Tensor, y: Tensor, at: At, directions: Mapping[str, Tensor]) -> Linearization:
        difference = differences(scores, y, classes=self.classes, read_as=of_scores(self.read_as))
        if self.aggregate == "max":
            return choose(difference, self.chosen(difference, at, directions), at=at)
        slopes = estimation.probed(difference, at=at, directions=directions)
        factor = estimation.correction(len(directions[self.at[0]]))
        return Linearization(difference=difference, slopes={name: s / factor for name, s in slopes.items()})

    def chosen(self, difference: PerClass, at: At, directions: Directions) -> dict[str, Tensor]:
        """At every place the column of `difference`, `[batch, 1]`, whose penalty `probes` estimate as largest."""
        assert self.probes is not None
        if directions is None:
            directions = estimation.draw(at, self.probes)
        slopes, d = estimation.probed(difference, at=at, directions=directions), difference.detach()
        return {
            name: self.penalty(d / slope.clamp_min(torch.finfo(d.dtype).tiny), place).argmax(dim=1, keepdim=True)
            for place, (name, slope) in enumerate(slopes.items())
        }

    def _check_probes(self, count: int) -> None:
        check_count("probes", count, least=2 if self.aggregate == "sum" else 1)
        if self.p != 2:
            raise ValueError(f"probes is {count}, but p is {self.p}: directions estimate the l_2 distance only")
        if self.second_order:
            raise ValueError(
                f"probes is {count}, but second_order is {self.second_order!r}: estimated denominators are constants"
            )
        if self.classes == 1:
            raise ValueError(f"probes is {count}, but classes is 1, whose distance takes one pass: expected 'all'")

    def _printed(self, lines: Linearization) -> Tensor:
        slopes = lines.stacked()
        return self._aggregate(lines.beside(slopes, lines.difference) / (self.epsilon + slopes)).sum(dim=0)

    def _scale_free(self, lines: Linearization, without_scale: scale_free.WithoutScale) -> Tensor:
        # Of the classes that count: the strongest one, or at the first place the chosen one.
        leading = None if lines.chosen is None else lines.of(self.at[0], lines.difference)
        difference, scale = without_scale(lines.difference, leading)
        if self.second_order:
            difference = lines.difference  # with its denominator in the graph, a margin does not move the scale
        slopes = lines.stacked()
        denominators, harmonic = scale_free.floored(slopes)
        units = scale_free.unit(harmonic, scale, len(self.at)) / self._by_place(self.penalty.slope, harmonic)
        return (units[:, None] * self._aggregate(lines.beside(slopes, difference) / denominators)).sum(dim=0)

    def _aggregate(self, margins: Tensor) -> Tensor:
        """The penalties of margins `[places, batch, others]`, over the other classes."""
        if self.clip is not None:
            least = self._by_place(self.penalty.reach, margins) * (1 - self.clip)
            margins = margins.clamp_min(least if isinstance(least, float) else least[:, None, None])
        penalties = self.penalty.stacked(margins)
        if penalties.shape[2] == 1:
            return penalties.squeeze(2)
        return penalties.amax(dim=2) if self.aggregate == "max" else penalties.sum(dim=2)

    def _by_place(self, number: Callable[[int], float], like: Tensor) -> float | Tensor:
        """`number(place)`, as a float where all places have the same one: a tensor would be copied to the device."""
        numbers = [float(number(place)) for place in range(len(self.at))]
        return numbers[0] if len(set(numbers)) == 1 else like.new_tensor(numbers)


def cross_entropy(scores: Scores, y: Labels, label_smoothing: float = 0.0) -> PerExample:
    """−log softmax(f)_y, or log(1 + exp(−f·y)) for a binary network with labels ±1, which are not smoothed."""
    if is_binary(scores):
        return F.softplus(-scores.reshape(-1) * y.to(scores.dtype))
    return F.cross_entropy(scores, y.long(), reduction="none", label_smoothing=label_smoothing)
