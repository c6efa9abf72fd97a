"""The nearest misclassified input: a search, whose distance is an upper bound of the margin."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin._io.optional import import_optional
from widemargin.attacks.hyperplane_step import shortest_step
from widemargin.attacks.input_range import Bounds, Inputs, check_inputs, into_bounds
from widemargin.checks import check_choice, check_count, check_scores_and_labels, without_value_checks
from widemargin.data.array_arguments import takes_arrays
from widemargin.entry_checks import check_call
from widemargin.margins.output import output
from widemargin.modules import cast_input, evaluating, forward, unwrap_ddp, without_weight_gradients
from widemargin.probabilities import Outputs, check_are_scores, read_model
from widemargin.types import HALF, Labels, Mask, PerExample, is_binary, wide

Search: TypeAlias = Literal["best", "own", "foolbox"]

_FOOLBOX = {1.0: "L1FMNAttack", 2.0: "L2FMNAttack", math.inf: "LInfFMNAttack"}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Minimal:
    """Misclassified `points`, their l_p `distances` in float64, and the mask `found` of successful searches.

    Where the search failed, the distance is infinite and the point is x. A sample that is itself misclassified has
    distance 0 (sokolic, errata 2).
    """

    points: Inputs
    distances: PerExample
    found: Mask

    def __repr__(self) -> str:
        some = self.distances[self.found]
        middle = f", median distance {float(some.median()):.4g}" if len(some) else ""
        return f"{len(some)} of {len(self.distances)} samples misclassified nearby{middle}"


@takes_arrays
def minimal(
    model: nn.Module,
    x: Inputs,
    y: Labels,
    *,
    p: float = 2.0,
    steps: int = 30,
    targets: int = 3,
    bounds: Bounds = None,
    search: Search = "best",
    read_as: Outputs = "logits",
) -> Minimal:
    """An x̂ of small ‖x̂ − x‖_p that `model` misclassifies.

    First, towards each of the `targets` nearest classes of the linearised network, and once in short steps away from
    the own class: steps to the linearised boundary until a sample is misclassified (DeepFool, Moosavi-Dezfooli et al.
    2016), then bisection back towards x. From the nearest of these points: projections of x onto the boundary
    linearised at x̂, each taken only if it is misclassified and nearer (as FAB does, Croce and Hein 2020). A point
    counts as misclassified where f_y is below another score by more than the rounding of the scores, in evaluation mode
    and in the network's own dtype. Points of half precision are searched for in float32, and rounded where the network
    is called.

    Args:
        model: any network; it is attacked in evaluation mode and left unchanged.
        x: inputs, inside `bounds`: a tensor, a NumPy array or a pandas frame; cast to the dtype of the network.
        y: class indices, names of classes, or −1.0 and +1.0 for a binary network.
        p: norm of the distance, in [1, ∞].
        steps: most steps of each of the two phases.
        targets: number of classes that are tried.
        bounds: the range of the data, in which x̂ stays, or None.
        search: `"own"`: the above; `"foolbox"`: the FMN attack of that package (p of 1, 2 or ∞, several classes);
            `"best"`: the nearer of both where foolbox can be imported and has such an attack, else `"own"`.
        read_as: `"probabilities"` for a network that ends in a softmax or sigmoid, see `margins.from_probabilities`.
    """
    norms.check_p(p)
    check_count("steps", steps)
    check_count("targets", targets)
    check_choice("search", search, get_args(Search))
    check_inputs(x, bounds)
    network = read_model(unwrap_ddp(model), read_as)
    x = cast_input(network, x)
    check_call(network, x, y)
    y = y.to(x.device)
    with evaluating(network), torch.inference_mode(False), torch.no_grad():
        subject = _Rounding(network, x.dtype) if x.dtype in HALF else network
        problem = _Problem(network=subject, x=wide(x.detach().clone()), y=y.clone(), p=p, bounds=bounds)
        scores = problem.scores(problem.x)
        check_scores_and_labels(scores, y, finite=True)
        check_are_scores(network, scores)
        others = 1 if is_binary(scores) else scores.shape[1] - 1
        ranks = [None, *range(min(targets, others))] if search != "foolbox" else []
        best, distances = _refined(problem, [_deepfool(problem, rank, steps) for rank in ranks], steps)
        if search != "own" and (foolbox := _foolbox(p, others, search)) is not None:
            # Refined on its own: the nearer start may end farther away.
            point, new = _refined(problem, [_fast_minimum_norm(foolbox, problem)], steps)
            nearer = new < distances
            best, distances = torch.where(_expand(nearer, best), point, best), torch.where(nearer, new, distances)
        is_wrong = _gap(scores, y) <= 0
        distances = torch.where(is_wrong, torch.zeros_like(distances), distances)
        best = torch.where(_expand(is_wrong | distances.isinf(), best), problem.x, best).to(x.dtype)
        distances = torch.where(distances.isfinite(), problem.distance(best), distances)
    return Minimal(points=best, distances=distances, found=distances.isfinite())


class _Rounding(nn.Module):
    """A network of half precision on inputs of float32, which it rounds: steps would vanish in half precision."""

    def __init__(self, network: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.network, self.dtype = network, dtype

    def forward(self, x: Tensor) -> Tensor:
        """The scores of the rounded inputs, in float32."""
        return forward(self.network, x.to(self.dtype)).float()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Problem:
    network: nn.Module
    x: Tensor
    y: Tensor
    p: float
    bounds: Bounds

    def scores(self, points: Tensor) -> Tensor:
        return forward(self.network, points)

    def is_wrong(self, points: Tensor) -> Tensor:
        """Which points are misclassified, by more than rounding."""
        scores = self.scores(points)
        # The sums inside a network of half precision are of float32: its scores are off by their own rounding alone.
        half = self.network.dtype if isinstance(self.network, _Rounding) else None
        eps = 8 * torch.finfo(scores.dtype).eps if half is None else torch.finfo(half).eps
        tolerance = eps * scores.abs().reshape(len(scores), -1).amax(dim=1)
        return _gap(scores, self.y) < -tolerance

    def slope(self, points: Tensor, target: Tensor | None) -> tuple[Tensor, Tensor]:
        """f_y − f_target and its gradient; without a target, of the strongest other class."""
        with torch.enable_grad():
            moved = points.detach().requires_grad_()
            scores = self.scores(moved)
            if target is None or is_binary(scores):
                gap = _gap(scores, self.y)
            else:
                gap = (scores.gather(1, self.y[:, None].long()) - scores.gather(1, target[:, None]))[:, 0]
            (gradient,) = torch.autograd.grad(gap.sum(), moved)
        return gap.detach(), gradient

    def distance(self, points: Tensor) -> Tensor:
        return norms.lp(points.double() - self.x.double(), self.p)

    def between(self, points: Tensor, fraction: Tensor) -> Tensor:
        """x + fraction·(points − x), inside the bounds."""
        return into_bounds(self.x + _expand(fraction.to(self.x.dtype), self.x) * (points - self.x), self.bounds)


def _deepfool(problem: _Problem, rank: int | None, steps: int) -> Tensor:
    """DeepFool towards the class number `rank` by linearised distance, with a growing overshoot.

    Without a rank towards the strongest other class of each step, in steps of at most an eighth of the first one (a
    limit that grows): where slopes change quickly, whole steps would miss the nearest boundary.
    """
    scores = problem.scores(problem.x)
    target = None if rank is None or is_binary(scores) else _target(problem, scores, rank)
    moved, is_wrong = problem.x, problem.is_wrong(problem.x)
    limit: Tensor | None = None
    for number in range(steps):
        gap, slope = problem.slope(moved, target)
        need = gap.clamp(min=0) * (1.02 + 0.02 * number) + 1e-4 * gap.abs()
        step = shortest_step(slope, need, moved, problem.p, problem.bounds)
        if rank is None:
            length = norms.lp(step, problem.p)
            limit = length / 8 if limit is None else 1.2 * limit
            step = step * _expand((limit / length.clamp(min=torch.finfo(length.dtype).tiny)).clamp(max=1), step)
        moved = torch.where(_expand(is_wrong, moved), moved, into_bounds(moved + step, problem.bounds))
        is_wrong = problem.is_wrong(moved)
        if bool(is_wrong.all()):
            break
    return moved


def _target(problem: _Problem, scores: Tensor, rank: int) -> Tensor:
    """Of the ten strongest other classes the one whose linearised boundary is the `rank`-th nearest."""
    count = min(10, scores.shape[1] - 1)
    others = scores.scatter(1, problem.y[:, None].long(), -torch.inf).topk(count, dim=1).indices
    columns = []
    for column in others.unbind(dim=1):
        gap, slope = problem.slope(problem.x, column)
        columns.append(gap / norms.lp(slope, norms.dual(problem.p)).clamp(min=torch.finfo(gap.dtype).tiny))
    order = torch.stack(columns, dim=1).argsort(dim=1)[:, min(rank, count - 1)]
    return others.gather(1, order[:, None])[:, 0]


def _nearest(problem: _Problem, starts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The nearest misclassified point, moved back to the boundary, and its distance (infinite if there is none)."""
    best = problem.x
    distances = torch.full((len(best),), math.inf, dtype=torch.float64, device=best.device)
    for start in starts:
        point = _bisect(problem, start, 0.0, 16)
        new = torch.where(problem.is_wrong(start), problem.distance(point), math.inf)
        nearer = new < distances
        best, distances = torch.where(_expand(nearer, best), point, best), torch.where(nearer, new, distances)
    return best, distances


