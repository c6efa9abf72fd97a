"""The losses that odn compares (§4), as arms, and ours beside them; the same for MNIST and CIFAR-10."""

from __future__ import annotations

from typing import Any

from widemargin.studies.schema import Arm

ODN = "ODN"
OTHERS = ("Xent", "hinge", "soft hinge")
OURS = ("ours ODN", "ours hinge")
PAPER = (*OTHERS, ODN)

_THETA, _MU = 0.7, 0.1
"""The paper's for CIFAR-10; it gives none for MNIST (errata 8)."""


def _sgd(lr: float) -> dict[str, Any]:
    return {"name": "sgd", "lr": lr, "momentum": 0.9}


def arms() -> tuple[Arm, ...]:
    """Xent, hinge, soft hinge and ODN as printed (with the errata), and the scale-free forms of the last and hinge.

    The printed margin losses have gradients about 50 times as long as cross-entropy's (see `losses.scale_free`), and
    so their learning rates begin lower: at 0.003 the hinge of γ_0 = 1 ends at chance, and at 1.0 so does
    the soft hinge for two seeds of three. Such rates are the last to be tried. Six cells or more for each.
    """
    free = (0.03, 0.1, 0.01)
    band = {"name": "odn", "r": 2.0, "theta": _THETA, "mu": _MU}
    hinge = {"name": "odn-hinge", "gamma": 1.0}
    r, gamma = (2.0, 4.0, 1.2), (1.0, 2.0)
    return (
        Arm(
            name="Xent",
            settings={"loss": {"name": "cross-entropy"}, "optimizer": _sgd(0.03)},
            search={"optimizer.lr": (0.03, 0.01, 0.1, 0.003, 0.3, 0.001)},
        ),
        Arm(
            name="hinge",
            settings={"loss": {**hinge, "stabilize": None}, "optimizer": _sgd(0.001)},
            search={"loss.gamma": gamma, "optimizer.lr": (0.001, 0.0003, 0.003)},
        ),
        Arm(
            name="soft hinge",
            settings={"loss": {"name": "soft-hinge"}, "optimizer": _sgd(0.1)},
            search={"optimizer.lr": (0.1, 0.3, 0.03, 0.01, 0.003, 1.0)},
        ),
        Arm(
            name=ODN,
            settings={"loss": {**band, "stabilize": None}, "optimizer": _sgd(0.003)},
            search={"loss.r": r, "optimizer.lr": (0.003, 0.001, 0.0003)},
        ),
        Arm(
            name="ours ODN",
            settings={"loss": {**band, "stabilize": "scale-free"}, "optimizer": _sgd(0.03)},
            search={"loss.r": r, "optimizer.lr": free},
            ours=True,
        ),
        Arm(
            name="ours hinge",
            settings={"loss": {**hinge, "stabilize": "scale-free"}, "optimizer": _sgd(0.03)},
            search={"loss.gamma": gamma, "optimizer.lr": free},
            ours=True,
        ),
    )


DEVIATIONS = (
    "Hinge and soft hinge as the errata have them: max(0, γ_0 − γ_h), and the one-hot multi-label soft margin.",
    "The paper takes PyTorch's usual learning rate and momentum for all losses and does not say which; here SGD with "
    "momentum 0.9 and a cosine decay, and the learning rate is searched for every loss, with as many cells as for r "
    "or γ_0 and it together.",
    "θ and μ are the paper's for CIFAR-10 without a search (0.7 and 0.1), since those of MNIST are not given.",
    "The paper gives neither the number of steps nor the batch size.",
)
