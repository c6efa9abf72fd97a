"""F3: twins of one margin, one of them trained on randomly labelled points too (farhang, §4.2, Fig. 3 and 7, A.2)."""

from __future__ import annotations

from widemargin.studies.claims import gap, value
from widemargin.studies.farhang.points import EMBEDDED, MARGIN, MNIST, NERO, SMALL, SPHERE
from widemargin.studies.schema import Arm, Study, accuracy, axis, effort, named, scales, scatter

CONTROL, ATTACKED = "control", "attack set"
ALPHAS = (0.1, 0.2512, 0.631, 1.585, 3.981, 10.0)
AT = {"alpha": (0.631, 1.585)}

SAME = "the twins' median normalized margins are the same (their difference)"
TITLES = (
    "Test accuracy over the targeted margin (farhang, Fig. 7)",
    "Frobenius-normalized margins of the 500 clean points (farhang, Fig. 3)",
)
AXES = ("Frobenius-normalized margin", "share of the points below")

F3 = Study(
    **named("F3", "farhang, Fig. 3 and 7", "Attack-set twins", "targeted"),
    question="Do networks of one margin distribution generalize alike?",
    arms=(Arm(name=CONTROL, settings={"data.attack": 0}), Arm(name=ATTACKED, settings={"data.attack": 1000})),
    settings={
        "data": {**MNIST, "train": 500},
        "network": {"name": "farhang-mlp", "inputs": 784, "width": 2048, "depth": 2},
        "optimizer": NERO,
        "schedule": {"name": "exponential", "factor": 0.99997, "unit": "steps"},
        "steps": 100_000,
    },
    axes={"alpha": axis("alpha", ALPHAS)},
    claims=(
        value("test accuracy, control", CONTROL, 81.0, where=AT),
        value("test accuracy, attack set", ATTACKED, 35.0, where=AT),
        gap("the attack set costs test accuracy", CONTROL, ATTACKED, 46.0, where=AT),
        gap(SAME, ATTACKED, CONTROL, 0.0, "margin", {"alpha": (1.585,)}, relative=True, tolerance=0.05),
    ),
    figures=(
        accuracy("alpha", TITLES[0], "targeted Frobenius-normalized margin", log_x=True),
        scatter("margin", "quantile", TITLES[1], *AXES, where={"curve": "margins", "alpha": 1.585}),
    ),
    scales=scales(
        "100 digits and 20 more, width 16, 20 steps, two margins; one core",
        "200 points of mnist-5k and 400 more, then width 256, 1,500 steps, two margins; one core",
        "matrix products as TF32, then steps cut to 30,000 with a decay to match, then margins to four of six; one GPU",
        "as the paper; one GPU",
        **effort(minutes=(0.1, 6, 6, 120), seeds=(2, 2, 2)),
        settings=(
            {**SMALL, "data.train": 100, "network.width": 16, "steps": 20},
            {**EMBEDDED, "data.train": 200, "network.width": 256, "steps": 1500, "schedule.factor": 0.998},
            {"steps": 30_000, "schedule.factor": 0.9999, "matmul": "high"},
        ),
        of_arms=({ATTACKED: {"data.attack": 20}}, {ATTACKED: {"data.attack": 400}}),
        only=({"alpha": (0.631, 1.585)}, {"alpha": (0.631, 1.585)}, {"alpha": (0.1, 0.631, 1.585, 10.0)}),
    ),
    deviations=(
        SPHERE,
        MARGIN,
        "1,000 attack points, as the paper says; the authors' code has 1,500.",
        "With 6,000 steps the control had 72.9 %. The loss is zero by then, but Nero's steps are as long as its rate, "
        "and go on to move the network: longer trainings generalize better.",
        "Figure 3's accuracies are compared with the means at the two middle margins; the paper does not give its α.",
    ),
)
