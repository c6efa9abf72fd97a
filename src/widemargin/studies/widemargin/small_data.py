"""W1, W2, W3: `WideMargin` on few samples, with flipped labels, and under attack, for five small networks.

Nothing is searched: every arm has one default for everything, and every network is trained alike. The data are
standardised, as the weight of the Jacobian regularizer expects it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from widemargin.studies.schema import Figure, Study, accuracy, bars, effort, named, scales
from widemargin.studies.settings import Settings, overlay, sgd
from widemargin.studies.widemargin import goals
from widemargin.studies.widemargin.goals import CROSS_ENTROPY, GENERALIZED, JACOBIAN, SHARE, WIDE

NETWORKS = ("MLP", "CNN", "ResNet GN", "ResNet BN", "ViT")
OURS = "widemargin"


@dataclass(frozen=True, kw_only=True)
class SmallData:
    """Some samples of a data set; `shape` is that of an input."""

    name: str
    samples: int
    steps: int
    shape: tuple[int, ...]
    classes: int = 10
    validation: int = 500

    @property
    def data(self) -> Settings:
        """Settings of the samples."""
        return {"name": self.name, "standardize": True, "validation": self.validation, "train": self.samples}

    def network(self, name: str) -> Settings:
        """Settings of a network for inputs of this shape."""
        if name == "MLP":
            inputs = {"inputs": math.prod(self.shape), "classes": self.classes}
            return {"name": "sokolic-mlp", "first": 256, "higher": 256, "classifier_bias": True, **inputs}
        channels, size = self.shape[:2]
        image = {"in_channels": channels, "size": size, "classes": self.classes}
        if name == "CNN":
            return {"name": "elsayed-mnist-cnn", "kernel": 3, "hidden": (128,), **image}
        if name == "ViT":
            return {"name": "vit", "patch": 4 if size > 8 else 2, **image}
        norm = "group" if name == "ResNet GN" else "batch"
        blocks = {"widths": (16, 32, 64), "blocks": (1, 1, 1), "norm": norm, "plain": True}
        return {"name": "resnet-18", "in_channels": channels, "classes": self.classes, **blocks}


DIGITS = SmallData(name="digits", samples=600, steps=400, shape=(1, 8, 8), validation=200)
FEW: Mapping[str, SmallData] = {
    "digits": DIGITS,
    "MNIST 500": SmallData(name="mnist", samples=500, steps=400, shape=(1, 28, 28)),
    "CIFAR-10 1,000": SmallData(name="cifar10", samples=1000, steps=600, shape=(3, 32, 32)),
    "breast cancer": SmallData(name="breast-cancer", samples=200, steps=300, shape=(30,), classes=2, validation=100),
}
NOISY: Mapping[str, SmallData] = {
    "digits": DIGITS,
    "MNIST 2,000": SmallData(name="mnist", samples=2000, steps=900, shape=(1, 28, 28)),
    "CIFAR-10 3,000": SmallData(name="cifar10", samples=3000, steps=900, shape=(3, 32, 32)),
}
IMAGES = {name: part for name, part in FEW.items() if len(part.shape) > 1}


def cases(parts: Mapping[str, SmallData]) -> dict[str, Settings]:
    """The axis of data sets and networks; a table has the MLP alone."""
    return {
        f"{name}, {network}": {"data": part.data, "network": part.network(network), "steps": part.steps}
        for name, part in parts.items()
        for network in (NETWORKS if len(part.shape) > 1 else ("MLP",))
    }


SETTINGS: Settings = {
    "data": {"test": 2000},
    "loss": {"name": "cross-entropy"},
    "optimizer": {"name": "adam", "lr": 1e-3},
    "schedule": {"name": "cosine"},
    "batch": 64,
    "keep": True,
}
OPTIMIZERS: dict[str, Settings] = {
    "Adam 0.001": {},
    **{f"SGD {lr:g}": {"optimizer": sgd(lr)} for lr in (0.03, 0.1)},
}
FIRST = {"optimizer": ("Adam 0.001",)}
DEVIATIONS = ("Thresholds are goals that were set before the runs; there is no paper to compare with.",)
_TINY: Settings = {"data.train": 60, "data.validation": 40, "data.test": 40, "steps": 3}


def _tiny(parts: Mapping[str, SmallData]) -> dict[str, dict[str, Settings]]:
    """Settings of smoke scale, over those of every case."""
    return {"case": dict.fromkeys(cases(parts), _TINY)}


def _by_case(parts: Mapping[str, SmallData], title: str) -> tuple[Figure, ...]:
    """A figure for every data set, a group of bars for every network."""
    return tuple(
        accuracy("case", f"{title}: {name}", "", kind="bars", where={"case": tuple(cases({name: part}))})
        for name, part in parts.items()
    )


W1 = Study(
    **named("W1", f"{OURS}, few samples", "WideMargin on few samples"),
    question="Is WideMargin, with nothing to tune, better than cross-entropy on at most 1,000 samples?",
    arms=goals.arms(CROSS_ENTROPY, WIDE, JACOBIAN, SHARE),
    settings=SETTINGS,
    axes={"case": cases(FEW), "optimizer": OPTIMIZERS},
    claims=(
        goals.gain("mean gain over cross-entropy of at least 3 points", 3.0),
        goals.seldom_below("at most 1 point below cross-entropy in 97 % of the conditions", 1.0, 0.97),
        goals.gain("not below the Jacobian regularizer by more than 0.5 points", -0.5, against=JACOBIAN),
    ),
    figures=_by_case(FEW, "Test accuracy with few training samples"),
    scales=scales(
        "digits and a table, 60 samples, 3 steps; one core",
        "digits and a table; one optimizer; two cores",
        "one optimizer (Adam 0.001) instead of three, 3 seeds, no share of 1/8; one H200, 14 workers",
        "nothing is cut; one GPU",
        **effort(minutes=(0.1, 5, 5, 60), seeds=(1, 2, 3, 5)),
        of_values=(_tiny(FEW),),
        only=(
            {**FIRST, "case": ("digits, MLP", "breast cancer, MLP")},
            {**FIRST, "case": ("digits, MLP", "digits, CNN", "breast cancer, MLP")},
            FIRST,
        ),
        arms=(None, None, (CROSS_ENTROPY, WIDE, JACOBIAN)),
    ),
    deviations=DEVIATIONS,
)

W2 = Study(
    **named("W2", f"{OURS}, flipped labels", "WideMargin with flipped labels"),
    question="Is WideMargin better than cross-entropy where 40 % of the training labels are wrong?",
    arms=goals.arms(CROSS_ENTROPY, WIDE, JACOBIAN, GENERALIZED),
    settings=SETTINGS,
    axes={
        "case": cases(NOISY),
        "flips": {flips: {"data.flips": flips} for flips in (0.2, 0.4)},
        "optimizer": OPTIMIZERS,
    },
    claims=(
        goals.gain("with 40 % flips, mean gain over cross-entropy of at least 6 points", 6.0, where={"flips": 0.4}),
        goals.seldom_below("at most 1 point below cross-entropy in 97 % of the conditions", 1.0, 0.97),
        goals.gain("not below the Jacobian regularizer by more than 0.5 points", -0.5, against=JACOBIAN),
        goals.gain("not below generalized cross-entropy by more than 0.5 points", -0.5, against=GENERALIZED),
    ),
    figures=_by_case(NOISY, "Test accuracy with flipped training labels"),
    scales=scales(
        "digits, 60 samples, 3 steps; one core",
        "digits; one optimizer; two cores",
        "40 % flips alone, one optimizer (Adam 0.001) instead of three, 3 seeds, no digits; one H200, 14 workers",
        "nothing is cut; one GPU",
        **effort(minutes=(0.1, 5, 5, 60), seeds=(1, 2, 3, 5)),
        of_values=(_tiny(NOISY),),
        only=(
            {**FIRST, "flips": (0.4,), "case": ("digits, MLP", "digits, CNN")},
            {**FIRST, "flips": (0.4,), "case": ("digits, MLP", "digits, CNN")},
            {**FIRST, "flips": (0.4,), "case": tuple(name for name in cases(NOISY) if "digits" not in name)},
        ),
    ),
    deviations=DEVIATIONS,
)

_UNDER_ATTACK: Settings = {
    "measure": [
        {**goals.ATTACK, "epsilons": goals.RADII, "count": 500},
        {"kind": "minimal", "p": 2.0, "steps": 20, "count": 200},
    ]
}
_FEW_ATTACKED: Settings = {
    "measure": [
        {**goals.ATTACK, "epsilons": (0.0, 0.16), "count": 20, "steps": 2},
        {"kind": "minimal", "p": 2.0, "steps": 2, "count": 10},
    ]
}

W3 = Study(
    **named("W3", f"{OURS}, attacks", "WideMargin under attack"),
    question="Does WideMargin move decision boundaries away from test samples, and does that help against attacks?",
    arms=goals.arms(CROSS_ENTROPY, WIDE, JACOBIAN, SHARE),
    settings=overlay(SETTINGS, _UNDER_ATTACK),
    axes={"case": cases(IMAGES), "optimizer": OPTIMIZERS},
    claims=(
        goals.attacked("accuracy under PGD, at the ε that halves cross-entropy's, at least 15 points above it", 15.0),
        goals.ratio("median distance of right answers at least 2 times cross-entropy's", 2.0, "distance"),
        goals.ratio("mean distance, of wrong answers 0, at least 2 times cross-entropy's", 2.0, "mean distance"),
        goals.ratio("share 1/8: distance at most 10 % below the whole form", 0.9, "distance", arm=SHARE, against=WIDE),
    ),
    figures=(
        Figure(
            "epsilon",
            "accuracy",
            "Accuracy under PGD with 20 steps, mean over data and networks",
            "ε/√D, standardised inputs",
            "test accuracy",
            percent=True,
            where={"curve": goals.PGD},
        ),
        *(
            bars(
                "case",
                "distance",
                f"Median distance of right answers to the boundary: {name}",
                "",
                "l_2, standardised inputs",
                where={"case": tuple(cases({name: part}))},
            )
            for name, part in IMAGES.items()
        ),
    ),
    scales=scales(
        "digits, 60 samples, 3 steps, attacks of 2 steps; one core",
        "digits; one optimizer; two cores",
        "one optimizer (Adam 0.001) instead of three, 3 seeds, no Jacobian regularizer; one H200, 14 workers; the "
        "networks are those of W1",
        "nothing is cut; one GPU",
        **effort(minutes=(0.1, 5, 5, 60), seeds=(1, 2, 3, 5)),
        settings=(_FEW_ATTACKED,),
        of_values=(_tiny(IMAGES),),
        only=(
            {**FIRST, "case": ("digits, MLP", "digits, CNN")},
            {**FIRST, "case": ("digits, MLP", "digits, CNN")},
            FIRST,
        ),
        arms=(None, None, (CROSS_ENTROPY, WIDE, SHARE)),
    ),
    deviations=(
        *DEVIATIONS,
        "Attacks are not clipped to a range: inputs are standardised. ε is in units of √D, the length of an input.",
    ),
)
