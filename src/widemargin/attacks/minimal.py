"""The nearest input that a network answers wrongly: a search, whose distance is an upper bound of the margin."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from widemargin import norms
from widemargin._io.optional import import_optional, is_installed
from widemargin.attacks.arguments import Bounds, Inputs, check_inputs, check_steps, into_bounds
from widemargin.attacks.hyperplane_step import shortest
from widemargin.checks import check_finite, check_scores_and_labels
from widemargin.modules import evaluating, scores_of, unwrap_ddp
from widemargin.types import Labels, Mask, PerExample, is_binary

Search: TypeAlias = Literal["best", "own", "foolbox"]

_FOOLBOX = {1.0: "L1FMNAttack", 2.0: "L2FMNAttack", math.inf: "LInfFMNAttack"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Minimal:
    """What was found: misclassified `points`, their l_p `distances` in float64, and where anything was `found`.

    Where nothing was found the distance is infinite and the point is x itself. A sample that is misclassified as it
    stands has distance 0 (sokolic, errata 2).
    """

    points: Inputs
    distances: PerExample
    found: Mask


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
) -> Minimal:
    """An x̂ of small ‖x̂ − x‖_p that `model` misclassifies.

    Towards each of the `targets` nearest classes of the linearised network, and once more in short steps away from the
    own class: steps to the linearised boundary until a sample is misclassified (DeepFool, Moosavi-Dezfooli et al.
    2016), and bisection on the way back to x. From the nearest of these points: projections of x onto the boundary
    linearised at x̂, each taken only if it is misclassified and nearer (as FAB does, Croce and Hein 2020). A point
    counts as misclassified where f_y is below another score by more than the rounding of the scores, in evaluation mode
    and in the network's own dtype.

    Args:
        model: any network; it is attacked in evaluation mode and left as it was.
        x: inputs, inside `bounds`.
        y: class indices, or −1.0 and +1.0 for a binary network.
        p: norm of the distance, in [1, ∞].
        steps: most steps of each of the two phases.
        targets: how many classes are tried.
        bounds: the range of the data, that x̂ then stays in, or None.
        search: `"own"` is the above; `"foolbox"` the FMN attack of that package (p of 1, 2 or ∞, several classes);
            `"best"` the nearer of both where foolbox is installed and can, else our own.
    """
    norms.check_p(p)
    check_steps(None, steps)
    check_inputs(x, bounds)
    check_finite(x, "x")
    if isinstance(targets, bool) or not isinstance(targets, int) or targets < 1:
        raise ValueError(f"targets is {targets!r}, expected an integer >= 1")
    if search not in ("best", "own", "foolbox"):
        raise ValueError(f"search is {search!r}, expected 'best', 'own' or 'foolbox'")
    network = unwrap_ddp(model)
    with evaluating(network), torch.inference_mode(False), torch.no_grad():
        task = _Task(network=network, x=x.detach().clone(), y=y, p=p, bounds=bounds)
        scores = task.scores(task.x)
        check_scores_and_labels(scores, y)
        check_finite(scores, "scores")
        others = 1 if is_binary(scores) else scores.shape[1] - 1
        attempts = [None, *range(min(targets, others))] if search != "foolbox" else []
        starts = [_walk(task, rank, steps) for rank in attempts]
        if search == "foolbox" or (search == "best" and _has_foolbox(p, others)):
            starts.append(_foolbox(task, others))
        best, away = _nearest(task, starts)
        best = _refine(task, best, away, steps)
        away = torch.where(away.isfinite(), task.distance(best), away)
        already = _gap(scores, y) <= 0
        away = torch.where(already, torch.zeros_like(away), away)
        best = torch.where(_wide(already | away.isinf(), best), task.x, best)
    return Minimal(points=best, distances=away, found=away.isfinite())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Task:
    network: nn.Module
    x: Tensor
    y: Tensor
    p: float
    bounds: Bounds

    def scores(self, points: Tensor) -> Tensor:
        return scores_of(self.network(points))

    def wrong(self, points: Tensor) -> Tensor:
        """Which points are misclassified, by more than rounding may do."""
        scores = self.scores(points)
        tolerance = 8 * torch.finfo(scores.dtype).eps * scores.abs().reshape(len(scores), -1).amax(dim=1)
        return _gap(scores, self.y) < -tolerance

    def slope(self, points: Tensor, target: Tensor | None) -> tuple[Tensor, Tensor]:
        """f_y − f_target and its gradient; of the strongest other class where there is no target."""
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

    def towards(self, points: Tensor, share: Tensor) -> Tensor:
        """Of the way from x to `points` a share, inside the bounds."""
        return into_bounds(self.x + _wide(share.to(self.x.dtype), self.x) * (points - self.x), self.bounds)


def _walk(task: _Task, rank: int | None, steps: int) -> Tensor:
    """DeepFool towards the class number `rank` by linearised distance, a little further at each step.

    Without a rank towards whichever class is next, and no further at a time than an eighth of the first way (a length
    that grows): where slopes change soon, whole steps would lead astray.
    """
    scores = task.scores(task.x)
    target = None if rank is None or is_binary(scores) else _target(task, scores, rank)
    moved, wrong = task.x, task.wrong(task.x)
    limit: Tensor | None = None
    for step in range(steps):
        gap, slope = task.slope(moved, target)
        need = gap.clamp(min=0) * (1.02 + 0.02 * step) + 1e-4 * gap.abs()
        way = shortest(slope, need, moved, task.p, task.bounds)
        if rank is None:
            length = norms.lp(way, task.p)
            limit = length / 8 if limit is None else 1.2 * limit
            way = way * _wide((limit / length.clamp(min=torch.finfo(length.dtype).tiny)).clamp(max=1), way)
        moved = torch.where(_wide(wrong, moved), moved, into_bounds(moved + way, task.bounds))
        wrong = task.wrong(moved)
        if bool(wrong.all()):
            break
    return moved


def _target(task: _Task, scores: Tensor, rank: int) -> Tensor:
    """Of the ten strongest other classes the one whose linearised boundary is the `rank`-th nearest."""
    some = min(10, scores.shape[1] - 1)
    others = scores.scatter(1, task.y[:, None].long(), -torch.inf).topk(some, dim=1).indices
    columns = []
    for column in others.unbind(dim=1):
        gap, slope = task.slope(task.x, column)
        columns.append(gap / norms.lp(slope, norms.dual(task.p)).clamp(min=torch.finfo(gap.dtype).tiny))
    order = torch.stack(columns, dim=1).argsort(dim=1)[:, min(rank, some - 1)]
    return others.gather(1, order[:, None])[:, 0]


def _nearest(task: _Task, starts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The nearest of the points that are misclassified, each taken back to the boundary, and how far away it is."""
    best, away = task.x, torch.full((len(task.x),), math.inf, dtype=torch.float64, device=task.x.device)
    for start in starts:
        wrong = task.wrong(start)
        point = _back(task, start, torch.zeros(len(start)).to(start), 16)
        distance = torch.where(wrong, task.distance(point), math.inf)
        nearer = distance < away
        best, away = torch.where(_wide(nearer, best), point, best), torch.where(nearer, distance, away)
    return best, away


