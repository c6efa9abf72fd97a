"""Regularizers of sokolic's experiments as arms (§V and the appendix)."""

from __future__ import annotations

from widemargin.studies.schema import Arm, Search
from widemargin.studies.settings import Settings, sgd

LOSSES: dict[str, Settings] = {"hinge": {"name": "hinge"}, "CCE": {"name": "cross-entropy"}}


def weight_decay(loss: str, *, name: str, penalties: tuple[float, ...]) -> Arm:
    """λ·(23) as the optimizer's weight decay, which is 2λ there; `penalties` are the λ."""
    decays: Search = {"optimizer.weight_decay": tuple(2 * penalty for penalty in penalties)}
    return Arm(name, {"loss": LOSSES[loss], "optimizer": sgd(0.01)}, decays)


def large_margin(loss: str, *, name: str, form: str, penalties: tuple[float, ...]) -> Arm:
    """λ·(26), with the λ before the paper divides them by the batch size; no penalty of the classifier's matrix."""
    regularizers = {
        "jacobian": {"name": "jacobian", "weight": penalties[0], "form": form},
        "classifier": {"name": "classifier", "weight": 0.0},
    }
    settings = {"loss": LOSSES[loss], "optimizer": sgd(0.01), "regularizers": regularizers}
    return Arm(name, settings, {"regularizers.jacobian.weight": penalties})


def ours() -> Arm:
    """The library's default margin loss at the input, l_2 and scale-free, without a regularizer."""
    loss = {"name": "large-margin", "p": 2.0, "gamma": 1.0, "classes": 1}
    search: Search = {"loss.gamma": (1.0, 2.0, 0.5), "optimizer.lr": (0.01, 0.03, 0.003)}
    return Arm("ours l_2 margin", {"loss": loss, "optimizer": sgd(0.01)}, search, ours=True)


DEVIATIONS = (
    "The paper reports the best test accuracy over epochs and settings. Here settings are chosen on 5,000 held-out "
    "images, and the test set is read once, after the last step: ours are lower for that reason alone.",
    "Weight decay is the optimizer's, which takes the biases too.",
    "The penalty of the classifier's matrix, which the paper searches beside both regularizers, is left at 0.",
    "Images are in [0, 1]; the paper does not say how they are scaled.",
)
