"""S1: a two-layer ReLU network on the plane: regions, Jacobians, features, sets (sokolic, Fig. 1)."""

from __future__ import annotations

from widemargin.studies.claims import value
from widemargin.studies.schema import Arm, Claim, Figure, Study, effort, named, scales, scatter
from widemargin.studies.settings import overlay
from widemargin.studies.sokolic.distance_preservation import PLANE

NETWORK = "two-layer network"
FEATURES = ("distance from the decision plane, in features", "widest direction within it")


def _share(text: str, metric: str) -> Claim:
    return value(text, NETWORK, 100, metric, tolerance=0)


def _figure(letter: str, curve: str, title: str, x_title: str, y_title: str) -> Figure:
    title = f"{title} (sokolic, Fig. 1{letter})"
    return scatter("x1", "x2", title, x_title, y_title, where={"curve": curve}, split="what")


S1 = Study(
    **named("S1", "sokolic, Fig. 1", "A ReLU network on the plane", "plane"),
    question="Does a trained network show what Fig. 1 draws: affine regions, and nested sets that bound the margin?",
    arms=(Arm(name=NETWORK, settings=overlay(PLANE, {"grid": 41, "samples": 300, "shown": (0,)})),),
    settings={"loss": {"name": "hinge"}, "schedule": {"name": "cosine"}},
    claims=(
        _share("cells in which the network is affine (b)", "affine"),
        _share("points with r^F ≤ r^J ≤ r: R^F inside R^J inside R (d)", "nested"),
        _share("training samples with γ_in ≥ (19) ≥ (20) (a, d)", "bounded"),
        _share("training samples whose Jacobian bound (19) is sharper than (20)", "sharper"),
    ),
    figures=(
        _figure("a", "plane", "Training samples and the decision boundary", "first input", "second input"),
        _figure("c", "features", "The samples as the network transforms them", *FEATURES),
        _figure("d", "sets", "The curves r = 1, r^J = 1 and r^F = 1 around a sample", "first input", "second input"),
    ),
    scales=scales(
        "8 units, 60 steps, few points",
        "margins of 100 samples; two cores",
        "nothing is cut but seeds; one core",
        "the paper shows one network; two cores",
        **effort(minutes=(0.1, 1, 2, 4), seeds=(1, 2, 3, 5)),
        settings=({"network": {"first": 5, "higher": 3}, "steps": 60, "grid": 5, "samples": 5}, {"samples": 100}),
    ),
    deviations=(
        "The paper does not say what its data and its network are: here two half-moons, 12 units and 6 features, the "
        "hinge loss and Adam.",
        "With 6 features, (c) shows the plane of the classifier's normal and the widest direction across it.",
        "(b), the cells with an ellipse for each Jacobian, is drawn by `widemargin picture --paper sokolic`.",
    ),
)
