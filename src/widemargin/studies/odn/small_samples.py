"""O2: MNIST from 0.125 % of the training set to all of it (odn, §4.2, Fig. 2a)."""

from __future__ import annotations

from widemargin.studies.odn import data, fractions, losses
from widemargin.studies.schema import Scale, Study, grid
from widemargin.studies.settings import overlay

LEAST = {"fraction": 0.00125}
_REPORTED = {"Xent": 4.95, "hinge": 6.84, "soft hinge": 3.03}

O2 = Study(
    id="O2",
    source="odn, Fig. 2a",
    title="Small training sets of MNIST",
    question="Does the optimal margin distribution loss do better than the others where there are few samples?",
    task="classify",
    arms=losses.arms(),
    settings=data.MNIST,
    axes={"fraction": data.FRACTIONS},
    conditions=grid(fraction=tuple(data.FRACTIONS)),
    claims=fractions.claims(LEAST, "0.125 % of the training set (68 samples)", _REPORTED),
    figures=(fractions.figure("2a"),),
    scales={
        "smoke": Scale(
            minutes=0.1,
            settings=overlay(data.SMOKE_MNIST, data.SMOKE),
            seeds=2,
            only={"fraction": (0.00125, 0.01)},
            arms=(*losses.PAPER, "ours ODN"),
            note="digits of 8 × 8 pixels, a small network, 3 steps, no search",
        ),
        "quick": Scale(
            minutes=12,
            settings=overlay(data.QUICK_MNIST, data.QUICK),
            seeds=2,
            cells=2,
            only={"fraction": (0.00125, 0.01)},
            search_at=data.BUDGET_SEARCH,
            arms=(*losses.PAPER, "ours ODN"),
            note="68 and 550 images of mnist-5k; then steps, widths, the search (2 cells, at 550 images); two cores",
        ),
        "budget": Scale(
            minutes=12,
            settings=data.BUDGET,
            seeds=5,
            cells=4,
            only={"fraction": (0.00125, 0.01, 1.0)},
            note="steps cut from 20,000 to 5,000, then fractions to three of nine, then the search to 4 cells; one GPU",
        ),
        "paper": Scale(
            minutes=900, seeds=5, cells=6, note="all fractions, each with its own search; one GPU, as populations"
        ),
    },
    deviations=losses.DEVIATIONS,
)
STUDIES = {"O2": O2}
