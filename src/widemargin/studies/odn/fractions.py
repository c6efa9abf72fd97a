"""What both panels of odn's Fig. 2 claim and show: accuracy over the share of the training set that is used."""

from __future__ import annotations

from collections.abc import Mapping

from widemargin.studies.claims import gap, order
from widemargin.studies.figure import Figure, accuracy
from widemargin.studies.odn import losses
from widemargin.studies.schema import Claim, Condition


def claims(least: Condition, words: str, reported: Mapping[str, float]) -> tuple[Claim, ...]:
    """By how much ODN is above each of the others at the smallest share, and that it is above at every share."""
    return (
        *(
            gap(f"at {words}, ODN minus {other}", losses.ODN, other, points, where=least)
            for other, points in reported.items()
        ),
        *(order(f"ODN above {other} at every fraction", losses.ODN, other) for other in losses.OTHERS),
    )


def figure(panel: str) -> Figure:
    """One panel of Fig. 2."""
    return accuracy(
        "fraction",
        f"Test accuracy over the share of the training set that is used (odn, Fig. {panel})",
        "share of the training set",
        log_x=True,
    )
