"""The papers' pictures of planes, from networks trained here: sokolic's Fig. 1 and elsayed's Fig. 1b."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from widemargin import geometry, losses, models, regularizers, training
from widemargin._io import provenance
from widemargin.cli import panels
from widemargin.data import Samples, load, subset

BOX = (-2.2, 2.2, -1.7, 1.7)
WIDE = (-6.0, 6.0, -6.0, 6.0)  # where the boundary is looked for


def sokolic(*, epochs: int = 100, seed: int = 3, told: Callable[[str], None]) -> dict[str, Any]:
    """Fig. 1 (a) to (d) of sokolic: decisions, cells, features, and the sets around one sample.

    A two-layer network f of 12 ReLU units and 2 linear features, and a linear classifier on them, trained on the toy
    data by cross-entropy with a little weight decay (23).
    """
    data = load("toy")
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 2), nn.Linear(2, 2))
    fit(model, data.train, losses.CrossEntropy(), epochs, seed, (regularizers.WeightDecay(weight=3e-5),))
    model.double()
    told("trained a two-layer network on the toy data")
    x, y = data.train.x.double(), data.train.y
    whole, features = _plane(model, BOX), _plane(model[:-1], BOX)
    margins = _margins(model, x, y)
    right = margins > 0
    hard = int(torch.where(right, margins, math.inf).argmin())
    classes = list(data.classes)
    points = panels.points(x, y)
    ball = panels.circle(x[hard], float(margins[hard]), "smallest input margin")
    first: dict[str, Any] = {
        "title": "(a) Decision regions",
        "text": f"Training samples, the decision boundary, and the ball of the smallest input margin: "
        f"γ_in = {float(margins[hard]):.3g}. {int(right.sum())} of {len(x)} samples are right.",
        "classes": classes,
        "points": points,
        "curves": [ball],
        **geometry.plain(whole, cells=False),
    }
    second: dict[str, Any] = {
        "title": "(b) Cells and their Jacobians",
        "text": f"On each of the {len(whole)} cells of this box the network is affine. An ellipse shows the singular "
        "values and vectors of the Jacobian of its features: where it is thin, distances across it vanish.",
        "classes": classes,
        "outlines": True,
        "ellipses": geometry.outlines(features, size=0.24),
        **geometry.plain(whole),
    }
    return {
        "title": "A ReLU network on the plane",
        "subtitle": "sokolic, Fig. 1, from a network trained on the toy data",
        "panels": [first, second, _features(model, x, y, classes), _sets(model, x, y, classes, margins)],
        **_origin(
            {
                "data": "toy, its training set",
                "network": "2 inputs, 12 ReLU units, 2 linear features, 2 classes",
                "loss": "cross-entropy + weight decay 3e-5",
                "optimizer": "Adam, lr 0.01",
                "epochs": epochs,
                "seed": seed,
            }
        ),
    }


def elsayed(*, epochs: int = 300, seed: int = 0, samples: int = 20, told: Callable[[str], None]) -> dict[str, Any]:
    """Fig. 1b of elsayed: the boundary of a 4-layer network trained by cross-entropy and by the large margin loss.

    γ = 1 at the input and the three hidden layers was chosen by the smallest training margin, of four settings tried.
    An illustration: with 60 samples, where the boundary is better known, the large margin was not better on test data.
    """
    data = load("toy")
    train = subset(data.train, count=samples, seed=seed, balanced=True)
    ways = {
        "Cross-entropy": losses.CrossEntropy(),
        "Large margin": losses.large_margin(p=2.0, gamma=1.0, at=("input", "relu1", "relu2", "relu3"), classes=1),
    }
    made = []
    for name, loss in ways.items():
        torch.manual_seed(seed)
        model = models.elsayed_toy()
        fit(model, train, loss, epochs, seed)
        plane = _plane(model, BOX)
        margins, test = _margins(model, train.x, train.y), _margins(model, data.test.x, data.test.y)
        accuracy, trained = (float((found > 0).double().mean()) for found in (test, margins))
        told(f"{name}: {100 * accuracy:.2f} % of the test samples, smallest margin {float(margins.min()):.3g}")
        panel: dict[str, Any] = {
            "title": f"{name}: {100 * accuracy:.1f} % of the test samples right",
            "text": f"Exact distance of the {len(train.x)} training samples (large dots, {100 * trained:.0f} % right) "
            f"to the boundary: smallest {float(margins.min()):.3g}, mean {float(margins.mean()):.3g}; of the "
            f"{len(test)} test samples (small dots): mean {float(test.mean()):.3g}.",
            "classes": list(data.classes),
            "points": [
                *panels.points(train.x, train.y, group="training", margins=margins),
                *panels.points(data.test.x, data.test.y, group="test", margins=test),
            ],
            **geometry.plain(plane, cells=False),
        }
        made.append(panel)
    return {
        "title": "Two boundaries",
        "subtitle": "elsayed, Fig. 1b: a 4-layer network, from the same first weights, trained by two losses",
        "panels": made,
        **_origin(
            {
                "data": f"toy, {samples} samples of its training set, and its test set",
                "network": "elsayed-toy: three layers of 32 ReLU units and the output",
                **{name: repr(loss) for name, loss in ways.items()},
                "optimizer": "Adam, lr 0.01",
                "epochs": epochs,
                "seed": seed,
            }
        ),
    }


def fit(model: nn.Module, train: Samples, loss: Any, epochs: int, seed: int, added: tuple[Any, ...] = ()) -> None:
    """Train `model` in place."""
    training.fit(
        model,
        train,
        loss=loss,
        regularizers=added,
        optimizer=training.Adam(lr=1e-2),
        epochs=epochs,
        batch_size=50,
        seed=seed,
        accelerator="cpu",
        progress=False,
    )


def _features(model: nn.Sequential, x: Tensor, y: Tensor, classes: list[str]) -> dict[str, Any]:
    with torch.no_grad():
        z = model[:-1](x)
    box = panels.box_around(z)
    plane = _plane(nn.Sequential(model[-1]), box)
    margins = geometry.exact_margin(plane, z, y, outside="edge")
    hard = int(torch.where(margins > 0, margins, math.inf).argmin())
    return {
        "title": "(c) The samples as the network transforms them",
        "text": "The features f(x), which a linear classifier parts: each cell of (b) is laid down by its own affine "
        f"map. The ball is that of the smallest output margin, γ_out = {float(margins[hard]):.3g}.",
        "classes": classes,
        "points": panels.points(z, y),
        "curves": [panels.circle(z[hard], float(margins[hard]), "smallest output margin")],
        **geometry.plain(plane, cells=False),
    }


def _sets(model: nn.Sequential, x: Tensor, y: Tensor, classes: list[str], margins: Tensor) -> dict[str, Any]:
    chosen = int((margins - margins[margins > 0].median()).abs().argmin())  # a sample of middling margin
    here, label = x[[chosen]], y[[chosen]]
    curves = geometry.curves(model, here, label, reach=4.0)
    bound = float(geometry.jacobian_margin(model, here, label)[0])
    reach = 1.6 * float(margins[chosen])
    cx, cy = here[0].tolist()
    box = (cx - reach, cx + reach, cy - 0.8 * reach, cy + 0.8 * reach)
    plane = _plane(model, box)
    return {
        "title": "(d) What bounds the input margin",
        "text": "Around one sample: r = 1 is the decision boundary (thick), r^J = 1 knows the Jacobians on the way, "
        f"r^F = 1 only the norms of the weights. The largest balls inside: γ_in = {float(margins[chosen]):.3g}, "
        f"Jacobian bound (19) = {bound:.3g}, Frobenius bound (20) = {float(curves.frobenius[0]):.3g}.",
        "classes": classes,
        "points": panels.points(here, label),
        "curves": [
            panels.around(here[0], curves.angles, curves.jacobian, "r^J = 1"),
            panels.around(here[0], curves.angles, curves.frobenius, "r^F = 1"),
        ],
        **geometry.plain(plane, cells=False),
    }


def _margins(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Signed distances to the boundary, of which no trained network's is as far away as the edge of the box."""
    return geometry.exact_margin(_plane(model, WIDE), x.double(), y, signed=True, outside="edge")


def _plane(model: nn.Module, box: tuple[float, float, float, float]) -> geometry.Slice:
    e1, e2 = torch.eye(2, dtype=torch.float64)
    found = geometry.slice2d(model, torch.zeros(2, dtype=torch.float64), e1, e2, box)
    assert isinstance(found, geometry.Slice)  # these networks are small
    return found


def _origin(settings: dict[str, Any]) -> dict[str, Any]:
    origin = provenance.provenance()
    return {
        "settings": settings,
        "versions": {**origin["versions"], "commit": origin["commit"] or "unknown"},
        "hardware": origin["hardware"],
    }
