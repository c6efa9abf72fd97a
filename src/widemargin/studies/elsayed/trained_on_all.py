"""The eight models trained on all of MNIST, which E2 and E5 to E9 share: trained once, measured six times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from widemargin.studies.claims import order
from widemargin.studies.elsayed import mnist
from widemargin.studies.figure import Figure, accuracy
from widemargin.studies.schema import Arm, Claim, ScaleName, Study, scales
from widemargin.studies.settings import Settings, overlay

EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
TOLD = (0.1, 0.2)
"""The sizes at which orders of arms are asked for: larger attacks take all networks down to guessing."""

FROM_CROSS_ENTROPY = {"source": {"arm": "cross-entropy"}}
COUNTS: dict[ScaleName, int | None] = {"smoke": 20, "quick": 500, "budget": 2000, "paper": None}
"""How many test images the attacks see."""


def declare(
    *,
    id: str,
    source: str,
    title: str,
    question: str,
    measure: Sequence[Settings],
    claims: tuple[Claim, ...],
    figures: tuple[Figure, ...],
    more_arms: tuple[Arm, ...] = (),
    more_of_arms: Mapping[ScaleName, Mapping[str, Settings]] | None = None,
    deviations: tuple[str, ...] = (),
) -> Study:
    """A study of these models that measures `measure`."""
    arms = (*mnist.EIGHT, *more_arms)
    one_class = mnist.one_class(arms)
    extra = more_of_arms or {}
    names = tuple(arm.name for arm in arms)
    told = {name for claim in claims for name in claim.effect.arms}

    def of_arms(scale: ScaleName) -> Settings:
        return {**(one_class if scale != "paper" else {}), **extra.get(scale, {})}

    def cut(scale: ScaleName, settings: Settings) -> Settings:
        fewer: Settings = {} if COUNTS[scale] is None else {"count": COUNTS[scale]}
        sizes = {"epsilons": TOLD} if scale == "smoke" else {}
        return overlay(
            settings, {"measure": [{**one, **fewer, **(sizes if "epsilons" in one else {})} for one in measure]}
        )

    return Study(
        id=id,
        source=source,
        title=title,
        question=question,
        arms=arms,
        settings={**mnist.SETTINGS, "keep": True},
        claims=claims,
        figures=figures,
        scales=scales(
            minutes=(0.1, 5, 5, 6000),
            settings=(
                cut("smoke", mnist.SMALL),
                cut("quick", mnist.QUICK),
                cut("budget", {"steps": 4000}),
                cut("paper", {}),
            ),
            of_arms=(of_arms("smoke"), of_arms("quick"), of_arms("budget"), of_arms("paper")),
            seeds=(1, 2, 2),
            cells=(1, 2, 3, 16),
            arms=(
                tuple(name for name in names if name in (*told, "ours l_2")),
                tuple(n for n in names if n not in ("hinge", "margin l_1, input", "margin l_2, input", "ours l_1")),
                tuple(n for n in names if n not in ("margin l_1, input", "margin l_2, input", "ours l_1")),
            ),
            note=(
                "digits of 8 × 8 pixels, a small network, 2 steps, one other class, the arms of the claims",
                "2,000 images of mnist-5k, smaller networks, 400 steps, one other class, 500 test images; 2 cores",
                "cut in this order: margins against one other class instead of 9, 4,000 steps instead of 50,000, "
                "two input-only arms and one of ours, 3 search cells instead of 16, 2 seeds, attacks on the first "
                "2,000 test images; one H200, with the engine population; E2 and E5 to E9 train once together",
                "nothing is cut; one GPU",
            ),
        ),
        deviations=(*mnist.DEVIATIONS, *deviations),
    )


def above(text: str, upper: str, lower: str, curve: str, **where: Any) -> Claim:
    """`upper` has the higher accuracy at each of the sizes that are asked for."""
    return order(text, upper, lower, where={"curve": curve, **(where or {"epsilon": TOLD})})


def against_cross_entropy(curve: str, arms: Sequence[str] = mnist.ALL_LAYER, **where: Any) -> tuple[Claim, ...]:
    """Every one of `arms` above cross-entropy."""
    return tuple(above(f"{arm} above cross-entropy", arm, "cross-entropy", curve, **where) for arm in arms)


def over_epsilon(title: str, curve: str, arms: tuple[str, ...] | None = None) -> Figure:
    """Accuracy over the size of an attack."""
    return accuracy("epsilon", title, "ε", where={"curve": curve}, arms=arms)
