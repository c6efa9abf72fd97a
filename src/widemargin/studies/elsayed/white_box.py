"""E5, E6: MNIST models attacked by FGSM and IFGSM made on themselves (elsayed, §4.2.3, Fig. 4 and 5)."""

from __future__ import annotations

from widemargin.studies.elsayed import mnist
from widemargin.studies.elsayed.trained_on_all import above, against_cross_entropy, attack, declare, over_epsilon
from widemargin.studies.schema import Arm, Claim, ScaleName, named
from widemargin.studies.settings import Settings

ADVERSARIAL = Arm(
    "adversarial training",
    {
        "loss": {"name": "adversarial", "epsilon": 0.3, "step": 0.01, "steps": 40},
        "optimizer": {"name": "adam", "lr": 0.0001},
    },
)
"""Madry et al. 2018, with their settings for MNIST, which the paper takes over; there is nothing to search."""

_FEWER: Settings = {"loss.steps": 5, "loss.step": 0.1, "optimizer.lr": 0.001}
CUT: dict[ScaleName, dict[str, Settings]] = {
    "smoke": {ADVERSARIAL.name: {"loss.steps": 1, "loss.step": 0.3}},
    "quick": {ADVERSARIAL.name: _FEWER},
    "budget": {ADVERSARIAL.name: _FEWER},
}
ALL_AND_INPUT = tuple(zip(mnist.ALL_LAYER, mnist.INPUT_ONLY))


def _claims(curve: str) -> tuple[Claim, ...]:
    return (
        *against_cross_entropy(curve, (*mnist.ALL_LAYER, *mnist.INPUT_ONLY)),
        *(above(f"{everywhere} (all layers) above {at}", everywhere, at, curve) for everywhere, at in ALL_AND_INPUT),
        above("l_inf above l_1", "margin l_inf", "margin l_1", curve),
        above("l_inf above l_2", "margin l_inf", "margin l_2", curve),
    )


E5 = declare(
    **named("E5", "elsayed, Fig. 4", "White-box FGSM"),
    question="Do margins at training samples protect test samples from one large step against the network?",
    measure=(attack("fgsm"),),
    claims=(
        *_claims("fgsm"),
        above("the best margin model (l_inf) above adversarial training", "margin l_inf", ADVERSARIAL.name, "fgsm"),
    ),
    figures=(over_epsilon("Test accuracy under white-box FGSM (elsayed, Fig. 4)", "fgsm"),),
    more_arms=(ADVERSARIAL,),
    more_of_arms=CUT,
    deviations=(
        "The paper does not print the sizes of its attacks: here ε is 0 to 0.3; orders are asked for at 0.1 and 0.2.",
        "The adversarially trained model has the steps and batches of the others, not those of Madry et al.; where the "
        "scale is cut, its attack has 5 steps of 0.1 instead of 40 of 0.01.",
    ),
)
E6 = declare(
    **named("E6", "elsayed, Fig. 5", "White-box IFGSM"),
    question="The same for an attack of many small steps.",
    measure=(attack("ifgsm"),),
    claims=_claims("ifgsm"),
    figures=(over_epsilon("Test accuracy under white-box IFGSM (elsayed, Fig. 5)", "ifgsm"),),
    deviations=("The paper does not give α: here it is ε/10, in 10 steps; orders are asked for at ε = 0.1 and 0.2.",),
)
