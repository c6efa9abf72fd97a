"""A two-layer ReLU network on the plane, as sokolic's Fig. 1 shows it: regions, Jacobians, features, and sets.

Settings: those of `classify` that train a network on points of the plane, and

    grid     so many points a side around one sample, at which its sets R, R^J and R^F are compared
    samples  how many training samples' input margins are bounded
    shown    seeds whose pictures are kept as points (the others leave numbers alone)

Row: `cells` in the box of the picture, `affine` (the share of them in which the network is their affine map, up to
rounding), `nested` (the share of points of the grid with r^F ≤ r^J ≤ r as sets), `area R^J` and `area R^F` (over R's),
`bounded` (the share of samples with γ_in ≥ (19) ≥ (20)), `sharper` (the share with (19) > (20)), the medians
`(19)/γ_in` and `(20)/γ_in`, `flat` (the median ratio of the singular values of a cell's Jacobian of the features), and
the curves "plane", "features" and "sets", whose `what` says what a point is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from widemargin import bounds, geometry
from widemargin.data import Samples
from widemargin.margins.measurement import accuracy
from widemargin.studies import planes, samples
from widemargin.studies.rows import Row
from widemargin.studies.tasks import classify
from widemargin.studies.trial import Trial, TrialContext

VERSION = 1
_OWN = ("grid", "samples", "shown")


def run(trial: Trial, context: TrialContext) -> Row:
    """One network."""
    network, parts = classify.train_double(trial, _OWN, context)
    network = network.cpu()
    assert isinstance(network, nn.Sequential)
    train = Samples(parts.train.x.double(), parts.train.y).to("cpu")
    piece = planes.whole(network, train.x)
    margins = geometry.exact_margin(piece, train.x, train.y, outside="edge")
    row: Row = {
        "accuracy": accuracy(network, parts.test),
        "cells": len(piece),
        "smallest margin": float(margins[margins > 0].min()) if bool((margins > 0).any()) else None,
        **regions(network, piece),
        **bounded(network, samples.first(train, trial.settings["samples"])),
    }
    if not bool((margins > 0).any()):
        return row  # no sample is right: there are no sets
    chosen = middle(margins)
    row |= around(network, train.select(torch.tensor([chosen])), float(margins[chosen]), trial.settings["grid"])
    points = row.pop("points")
    if trial.seed in trial.settings["shown"]:
        drawn = {"plane": train.x, "features": features(network, train.x)}
        row["points"] = [
            *(planes.point(name, f"class {int(y)}", at) for name, x in drawn.items() for at, y in zip(x, train.y)),
            *(planes.point("plane", "boundary", at) for at in planes.along(piece.boundary().ends, 0.05)),
            *points,
        ]
    return row


def regions(network: nn.Sequential, piece: geometry.Slice) -> Row:
    """That the network is the affine map of every cell, at its centre and half-way from there to each corner.

    And how flat the Jacobians of its features are at the centres.
    """
    centres = piece.cells.centroids()
    points = torch.cat((centres[:, None], (centres[:, None] + piece.cells.corners) / 2), dim=1)
    affine = torch.einsum("cvk,cko->cvo", points, piece.maps[:, :2]) + piece.maps[:, None, 2]
    with torch.no_grad():
        there = network(points.flatten(0, 1)).view_as(affine)
    error = (affine - there).abs().amax(dim=(1, 2)) / there.abs().amax(dim=(1, 2)).clamp_min(1e-300)
    singular = torch.linalg.svdvals(geometry.jacobian(network[:-1], centres).flatten(2))[:, :2]
    flat = singular[:, -1] / singular[:, 0]
    return {"affine": float((error < 1e-9).double().mean()), "flat": float(flat.nan_to_num(nan=0.0).median())}


def bounded(network: nn.Module, some: Samples) -> Row:
    """γ_in ≥ (19) ≥ (20), sample by sample."""
    margin = planes.input_margins(network, some)
    bound = bounds.input_margin(network, some.x, some.y, jacobian="exact")
    assert bound.jacobian is not None
    middle, low = bound.jacobian.values, bound.frobenius.values
    right = margin > 0
    holds = (middle <= margin * (1 + 1e-6)) & (low <= middle * (1 + 1e-6))
    if not bool(right.any()):
        return {"bounded": float(holds.double().mean())}
    return {
        "bounded": float(holds.double().mean()),
        "sharper": float((middle > low)[right].double().mean()),
        "(19)/γ_in": float((middle / margin)[right].median()),
        "(20)/γ_in": float((low / margin)[right].median()),
    }


def around(network: nn.Module, one: Samples, margin: float, count: int) -> Row:
    """The sets of one sample on a grid that reaches to three times its margin."""
    steps = torch.linspace(-3 * margin, 3 * margin, count, dtype=torch.float64)
    points = one.x + torch.cartesian_prod(steps, steps)
    points = points[(points - one.x).norm(dim=1) > 0]
    sets = geometry.sets(network, one.x, one.y, points)
    inside, jacobian, frobenius = sets.members()
    nested = (~frobenius | jacobian) & (~jacobian | inside)
    curves = geometry.curves(network, one.x, one.y, directions=72, reach=6 * margin)
    shown = [planes.point("sets", "sample", one.x[0])]
    for what, far in (("r^J = 1", curves.jacobian), ("r^F = 1", curves.frobenius)):
        for angle, t in zip(curves.angles.tolist(), far.tolist()):
            if math.isfinite(t):
                at = one.x[0] + t * one.x.new_tensor([math.cos(angle), math.sin(angle)])
                shown.append(planes.point("sets", what, at))
    borders = planes.sliced(network, planes.box_around(one.x[0], 3 * margin)).boundary()
    shown += [planes.point("sets", "r = 1", at) for at in planes.along(borders.ends, 0.1 * margin)]
    total = float(inside.double().sum())
    return {
        "nested": float(nested.double().mean()),
        "area R^J": float(jacobian.double().sum()) / total if total else None,
        "area R^F": float(frobenius.double().sum()) / total if total else None,
        "points": shown,
    }


def features(network: nn.Sequential, x: Tensor) -> Tensor:
    """`[samples, 2]`: signed distances of the features from the decision plane, and their widest direction within it.

    The positive side is that of class 1 (Fig. 1c).
    """
    last = network[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        z = network[:-1](x)
        v = last.weight[1] - last.weight[0]
        bias = 0.0 if last.bias is None else float(last.bias[1] - last.bias[0])
    first = (z @ v + bias) / v.norm()
    rest = z - torch.outer(z @ v, v) / v.square().sum()
    centred = rest - rest.mean(dim=0)
    return torch.stack((first, centred @ torch.linalg.svd(centred, full_matrices=False).Vh[0]), dim=1)


def middle(margins: Tensor) -> int:
    """The sample whose margin is closest to the median of the positive ones."""
    return int((margins - margins[margins > 0].median()).abs().argmin())
