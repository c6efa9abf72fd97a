"""E10 to E13 and E15: WRN-28-10 on CIFAR-10, by the five losses and ours (elsayed, §4.1, §4.3, B)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from widemargin.studies.claims import Claim, gap, order, value
from widemargin.studies.effects import Positive, Ratio
from widemargin.studies.elsayed.mnist import FLIPS, NORMS, UNFLIPPED, over_flips, over_fraction
from widemargin.studies.elsayed.trained_on_all import (
    AS_PRINTED,
    ATTACKS_DIFFER,
    BLACK,
    EPSILONS,
    FROM_CROSS_ENTROPY,
    TOLD,
    VARIANTS,
    above,
    over_epsilon_2_by_2,
)
from widemargin.studies.rows import Row, select
from widemargin.studies.schema import Arm, Figure, Scales, Search, Study, accuracy, axis, effort, named, scales
from widemargin.studies.settings import Settings, overlay, sgd

LAYER_7, LAYER_13, LAYER_19 = "group1.block3.conv2", "group2.block2.conv2", "group3.block1.conv2"
PLACES = ("input", LAYER_7, LAYER_13, LAYER_19, "output")
"""Input, output and three evenly spaced ones of the 25 convolutions on the way."""

PLACES_OF_10 = ("input", "group1.block1.conv2", "group2.block1.conv2", "group3.block1.conv2", "output")
"""The same in a network of depth 10 or 16."""

SETTINGS: Settings = {
    "data": {"name": "cifar10", "validation": 5000, "flips": 0.0},
    "network": {"name": "wrn-28-10"},
    "loss": {"name": "augmented"},
    "schedule": {"name": "exponential", "factor": 0.9, "every": 0.04},
    "steps": 50_000,
    "batch": 128,
    "augmentation": None,
}
"""Images are changed by the loss."""

SMALL: Settings = {
    "data": {"name": "synthetic", "shape": [3, 32, 32], "samples": 40, "validation": 10},
    "network": {"depth": 10, "widen": 1, "base": 2},
    "steps": 1,
    "batch": 30,
}
CUT: Settings = {
    "precision": "bfloat16",
    "channels_last": True,
    "steps": 2112,
    "schedule": {"name": "warm-up", "epochs": 0.2, "then": {"name": "cosine"}},
}
"""Six epochs. On one H200, as a CUDA graph, a step of cross-entropy takes 13 ms, of a margin against one class 18."""

FASTER: Settings = {"optimizer.lr": 0.03}
"""The rate of SGD in so short a training."""

_RATES: Search = {"optimizer.lr": (0.01, 0.03, 0.1)}
EVERY: Search = {"schedule.every": (0.04, 0.4)}
"""A decay of 0.9 every 2,000 or every 20,000 of 50,000 steps."""


def _arm(name: str, loss: Settings, optimizer: Settings, search: Search, *, ours: bool = False) -> Arm:
    settings = {"loss": {"name": "augmented", "loss": loss}, "optimizer": optimizer}
    return Arm(name, settings, {**EVERY, **search}, ours=ours)


def margin(norm: str) -> Arm:
    """The printed form: softmax scores, all classes, their sum, γ of 5,000 to 20,000, cross-entropy of weight 1."""
    loss: Settings = {"name": "large-margin", "p": NORMS[norm], "at": PLACES, "gamma": 10_000.0, "scores": "softmax"}
    printed: Settings = {"classes": "all", "aggregate": "sum", "cross_entropy": 1.0, "stabilize": None}
    gammas = {"loss.loss.gamma": (10_000.0, 5_000.0, 20_000.0)}
    return _arm(f"margin {norm}", {**loss, **printed}, {"name": "rmsprop", "lr": 0.001}, gammas)


def ours(norm: str) -> Arm:
    """The library's default loss: logits, scale-free, the strongest other class, with cross-entropy's SGD."""
    gamma = {"l_inf": 0.03, "l_1": 10.0, "l_2": 0.5}[norm]
    loss = {"name": "large-margin", "p": NORMS[norm], "at": PLACES, "gamma": gamma, "classes": 1}
    return _arm(f"ours {norm}", loss, sgd(0.01), _RATES, ours=True)


MARGINS = tuple(f"margin {norm}" for norm in NORMS)
FIVE: tuple[Arm, ...] = (
    _arm("cross-entropy", {"name": "cross-entropy"}, sgd(0.01), _RATES),
    _arm("hinge", {"name": "hinge", "gamma": 1.0, "cross_entropy": 0.01}, sgd(0.01), _RATES),
    *(margin(norm) for norm in NORMS),
    *(ours(norm) for norm in NORMS),
    _arm("WideMargin", {"name": "wide-margin"}, sgd(0.01), _RATES, ours=True),
)


def _scales(
    *,
    run: Sequence[str],
    more: Sequence[Settings] = ({}, {}, {}, {}),
    minutes: float | int,
    shorter: str = "",
    search_at: Settings | None = None,
    arms: Sequence[Arm] = FIVE,
    **columns: Sequence[Any],
) -> Scales:
    """The four scales; `more` settings for each; `run`: the arms of the budget, which takes `minutes` on a GPU.

    `shorter` says which of its trainings are still shorter.
    """
    margins = [arm.name for arm in arms if arm.name.startswith(("margin", "ours"))]
    small = {name: {"loss.loss.classes": 1, "loss.loss.at": PLACES_OF_10} for name in margins}
    cut = {arm.name: FASTER if arm.settings["optimizer"]["name"] == "sgd" else {} for arm in arms}
    cut |= {name: {**cut[name], "loss.loss.classes": 1} for name in margins}
    quick = overlay(SMALL, {"data.samples": 600, "data.validation": 100, "network.base": 8, "steps": 60, "batch": 50})
    return scales(
        "synthetic images of 3 × 32 × 32, WRN-10 with 2 channels, one epoch, one other class",
        "synthetic images, which say nothing of the claims: no CIFAR-10 is embedded; two cores",
        "cut in this order: bfloat16 instead of float32, as a CUDA graph; margins against one other class instead of "
        f"9; 2,112 steps (six epochs) instead of 50,000{shorter}, with a warm-up, a decay to 0 and a rate of 0.03 for "
        "SGD; no search; arms that no claim names, but for WideMargin; one H200",
        "nothing is cut; GPU-weeks",
        **effort(
            minutes=(0.1, min(10, minutes), minutes, 60_000),
            seeds=(1, 1, 3),
            cells=(1, 1, 1, 6),
            search_seeds=(1, 1, 1, 3),
        ),
        settings=[overlay(*both) for both in zip((SMALL, quick, CUT, {}), more)],
        of_arms=(small, small, cut),
        search_at=(None, search_at, search_at),
        arms=(None, None, tuple(run)),
        **columns,
    )


DEVIATIONS = (
    "The paper names crops, contrast and hue without numbers: here shifts of up to 4 pixels, contrast of 1 ± 0.2 and "
    "hue of ± 5 % of a turn, drawn anew in every step.",
    "That the paper's γ are for softmax scores is our inference; the three convolutions are the 7th, 13th and 19th "
    "of the 25 on the way through the network.",
    "The paper does not give the hinge's weight of cross-entropy: here 0.01.",
    "At budget scale networks train in bfloat16 (autocast; weights, losses and measurements are float32), with margins "
    "against the strongest other class, and on all data for six epochs instead of 142, which may be too few "
    "to fit flipped labels.",
    "At budget scale the rate rises over the first fifth of the training and falls to 0 as a cosine, for all arms; the "
    "paper's falls by 0.9 at every 25th. SGD's is 0.03 instead of the paper's 0.01, since the training is short; "
    "RMSProp's is the paper's 0.001. Neither was searched.",
)


def study(*, deviations: tuple[str, ...] = (), **more: Any) -> Study:
    """A study of the five models."""
    return Study(arms=FIVE, settings=SETTINGS, deviations=(*deviations, *DEVIATIONS), **more)


WIDE = "WideMargin"
MODELS = ("cross-entropy", "hinge", *MARGINS)


Q_90 = (
    "With these settings, we achieve a baseline accuracy of around 90% for the following 5 models: cross-entropy, "
    "hinge, margin l_inf, l_1 and l_2."
)
Q_FLIPS = (
    "The margin l_inf and l_2 models consistently outperforms cross-entropy by 4% to 10% across the range of "
    "noise levels."
)
Q_FEW = (
    "We consistently see superior performance of the l_1 and l_inf margin models w.r.t. cross-entropy, especially as "
    "the amount of data is reduced. For example at 5% and 1% of the total data, the l_1 margin model outperforms the "
    "cross-entropy model by 2.5%."
)
Q_FGSM = (
    "The l_1 and l_inf margin models perform well for both sets of attacks, giving a clear boost over cross-entropy. "
    "For ε = 0.1, the l_1 model achieves an improvement over cross-entropy of about 14% when defending against a "
    "cross-entropy attack."
)

E10 = study(
    **named("E10", "elsayed, §4.3", "CIFAR-10, all of it", "augmented"),
    question="Do margin losses cost accuracy where data are plenty and clean?",
    claims=tuple(value(arm, arm, 90.0, tolerance=2.0, quote=Q_90) for arm in MODELS),
    figures=(accuracy("arm", "Test accuracy on CIFAR-10 (elsayed, §4.3)", kind="bars"),),
    scales=_scales(run=(*MODELS, WIDE), minutes=13),
)

BETTER = ("margin l_inf", "margin l_2")
SOME_FLIPS = ((0.8,), (0.0, 0.8), (0.0, 0.4, 0.8))
MEAN = "minus cross-entropy, mean over the noise levels (the paper: 4 to 10)"

E11 = study(
    **named("E11", "elsayed, Fig. 8", "Flipped training labels, CIFAR-10", "augmented"),
    question="Does a margin at several layers help where a share of the training labels is wrong?",
    axes={"flips": axis("data.flips", FLIPS)},
    claims=(
        *(
            gap(f"{arm} {MEAN}", arm, "cross-entropy", 7.0, tolerance=3.0, one_draw=False, quote=Q_FLIPS)
            for arm in BETTER
        ),
        *(order(f"{arm} above cross-entropy everywhere", arm, "cross-entropy", quote=Q_FLIPS) for arm in BETTER),
    ),
    figures=(over_flips("Fig. 8"),),
    scales=_scales(
        run=("cross-entropy", *BETTER, WIDE),
        minutes=20,
        shorter=" (four epochs with flipped labels, and 20 and 60 % of them are left out)",
        search_at={"flips": 0.8},
        only=[{"flips": some} for some in SOME_FLIPS],
        of_values=({}, {}, {"flips": {flips: {"steps": 1408} for flips in (0.4, 0.8)}}),
    ),
    deviations=(UNFLIPPED,),
)

LESS = {"fraction": (0.01, 0.05, 0.1, 0.5)}
"""With all data all models have about 90 % (§4.3)."""

BOTH, GAIN = ("margin l_1", "cross-entropy"), "l_1 margin minus cross-entropy"

E12 = study(
    **named("E12", "elsayed, Fig. 9", "Few training samples, CIFAR-10", "augmented"),
    question="Do margins help where there are few samples?",
    axes={"fraction": axis("data.fraction", (0.01, 0.05, 0.1, 0.5, 1.0))},
    claims=(
        *(
            gap(f"at {100 * share:g} %, {GAIN}", *BOTH, 2.5, where={"fraction": share}, quote=Q_FEW)
            for share in (0.05, 0.01)
        ),
        *(
            order(f"{arm} above cross-entropy with less than all data", arm, "cross-entropy", where=LESS, quote=Q_FEW)
            for arm in ("margin l_1", "margin l_inf")
        ),
    ),
    figures=(over_fraction("Fig. 9", "45,000"),),
    scales=_scales(
        run=("cross-entropy", "margin l_inf", "margin l_1", WIDE),
        minutes=7,
        shorter=" (at 5 % of the data 800, 44 epochs; at 1 % 400, 100 epochs; the other shares are left out)",
        more=({"data.samples": 110}, {}, {}, {}),
        of_values=(
            {"fraction": {0.01: {"data.fraction": 0.5}, 0.05: {"data.fraction": 0.8}}},
            {"fraction": {0.05: {"data.fraction": 0.2}, 0.1: {"data.fraction": 0.4}}},
            {"fraction": {0.01: {"steps": 400}, 0.05: {"steps": 800}}},
        ),
        only=({"fraction": (0.01, 0.05)}, {"fraction": (0.05, 0.1)}, {"fraction": (0.01, 0.05)}),
        search_at={"fraction": 0.05},
    ),
    deviations=("The shares other than 5 % and 1 % are ours: the paper's text names no others.",),
)


def _measure(epsilons: tuple[float, ...], count: int | None) -> Settings:
    attack = {"kind": "attack", "attack": "fgsm", "epsilons": epsilons, "count": count}
    white = [{**attack, "curve": f"fgsm{suffix}", **variant} for suffix, variant in VARIANTS.items()]
    black = [{**one, "curve": one["curve"].replace("fgsm", BLACK), **FROM_CROSS_ENTROPY} for one in white]
    return {"measure": [*white, *black]}


BLACK_TENTH = {"curve": f"{BLACK}{AS_PRINTED}", "epsilon": 0.1}
SIZES = ((0.05, *TOLD), EPSILONS, (0.0, 0.05, 0.1), EPSILONS)

E13 = study(
    **named("E13", "elsayed, Fig. 10", "FGSM on CIFAR-10, white- and black-box", "augmented"),
    question="Do margins at training samples protect test samples from one large step?",
    claims=(
        gap(f"at ε = 0.1 from cross-entropy, {GAIN}", *BOTH, 14.0, where=BLACK_TENTH, tolerance=2.0, quote=Q_FGSM),
        *(
            above(f"{arm} above cross-entropy, {box}-box", arm, "cross-entropy", curve, Q_FGSM, epsilon=(0.05, 0.1))
            for box, curve in (("white", "fgsm"), ("black", BLACK))
            for arm in ("margin l_1", "margin l_inf")
        ),
    ),
    figures=(
        *over_epsilon_2_by_2("Test accuracy under white-box FGSM (elsayed, Fig. 10)", "fgsm"),
        *over_epsilon_2_by_2("Test accuracy under FGSM from the cross-entropy model (elsayed, Fig. 10)", BLACK),
    ),
    scales=_scales(
        run=("cross-entropy", "margin l_inf", "margin l_1", WIDE),
        minutes=11,
        shorter=", attacks of the first 1,000 test images",
        more=[_measure(*both) for both in zip(SIZES, (10, 100, 1000, None))],
    ),
    deviations=(
        "The paper does not print the sizes of its attacks: here ε is 0 to 0.3; orders are asked for at 0.05 and 0.1.",
        "The cross-entropy model is attacked by itself: white-box.",
        ATTACKS_DIFFER,
    ),
)

LAYERS = {"input": "input", "layer 7": LAYER_7, "output": "output"}
LAYERS_OF_10 = {"input": "input", "layer 7": PLACES_OF_10[1], "output": "output"}
WATCHED = tuple(arm for arm in FIVE if arm.name in ("cross-entropy", "margin l_inf", "margin l_2", "ours l_2", WIDE))
AT_INPUT = {"curve": "end", "place": "input", "part": "test"}
WATCH = {"at": tuple(LAYERS.values()), "p": 2.0, "scores": "softmax", "classes": 1, "every": 500, "count": 1280}
WATCH_OF_10 = {**WATCH, "at": tuple(LAYERS_OF_10.values())}
FEWER = [
    *(WATCH_OF_10 | cut for cut in ({"every": 1, "count": 5}, {"every": 20, "count": 50})),
    WATCH | {"every": 500, "count": 640},
]
END = "at the input, on test data, at the end:"
mean = functools.partial(value, metric="mean", where=AT_INPUT, relative=True)


def _places(name: str) -> tuple[str, ...]:
    """The place, in the network of depth 28 and in the smaller ones."""
    return tuple(dict.fromkeys((LAYERS[name], LAYERS_OF_10[name])))


def _distances(name: str, number: int) -> Figure:
    title = f"Mean distance to the boundary at {name} (elsayed, Fig. {number})"
    y_title = "mean l_2 distance, linearised, of softmax scores"
    where = {"curve": "distance", "place": _places(name)}
    return Figure("step", "mean", title, "step", y_title, where=where, split="part", log_y=True)


def _above(name: str, part: str) -> Claim:
    where = {"curve": "end", "place": _places(name), "part": part}
    arms = ("margin l_inf", "cross-entropy")

    def powers(rows: Sequence[Row]) -> list[float]:
        """The difference of asinh of the means, in powers of ten: the logarithm of their ratio where both are large."""
        margin, plain = ({row["seed"]: row["mean"] for row in select(rows, "mean", arm, where)} for arm in arms)
        shared = sorted(margin.keys() & plain.keys())
        return [(math.asinh(margin[seed]) - math.asinh(plain[seed])) / math.log(10) for seed in shared]

    effect = Positive(function=powers, name="powers of ten", between=arms)
    return Claim(text=f"margin above cross-entropy at {name}, {part}", effect=effect, relative=True)


E15 = Study(
    **named("E15", "elsayed, Fig. 17 to 19", "Distances over training, CIFAR-10", "augmented"),
    question="Does training for margins raise the distance to the boundary where it is measured, and on test data too?",
    arms=WATCHED,
    settings=SETTINGS,
    claims=(
        mean(f"{END} margin", "margin l_inf", 100.0),
        mean(f"{END} cross-entropy", "cross-entropy", 70.0),
        Claim(
            text=f"{END} margin over cross-entropy",
            effect=Ratio(metric="mean", arm="margin l_inf", against="cross-entropy", where=AT_INPUT),
            reported=100 / 70,
            relative=True,
        ),
        *(_above(name, part) for name in LAYERS for part in ("train", "validation", "test")),
    ),
    figures=tuple(_distances(name, number) for name, number in zip(LAYERS, (17, 18, 19))),
    scales=_scales(
        run=("cross-entropy", "margin l_inf", "margin l_2", WIDE),
        minutes=8,
        arms=WATCHED,
        more=[*({"watch": some} for some in FEWER), {"watch": WATCH}],
    ),
    deviations=(
        "The paper does not say which norm its figures show, nor which margin model: here distances are l_2, of the "
        "l_inf model. Claims were declared for the l_2 model first, which is still an arm: at budget scale it "
        "ended at 16 to 26 % of accuracy, so they were put to the one that trained, before its distances were seen.",
        "Distances of softmax scores grow as the sinh of the score difference, and means differ by powers of ten: they "
        "are compared on a logarithmic scale (asinh). Their differences were declared first, and decided nothing.",
        "The paper averages over each mini-batch; here over the first 1,280 samples of each part (640 at "
        "budget scale), in evaluation mode.",
        *DEVIATIONS,
    ),
)
