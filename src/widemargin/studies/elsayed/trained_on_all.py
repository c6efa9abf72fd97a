"""E2, E5 to E9: the eight models trained on all of MNIST, without and under attacks and noise (elsayed, §4.2, A.1).

The six studies share their trainings: the networks are trained once and measured six times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from widemargin.studies.claims import Claim, custom, order, value
from widemargin.studies.elsayed import mnist
from widemargin.studies.rows import Row, select
from widemargin.studies.schema import SCALES, Arm, Figure, ScaleName, Study, accuracy, effort, named, scales
from widemargin.studies.settings import Settings, overlay

EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
TOLD = (0.1, 0.2)
"""The sizes at which orders of arms are asked for: larger attacks take all networks down to guessing."""

TOLD_IFGSM = (0.05, 0.1)
"""Those of IFGSM, which takes all networks down to guessing at 0.2."""

FROM_CROSS_ENTROPY = {"source": {"arm": "cross-entropy"}}
RELEASED = tuple(mnist.released(norm) for norm in ("l_inf", "l_2"))
COUNTS: dict[ScaleName, int | None] = {"smoke": 20, "quick": 500, "budget": 2000, "paper": None}
"""How many test images the attacks see."""


def declare(
    *,
    measure: Sequence[Settings],
    claims: tuple[Claim, ...],
    more_arms: tuple[Arm, ...] = (),
    more_of_arms: Sequence[Mapping[str, Settings]] = ({}, {}, {}),
    deviations: tuple[str, ...] = (),
    **study: Any,
) -> Study:
    """A study of these models that measures `measure`; the other arguments are those of `Study`."""
    arms = (*mnist.EIGHT, *RELEASED, mnist.WIDE_MARGIN, *more_arms)
    one_class = mnist.one_class(arms)
    names = tuple(arm.name for arm in arms)
    told = {name for claim in claims for name in claim.effect.arms}
    left_out = ("margin l_1, input", "margin l_2, input", "ours l_1")

    def cut(scale: ScaleName, settings: Settings) -> Settings:
        fewer: Settings = {} if COUNTS[scale] is None else {"count": COUNTS[scale]}
        sizes = {"epsilons": (TOLD_IFGSM[0], *TOLD)} if scale == "smoke" else {}
        measured = [{**one, **fewer, **(sizes if "epsilons" in one else {})} for one in measure]
        return overlay(settings, {"measure": measured})

    return Study(
        arms=arms,
        settings={**mnist.SETTINGS, "keep": True},
        claims=claims,
        scales=scales(
            "digits of 8 × 8 pixels, a small network, 2 steps, one other class, the arms of the claims",
            "2,000 images of mnist-5k, smaller networks, 400 steps, one other class, 500 test images; 2 cores",
            "cut in this order: margins against one other class instead of 9, 4,000 steps instead of 50,000, "
            "two input-only arms and one of ours, 2 search cells instead of 16, each with 3 seeds, 3 seeds, attacks on "
            "the first 2,000 test images; one H200, with the engine population; E2 and E5 to E9 train once together",
            "nothing is cut; one GPU",
            **effort(minutes=(0.1, 5, 25, 6000), seeds=(1, 2, 3), cells=(1, 2, 2, 16), search_seeds=(1, 1, 3, 3)),
            settings=[cut(*one) for one in zip(SCALES, (mnist.SMALL, mnist.QUICK, {"steps": 4000}, {}))],
            of_arms=[{**one_class, **more} for more in more_of_arms],
            arms=(
                tuple(name for name in names if name in (*told, "ours l_2")),
                tuple(name for name in names if name not in (*left_out, "hinge")),
                tuple(name for name in names if name not in left_out),
            ),
        ),
        deviations=(*mnist.DEVIATIONS, *deviations),
        **study,
    )


def attack(name: str, curve: str | None = None, **options: Any) -> Settings:
    """An attack of these sizes, as a measurement."""
    named = {} if curve is None else {"curve": curve}
    return {"kind": "attack", "attack": name, "epsilons": EPSILONS, **named, **options}


AS_PRINTED = ", as printed"
VARIANTS: dict[str, Settings] = {
    "": {},
    ", unclipped": {"clip": False},
    ", plain gradient": {"gradient": "plain"},
    AS_PRINTED: {"clip": False, "gradient": "plain"},
}
"""The attack of the library, and the two differences from the paper's: by themselves and together."""

