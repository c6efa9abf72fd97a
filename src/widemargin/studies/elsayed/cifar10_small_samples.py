"""E12: CIFAR-10 from few samples (elsayed, §4.3.2, Fig. 9)."""

from __future__ import annotations

from widemargin.studies.claims import gap, order
from widemargin.studies.elsayed import cifar10, mnist
from widemargin.studies.schema import axis, named

BOTH = ("margin l_1", "cross-entropy")

E12 = cifar10.study(
    **named("E12", "elsayed, Fig. 9", "Few training samples, CIFAR-10"),
    question="Do margins help where there are few samples?",
    axes={"fraction": axis("data.fraction", (0.01, 0.05, 0.1, 0.5, 1.0))},
    claims=(
        *(
            gap(f"at {100 * share:g} %, l_1 margin minus cross-entropy", *BOTH, 2.5, where={"fraction": share})
            for share in (0.05, 0.01)
        ),
        order("margin l_1 above cross-entropy everywhere", *BOTH),
        order("margin l_inf above cross-entropy everywhere", "margin l_inf", "cross-entropy"),
    ),
    figures=(mnist.over_fraction("Fig. 9", "45,000"),),
    scales=cifar10.scales(
        hours=2,
        more=({"data.samples": 110}, {}, {}, {}),
        of_values=(
            {"fraction": {0.01: {"data.fraction": 0.5}, 0.05: {"data.fraction": 0.8}}},
            {"fraction": {0.05: {"data.fraction": 0.2}, 0.1: {"data.fraction": 0.4}}},
        ),
        only=({"fraction": (0.01, 0.05)}, {"fraction": (0.05, 0.1)}, {"fraction": (0.01, 0.05, 1.0)}),
        search_at={"fraction": 0.05},
    ),
    deviations=("The shares other than 5 % and 1 % are ours: the paper's text names no others.",),
)
