"""The losses that odn compares (§4), as arms, and ours beside them; the same for MNIST and CIFAR-10."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from widemargin.studies.claims import Claim, order
from widemargin.studies.schema import Arm, Search, Study
from widemargin.studies.settings import Settings, sgd

ODN = "ODN"
OTHERS = ("Xent", "hinge", "soft hinge")
PAPER = (*OTHERS, ODN)
FEW = (*PAPER, "ours ODN")
SOME = (*FEW, "WideMargin")

_THETA, _MU = 0.7, 0.1
"""The paper's for CIFAR-10; it gives none for MNIST (errata 8)."""


def _arm(name: str, loss: Settings, lr: float, search: Search, *, ours: bool = False) -> Arm:
    return Arm(name, {"loss": loss, "optimizer": sgd(lr)}, search, ours=ours)


def arms() -> tuple[Arm, ...]:
    """Xent, hinge, soft hinge and ODN as printed (with the errata), and the scale-free forms of the last and hinge.

    The printed margin losses have gradients 1/(ε + ‖∇f‖) long (see `losses.scale_free`). With an ε of 1e-6 they are 50
    times as long as cross-entropy's at the start, so that only small rates survive it; and where margins are out of
    reach the scores grow without end, and the gradients vanish: ODN of r = 2 ended at 96 % of MNIST. ε = 1 bounds the
    first, and r of 1.2 or γ_0 of 0.5 are within reach. Six cells or more for each, the likeliest first.
    """
    band: Settings = {"name": "odn", "r": 2.0, "theta": _THETA, "mu": _MU}
    hinge: Settings = {"name": "odn-hinge", "gamma": 1.0}
    printed: Settings = {"stabilize": None, "epsilon": 1.0}
    free: Settings = {"stabilize": "scale-free"}
    xent: Search = {"optimizer.lr": (0.1, 0.03, 0.3, 0.01, 0.003, 0.001)}
    rates: Search = {"optimizer.lr": (0.03, 0.01, 0.1)}
    larger: Search = {"optimizer.lr": (0.1, 0.03, 0.3)}
    return (
        _arm("Xent", {"name": "cross-entropy"}, 0.1, xent),
        _arm("hinge", {**hinge, **printed}, 0.03, {"loss.gamma": (0.5, 1.0), **rates}),
        _arm("soft hinge", {"name": "soft-hinge"}, 0.3, {"optimizer.lr": (0.3, 0.1, 0.03, 0.01, 1.0, 0.003)}),
        _arm(ODN, {**band, **printed}, 0.03, {"loss.r": (1.2, 2.0, 4.0), **rates}),
        _arm("ours ODN", {**band, **free}, 0.1, {"loss.r": (2.0, 1.2, 4.0), **larger}, ours=True),
        _arm("WideMargin", {"name": "wide-margin"}, 0.1, xent, ours=True),
        _arm("ours hinge", {**hinge, **free}, 0.1, {"loss.gamma": (1.0, 2.0), **larger}, ours=True),
    )


def above_each(text: str, **options: Any) -> tuple[Claim, ...]:
    """ODN above each of the others, whose name replaces the braces in `text`."""
    return tuple(order(text.format(other), ODN, other, **options) for other in OTHERS)


def for_alexnet() -> tuple[Arm, ...]:
    """The same arms with the rates of a deeper network; the paper's margins alone need rates ten times smaller."""
    usual, smaller = (0.01, 0.03, 0.003, 0.001, 0.1, 0.0003), (0.001, 0.003, 0.0003)
    rates = {"Xent": usual, "WideMargin": usual, "soft hinge": tuple(10 * lr for lr in usual)}
    rates |= {"hinge": smaller, ODN: smaller}
    return tuple(
        replace(arm, search={**arm.search, "optimizer.lr": rates.get(arm.name, arm.search["optimizer.lr"])})
        for arm in arms()
    )


def study(*, deviations: tuple[str, ...] = (), of: tuple[Arm, ...] | None = None, **more: Any) -> Study:
    """A study of these losses, or `of` others; `more` are arguments of `Study`."""
    return Study(arms=of or arms(), deviations=(*DEVIATIONS, *deviations), **more)


DEVIATIONS = (
    "Hinge and soft hinge as the errata have them: max(0, γ_0 − γ_h), and the one-hot multi-label soft margin.",
    "The paper takes PyTorch's usual learning rate and momentum for all losses and does not say which; here SGD with "
    "momentum 0.9 and a cosine decay, and the learning rate is searched for every loss, with as many cells as for r "
    "or γ_0 and it together.",
    "ε of the denominators, which the paper does not give, is 1. With 1e-6 rates of 0.01 killed the network within 20 "
    "steps, and at 0.003 ODN of r = 2 ended at 96.3 % (1,500 steps, all of MNIST), the hinge at chance for a seed.",
    "θ and μ are the paper's for CIFAR-10 without a search (0.7 and 0.1), since those of MNIST are not given.",
    "The paper gives neither the number of steps nor the batch size.",
)
