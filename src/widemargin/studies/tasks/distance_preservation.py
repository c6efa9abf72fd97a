"""Theorems 2, 3 and 5 of sokolic on a trained network: distances between outputs, and bounds of the input margin.

Settings: those of `classify` that train a network, and

    pairs    of test samples, whose average Jacobian is walked exactly
    margins  how many training samples' margins are bounded
    exact    True on the plane: γ_in and (19) are exact there; elsewhere γ_in is an attack's distance, an upper bound of
             it, and (19) an estimate

Row: `theorem 2`, `theorem 3` and `theorem 5`, the shares of pairs or samples of which they hold, `error` (the largest
‖f(x′) − f(x) − J̄(x′ − x)‖/(‖f(x)‖ + ‖f(x′)‖)), and the curves "pairs" (medians of each link of the chain (12), over
‖f(x′) − f(x)‖) and "margins" (medians of γ_in and its bounds, over samples that are right). A network whose scores are
the same everywhere, of which all this holds and says nothing, has None for them.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from widemargin import attacks, bounds, geometry
from widemargin.data import Samples
from widemargin.data.seeds import generator
from widemargin.margins.measurement import accuracy
from widemargin.studies import planes, samples
from widemargin.studies.rows import Row
from widemargin.studies.tasks import classify
from widemargin.studies.trial import Trial, TrialContext

VERSION = 1
_OWN = ("pairs", "margins", "exact")
_ROUNDING = 1e-9


def run(trial: Trial, context: TrialContext) -> Row:
    """One network."""
    network, parts = classify.train_double(trial, _OWN, context)
    row = distances(network, *_pairs(parts.test, trial.settings["pairs"], trial.seed))
    exact = bool(trial.settings.get("exact", False))
    some = samples.first(parts.train, trial.settings["margins"])
    more = input_margins(network, Samples(some.x.double(), some.y), exact=exact, seed=trial.seed)
    return {**row, **more, "accuracy": accuracy(network, parts.test), "points": row["points"] + more["points"]}


def distances(network: nn.Module, x: Tensor, x2: Tensor) -> Row:
    """(11) and (12) on pairs."""
    chain = geometry.norm_chain(network, x, x2)
    J = geometry.average_jacobian(network, x, x2).flatten(2)
    with torch.no_grad():
        here, there = network(x), network(x2)
    carried = torch.einsum("bon,bn->bo", J, (x2 - x).flatten(1))
    size = torch.linalg.vector_norm(here, dim=1) + torch.linalg.vector_norm(there, dim=1)
    error = torch.linalg.vector_norm(there - here - carried, dim=1) / size.clamp_min(torch.finfo(size.dtype).tiny)
    slack = 1 + _ROUNDING
    links = {"‖J̄(x′−x)‖": chain.averaged, "‖J̄‖·‖x′−x‖": chain.jacobian}
    links |= {"Π‖W‖_2·‖x′−x‖": chain.spectral, "Π‖W‖_F·‖x′−x‖": chain.frobenius}
    ordered = torch.stack([a <= b * slack for a, b in itertools.pairwise(links.values())]).all(dim=0)
    moved = chain.moved > 0  # two points of one dead region do not move apart
    if not bool(moved.any()):
        return {"error": None, "theorem 2": None, "theorem 3": None, "points": []}
    points = [
        {"curve": "pairs", "at": {"link": name}, "times": float((link / chain.moved)[moved].median())}
        for name, link in links.items()
    ]
    return {
        "error": float(error.max()),
        "theorem 2": float((error <= _ROUNDING).double().mean()),
        "theorem 3": float(ordered.double().mean()),
        "points": points,
    }


def input_margins(network: nn.Module, train: Samples, *, exact: bool, seed: int) -> Row:
    """γ_in ≥ (19) ≥ (20) on samples, up to rounding; of those that are misclassified all are 0."""
    bound = bounds.input_margin(network, train.x, train.y, jacobian="exact" if exact else "estimate", seed=seed)
    if exact:
        margin = planes.input_margins(network, train)
    else:
        margin = attacks.minimal(network, train.x, train.y, steps=15, targets=2, search="own").distances.cpu()
    assert bound.jacobian is not None
    middle = bound.jacobian.values
    slack = 1 + (1e-6 if exact else 1e-9)
    above = middle <= margin * slack if exact else margin >= bound.spectral.values / slack
    holds = above & (bound.frobenius.values <= middle.nan_to_num(nan=torch.inf) * slack)
    right = margin > 0
    if not bool(right.any()):
        return {"theorem 5": None, "points": []}
    bounded = {
        "γ_in" if exact else "γ_in (attacked, from above)": margin,
        "Jacobian (19)" if exact else "Jacobian (19), estimated": middle,
        "γ_out/Π‖W‖_2": bound.spectral.values,
        "γ_out/Π‖W‖_F (20)": bound.frobenius.values,
    }
    points = [
        {"curve": "margins", "at": {"bound": name}, "distance": float(values[right].nanmedian())}
        for name, values in bounded.items()
    ]
    return {
        "theorem 5": float(holds.double().mean()),
        "(19)/γ_in": float((middle / margin)[right].nanmedian()),
        "(20)/γ_in": float((bound.frobenius.values / margin)[right].median()),
        "points": points,
    }


def _pairs(test: Samples, count: int, seed: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(len(test), generator=generator("pairs", seed))[: 2 * count].to(test.x.device)
    x = test.x[order].double()
    return x[:count], x[count:]
