"""Bracket of the distance to the decision boundary: certified lower bound, attacked upper bound, linearisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, get_args

import torch
from torch import Tensor, nn

from widemargin import certify, margins, norms
from widemargin._io.progress import is_shown, track
from widemargin.attacks.input_range import Bounds, check_inputs
from widemargin.attacks.minimal import Search, minimal
from widemargin.certify.lipschitz import lipschitz_radius
from widemargin.certify.radius import chunks, prepared, radii
from widemargin.checks import check_choice, check_count, check_labels, check_module
from widemargin.data.array_arguments import takes_arrays
from widemargin.entry_checks import check_call, checked_by_caller
from widemargin.layers.network import Network, against, read
from widemargin.modules import cast_input, evaluating, predict, uncompiled, unwrap
from widemargin.probabilities import Outputs, read_model, without_head
from widemargin.types import Labels, Mask, PerExample, is_binary

RELAXATION, LIPSCHITZ, WRONG, NOTHING = "linear relaxation", "Lipschitz", "misclassified", "none"
_EXCESS = 1e-6
"""Part by which a certificate may exceed the distance of a misclassified point, by rounding where both are exact."""


class Summary(TypedDict):
    """Numbers of samples, medians by column, and the share of linearised distances between the bounds."""

    samples: int
    bracketed: int
    medians: dict[str, float]
    between: float


@dataclass(frozen=True, kw_only=True, eq=False)
class RobustAccuracy:
    """Robust accuracy at each ε: certified (lower bound) and under the attack (upper bound)."""

    epsilons: tuple[float, ...]
    certified: tuple[float, ...]
    attacked: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Bracket:
    """lower ≤ d ≤ upper for the l_p distance d of each sample from the nearest input with another predicted class.

    `lower` is a certificate, `upper` the distance of a misclassified point, infinite where none was found (`found` is
    False). `linearized` is (f_y − f_i)/‖∇f_y − ∇f_i‖_q, smallest over i, which is not a bound: negative where
    misclassified, NaN without a gradient. A misclassified sample has lower = upper = 0 (sokolic, errata 2). `lower_by`
    names the method of each lower bound, `notes` the methods that failed and why.
    """

    lower: PerExample
    upper: PerExample
    linearized: PerExample
    found: Mask
    lower_by: tuple[str, ...]
    p: float
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def correct(self) -> Mask:
        """Whether each sample is classified correctly."""
        return self.upper > 0

    def robust_accuracy(self, epsilons: Sequence[float | int]) -> RobustAccuracy:
        """Shares of samples that are certified in the ball of radius ε, and that are still correct under the attack."""
        sizes = tuple(float(epsilon) for epsilon in epsilons)
        if not sizes or not all(math.isfinite(size) and size >= 0 for size in sizes):
            raise ValueError(f"epsilons is {list(epsilons)!r}, expected finite numbers >= 0, at least one")
        proved = [float((self.correct & (self.lower >= size)).double().mean()) for size in sizes]
        left = [float((self.upper > size).double().mean()) for size in sizes]
        return RobustAccuracy(epsilons=sizes, certified=tuple(proved), attacked=tuple(left))

    def summary(self) -> Summary:
        """Medians over the correctly classified samples with an upper bound; `error` is |linearized − upper|/upper.

        `between` is the share of them whose linearised distance lies between the two bounds.
        """
        kept = self.correct & self.found
        low, high, linear = self.lower[kept], self.upper[kept], self.linearized[kept]
        some = len(low) > 0
        columns = {"lower": low, "upper": high, "linearized": linear, "gap": high - low, "lower/upper": low / high}
        columns["error"] = (linear - high).abs() / high
        medians = {name: float(values.nanquantile(0.5)) if some else math.nan for name, values in columns.items()}
        inside = float(((linear >= low) & (linear <= high)).double().mean()) if some else math.nan
        return {"samples": len(self), "bracketed": int(kept.sum()), "medians": medians, "between": inside}

    def __repr__(self) -> str:
        summary = self.summary()
        values = ", ".join(f"{name} {value:.4g}" for name, value in summary["medians"].items())
        medians = f"; medians: {values}" if summary["bracketed"] else ""
        by = ", ".join(f"{self.lower_by.count(name)} by {name}" for name in dict.fromkeys(self.lower_by))
        lines = [f"{summary['bracketed']} of {len(self)} samples bracketed in l_{self.p:g}{medians}", by]
        return "\n  ".join([*lines, *self.notes])


@takes_arrays
def bracket(
    model: nn.Module,
    x: Tensor,
    y: Labels,
    p: float = 2.0,
    *,
    method: certify.Method = "crown",
    search: Search = "best",
    bounds: Bounds = None,
    steps: int = 12,
    attack_steps: int = 30,
    batch_size: int = 256,
    read_as: Outputs = "logits",
    progress: bool | None = None,
) -> Bracket:
    """The distance of every sample from the decision boundary, between a certificate and an attack.

    Lower: the larger of a linear relaxation (`certify.radius`) and the output margin over the Lipschitz constant, for a
    chain γ_out/Π‖W‖_2 (an l_2 radius, which also holds for p < 2, and divided by n^{1/2 − 1/p} for p > 2). A network
    that one of them does not support is bounded by the other, with an entry in `notes`; with neither, lower is 0.
    Computed in float64 from the network's weights: the proof does not include the rounding of its forward pass. Upper:
    `attacks.minimal`. A lower bound above the distance of a point that float64 scores misclassify is an error.

    Args:
        model: any classifier, used in evaluation mode.
        x: inputs `[batch, ...]`: a tensor, a NumPy array or a pandas frame.
        y: class indices, names of classes, or −1.0 and +1.0 for a binary network.
        p: the norm, in [1, ∞].
        method: of the relaxation, see `certify.margin_bound`.
        search: of the attack, see `attacks.minimal`.
        bounds: a range of the attacked inputs, or None. The lower bound does not use it, so the bracket holds for the
            distance in all of space and for the distance inside the range.
        steps: radii that the relaxation tries.
        attack_steps: steps of the attack.
        batch_size: samples at a time.
        read_as: `"probabilities"` for a network that ends in a softmax or sigmoid, see `margins.from_probabilities`;
            certificates then need an `nn.Sequential` with that layer at its end.
        progress: show bars; by default on a terminal only.
    """
    is_shown(progress)  # raises
    norms.check_p(p)
    check_count("batch_size", batch_size)
    check_module(model)
    check_choice("method", method, get_args(certify.Method))
    check_count("steps", steps)
    check_count("attack_steps", attack_steps)
    check_inputs(x, bounds)
    check_labels(y, len(x))
    bare = unwrap(model)
    network = read_model(bare, read_as)
    with evaluating(network), uncompiled(network):
        x = cast_input(network, x.detach())
        y = y.to(x.device)
        check_call(network, x, y)
        first = predict(network, x[:1])
        with checked_by_caller():
            parts = [
                minimal(network, a, b, p=p, steps=attack_steps, bounds=bounds, search=search)
                for a, b in track(list(zip(x.split(batch_size), y.split(batch_size))), "Attacking", progress=progress)
            ]
        classes = 1 if is_binary(first) else min(9, first.shape[1] - 1)
        measured = margins.measure(network, (x, y), p=p, classes=classes, batch_size=batch_size, progress=False)
        upper = torch.cat([part.distances for part in parts]).cpu()
        found = torch.cat([part.found for part in parts]).cpu()
        points = torch.cat([part.points for part in parts])
        chain = without_head(bare) if read_as == "probabilities" else bare
        lower, by, notes = lower_bounds(chain, x, y, p, method, steps, upper, points, progress)
    return Bracket(
        lower=lower,
        upper=upper,
        linearized=measured.margins["input"].double(),
        found=found,
        lower_by=tuple(WRONG if at == 0 else name for at, name in zip(upper.tolist(), by)),
        p=float(p),
        notes=notes,
    )


def lower_bounds(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    p: float,
    method: certify.Method,
    steps: int,
    upper: Tensor,
    points: Tensor,
    progress: bool | None = False,
) -> tuple[Tensor, list[str], tuple[str, ...]]:
    """Certified distances, the method of each, and notes on methods that failed; see `bracket`.

    `upper` are the distances of the misclassified `points`. A certificate above them is an error.
    """
    best, by, notes = torch.zeros_like(upper), [NOTHING] * len(upper), []
    try:
        found = read(network, x)
    except TypeError as reason:
        return best, by, (f"no Lipschitz certificate: {reason}", f"no linear relaxation: {reason}")
    try:
        values = _lipschitz(found, x, y, p)
    except TypeError as reason:
        notes.append(f"no Lipschitz certificate: {reason}")
    else:
        by = [LIPSCHITZ if value > 0 else name for value, name in zip(values.tolist(), by)]
        best = values
    start = torch.where(upper.isfinite(), upper, (100 * best).clamp(min=1.0))
    try:
        values = radii(found, x, y, p, method, steps, start, progress)
    except TypeError as reason:
        notes.append(f"no linear relaxation: {reason}")
    else:
        by = [RELAXATION if value > 0 and value >= least else name for value, least, name in zip(values, best, by)]
        best = torch.maximum(best, values)
    _check_certificates(found, best, upper, points, y)
    return torch.minimum(best, upper), by, tuple(notes)


def _check_certificates(network: Network, lower: Tensor, upper: Tensor, points: Tensor, y: Tensor) -> None:
    """Raise where a point inside a certified ball is misclassified, also in float64: certificates hold for that."""
    for i in (lower > upper * (1 + _EXCESS)).nonzero().flatten().tolist():
        point = network.double(points[i : i + 1])
        rows = against(network.output.numel(), y[i : i + 1].to(network.device))
        if float((rows * network.forward(point)[:, None]).sum(dim=2).amin()) <= 0:
            raise RuntimeError(
                f"sample {i} has a certified distance of {float(lower[i]):.9g}, but an input at {float(upper[i]):.9g} "
                "is misclassified: this is a bug of widemargin, please report it"
            )


def _lipschitz(network: Network, x: Tensor, y: Tensor, p: float) -> Tensor:
    x, y = prepared(network, x, y, p, "ibp")
    return torch.cat([lipschitz_radius(network, part, rows, p) for part, rows in chunks(network, x, y)]).cpu()
