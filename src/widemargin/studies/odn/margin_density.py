"""O7: the density of the margins of MNIST models (odn, §4.5, Fig. 5)."""

from __future__ import annotations

import functools

from widemargin.studies.claims import order, value
from widemargin.studies.odn import data, losses
from widemargin.studies.schema import Figure, Study, effort, grid, named, scales
from widemargin.studies.settings import Settings, overlay

ALL = {"fraction": 1.0}
REPORTED = (("Xent", 2.38), ("hinge", 2.35), ("soft hinge", 2.63), ("ODN", 3.20))
above = functools.partial(order, where=ALL, share=False)
ratio = functools.partial(value, metric="margin mean/sd", where=ALL, relative=True)


def _measure(points: int, count: int | None = None) -> Settings:
    return {"measure": [{"kind": "density", "grid": (-1.0, 5.0, points), "count": count}]}


def _figure(fraction: float, words: str) -> Figure:
    title = f"Density of the margins of test images, trained on {words} (odn, Fig. 5)"
    where = {"curve": "density", "fraction": fraction}
    return Figure(
        "margin", "density", title, "distance to the decision boundary, l_2, linearised", "density", where=where
    )


O7 = Study(
    **named("O7", "odn, Fig. 5 and §4.5", "Distribution of the margins"),
    question="Has ODN a large mean margin with a small spread, compared with the other losses?",
    arms=losses.arms(),
    settings=data.MNIST,
    axes={"fraction": data.FRACTIONS},
    conditions=grid(fraction=(1.0, 0.01)),
    claims=(
        *(ratio(f"mean over standard deviation of the margins, {arm}", arm, reported) for arm, reported in REPORTED),
        *(
            above(f"mean over standard deviation: ODN above {other}", losses.ODN, other, metric="margin mean/sd")
            for other in losses.OTHERS
        ),
        *(
            above(f"standard deviation of the margins: {other} above ODN", other, losses.ODN, metric="margin sd")
            for other in losses.OTHERS
        ),
    ),
    figures=(_figure(1.0, "all images"), _figure(0.01, "1 % of them")),
    scales=scales(
        "digits of 8 × 8 pixels, a small network, 3 steps, no search",
        "mnist-5k; then steps, widths, the search (2 cells, at 550 images); two cores",
        "steps cut from 20,000 to 5,000, then the search to 4 cells; the networks are those of O1, O2, O5, O6 "
        "and O8; one GPU",
        "one GPU",
        **effort(minutes=(0.1, 12, 12, 600), seeds=(1, 2, 3, 5), cells=(1, 2, 4, 6)),
        settings=(
            overlay(data.SMOKE_MNIST, _measure(5, 50)),
            overlay(data.QUICK_MNIST, _measure(61)),
            overlay(data.BUDGET, _measure(121)),
            _measure(121),
        ),
        search_at=(None, data.BUDGET_SEARCH),
        arms=(losses.SOME, losses.SOME),
    ),
    deviations=(
        *losses.DEVIATIONS,
        "The paper does not say which images the margins are of, nor how many its models were trained on: here test "
        "images, models trained on all of MNIST for the claims, and on 1 % beside them.",
    ),
)
