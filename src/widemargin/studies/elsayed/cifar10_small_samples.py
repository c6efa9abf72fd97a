"""E12: CIFAR-10 from few samples (elsayed, §4.3.2, Fig. 9)."""

from __future__ import annotations

from widemargin.studies.effects import Gap, Order
from widemargin.studies.elsayed import cifar10
from widemargin.studies.figure import Figure
from widemargin.studies.schema import Claim, Study, grid

E12 = Study(
    id="E12",
    source="elsayed, Fig. 9",
    title="Few training samples, CIFAR-10",
    question="Do margins help where there are few samples?",
    task="classify",
    arms=cifar10.FIVE,
    settings=cifar10.SETTINGS,
    axes={"fraction": "data.fraction"},
    conditions=grid(fraction=(0.01, 0.05, 0.1, 0.5, 1.0)),
    claims=(
        *(
            Claim(
                text=f"at {100 * fraction:g} %, l_1 margin minus cross-entropy",
                effect=Gap(metric="accuracy", arm="margin l_1", against="cross-entropy", where={"fraction": fraction}),
                reported=2.5,
            )
            for fraction in (0.05, 0.01)
        ),
        *(
            Claim(
                text=f"{arm} above cross-entropy everywhere",
                effect=Order(metric="accuracy", ordered=(arm, "cross-entropy")),
                kind="order",
            )
            for arm in ("margin l_1", "margin l_inf")
        ),
    ),
    figures=(
        Figure(
            x="fraction",
            y="accuracy",
            title="Test accuracy over the share of the training samples (elsayed, Fig. 9)",
            x_title="share of the 45,000 training samples",
            y_title="test accuracy",
            percent=True,
            log_x=True,
        ),
    ),
    scales=cifar10.scales(
        hours=2,
        small={"data.samples": 110},
        of_values={
            "smoke": {"fraction": {0.01: {"data.fraction": 0.5}, 0.05: {"data.fraction": 0.8}}},
            "quick": {"fraction": {0.05: {"data.fraction": 0.2}, 0.1: {"data.fraction": 0.4}}},
        },
        only={
            "smoke": {"fraction": (0.01, 0.05)},
            "quick": {"fraction": (0.05, 0.1)},
            "budget": {"fraction": (0.01, 0.05, 1.0)},
        },
        search_at={"fraction": 0.05},
    ),
    deviations=(
        "The shares other than 5 % and 1 % are ours: the paper's text names no others.",
        *cifar10.DEVIATIONS,
    ),
)
STUDIES = {"E12": E12}
