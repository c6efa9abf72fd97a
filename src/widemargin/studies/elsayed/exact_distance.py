"""E18: the closed form of the distance is exact for affine scores, in every l_p (elsayed, §3.1, eq. 7)."""

from __future__ import annotations

import functools

from widemargin.studies.claims import value
from widemargin.studies.figure import bars
from widemargin.studies.schema import Arm, Study, axis, named, scales

P: tuple[float | str, ...] = (1.0, 1.25, 1.5, 2.0, 3.0, 10.0, "inf")

TEXT = "largest relative difference from a convex solver"
TITLE = "Decimal digits in which the closed form and a convex solver agree, at the worst (elsayed, eq. 7)"
same = functools.partial(value, metric="error", relative=True, tolerance=1e-6)

E18 = Study(
    **named("E18", "elsayed, §3.1, eq. 7", "The closed form of the distance"),
    question="Is |f_i − f_j|/‖∇f_i − ∇f_j‖_q the smallest l_p norm of a step to the boundary, where scores are affine?",
    task="nearest-boundary",
    arms=(Arm(name="closed form"),),
    axes={"norm": axis("p", P)},
    settings={"inputs": 12, "classes": 5, "samples": 10},
    claims=tuple(same(f"{TEXT} in l_{p}", "closed form", 0.0, where={"norm": p}) for p in P),
    figures=(bars("norm", "digits", TITLE, "p of the norm", "digits"),),
    scales=scales(
        minutes=(0.02, 0.2, 1, 2),
        settings=({"inputs": 4, "classes": 3, "samples": 2}, {"inputs": 6, "samples": 5}, {"samples": 5}),
        seeds=(1, 2),
        note=(
            "4 inputs",
            "6 inputs, 5 samples; one core",
            "5 samples; one core",
            "nothing is cut: 12 inputs, 5 classes, 10 samples; one core",
        ),
    ),
    deviations=("The paper proves it and measures nothing: the networks and samples are random, in double precision.",),
)