ATTACKS_DIFFER = (
    "The paper's images are not clipped to [0, 1] after an attack, and its gradient is the plain one of cross-entropy "
    "in float32, which loses the label's part where its score is 17 above the others. Orders are judged under attacks "
    "that are clipped and safe from that; the paper's own attack and the two steps between are drawn beside, and "
    "accuracies are compared under the paper's."
)


def attacks_2_by_2(name: str, curve: str | None = None, **options: Any) -> tuple[Settings, ...]:
    """The attack with and without clipping, with the safe and the plain gradient."""
    return tuple(attack(name, f"{curve or name}{suffix}", **options, **variant) for suffix, variant in VARIANTS.items())


def over_epsilon_2_by_2(title: str, curve: str) -> tuple[Figure, ...]:
    """A figure for each of them, the library's first."""
    return tuple(over_epsilon(f"{title}{suffix}", f"{curve}{suffix}") for suffix in VARIANTS)


def above(text: str, upper: str, lower: str, curve: str, quote: str = "", **where: Any) -> Claim:
    """`upper` has the higher accuracy at each of the sizes that are asked for."""
    at = where or {"epsilon": TOLD_IFGSM if curve.startswith("ifgsm") else TOLD}
    return order(text, upper, lower, where={"curve": curve, **at}, quote=quote)


def against_cross_entropy(
    curve: str, arms: Sequence[str] = mnist.ALL_LAYER, quote: str = "", **where: Any
) -> tuple[Claim, ...]:
    """Every one of `arms` above cross-entropy."""
    return tuple(above(f"{arm} above cross-entropy", arm, "cross-entropy", curve, quote, **where) for arm in arms)


def over_epsilon(title: str, curve: str) -> Figure:
    """Accuracy over the size of an attack."""
    return accuracy("epsilon", title, "ε", where={"curve": curve})


Q_ALL = (
    "… the baseline cross-entropy model … achieves a test accuracy of 99.5%, the hinge loss model achieves 99.2% and "
    "the margin models achieve between 99.3% to 99.5%."
)
MARGINS = (*mnist.ALL_LAYER, *mnist.INPUT_ONLY)
REPORTED = {"cross-entropy": 99.5, "hinge": 99.2, **dict.fromkeys(MARGINS, 99.4)}

E2 = declare(
    **named("E2", "elsayed, §4.2", "MNIST, all of it"),
    question="Do margin losses cost accuracy where data are plenty and clean?",
    measure=({"kind": "margins", "p": 2.0, "at": ["input"]},),
    claims=tuple(
        value(arm if "margin" not in arm else f"{arm} (the paper: 99.3 to 99.5)", arm, reported, quote=Q_ALL)
        for arm, reported in REPORTED.items()
    ),
    figures=(accuracy("arm", "Test accuracy on MNIST (elsayed, §4.2)", kind="bars"),),
    deviations=("The paper's margin models have 99.3 to 99.5 % between them: the claims take the middle for each.",),
)

_MADRY: Settings = {"name": "adversarial", "epsilon": 0.3, "step": 0.01, "steps": 40}
ADVERSARIAL = Arm("adversarial training", {"loss": _MADRY, "optimizer": {"name": "adam", "lr": 0.0001}})
"""Madry et al. 2018, with their settings for MNIST, which the paper takes over; there is nothing to search."""

