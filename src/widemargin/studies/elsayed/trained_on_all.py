"""The eight models trained on all of MNIST, which E2 and E5 to E9 share: trained once, measured six times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from widemargin.studies.claims import order
from widemargin.studies.elsayed import mnist
from widemargin.studies.figure import Figure, accuracy
from widemargin.studies.schema import SCALES, Arm, Claim, ScaleName, Study, scales
from widemargin.studies.settings import Settings, overlay

EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
TOLD = (0.1, 0.2)
"""The sizes at which orders of arms are asked for: larger attacks take all networks down to guessing."""

FROM_CROSS_ENTROPY = {"source": {"arm": "cross-entropy"}}
COUNTS: dict[ScaleName, int | None] = {"smoke": 20, "quick": 500, "budget": 2000, "paper": None}
"""How many test images the attacks see."""


def declare(
    *,
    measure: Sequence[Settings],
    claims: tuple[Claim, ...],
    more_arms: tuple[Arm, ...] = (),
    more_of_arms: Mapping[ScaleName, Mapping[str, Settings]] | None = None,
    deviations: tuple[str, ...] = (),
    **study: Any,
) -> Study:
    """A study of these models that measures `measure`; the other arguments are those of `Study`."""
    arms = (*mnist.EIGHT, *more_arms)
    one_class = mnist.one_class(arms)
    names = tuple(arm.name for arm in arms)
    told = {name for claim in claims for name in claim.effect.arms}
    left_out = ("margin l_1, input", "margin l_2, input", "ours l_1")

    def of_arms(scale: ScaleName) -> dict[str, Settings]:
        return {**(one_class if scale != "paper" else {}), **(more_of_arms or {}).get(scale, {})}

    def cut(scale: ScaleName, settings: Settings) -> Settings:
        fewer: Settings = {} if COUNTS[scale] is None else {"count": COUNTS[scale]}
        sizes = {"epsilons": TOLD} if scale == "smoke" else {}
        measured = [{**one, **fewer, **(sizes if "epsilons" in one else {})} for one in measure]
        return overlay(settings, {"measure": measured})

    return Study(
        arms=arms,
        settings={**mnist.SETTINGS, "keep": True},
        claims=claims,
        scales=scales(
            minutes=(0.1, 5, 5, 6000),
            settings=[cut(*one) for one in zip(SCALES, (mnist.SMALL, mnist.QUICK, {"steps": 4000}, {}))],
            of_arms=[of_arms(scale) for scale in SCALES],
            seeds=(1, 2, 2),
            cells=(1, 2, 3, 16),
            arms=(
                tuple(name for name in names if name in (*told, "ours l_2")),
                tuple(name for name in names if name not in (*left_out, "hinge")),
                tuple(name for name in names if name not in left_out),
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
        **study,
    )


def attack(name: str, curve: str | None = None, **options: Settings) -> Settings:
    """An attack of these sizes, as a measurement."""
    named = {} if curve is None else {"curve": curve}
    return {"kind": "attack", "attack": name, "epsilons": EPSILONS, **named, **options}


def above(text: str, upper: str, lower: str, curve: str, **where: Any) -> Claim:
    """`upper` has the higher accuracy at each of the sizes that are asked for."""
    return order(text, upper, lower, where={"curve": curve, **(where or {"epsilon": TOLD})})


def against_cross_entropy(curve: str, arms: Sequence[str] = mnist.ALL_LAYER, **where: Any) -> tuple[Claim, ...]:
    """Every one of `arms` above cross-entropy."""
    return tuple(above(f"{arm} above cross-entropy", arm, "cross-entropy", curve, **where) for arm in arms)


def over_epsilon(title: str, curve: str) -> Figure:
    """Accuracy over the size of an attack."""
    return accuracy("epsilon", title, "ε", where={"curve": curve})
