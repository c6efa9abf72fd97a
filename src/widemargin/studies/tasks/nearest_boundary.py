"""The closed form of the distance for affine scores, against an independent convex solver (elsayed, §3.1).

Settings: `inputs`, `classes`, `samples` of a random affine network and random points, and `p`, the norm.

Row: `error`, the largest relative difference between `margins.distance` and the solver's distance to the boundary,
over all samples and all other classes; `digits`, in how many decimal digits they agree (at most 16); `problems`, how
many there were. The solver is scipy's linear programming for p = 1 and ∞; between them it minimises ‖δ‖_p^p over the
solutions of aᵀδ = c, a smooth convex function.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from widemargin import margins, norms, places
from widemargin.data.seeds import generator
from widemargin.registry import argument
from widemargin.studies.rows import Row
from widemargin.studies.settings import check_keys
from widemargin.studies.trial import Trial, TrialContext

VERSION = 2
_KEYS = ("inputs", "classes", "samples", "p")
Vector = NDArray[np.float64]


def run(trial: Trial, context: TrialContext) -> Row:  # noqa: ARG001 (it is small: always on the CPU)
    """All problems of one seed."""
    given = trial.settings
    check_keys(given, _KEYS, exactly=True)
    p = float(argument(given["p"]))
    draw = generator("affine", trial.seed)
    inputs, classes, samples = given["inputs"], given["classes"], given["samples"]
    network = nn.Linear(inputs, classes, dtype=torch.float64)
    with torch.no_grad():
        network.weight.copy_(torch.randn(classes, inputs, generator=draw, dtype=torch.float64))
        network.bias.copy_(torch.randn(classes, generator=draw, dtype=torch.float64))
    x = torch.randn(samples, inputs, generator=draw, dtype=torch.float64)
    y = torch.randint(classes, (samples,), generator=draw)
    with places.watch(network, ("input",)) as at:
        scores = network(x)
    distances = margins.distance(scores, y, at=at, p=p, classes="all", aggregate="none")["input"]
    answers = scores.detach()
    order = answers.scatter(1, y[:, None], -math.inf).argsort(dim=1, descending=True)[:, : classes - 1]
    errors = []
    for row in range(samples):
        for value, other in zip(distances[row].tolist(), order[row].tolist()):
            a = (network.weight[y[row]] - network.weight[other]).detach().numpy()
            c = float(answers[row, other] - answers[row, y[row]])
            exact = math.copysign(shortest(a, c, p), -c)
            errors.append(abs(value - exact) / abs(exact))
    worst = max(errors)
    return {"error": worst, "digits": -math.log10(max(worst, 1e-16)), "problems": len(errors)}


def shortest(a: Vector, c: float, p: float) -> float:
    """min ‖δ‖_p subject to aᵀδ = c, by a solver."""
    norms.check_p(p)
    return by_linear_programme(a, c, p) if p in (1, math.inf) else _descent(a, c, p)


def by_linear_programme(a: Vector, c: float, p: float) -> float:
    """min ‖δ‖_p subject to aᵀδ = c, for p = 1 and p = ∞."""
    from scipy.optimize import linprog

    n = len(a)
    if p == 1:  # δ = u − v with u, v ≥ 0: minimise Σ(u + v)
        solved = linprog(np.ones(2 * n), A_eq=np.concatenate([a, -a])[None], b_eq=[c], bounds=(0, None))
    else:  # minimise t with −t ≤ δ_j ≤ t
        eye, ones = np.eye(n), np.ones((n, 1))
        solved = linprog(
            np.concatenate([np.zeros(n), [1.0]]),
            A_ub=np.block([[eye, -ones], [-eye, -ones]]),
            b_ub=np.zeros(2 * n),
            A_eq=np.concatenate([a, [0.0]])[None],
            b_eq=[c],
            bounds=[(None, None)] * n + [(0, None)],
        )
    if solved.status != 0:
        raise RuntimeError(f"the linear programme was not solved: {solved.message}")
    return float(solved.fun)


def _descent(a: Vector, c: float, p: float) -> float:
    from scipy.linalg import null_space
    from scipy.optimize import minimize

    start = a * (c / (a @ a))
    size = float(np.abs(start).max())
    along = null_space(a[None])  # all solutions are start + along·z

    def objective(z: Vector) -> tuple[float, Vector]:
        delta = start / size + along @ z
        gradient = p * np.sign(delta) * np.abs(delta) ** (p - 1)
        return float((np.abs(delta) ** p).sum()), along.T @ gradient

    options = {"maxiter": 500, "ftol": 1e-13, "gtol": 1e-10, "maxcor": 30}
    solved = minimize(objective, np.zeros(along.shape[1]), jac=True, method="L-BFGS-B", options=options)
    return size * float(solved.fun) ** (1 / p)