_FEWER: Settings = {"loss.steps": 5, "loss.step": 0.1, "optimizer.lr": 0.001}
CUT = tuple({ADVERSARIAL.name: cut} for cut in ({"loss.steps": 1, "loss.step": 0.3}, _FEWER, _FEWER))
BEST = "the best margin model (l_inf) above adversarial training"
IFGSM_STEPS = (
    "The paper does not give α: here it is ε/10, in 10 steps; orders are asked for at ε = 0.05 and 0.1, since all "
    "networks are down to guessing at 0.2."
)
Q_WHITE = (
    "In both the FGSM and IFGSM scenarios, all the margin models significantly outperform cross-entropy, with the "
    "all-layer margin models outperform the input-only margin."
)
Q_NORM = "… we see that the l_inf margin model performs the best among the three norms."
Q_MADRY = "One of the margin models outperforms this method, and another is very competitive."
Q_BLACK = (
    "It is seen that the margin models are robust against black-box attacks, significantly outperforming "
    "cross-entropy. For example at ε = 0.1, cross-entropy is at 67% accuracy, while the best margin model is at 90%."
)
Q_WEAK = "The margin models tend to be weak attackers (however, they are not expected to be a strong attacker)."
Q_NOISE = (
    "Finally, in Fig. 7, we show the performance against input corrupted with varying levels of Gaussian noise, "
    "showing the benefit of margin for this type of perturbation as well."
)


def _claims(curve: str) -> tuple[Claim, ...]:
    return (
        *against_cross_entropy(curve, MARGINS, Q_WHITE),
        *(
            above(f"{arm} (all layers) above {arm}, input", arm, f"{arm}, input", curve, Q_WHITE)
            for arm in mnist.ALL_LAYER
        ),
        above("l_inf above l_1", "margin l_inf", "margin l_1", curve, Q_NORM),
        above("l_inf above l_2", "margin l_inf", "margin l_2", curve, Q_NORM),
    )


def _printed(curve: str) -> tuple[Claim, ...]:
    """Whether margin models seem better under the paper's own attack, and the released settings under both."""
    arms = (*mnist.ALL_LAYER, *(arm.name for arm in RELEASED))
    return tuple(
        dataclasses.replace(
            above(f"{arm} above cross-entropy, {curve}{suffix}", arm, "cross-entropy", f"{curve}{suffix}"), ours=True
        )
        for suffix in ("", AS_PRINTED)
        for arm in arms
        if suffix or arm.startswith("released")
    )


E5 = declare(
    **named("E5", "elsayed, Fig. 4", "White-box FGSM"),
    question="Do margins at training samples protect test samples from one large step against the network?",
    measure=attacks_2_by_2("fgsm"),
    claims=(*_claims("fgsm"), *_printed("fgsm"), above(BEST, "margin l_inf", ADVERSARIAL.name, "fgsm", Q_MADRY)),
    figures=over_epsilon_2_by_2("Test accuracy under white-box FGSM (elsayed, Fig. 4)", "fgsm"),
    more_arms=(ADVERSARIAL,),
    more_of_arms=CUT,
    deviations=(
        "The paper does not print the sizes of its attacks: here ε is 0 to 0.3; orders are asked for at 0.1 and 0.2.",
        ATTACKS_DIFFER,
        "The adversarially trained model has the steps and batches of the others, not those of Madry et al.; where the "
        "scale is cut, its attack has 5 steps of 0.1 instead of 40 of 0.01.",
    ),
)
E6 = declare(
    **named("E6", "elsayed, Fig. 5", "White-box IFGSM"),
    question="The same for an attack of many small steps.",
    measure=attacks_2_by_2("ifgsm"),
    claims=(*_claims("ifgsm"), *_printed("ifgsm")),
    figures=over_epsilon_2_by_2("Test accuracy under white-box IFGSM (elsayed, Fig. 5)", "ifgsm"),
    deviations=(IFGSM_STEPS, ATTACKS_DIFFER),
)

BLACK = "fgsm from cross-entropy"
AT_TENTH = {"curve": f"{BLACK}{AS_PRINTED}", "epsilon": 0.1}
LEAD = "at ε = 0.1, the best margin model minus cross-entropy"


def best_margin(rows: Sequence[Row]) -> list[float]:
    """The accuracy of the margin model that is best on average, seed by seed."""
    by_arm = {arm: {row["seed"]: row["accuracy"] for row in select(rows, "accuracy", arm, AT_TENTH)} for arm in MARGINS}
    known = [values for values in by_arm.values() if values]
    return list(max(known, key=lambda values: sum(values.values()) / len(values)).values()) if known else []


