"""E9: MNIST models on images with Gaussian noise (elsayed, §4.2.3, Fig. 7)."""

from __future__ import annotations

from widemargin.studies.elsayed.trained_on_all import against_cross_entropy, declare
from widemargin.studies.figure import accuracy
from widemargin.studies.schema import named

SIGMAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)

TITLE = "Test accuracy over the standard deviation of the noise (elsayed, Fig. 7)"
FIGURE = accuracy("sigma", TITLE, "standard deviation of the noise", where={"curve": "noise"})

E9 = declare(
    **named("E9", "elsayed, Fig. 7", "Gaussian noise on the input"),
    question="Do margins help where the input is noisy but nobody attacks?",
    measure=({"kind": "noise", "sigmas": SIGMAS},),
    claims=against_cross_entropy("noise", sigma=(0.2, 0.3, 0.4, 0.5)),
    figures=(FIGURE,),
    deviations=(
        "The paper does not print the standard deviations of its noise: here they are 0 to 0.6, and orders are asked "
        "for at 0.2 to 0.5.",
    ),
)
