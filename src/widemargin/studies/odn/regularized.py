"""O4: cross-entropy and ODN with and without batch norm and dropout, on CIFAR-10 and 5 % of it (odn, Table 1)."""

from __future__ import annotations

from typing import Any

from widemargin.studies.claims import gap, value
from widemargin.studies.odn import data
from widemargin.studies.schema import Arm, Claim, Figure, Study, accuracy, effort, named, scales
from widemargin.studies.settings import Settings, overlay, sgd


def _switch(setting: str) -> dict[str, Settings]:
    return {"with": {setting: True}, "without": {setting: False}}


def _band(r: float, **more: Any) -> Settings:
    return {"name": "odn", "r": r, "theta": 0.7, "mu": 0.1, **more}


def _arm(name: str, loss: Settings, rates: tuple[float, ...], **options: Any) -> Arm:
    return Arm(name, {"loss": loss, "optimizer": sgd(rates[0])}, {"optimizer.lr": rates}, **options)


ARMS = (
    _arm("Xent", {"name": "cross-entropy"}, (0.03, 0.01, 0.1)),
    _arm("ODN, r 30", _band(30.0, stabilize=None), (0.003, 0.001, 0.01), only={"batch norm": ("with",)}),
    _arm("ODN, r 1.2", _band(1.2, stabilize=None), (0.003, 0.001, 0.01), only={"batch norm": ("without",)}),
    _arm("ours ODN", _band(1.2, stabilize="scale-free"), (0.03, 0.01, 0.1), ours=True),
)
"""The paper's r, θ and μ: 30/0.7/0.1 with batch norm, 1.2/0.7/0.1 without."""

# batch norm, share of the data, dropout → Xent and ODN, each mean ± sd
_REPORTED: dict[tuple[str, float, str], tuple[tuple[float, float], tuple[float, float]]] = {
    ("with", 1.0, "with"): ((85.782, 0.198), (87.644, 0.151)),
    ("with", 1.0, "without"): ((81.491, 0.143), (86.233, 0.244)),
    ("with", 0.05, "with"): ((61.955, 1.945), (67.636, 1.633)),
    ("with", 0.05, "without"): ((57.753, 2.228), (64.173, 1.982)),
    ("without", 1.0, "with"): ((83.517, 0.322), (84.643, 0.255)),
    ("without", 1.0, "without"): ((72.223, 1.284), (76.793, 1.279)),
    ("without", 0.05, "with"): ((50.747, 3.735), (58.739, 1.348)),
    ("without", 0.05, "without"): ((36.293, 4.872), (47.056, 3.927)),
}


def _claims(key: tuple[str, float, str]) -> tuple[Claim, ...]:
    norm, fraction, dropout = key
    (xent, xent_sd), (odn, odn_sd) = _REPORTED[key]
    arm = "ODN, r 30" if norm == "with" else "ODN, r 1.2"
    where = {"batch norm": norm, "fraction": fraction, "dropout": dropout}
    words = f"{norm} batch norm, {100 * fraction:g} % of the data, {dropout} dropout"
    return (
        gap(f"{words}: ODN minus Xent", arm, "Xent", round(odn - xent, 3), where=where),
        value(f"{words}: Xent", "Xent", xent, where=where, tolerance=max(xent_sd, 1.0)),
        value(f"{words}: ODN", arm, odn, where=where, tolerance=max(odn_sd, 1.0)),
    )


def _figure(norm: str, dropout: str) -> Figure:
    title = f"Test accuracy {norm} batch norm and {dropout} dropout (odn, Table 1)"
    where = {"batch norm": norm, "dropout": dropout}
    return accuracy("fraction", title, "share of the training set", where=where, kind="bars")


O4 = Study(
    **named("O4", "odn, Table 1", "Together with batch norm and dropout"),
    question="Does ODN beat cross-entropy with and without batch norm and dropout, and with little data?",
    arms=ARMS,
    settings=data.CIFAR10,
    axes={
        "batch norm": _switch("network.batch_norm"),
        "fraction": {1.0: {"data.train": None}, 0.05: {"data.train": 2250}},
        "dropout": _switch("network.dropout"),
    },
    claims=tuple(claim for key in _REPORTED for claim in _claims(key)),
    figures=tuple(_figure(norm, dropout) for norm in ("with", "without") for dropout in ("with", "without")),
    scales=scales(
        "synthetic images, a small network, 2 steps, no search",
        "synthetic images of CIFAR-10's shape, since there are none in any package: nothing is learnt of the "
        "claims; two cores",
        "steps cut from 40,000 to 5,000, then the search: the first values are taken; one GPU",
        "with a search of the learning rate for all; one GPU",
        **effort(minutes=(0.1, 15, 90, 3000), seeds=(1, 2, 3, 5), cells=(1, 1, 1, 3)),
        settings=(overlay(data.SMOKE_CIFAR10, {"steps": 2}), data.QUICK_CIFAR10, {"steps": 5000}),
        of_values=({"fraction": {0.05: {"data.train": 40}}}, {"fraction": {0.05: {"data.train": 100}}}),
    ),
    deviations=(
        "The learning rate is searched for every arm; the paper takes PyTorch's usual one and does not say which.",
        "How AlexNet was adapted to 32 × 32 pixels is not described; the images are not augmented.",
        "In training, margins are taken through the statistics of the batch; the paper does not say.",
        "Our arm has r = 1.2 with and without batch norm.",
    ),
)