def best_margin_over_cross_entropy(rows: Sequence[Row]) -> list[float]:
    """The same, minus cross-entropy's."""
    own = [row["accuracy"] for row in select(rows, "accuracy", "cross-entropy", AT_TENTH)]
    return [a - b for a, b in zip(best_margin(rows), own)]


E7 = declare(
    **named("E7", "elsayed, Fig. 6", "Black-box FGSM from the cross-entropy model"),
    question="Do images that were made to fool the cross-entropy model fool the margin models?",
    measure=attacks_2_by_2("fgsm", BLACK, **FROM_CROSS_ENTROPY),
    claims=(
        value("at ε = 0.1, cross-entropy", "cross-entropy", 67.0, where=AT_TENTH, quote=Q_BLACK),
        custom("at ε = 0.1, the best margin model", best_margin, 90.0, quote=Q_BLACK),
        custom(LEAD, best_margin_over_cross_entropy, 23.0, 0.0, quote=Q_BLACK),
        *against_cross_entropy(BLACK, quote=Q_BLACK),
    ),
    figures=over_epsilon_2_by_2("Test accuracy under FGSM from the cross-entropy model (elsayed, Fig. 6)", BLACK),
    deviations=(
        ATTACKS_DIFFER,
        "The cross-entropy model is attacked by itself, as in the paper's figure: white-box.",
    ),
)
OWN = "better than its own"
E8 = declare(
    **named("E8", "elsayed, Fig. 14, 15 and 16", "Black-box IFGSM; margin models as attackers"),
    question="The same for IFGSM; and do images that were made to fool a margin model fool the cross-entropy model?",
    measure=tuple(
        attack(name, f"{curve}{suffix}", **options, **VARIANTS[suffix])
        for name, curve, options in (
            ("ifgsm", "ifgsm from cross-entropy", FROM_CROSS_ENTROPY),
            ("fgsm", "fgsm on cross-entropy", {"target": {"arm": "cross-entropy"}}),
            ("ifgsm", "ifgsm on cross-entropy", {"target": {"arm": "cross-entropy"}}),
        )
        for suffix in ("", AS_PRINTED)
    ),
    claims=(
        *against_cross_entropy("ifgsm from cross-entropy", quote=Q_BLACK),
        *(
            above(f"cross-entropy stands {name.upper()} from {arm} {OWN}", arm, "cross-entropy", curve, Q_WEAK)
            for name in ("fgsm", "ifgsm")
            for curve in (f"{name} on cross-entropy",)
            for arm in mnist.ALL_LAYER
        ),
    ),
    figures=tuple(
        over_epsilon(f"{title} (elsayed, Fig. {number})", curve)
        for number, title, curve in (
            (14, "Test accuracy under IFGSM from the cross-entropy model", "ifgsm from cross-entropy"),
            (15, "Accuracy of the cross-entropy model under FGSM from each model", "fgsm on cross-entropy"),
            (16, "Accuracy of the cross-entropy model under IFGSM from each model", "ifgsm on cross-entropy"),
        )
    ),
    deviations=(IFGSM_STEPS, ATTACKS_DIFFER),
)

NOISE = "standard deviation of the noise"
OVER_NOISE = accuracy("sigma", f"Test accuracy over the {NOISE} (elsayed, Fig. 7)", NOISE, where={"curve": "noise"})

E9 = declare(
    **named("E9", "elsayed, Fig. 7", "Gaussian noise on the input"),
    question="Do margins help where the input is noisy but nobody attacks?",
    measure=({"kind": "noise", "sigmas": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)},),
    claims=against_cross_entropy("noise", quote=Q_NOISE, sigma=(0.2, 0.3, 0.4, 0.5)),
    figures=(OVER_NOISE,),
    deviations=(
        "The paper does not print the standard deviations of its noise: here they are 0 to 0.6, and orders are asked "
        "for at 0.2 to 0.5.",
    ),
)
