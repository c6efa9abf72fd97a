"""E17, E18: affine scores: an SVM by the large-margin loss, the closed form of the distance (elsayed, §3.1, 3.2)."""

from __future__ import annotations

import functools

from widemargin.studies.claims import value
from widemargin.studies.schema import Arm, Study, axis, bars, effort, named, scales
from widemargin.studies.settings import Settings

LOSS: Settings = {"name": "large-margin", "p": 2.0, "classes": 1}
PRINTED: Settings = {**LOSS, "stabilize": None}
TITLE = "Margin of the trained separator over that of the exact SVM (elsayed, §3.2)"
DATA = {
    "2 dimensions": {"data": {"name": "gaussian", "dimensions": 2, "samples": 40}},
    "10 dimensions": {"data": {"name": "gaussian", "dimensions": 10, "samples": 60}},
    "digits, 3 and 8": {"data": {"name": "digits", "classes": [3, 8], "samples": 100}},
}

E17 = Study(
    **named("E17", "elsayed, §3.2", "A linear classifier is an SVM", "linear-svm"),
    question="Does training for the largest margin find the separator of an exact SVM solver?",
    arms=(
        Arm("margin l_2", {"loss": {**PRINTED, "second_order": True}, "lr": 0.3}),
        Arm("margin l_2, denominators detached", {"loss": PRINTED, "lr": 0.03}, only={"data": ("10 dimensions",)}),
        Arm("ours l_2", {"loss": {**LOSS, "stabilize": "scale-free"}, "lr": 3.0}, ours=True),
    ),
    axes={"data": DATA},
    settings={"steps": 1000, "close": 0.006},
    claims=tuple(
        value(f"{text}, {data}", "margin l_2", 1.0, metric=metric, where={"data": data}, relative=True, tolerance=0.01)
        for data in DATA
        for metric, text in (("cosine", "cosine of the angle between the normals"), ("share", "margin over the SVM's"))
    ),
    figures=(
        bars("data", "share", TITLE, y_title="margin over the SVM's", percent=True),
        bars("data", "cosine", "Cosine of the angle between the two normals"),
    ),
    scales=scales(
        "2 steps for each γ",
        "200 steps for each γ; one core",
        "400 steps for each γ; one core",
        "nothing is cut; one core",
        **effort(minutes=(0.02, 1, 3, 10), seeds=(1, 1)),
        settings=({"steps": 2, "close": 0.9}, {"steps": 200, "close": 0.02}, {"steps": 400, "close": 0.01}),
    ),
    deviations=(
        "The paper shows it and measures nothing: here γ is raised to the largest value at which the loss can be "
        "driven to zero, by gradient descent on all samples, and the separator is compared with scikit-learn's SVC.",
        "Digits are centred, without which descent had not converged after 600 steps for each γ.",
        "The gradient of the loss is the exact one, through its denominators: the formulation of §3.2. With detached "
        "denominators, as in §4.1, the loss also inflates the scores, which makes its steps ever shorter.",
    ),
)

P: tuple[float | str, ...] = (1.0, 1.25, 1.5, 2.0, 3.0, 10.0, "inf")

TEXT = "largest relative difference from a convex solver"
DIGITS = "Decimal digits in which the closed form and a convex solver agree, at the worst (elsayed, eq. 7)"
same = functools.partial(value, metric="error", relative=True, tolerance=1e-6)

E18 = Study(
    **named("E18", "elsayed, §3.1, eq. 7", "The closed form of the distance", "nearest-boundary"),
    question="Is |f_i − f_j|/‖∇f_i − ∇f_j‖_q the smallest l_p norm of a step to the boundary, where scores are affine?",
    arms=(Arm(name="closed form"),),
    axes={"norm": axis("p", P)},
    settings={"inputs": 12, "classes": 5, "samples": 10},
    claims=tuple(same(f"{TEXT} in l_{p}", "closed form", 0.0, where={"norm": p}) for p in P),
    figures=(bars("norm", "digits", DIGITS, "p of the norm", "digits"),),
    scales=scales(
        "4 inputs",
        "6 inputs, 5 samples; one core",
        "5 samples; one core",
        "nothing is cut: 12 inputs, 5 classes, 10 samples; one core",
        **effort(minutes=(0.02, 0.2, 1, 2), seeds=(1, 2)),
        settings=({"inputs": 4, "classes": 3, "samples": 2}, {"inputs": 6, "samples": 5}, {"samples": 5}),
    ),
    deviations=("The paper proves it and measures nothing: the networks and samples are random, in double precision.",),
)
