"""Pictures of the papers' planes, from the networks of studies S1 (sokolic, Fig. 1) and E1 (elsayed, Fig. 1b)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from widemargin import geometry
from widemargin.cli import arms, plane_pictures
from widemargin.studies import catalog, planes, samples
from widemargin.studies.planes import BOX
from widemargin.studies.run import plan_of
from widemargin.studies.schema import Study
from widemargin.studies.settings import Settings, overlay
from widemargin.studies.tasks import classify, plane
from widemargin.studies.trial import TrialContext

Panel: TypeAlias = dict[str, Any]


def sokolic(*, seed: int = 0, log: Callable[[str], None], **changes: Any) -> Panel:
    """Fig. 1 (a) to (d) of sokolic: decisions, cells, features, and the sets around one sample.

    The network of study S1 at quick scale, with `changes` of its settings.
    """
    study = catalog.study("S1")
    network, parts, settings = _trained(study, "two-layer network", seed, changes)
    assert isinstance(network, nn.Sequential)
    log("trained a two-layer network on the toy data")
    x, y = parts.train.x.double(), parts.train.y
    piece = planes.sliced(network, BOX)
    margins = planes.input_margins(network, parts.train)
    text = "Training samples, the decision boundary, and the ball of the smallest input margin: γ_in = {:.3g}. "
    text += f"{int((margins > 0).sum())} of {len(x)} samples are right."
    first = _with_ball("(a) Decision regions", text, piece, x, y, margins, "smallest input margin")
    second: Panel = {
        "title": "(b) Cells and their Jacobians",
        "text": f"On each of the {len(piece)} cells of this box the network is affine. An ellipse shows the singular "
        "values and vectors of the Jacobian of its features: where it is thin, distances across it vanish.",
        "outlines": True,
        "ellipses": geometry.outlines(planes.sliced(network[:-1], BOX), size=0.24),
        **geometry.plain(piece),
    }
    shown = [first, second, _features(network, x, y), _sets(network, x, y, margins)]
    return _picture(study, shown, parts, {**settings, "seed": seed})


def elsayed(*, seed: int = 0, log: Callable[[str], None], **changes: Any) -> Panel:
    """Fig. 1b of elsayed: the boundaries of a 4-layer network trained by cross-entropy and by the large margin loss.

    The networks of study E1 at quick scale, with `changes` of their settings.
    """
    study = catalog.study("E1")
    shown: list[Panel] = []
    used: dict[str, Any] = {"seed": seed}
    for arm, name in (("cross-entropy", "Cross-entropy"), ("margin l_2", "Large margin")):
        network, parts, used[name] = _trained(study, arm, seed, changes)
        train, test = parts.train, parts.test
        margins, others = (_signed(network, part.x, part.y) for part in (train, test))
        trained, accuracy = (float((found > 0).double().mean()) for found in (margins, others))
        log(f"{name}: {100 * accuracy:.2f} % of the test samples, smallest margin {float(margins.min()):.3g}")
        text = (
            f"Exact distance of the {len(train.x)} training samples (large dots, {100 * trained:.0f} % right) "
            f"to the boundary: smallest {float(margins.min()):.3g}, mean {float(margins.mean()):.3g}; of the "
            f"{len(test)} test samples (small dots): mean {float(others.mean()):.3g}."
        )
        points = plane_pictures.points(train.x, train.y, group="training", margins=margins)
        points += plane_pictures.points(test.x, test.y, group="test", margins=others)
        title = f"{name}: {100 * accuracy:.1f} % of the test samples right"
        regions = geometry.plain(planes.sliced(network, BOX), cells=False)
        shown.append({"title": title, "text": text, "points": points, **regions})
    return _picture(study, shown, parts, used)


def _trained(study: Study, arm: str, seed: int, changes: Settings) -> tuple[nn.Module, samples.Parts, Settings]:
    """The network of an arm, in float64, its samples and its settings."""
    plan = plan_of(study, "quick")
    case = next(case for case in plan.cases() if case.arm.name == arm)
    settings = overlay(plan.settings(case, plan.cells(case.arm)[0]), changes)
    settings.pop("measure", None)
    network = classify.train_one(settings, seed, TrialContext())
    return network.double().cpu(), samples.prepare(settings["data"], seed), settings


def _features(network: nn.Sequential, x: Tensor, y: Tensor) -> Panel:
    z = plane.features(network, x)
    side = nn.Linear(2, 2, bias=False, dtype=z.dtype)  # the classifier on these two coordinates
    side.load_state_dict({"weight": torch.tensor([[-1.0, 0.0], [1.0, 0.0]])})
    piece = planes.sliced(nn.Sequential(side), plane_pictures.box_around(z))
    margins = geometry.exact_margin(piece, z, y, outside="edge")
    text = (
        "The features f(x), by their distance from the plane of the linear classifier and the widest direction "
        "within it. The ball is that of the smallest output margin, γ_out = {:.3g}."
    )
    title = "(c) The samples as the network transforms them"
    return _with_ball(title, text, piece, z, y, margins, "smallest output margin")


def _with_ball(title: str, text: str, piece: geometry.Slice, x: Tensor, y: Tensor, margins: Tensor, name: str) -> Panel:
    """Samples and decisions, with the ball of the smallest margin of a correctly classified sample."""
    hard = int(torch.where(margins > 0, margins, math.inf).argmin())
    radius = float(margins[hard])
    points, curves = plane_pictures.points(x, y), [plane_pictures.circle(x[hard], radius, name)]
    shown = {"title": title, "text": text.format(radius), "points": points, "curves": curves}
    return {**shown, **geometry.plain(piece, cells=False)}


def _sets(network: nn.Module, x: Tensor, y: Tensor, margins: Tensor) -> Panel:
    chosen = plane.middle(margins)
    here, label = x[[chosen]], y[[chosen]]
    curves = geometry.curves(network, here, label, reach=4.0)
    bound = float(geometry.jacobian_margin(network, here, label)[0])
    box = planes.box_around(here[0], 1.6 * float(margins[chosen]), shape=0.8)
    return {
        "title": "(d) What bounds the input margin",
        "text": "Around one sample: r = 1 is the decision boundary (thick), r^J = 1 knows the Jacobians on the way, "
        f"r^F = 1 only the norms of the weights. The largest balls inside: γ_in = {float(margins[chosen]):.3g}, "
        f"Jacobian bound (19) = {bound:.3g}, Frobenius bound (20) = {float(curves.frobenius[0]):.3g}.",
        "points": plane_pictures.points(here, label),
        "curves": [
            plane_pictures.around(here[0], curves.angles, curves.jacobian, "r^J = 1"),
            plane_pictures.around(here[0], curves.angles, curves.frobenius, "r^F = 1"),
        ],
        **geometry.plain(planes.sliced(network, box), cells=False),
    }


def _signed(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return geometry.exact_margin(planes.whole(network, x), x.double(), y, signed=True, outside="edge")


def _picture(study: Study, shown: list[Panel], parts: samples.Parts, settings: Settings) -> Panel:
    return {
        "title": study.title,
        "subtitle": f"{study.source}, from networks of study {study.id} at quick scale",
        "panels": [{**panel, "classes": list(parts.whole.classes)} for panel in shown],
        **arms.facts(settings),
    }