def _refined(problem: _Problem, starts: list[Tensor], steps: int) -> tuple[Tensor, Tensor]:
    """The nearest misclassified point that is found from these, and its distance (infinite if there is none)."""
    best, distances = _nearest(problem, starts)
    best = _refine(problem, best, distances, steps)
    return best, torch.where(distances.isfinite(), problem.distance(best), distances)


def _refine(problem: _Problem, best: Tensor, distances: Tensor, steps: int) -> Tensor:
    """Move misclassified points along the boundary towards x; finite `distances` tell which points are."""
    stride = torch.ones_like(distances)
    for _ in range(steps):
        gap, slope = problem.slope(best, None)
        need = gap + (slope * (problem.x - best)).flatten(1).sum(dim=1)
        projection = problem.x + shortest_step(slope, need.clamp(min=0), problem.x, problem.p, problem.bounds)
        aim = best + _expand(stride.to(best.dtype), best) * (projection - best)
        farthest = distances / problem.distance(aim).clamp(min=torch.finfo(torch.float64).tiny)
        point, hit = aim, torch.zeros_like(distances, dtype=torch.bool)
        for power in (0.0, 0.3, 0.8):  # a little beyond the aim, as long as that is nearer than the best point
            tried = problem.between(aim, farthest**power)
            new = problem.is_wrong(tried) & ~hit
            point, hit = torch.where(_expand(new, point), tried, point), hit | new
        point = _bisect(problem, point, 0.5, 6)
        moved = problem.distance(point)
        is_active = stride > 1e-3  # a sample that has converged stays, whatever the others of its batch do
        nearer = hit & is_active & (moved < distances)
        best, distances = torch.where(_expand(nearer, best), point, best), torch.where(nearer, moved, distances)
        stride = torch.where(nearer, (2 * stride).clamp(max=1), stride / 2)
        if not bool(is_active.any()):
            break
    return _bisect(problem, best, 0.9, 25)


