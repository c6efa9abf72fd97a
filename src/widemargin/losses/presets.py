"""Presets of `MarginLoss` with the settings of the papers."""

from __future__ import annotations

from typing import Any

from widemargin.losses.margin import MarginLoss
from widemargin.losses.penalties import Band, Hinge
from widemargin.margins.output import Classes


def large_margin(
    *,
    gamma: float | tuple[float, ...] = 1.0,
    at: tuple[str, ...] = ("input",),
    p: float = 2.0,
    classes: Classes = "all",
    **settings: Any,
) -> MarginLoss:
    """Elsayed et al.'s loss, eq. (15), as on MNIST: the hinge of the smallest distance over all other classes.

    Use it to rerun the paper, or for convolutional networks without BatchNorm where γ, the distance to reach, is known.
    With few samples, flipped labels or other networks `WideMargin` is the better choice: it needs no γ.

    γ is in input units, since the scores are logits (errata 2): `wm.measure` gives the distances of a network. The
    paper's γ of 200 to 20000 go with `read_as="softmax"`, `cross_entropy=1.0` and `stabilize=None`.
    """
    return MarginLoss(penalty=Hinge(gamma=gamma), at=at, p=p, classes=classes, **settings)


def odn(*, r: float = 2.0, theta: float = 1.0, mu: float = 0.1, **settings: Any) -> MarginLoss:
    """The optimal-margin-distribution loss, odn (1): the band of the l_2 distance at the input, strongest other class.

    Until a margin exceeds r + θ it equals the hinge with γ = r − θ, in the scale-free form or with r − θ = 1: `odn()`
    equals `MarginLoss()` until a margin exceeds 3.

    Use it to rerun the paper, or where distances should lie in a band rather than be as large as possible; otherwise
    `WideMargin` is the better choice.

    The paper's r/θ/μ for CIFAR-10 are 30/0.7/0.1 with batch norm and 1.2/0.7/0.1 without; MNIST's are not given.
    """
    return MarginLoss(penalty=Band(r=r, theta=theta, mu=mu), **settings)


def odn_hinge(*, gamma: float = 1.0, **settings: Any) -> MarginLoss:
    """Odn's hinge baseline, max(0, γ_0 − γ_h) of the same distance (errata 1: printed with the sign reversed)."""
    return MarginLoss(penalty=Hinge(gamma=gamma), **settings)
