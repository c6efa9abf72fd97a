"""Regularizers of the Jacobian: Sokolić's, which preserves the output margin at the input, and the Frobenius norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import norms, places
from widemargin._autograd.double_backward import CheapDoubleBackward
from widemargin._autograd.value_without_grad import value_without_grad
from widemargin.checks import (
    check_choice,
    check_count,
    check_flag,
    check_floating,
    check_index,
    check_module,
    check_number,
    check_scores_and_labels,
)
from widemargin.margins import second_point
from widemargin.margins.distance import check_rows, slopes_at
from widemargin.margins.second_point import TwoPasses
from widemargin.modules import ModelInputs, forward, without_running_stats
from widemargin.places import At, BatchStatistics
from widemargin.regularizers.weights import watch_classifier
from widemargin.types import Labels, PerExample, Scores, is_binary, wide

Directions: TypeAlias = Float[Tensor, "batch projections classes"]
GradientOfNorm: TypeAlias = Literal["exact", "second-point"]
"""The weight gradient of the norm of a gradient: by a double backward, or by a second point."""

Form: TypeAlias = Literal["random", "sum", "pairwise", "pairwise-sum"]


@dataclass(frozen=True, kw_only=True)
class Jacobian:
    """λ ‖(v_c/‖v_c‖_2)ᵀ J(x)‖_2 of every sample (sokolic, eq. 26), unsquared.

    v_c is the row of class c in the matrix of the last layer, which must be linear, and J the Jacobian of the
    input of that layer. As the score is f_c = v_cᵀ h + b_c, v_cᵀ J is the gradient of f_c: one backward pass, with its
    graph, so that the regularizer can be minimised; passes of several classes are batched (`At.columns`). Where a
    gradient is 0, its norm and the derivative of its norm are 0.

    Sums and weights (errata 3): the paper adds (26) over a batch and divides λ by the batch size. The values here are
    per sample and a training takes their mean, which is the same with `weight` = λ before that division.

    (26) replaces a supremum over the whole input space (25) by the training samples: a small value is no certificate of
    a margin (errata 4).

    A binary network has one class vector, and all forms are the same.

    `second_order="second-point"` replaces the norm of the gradient of g by the change (g(x) − g(x − h·u))/h, with the
    direction u of the gradient held constant: one forward pass for each vector instead of a double backward, see
    `MarginLoss`. The absolute value of the change is minimised. Batch statistics are those of the first pass.

    Args:
        weight: λ ≥ 0. The default is what searches chose for up to 5,000 images of digits with values in [0, 1]
            (`results/demo-settings.json`, S2, S3); with 20,000 images and on CIFAR-10 they chose 0.01 to 0.001.
        form: the vectors v of a sample. `"random"`: that of one class, drawn anew in each call (the paper's MLPs);
            `"sum"`: of all classes, added (the paper's CNNs). `"pairwise"`: v_y − v_c for a class c ≠ y drawn anew in
            each call, the direction in which f_y − f_c falls; `"pairwise-sum"`: for all c ≠ y, added. The last two are
            not the paper's. A draw costs one backward pass, a sum one per class; draws take numbers from torch's
            global generator of the device.
        at: the place whose Jacobian it is: the input, or any module that runs before the last layer.
        normalize: divide v by its l_2 norm, as printed; without it the regularizer also shrinks the classifier.
        statistics: gradients through BatchNorm in training mode, see `places`.
        second_order: the weight gradient of the norms, exactly or by second points.
    """

    weight: float = 0.1
    form: Form = "random"
    at: str = places.INPUT
    normalize: bool = True
    statistics: BatchStatistics = "coupled"
    second_order: GradientOfNorm = "exact"
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_settings(self)
        check_flag("normalize", self.normalize)
        check_choice("form", self.form, get_args(Form))

    @property
    def stacking(self) -> Literal["jacobian"] | None:
        """Populations evaluate exact gradients of all networks at once, and second points network by network."""
        return "jacobian" if self.second_order == "exact" else None

    @value_without_grad
    def __call__(
        self, model: nn.Module, x: ModelInputs, y: Labels, *, classes: Int[Tensor, " batch"] | None = None
    ) -> PerExample:
        """The regularizer of every sample of a batch, by a forward pass of its own, see `_watched_pass`.

        `classes` are the classes c of the random forms, one a sample, which replace the random ones.
        """
        network = getattr(model, "_orig_mod", model)  # the hook at the classifier needs an uncompiled network
        with _watched_pass(network, self) as (at, scores_for), watch_classifier(network, at) as seen:
            scores = scores_for(x)
        return self.of(scores, y, at=at, classifier=seen.matrix(network, scores), classes=classes)

    def of(
        self,
        scores: Scores,
        y: Labels,
        *,
        at: At,
        classifier: Float[Tensor, "outputs features"] | Callable[[Tensor], Tensor],
        classes: Int[Tensor, " batch"] | None = None,
    ) -> PerExample:
        """The regularizer of every sample, given `scores` from a forward pass inside `places.watch(model, (at,))`.

        `classifier` is the matrix of the last layer, a row a class, such as `model.output.weight`; or a function from
        classes `[batch, n]` to the vectors `[batch, n, features]` of each sample, where samples have different ones.
        With `second_order="second-point"` scores and places are those of `TwoPasses(model).first(x, (at,))`.
        """
        _check_pass(scores, y, at, self.at)
        f = scores.reshape(len(scores), -1)
        if isinstance(classifier, Tensor) and len(classifier) != f.shape[1]:
            raise ValueError(f"classifier has {len(classifier)} rows, but scores have {f.shape[1]} classes")
        vectors = classifier.__getitem__ if isinstance(classifier, Tensor) else classifier
        chosen, own = self._classes(f, y, classes), y[:, None].long()
        is_pairwise, v = self.form.startswith("pairwise") and not is_binary(scores), vectors(chosen)
        v = vectors(own) - v if is_pairwise else v

        def outputs(scores: Tensor) -> Tensor:
            f = scores.reshape(len(scores), -1)
            return f.gather(1, own) - f.gather(1, chosen) if is_pairwise else f.gather(1, chosen)

        if self.second_order == "exact":
            sizes = slopes_at(at, outputs(scores), q=2.0, second_order=True)[self.at]
        else:
            sizes = _changes(at, scores, lambda scores: outputs(wide(scores)))[self.at].abs()
        if self.normalize:
            lengths = norms.lp(v.flatten(0, 1), 2.0).view_as(sizes)
            sizes = sizes / torch.where(lengths > 0, lengths, torch.ones_like(lengths))  # v = 0 has gradients 0
        return self.weight * sizes.sum(dim=1)

    def _classes(self, f: Tensor, y: Tensor, classes: Tensor | None) -> Int[Tensor, "batch vectors"]:
        """The classes of the vectors of every sample."""
        batch, count = f.shape
        if self.form in ("random", "pairwise"):
            drawn = self.draw(y, count) if classes is None else self._checked(classes, count, y)
            return drawn.to(f.device)[:, None]
        if classes is not None:
            raise ValueError(f"classes is given, but form is {self.form!r}, which takes all classes")
        if self.form == "sum" or count == 1:
            return torch.arange(count, device=f.device).expand(batch, count)
        return (y.long()[:, None] + torch.arange(1, count, device=f.device)) % count

    def draw(self, y: Labels, count: int) -> Int[Tensor, " batch"]:
        """Random classes c, of `count` classes, for samples with labels `y`, drawn on their device."""
        # One number a sample: on a CPU the same for a batch as for its samples in turn.
        if self.form == "random" or count == 1:
            return torch.randint(count, (len(y),), device=y.device)
        return (y.long() + torch.randint(1, count, (len(y),), device=y.device)) % count

    def _checked(self, classes: Tensor, count: int, y: Tensor) -> Tensor:
        check_index(classes, len(y), "classes")
        bad = (classes < 0) | (classes >= count)
        if self.form == "pairwise" and count > 1:
            bad = bad | (classes == y)
        if bool(bad.any()):
            i = int(bad.nonzero()[0])
            other = " other than the label" if self.form == "pairwise" else ""
            raise ValueError(f"classes has {int(classes[i])} at index {i}, expected a class (0..{count - 1}){other}")
        return classes.long()


@dataclass(frozen=True, kw_only=True)
class JacobianFrobenius:
    """λ ½‖J(x)‖²_F of every sample, with J the Jacobian of the k scores (Hoffman, Roberts, Yaida 2019, eqs. 3 to 5).

    ‖J‖²_F = k·E‖uᵀJ‖²_2 over u uniform on the unit sphere of the k scores. The mean over `projections` random
    directions is unbiased, at one backward pass each; the exact value takes k. Passes are batched (`At.columns`).
    Works with any network. Each sample has its own directions, drawn in each call from torch's global generator of the
    device.

    `second_order="second-point"` replaces the norm of the gradient of g by the change (g(x) − g(x − h·u))/h, with the
    direction u of the gradient held constant: one forward pass for each vector instead of a double backward, see
    `MarginLoss`. The square of the change is minimised. Batch statistics are those of the first pass.

    Args:
        weight: λ ≥ 0, in the unit of the data squared: data multiplied by c need c²·λ. The default is for standardised
            inputs.
        projections: number of random directions, or None for the exact value.
        at: the place whose Jacobian it is.
        statistics: gradients through BatchNorm in training mode, see `places`.
        second_order: the weight gradient of the norms, exactly or by second points.
    """

    weight: float = 0.03
    projections: int | None = 1
    at: str = places.INPUT
    statistics: BatchStatistics = "coupled"
    second_order: GradientOfNorm = "exact"
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_settings(self)
        if self.projections is not None:
            check_count("projections", self.projections)

    @property
    def stacking(self) -> Literal["frobenius"] | None:
        """Populations evaluate exact gradients of all networks at once, and second points network by network."""
        return "frobenius" if self.second_order == "exact" else None

    @property
    def shares_pass(self) -> bool:
        """Whether `of` can take the forward pass of a loss of the scores (`losses.shared_pass`)."""
        return self.second_order == "second-point"

    @value_without_grad
    def __call__(
        self, model: nn.Module, x: ModelInputs, y: Labels, *, directions: Directions | None = None
    ) -> PerExample:
        """The regularizer of every sample of a batch, by a forward pass of its own, see `_watched_pass`.

        `directions` are unit vectors u that replace the random ones.
        """
        with _watched_pass(model, self) as (at, scores_for):
            scores = scores_for(x)
        return self.of(scores, y, at=at, directions=directions)

    def of(self, scores: Scores, y: Labels, *, at: At, directions: Directions | None = None) -> PerExample:
        """The regularizer of every sample, given `scores` from a forward pass inside `places.watch(model, (at,))`.

        With `second_order="second-point"` scores and places are those of `TwoPasses(model).first(x, (at,))`.
        """
        _check_pass(scores, y, at, self.at)
        f = wide(scores.reshape(len(scores), -1))
        u, scale = None, 1.0
        if self.projections is not None:
            u = self.draw(len(f), f.shape[1], f.device) if directions is None else directions
            check_floating(u, "directions", "[batch, projections, classes]")
            expected = (len(f), self.projections, f.shape[1])
            if u.shape != expected:
                raise ValueError(f"directions has shape {list(u.shape)}, expected {list(expected)}")
            u, scale = u.to(f), f.shape[1] / self.projections
        elif directions is not None:
            raise ValueError("directions is given, but projections is None, which takes the exact value")

        def outputs(scores: Tensor) -> Tensor:
            f = wide(scores.reshape(len(scores), -1))
            return f if u is None else (u * f[:, None]).sum(dim=2)

        if self.second_order == "second-point":
            return self.weight * 0.5 * scale * _changes(at, scores, outputs)[self.at].square().sum(dim=1)
        total = f.new_zeros(len(f))
        for part in at.columns(outputs(scores), second_order=True):
            gradients = part[self.at]
            check_rows(self.at, gradients[0], samples=len(f))
            total = total + gradients.to(f.dtype).square().flatten(2).sum(dim=(0, 2))
        return self.weight * 0.5 * scale * total

    def draw(self, batch: int, classes: int, device: torch.device) -> Directions:
        """Random unit vectors u for `batch` samples with `classes` scores, drawn on the device."""
        # Normal numbers by their quantiles: on a CPU `torch.rand` gives a batch what it would give its samples in turn,
        # which `torch.randn` does not. 2⁻⁵⁴ replaces a drawn 0, whose quantile is infinite. MPS has no float64.
        where = "cpu" if device.type == "mps" else device
        uniform = torch.rand(batch, self.projections or 1, classes, dtype=torch.float64, device=where)
        return F.normalize(torch.special.ndtri(uniform.clamp_min(2.0**-54)), dim=2)


def _check_settings(regularizer: Jacobian | JacobianFrobenius) -> None:
    """Raise unless the settings that the regularizers of Jacobians share are valid."""
    check_number("weight", regularizer.weight, least=0.0)
    if not isinstance(regularizer.at, str):
        raise TypeError(f"at is {regularizer.at!r}, expected the name of one place such as 'input'")
    check_choice("statistics", regularizer.statistics, ("coupled", "frozen"))
    check_choice("second_order", regularizer.second_order, get_args(GradientOfNorm))


@contextmanager
def _watched_pass(
    model: nn.Module, regularizer: Jacobian | JacobianFrobenius
) -> Iterator[tuple[At, Callable[[ModelInputs], Tensor]]]:
    """Watch the place of a regularizer, and yield it with a forward pass that leaves running statistics unchanged.

    BatchNorm in training mode normalises with the statistics of the batch. With exact gradients a compiled network runs
    uncompiled, since it has no gradient of a gradient, and convolutions use `CheapDoubleBackward`.
    """
    check_module(model)
    at = (regularizer.at,)
    if regularizer.second_order == "second-point":
        passes = TwoPasses(model)
        with without_running_stats(model), passes.watching(at) as watched:
            yield watched, lambda x: passes.scores(x, watched)
        return
    network = getattr(model, "_orig_mod", model)  # DDP and Fabric wrappers stay: they cast and count passes
    with (
        CheapDoubleBackward(),
        without_running_stats(network),
        places.watch(network, at, statistics=regularizer.statistics) as own,
    ):
        yield own, lambda x: forward(network, x)


def _changes(at: At, scores: Scores, outputs: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """The slopes of `outputs` of the scores, by second points."""
    return second_point.slopes(at, outputs(scores), outputs, lengths=second_point.lengths_of(at, scores))


def _check_pass(scores: Scores, y: Labels, at: At, place: str) -> None:
    """Raise unless scores and labels are valid, and the pass was watched at `place`."""
    check_scores_and_labels(scores, y, finite=True)
    places.check_watched(at, scores)
    if tuple(at) != (place,):
        raise ValueError(f"at watches {tuple(at)}, but the regularizer has at={place!r}")