def _bisect(problem: _Problem, point: Tensor, low: float, times: int) -> Tensor:
    """Bisection between x + low·(point − x) and `point`; every point that is kept is misclassified."""
    lower = torch.full((len(point),), low).to(point)
    best, upper = point, torch.ones_like(lower)
    for _ in range(times):
        middle = (lower + upper) / 2
        tried = problem.between(point, middle)
        is_wrong = problem.is_wrong(tried)
        best = torch.where(_expand(is_wrong, best), tried, best)
        lower, upper = torch.where(is_wrong, lower, middle), torch.where(is_wrong, middle, upper)
    return best


def _foolbox(p: float, others: int, search: Search) -> ModuleType | None:
    """The package foolbox; for `search="best"` None where it can't be imported or has no such attack."""
    if p not in _FOOLBOX or others == 1:
        if search == "best":
            return None
        raise ValueError(
            f"p is {p} with {others + 1} classes, but foolbox has attacks for p of 1, 2, inf and >= 3 classes"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of packages that foolbox imports
            return import_optional("foolbox", "search='foolbox'")
    except ImportError:  # not installed, or one of its own dependencies can't be imported
        if search == "best":
            return None
        raise


def _fast_minimum_norm(foolbox: ModuleType, problem: _Problem) -> Tensor:
    """The points of foolbox's attack; it needs bounds, and without any gets three times the range of the data."""
    low, high = float(problem.x.min()), float(problem.x.max())
    bounds = problem.bounds or (2 * low - high, 2 * high - low)
    scores = _ScoresOnly(problem.network).eval()
    network = foolbox.PyTorchModel(scores, bounds=bounds, device=problem.x.device)  # else moved to the GPU
    attack = getattr(foolbox.attacks, _FOOLBOX[problem.p])()
    # Its backward pass would add to the gradients of the weights.
    with without_weight_gradients(problem.network), torch.enable_grad():
        points: Tensor = attack(network, problem.x, problem.y.long(), epsilons=None)[1].detach()
    return torch.where(points.isfinite(), points, problem.x)


class _ScoresOnly(nn.Module):
    """A network that returns its scores alone, whatever else `network` returns."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """The scores."""
        return forward(self.network, x)


def _gap(scores: Tensor, y: Tensor) -> Tensor:
    """The output margins, in the dtype of the scores."""
    with without_value_checks():
        return output(scores, y).to(scores.dtype)


def _expand(values: Tensor, like: Tensor) -> Tensor:
    """`values` `[batch]` in a shape that broadcasts with `like`."""
    return values.view(-1, *[1] * (like.ndim - 1))