def _refine(task: _Task, best: Tensor, away: Tensor, steps: int) -> Tensor:
    """Along the boundary towards x, from points that lie on its far side, `away` from x; finite where they do."""
    stride = torch.ones_like(away)
    for _ in range(steps):
        gap, slope = task.slope(best, None)
        need = gap + (slope * (task.x - best)).flatten(1).sum(dim=1)
        foot = task.x + shortest(slope, need.clamp(min=0), task.x, task.p, task.bounds)
        aim = best + _wide(stride.to(best.dtype), best) * (foot - best)
        longest = away / task.distance(aim).clamp(min=torch.finfo(torch.float64).tiny)
        point, hit = aim, torch.zeros_like(away, dtype=torch.bool)
        for part in (0.0, 0.3, 0.8):  # a little beyond the aim, as long as that is nearer than what there is
            tried = task.towards(aim, longest**part)
            now = task.wrong(tried) & ~hit
            point, hit = torch.where(_wide(now, point), tried, point), hit | now
        point = _back(task, point, torch.full((len(point),), 0.5).to(point), 6)
        distance = task.distance(point)
        going = stride > 1e-3  # a sample that has come to rest stays, whatever the others of its batch do
        nearer = hit & going & (distance < away)
        best, away = torch.where(_wide(nearer, best), point, best), torch.where(nearer, distance, away)
        stride = torch.where(nearer, (2 * stride).clamp(max=1), stride / 2)
        if not bool(going.any()):
            break
    return _back(task, best, torch.full((len(best),), 0.9).to(best), 25)


def _back(task: _Task, point: Tensor, low: Tensor, times: int) -> Tensor:
    """Bisection between a share `low` of the way from x and `point`; every step kept is misclassified."""
    best, high = point, torch.ones_like(low)
    for _ in range(times):
        middle = (low + high) / 2
        tried = task.towards(point, middle)
        wrong = task.wrong(tried)
        best = torch.where(_wide(wrong, best), tried, best)
        low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)
    return best


def _has_foolbox(p: float, others: int) -> bool:
    return is_installed("foolbox") and p in _FOOLBOX and others > 1


def _foolbox(task: _Task, others: int) -> Tensor:
    """The points of foolbox's fast minimum-norm attack; it needs a range, without one three times that of the data."""
    if task.p not in _FOOLBOX or others == 1:
        raise ValueError(
            f"search is 'foolbox', which has an attack for p of 1, 2 and inf and several classes: {task.p}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what foolbox imports, which is not ours to mend
        foolbox = import_optional("foolbox", "search='foolbox'")
    low, high = float(task.x.min()), float(task.x.max())
    bounds = task.bounds or (2 * low - high, 2 * high - low)
    attack = getattr(foolbox.attacks, _FOOLBOX[task.p])()
    with torch.enable_grad():
        answer = attack(foolbox.PyTorchModel(task.network, bounds=bounds), task.x, task.y.long(), epsilons=None)
    points: Tensor = answer[1].detach()
    return torch.where(points.isfinite(), points, task.x)


def _gap(scores: Tensor, y: Tensor) -> Tensor:
    """f_y minus the largest other score, or y·f."""
    if is_binary(scores):
        return scores.reshape(-1) * y.to(scores.dtype)
    label = y[:, None].long()
    return scores.gather(1, label)[:, 0] - scores.scatter(1, label, -torch.inf).amax(dim=1)


def _wide(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.ndim - 1))
