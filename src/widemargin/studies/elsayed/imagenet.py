"""E14: ImageNet and Inception v3, attacked by FGSM and IFGSM (elsayed, §4.4, Fig. 11)."""

from __future__ import annotations

from widemargin.studies.claims import gap, value
from widemargin.studies.elsayed.trained_on_all import FROM_CROSS_ENTROPY, above, over_epsilon
from widemargin.studies.schema import Arm, Study, effort, named, scales
from widemargin.studies.settings import Settings

EPSILONS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2)
PLACES = ("input", "Conv2d_4a_3x3", "Mixed_5d", "Mixed_6e", "fc")
WHITE, ITERATED, BLACK = "fgsm", "ifgsm", "fgsm from cross-entropy"
AT_TENTH = {"curve": WHITE, "epsilon": 0.1}
BLACK_TENTH = {"curve": BLACK, "epsilon": 0.1}
BOTH = ("margin l_1", "cross-entropy")


def _attacks(epsilons: tuple[float, ...]) -> list[Settings]:
    return [
        {"curve": WHITE, "attack": "fgsm", "epsilons": epsilons},
        {"curve": ITERATED, "attack": "ifgsm", "epsilons": epsilons},
        {"curve": BLACK, "attack": "fgsm", "epsilons": epsilons, **FROM_CROSS_ENTROPY},
    ]


def _arm(name: str, loss: Settings, *, ours: bool = False) -> Arm:
    changed = {"name": "augmented", "crop": 16, "loss": loss}
    return Arm(name, {"loss": {"name": "with-auxiliary", "loss": changed}}, ours=ours)


def _synthetic(samples: int) -> Settings:
    return {"data": {"name": "synthetic", "shape": [3, 299, 299], "samples": samples}, "network": {"classes": 10}}


MARGIN: Settings = {"name": "large-margin", "p": 1.0, "at": PLACES, "classes": 1}

E14 = Study(
    **named("E14", "elsayed, §4.4 and Fig. 11", "ImageNet", "streamed"),
    question="Do margins against one other class, at five places of Inception v3, protect it from attacks?",
    arms=(
        _arm("cross-entropy", {"name": "cross-entropy"}),
        _arm("margin l_1", {**MARGIN, "gamma": 10_000.0, "scores": "softmax", "cross_entropy": 0.1, "stabilize": None}),
        _arm("ours l_1", {**MARGIN, "gamma": 30.0}, ours=True),
    ),
    settings={
        "data": {"name": "imagenet", "size": 299, "workers": 12},
        "network": {"name": "inception-v3"},
        "optimizer": {"name": "rmsprop", "lr": 0.045, "eps": 1.0},
        "schedule": {"name": "exponential", "factor": 0.94, "every": 0.02},
        "epochs": 100,
        "batch": 128,
        "attacks": _attacks(EPSILONS),
        "count": None,
    },
    claims=(
        *(value(f"{arm}, no attack", arm, 78.0) for arm in ("cross-entropy", "margin l_1")),
        value("at ε = 0.1, white-box FGSM, cross-entropy", "cross-entropy", 33.0, where=AT_TENTH),
        value("at ε = 0.1, white-box FGSM, margin", "margin l_1", 44.0, where=AT_TENTH),
        gap("at ε = 0.1, white-box FGSM, margin minus cross-entropy", *BOTH, 11.0, where=AT_TENTH),
        value("at ε = 0.1, FGSM from the cross-entropy model, margin", "margin l_1", 59.0, where=BLACK_TENTH),
        above("margin above cross-entropy under white-box IFGSM", *BOTH, ITERATED, epsilon=(0.05, 0.1)),
    ),
    figures=(
        over_epsilon("Accuracy under white-box FGSM (elsayed, Fig. 11)", WHITE),
        over_epsilon("Accuracy under white-box IFGSM (elsayed, Fig. 11)", ITERATED),
        over_epsilon("Accuracy under FGSM from the cross-entropy model (elsayed, Fig. 11)", BLACK),
    ),
    scales=scales(
        "4 synthetic images of 3 × 299 × 299, one step",
        "synthetic images, which say nothing of the claims: no ImageNet is embedded; two cores",
        "5 epochs instead of 100, then 5,000 of the 50,000 test images, then seeds; one H200",
        "nothing is cut; GPU-months",
        **effort(minutes=(0.5, 15, 1500, 100_000), seeds=(1, 1, 1)),
        settings=(
            {**_synthetic(4), "epochs": 1, "batch": 4, "attacks": _attacks((0.05, 0.1)), "count": 2},
            {**_synthetic(40), "epochs": 2, "batch": 8, "count": 8},
            {"epochs": 5, "count": 5000},
        ),
    ),
    deviations=(
        "The paper gives no γ, places, learning rate or length for ImageNet: here γ is 10,000 as on CIFAR-10, at five "
        "places from the input to the output, with the optimizer of Szegedy et al. 2016 for 100 epochs.",
        "Images are the middle of each photograph, shifted by up to 16 pixels, with other contrast and hue, not the "
        "random crops of all sizes of Szegedy et al.",
        "ImageNet's validation set is the test set, as in the paper.",
    ),
    not_free=True,
)
