"""F8 and F9: averages of networks, and of draws of the NN-GP posterior (farhang, §6, Fig. 6, A.5)."""

from __future__ import annotations

from collections.abc import Sequence

from widemargin.studies.claims import custom, positive
from widemargin.studies.farhang.controlled_margins import spearman
from widemargin.studies.farhang.points import EMBEDDED, MNIST, NERO, SMALL, SPHERE
from widemargin.studies.rows import Row, by_seed
from widemargin.studies.schema import Arm, Figure, Study, accuracy, axis, effort, named, scales
from widemargin.studies.settings import Settings

SIZES = (1, 2, 4, 8, 16)
ALPHAS = (0.001, 0.003162, 0.01, 0.03162, 0.1, 0.3162, 1.0, 3.162, 10.0)
_PARITY: Settings = {**MNIST, "parity": True}


def _accuracies(rows: Sequence[Row]) -> list[dict[tuple[float, int], float]]:
    """For every seed (margin, draws) → accuracy."""
    seeds = by_seed(rows, "accuracy", curve="draws")
    return [{(row["alpha"], row["draws"]): row["accuracy"] for row in some} for some in seeds]


def averaging_against_margin(rows: Sequence[Row]) -> list[float]:
    """For every seed the best accuracy of the largest average minus that of single functions."""
    gaps = []
    for cells in _accuracies(rows):
        most = max(draws for _, draws in cells)
        best = {m: max(v for (_, draws), v in cells.items() if draws == m) for m in (1, most)}
        gaps.append(best[most] - best[1])
    return gaps


def gain_of_averaging(rows: Sequence[Row]) -> list[float]:
    """For every seed the gain of the largest average, at the margin where it is largest."""
    gains = []
    for cells in _accuracies(rows):
        most = max(draws for _, draws in cells)
        gains.append(max(cells[alpha, most] - cells[alpha, 1] for alpha, draws in cells if draws == 1))
    return gains


def rise_with_margin(rows: Sequence[Row]) -> list[float]:
    """For every seed Spearman's correlation of a single function's accuracy with its margin."""
    curves = [sorted((a, v) for (a, m), v in cells.items() if m == 1) for cells in _accuracies(rows)]
    return [spearman(*zip(*curve)) for curve in curves]


def fall_of_spread(rows: Sequence[Row]) -> list[float]:
    """For every seed Spearman's correlation of the relative spread with the margin."""
    seeds = by_seed((row for row in rows if row.get("alpha") is not None), "spread")
    curves = [sorted({row["alpha"]: row["spread"] for row in some}.items()) for some in seeds]
    return [spearman(*zip(*curve)) for curve in curves]


AVERAGING = "the best average of many minus the best single function: averaging does what a margin does"
CORRELATION = "rank correlation of a single function's accuracy with its normalized margin"
GAIN = "averaging helps where the margin is small (the largest gain over margins)"
SPREAD = "§7.3: rank correlation of the members' relative spread with their margin"
CLAIMS = (
    custom(AVERAGING, averaging_against_margin, 0.0),
    custom(CORRELATION, rise_with_margin, 1.0, baseline=0.0, relative=True),
    positive(GAIN, gain_of_averaging, "largest gain of averaging"),
    custom(SPREAD, fall_of_spread, -1.0, baseline=0.0, relative=True),
)


def _figures(what: str) -> tuple[Figure, ...]:
    averages, spread = (
        f"Test accuracy of averages of {what} (farhang, Fig. 6)",
        f"Relative spread of {what} (farhang, §7.3)",
    )
    where = {} if what == "networks" else {"curve": "draws", "draws": 1}
    x_title = "targeted normalized margin"
    return (
        accuracy("alpha", averages, x_title, where={"curve": "draws"}, split="draws", log_x=True),
        Figure("alpha", "spread", spread, x_title, "spread / prediction", where=where, log_x=True, log_y=True),
    )


def _shape(samples: int, width: int) -> Settings:
    return {"data.train": samples, "network.width": width, "network.depth": 3}


F8 = Study(
    **named("F8", "farhang, Fig. 6 left", "Averages of networks", "ensembles"),
    question="Does averaging networks of small margin do the same as a large margin?",
    arms=(Arm(name="networks"),),
    settings={
        "data": _PARITY,
        "network": {"name": "farhang-mlp", "inputs": 784, "width": 2048, "depth": 5, "outputs": 1},
        "optimizer": NERO,
        "schedule": {"name": "exponential", "factor": 0.99, "unit": "steps"},
        "steps": 500,
        "members": 16,
        "sizes": SIZES,
    },
    axes={"alpha": axis("alpha", ALPHAS)},
    claims=CLAIMS,
    figures=_figures("networks"),
    scales=scales(
        "40 digits of 8 × 8 pixels, width 16, depth 3, 15 steps, 4 networks, three margins; one core",
        "200 points of mnist-5k, then width 128, depth 3, 300 steps, 8 networks, five margins; two cores",
        "width cut to 1024, one seed; everything else as the paper; one GPU",
        "as the paper; one GPU",
        **effort(minutes=(0.1, 10, 10, 60), seeds=(2, 2, 1)),
        settings=(
            {**SMALL, **_shape(40, 16), "steps": 15, "schedule.factor": 0.9, "members": 4, "sizes": (1, 4)},
            {
                **EMBEDDED,
                **_shape(200, 128),
                "steps": 300,
                "schedule.factor": 0.985,
                "members": 8,
                "sizes": (1, 2, 4, 8),
            },
            {"network.width": 1024},
        ),
        only=({"alpha": (0.01, 0.1, 1.0)}, {"alpha": (0.001, 0.01, 0.1, 1.0, 10.0)}),
    ),
    deviations=(
        SPHERE,
        "Groups of m of the 16 networks are averaged in order, and the accuracies of the groups averaged.",
        "The paper gives its curves as pictures only: of the gain of averaging its sign is judged.",
    ),
)
F9 = Study(
    **named("F9", "farhang, Fig. 6 right and §6.1", "Averages of draws of the NN-GP posterior", "nngp"),
    question="Does the Gaussian process of wide networks show the same curves?",
    arms=(Arm(name="NN-GP"),),
    settings={"data": _PARITY, "depth": 5, "margins": ALPHAS, "sizes": SIZES},
    claims=CLAIMS,
    figures=_figures("draws"),
    scales=scales(
        "60 digits of 8 × 8 pixels, three margins; one core",
        "mnist-5k in place of MNIST; one core",
        "as the paper; one core",
        "as the paper; one core",
        **effort(minutes=(0.1, 1, 2, 2), seeds=(2,)),
        settings=({"data.name": "digits", "data.test": 200, "data.train": 60, "margins": (0.01, 0.1, 1.0)}, EMBEDDED),
    ),
    deviations=(
        SPHERE,
        "Accuracies are expectations over draws, in closed form, in place of single draws.",
        "The paper gives its curves as pictures only: of the gain of averaging its sign is judged.",
    ),
)
