"""Explanations of single decisions: the nearest other class, the smallest change that reaches it, and a certificate."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import torch
from torch import Tensor, nn

from widemargin import norms, places
from widemargin._io.progress import is_shown
from widemargin.attacks.input_range import Bounds
from widemargin.attacks.minimal import Minimal, Search, minimal
from widemargin.certify.bracket import NOTHING, lower_bounds
from widemargin.certify.lipschitz import MOST
from widemargin.checks import (
    check_count,
    check_dense,
    check_finite,
    check_labels,
    check_module,
    check_scores_and_labels,
    check_several,
    check_weights,
)
from widemargin.data.array_arguments import takes_arrays_or_tokens
from widemargin.entry_checks import check_by_sample, checked_by_caller
from widemargin.margins.measurement import measure
from widemargin.modules import cast_input, evaluating, predict, predicted_labels, scores_of, uncompiled, unwrap
from widemargin.probabilities import Outputs, check_are_scores, read_model, without_head
from widemargin.report.names import class_label, norm_label, norm_name, number
from widemargin.types import Labels, is_binary

Names: TypeAlias = Iterable[str]


class Change(TypedDict):
    """One number of an input, or one token: its name, value, changed value, and the size of the change."""

    name: str
    before: float | None
    after: float | None
    change: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation:
    """The decision for one sample, and the nearest input found with another one.

    `distance` is that of `changed`, an upper bound of the distance to the decision boundary (infinite where the search
    failed, and then `other` is None); `certified` is a lower bound, proved by `certified_by`; `linearized` is the
    estimate of `measure`. For tokens `x` and `changed` are embeddings, and `tokens` are the inputs.
    """

    x: Tensor
    changed: Tensor
    decision: int
    other: int | None
    label: int | None
    distance: float
    certified: float
    certified_by: str
    linearized: float
    scores: Tensor
    changed_scores: Tensor
    p: float
    place: str
    tokens: Tensor | None
    classes: tuple[str, ...]
    names: tuple[str, ...]
    bounds: Bounds

    @property
    def is_found(self) -> bool:
        """Whether an input with another decision was found."""
        return self.other is not None

    @property
    def change(self) -> Tensor:
        """The smallest change found: `changed` − `x`."""
        return self.changed - self.x

    def largest(self, count: int = 10) -> list[Change]:
        """The `count` numbers of the input, or tokens, that change most, largest first."""
        check_count("count", count)
        change = self.change.detach().cpu().double()
        if self.tokens is not None:  # the length of the step of each token in its embedding
            sizes = change.flatten(1).norm(dim=1)
            order = sizes.argsort(descending=True, stable=True)[:count].tolist()
            return [{"name": self._token(i), "before": None, "after": None, "change": float(sizes[i])} for i in order]
        flat, before, after = (part.flatten().double().cpu() for part in (change, self.x, self.changed))
        order = flat.abs().argsort(descending=True, stable=True)[:count].tolist()
        return [
            {"name": self._name(i), "before": float(before[i]), "after": float(after[i]), "change": float(flat[i])}
            for i in order
        ]

    def class_name(self, label: int) -> str:
        """The number of a class, and its name where that differs."""
        return class_label(label, self.classes)

    def sentences(self) -> list[str]:
        """The explanation in words."""
        answer = f"The network answers {self.class_name(self.decision)}"
        if self.label is not None:
            right = self.label == self.decision
            answer += ", which is right" if right else f", but the label is {self.class_name(self.label)}"
        where = "" if self.place == places.INPUT else f" at {self.place}"
        norm = norm_name(norm_label(self.p))
        near = f"The search found no other answer{where}"
        if self.other is not None:
            near = (
                f"The nearest other answer found is {self.class_name(self.other)}, "
                f"at {norm} distance {number(self.distance)}{where}"
            )
        size = "of any practical size" if self.certified >= MOST else f"below {number(self.certified)}"
        proof = f"No change {size} changes the answer (proved by {self.certified_by})"
        if self.certified == 0:
            proof = "No distance is certified"
        return [f"{sentence}." for sentence in (answer, near, proof)]

    def __repr__(self) -> str:
        return " ".join(self.sentences())

    def _name(self, index: int) -> str:
        if self.place == places.INPUT and self.x.ndim == 1 and index < len(self.names):
            return self.names[index]
        position = [int(i) for i in torch.unravel_index(torch.tensor(index), self.x.shape)]
        return str(position[0]) if len(position) == 1 else str(position)

    def _token(self, index: int) -> str:
        assert self.tokens is not None
        token = int(self.tokens.flatten()[index])
        return f"{index}: {self.names[token] if token < len(self.names) else token}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanations:
    """One `Explanation` per sample; `notes` say why something could not be certified."""

    items: tuple[Explanation, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Explanation:
        return self.items[index]

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self.items)

    def __repr__(self) -> str:
        return "\n".join([*(f"{i}: {one}" for i, one in enumerate(self.items)), *self.notes])

    def page(
        self,
        path: str | os.PathLike[str],
        *,
        title: str = "Decisions explained",
        positions: Sequence[int] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write one HTML file with the samples, their smallest changes and distances (extra `report`).

        `positions` are those of the samples in their data set, by default 0, 1, …; `settings` are shown beside p.
        """
        from widemargin.diagnostics.explanation_page import page_values
        from widemargin.report import explanation

        numbers = range(len(self)) if positions is None else positions
        if len(numbers) != len(self):
            raise ValueError(f"positions has {len(numbers)} entries, expected one per sample, {len(self)}")
        return explanation.write(path, page_values(self, numbers, settings or {}, title=title))


