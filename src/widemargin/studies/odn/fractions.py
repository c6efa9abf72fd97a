"""What both panels of odn's Fig. 2 claim and show: accuracy over the share of the training set that is used."""

from __future__ import annotations

from collections.abc import Mapping

from widemargin.studies.effects import Gap, Order
from widemargin.studies.figure import Figure
from widemargin.studies.odn import losses
from widemargin.studies.schema import Claim, Condition


def claims(least: Condition, words: str, reported: Mapping[str, float]) -> tuple[Claim, ...]:
    """By how much ODN is above each of the others at the smallest share, and that it is above at every share."""
    return (
        *(
            Claim(
                text=f"at {words}, ODN minus {other}",
                effect=Gap(metric="accuracy", arm=losses.ODN, against=other, where=least),
                reported=gap,
            )
            for other, gap in reported.items()
        ),
        *(
            Claim(
                text=f"ODN above {other} at every fraction",
                effect=Order(metric="accuracy", ordered=(losses.ODN, other)),
                kind="order",
            )
            for other in losses.OTHERS
        ),
    )


def figure(panel: str) -> Figure:
    """One panel of Fig. 2."""
    return Figure(
        x="fraction",
        y="accuracy",
        title=f"Test accuracy over the share of the training set that is used (odn, Fig. {panel})",
        x_title="share of the training set",
        y_title="test accuracy",
        percent=True,
        log_x=True,
    )