@takes_arrays_or_tokens
def explain(
    model: nn.Module,
    x: Tensor,
    y: Labels | None = None,
    *,
    p: float = 2.0,
    at: str | None = None,
    bounds: Bounds = None,
    classes: Names = (),
    names: Names = (),
    steps: int = 30,
    search: Search = "best",
    read_as: Outputs = "logits",
    progress: bool | None = None,
) -> Explanations:
    """Explain decisions: the nearest other class, the smallest change found that reaches it, and a certified distance.

    The decision is the class that the network answers, right or wrong. The change is that of `attacks.minimal`, the
    certificate those of `bracket`. Where inputs are tokens, both are taken at the first embedding, where no certificate
    is known.

    Args:
        model: any classifier, used in evaluation mode.
        x: inputs `[batch, ...]`: images, rows of a table, tokens, or others; a tensor, a NumPy array or a pandas frame.
        y: their labels, shown beside the decisions: class indices, names of classes, or −1.0 and +1.0 for a binary
            network.
        p: the norm of the distance, in [1, ∞].
        at: the place that is changed; by default the input, or the first embedding where inputs are tokens.
        bounds: the range of the data, in which changed inputs stay, such as (0.0, 1.0), or None.
        classes: names of the classes; by default those in `y`, sorted.
        names: names of the features of a table, by default the columns of a frame; or of tokens by number.
        steps: most steps of each phase of the search.
        search: see `attacks.minimal`.
        read_as: `"probabilities"` for a network that ends in a softmax or sigmoid.
        progress: show a bar of the certificates, the slowest part; by default on a terminal only.
    """
    is_shown(progress)  # raises
    _check_arguments(model, x, y, p, classes, names)
    bare, classes, names = unwrap(model), tuple(map(str, classes)), tuple(map(str, names))
    network = read_model(bare, read_as)
    with evaluating(network), uncompiled(network):
        x = _finite(cast_input(network, x.detach()))
        (place,) = places.default_places(network, x) if at is None else places.check_places(network, (at,))
        check_by_sample(network, x, (place,))
        scores = predict(network, x)
        check_are_scores(network, scores)
        if y is not None:
            check_scores_and_labels(scores, y.to(scores.device))
        decision = predicted_labels(scores)
        decision = decision.to(scores.dtype) if is_binary(scores) else decision
        subject, start = (network, x) if place == places.INPUT else _from_place(network, x, place)
        with checked_by_caller():
            found = minimal(subject, start, decision, p=p, steps=steps, bounds=bounds, search=search)
        changed = predict(subject, found.points)
        count = 1 if is_binary(scores) else min(9, scores.shape[1] - 1)
        linear = measure(network, (x, decision), at=(place,), p=p, classes=count, progress=False).margins[place]
        lower, by, notes = _certified(bare, x, decision, p, place, found, read_as, progress)
    others = predicted_labels(changed).tolist()
    items = tuple(
        Explanation(
            x=start[i].detach().cpu(),
            changed=found.points[i].cpu(),
            decision=int(decision[i]),
            other=int(others[i]) if bool(found.found[i]) else None,
            label=None if y is None else int(y[i]),
            distance=float(found.distances[i]),
            certified=float(lower[i]),
            certified_by=by[i],
            linearized=float(linear[i]),
            scores=scores[i].cpu(),
            changed_scores=changed[i].detach().cpu(),
            p=float(p),
            place=place,
            tokens=None if x.is_floating_point() else x[i].cpu(),
            classes=classes,
            names=names,
            bounds=bounds,
        )
        for i in range(len(x))
    )
    return Explanations(items=items, notes=notes)


def _finite(x: Tensor) -> Tensor:
    """`x`, checked where it may have NaN."""
    if x.is_floating_point():
        check_finite(x, "x")
    return x


def _check_arguments(model: nn.Module, x: Tensor, y: Tensor | None, p: float, classes: Names, names: Names) -> None:
    norms.check_p(p)
    check_module(model)
    check_several("classes", classes, "('cat', 'dog')")
    check_several("names", names, "('age', 'height')")
    check_dense(x, "x", "[batch, ...]")
    if x.ndim < 2 or not len(x):
        raise ValueError(f"x has shape {list(x.shape)}, expected [batch, ...] with at least one sample")
    if y is not None:
        check_labels(y, len(x), "y")
    check_weights(model)


def _certified(
    network: nn.Module,
    x: Tensor,
    decision: Tensor,
    p: float,
    place: str,
    found: Minimal,
    read_as: Outputs,
    progress: bool | None,
) -> tuple[Tensor, list[str], tuple[str, ...]]:
    """Certified distances, their methods, and notes."""
    if place != places.INPUT:
        return torch.zeros(len(x)), [NOTHING] * len(x), (f"no certificate at {place!r}",)
    chain = without_head(network) if read_as == "probabilities" else network
    return lower_bounds(chain, x, decision, p, "crown", 12, found.distances.cpu(), found.points, progress)


def _from_place(network: nn.Module, x: Tensor, place: str) -> tuple[nn.Module, Tensor]:
    """The network as a function of the activations at a hidden place, for the samples `x`, and these activations."""
    with torch.enable_grad(), places.watch(network, (place,)) as at:
        network(x)
    return _FromPlace(network, x, place, at.activations[place]), at.activations[place]


class _FromPlace(nn.Module):
    """The scores with given activations at the place."""

    def __init__(self, network: nn.Module, x: Tensor, place: str, start: Tensor) -> None:
        super().__init__()
        self.network, self._samples, self._place, self._start = network, x, place, start

    def forward(self, points: Tensor) -> Tensor:
        with places.moved(self.network, {self._place: points - self._start}):
            return scores_of(self.network(self._samples))
