"""Downgrades of verdicts at reduced scale to inconclusive, where training was too short to tell."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from widemargin.studies.claims import Claim
from widemargin.studies.effects import Compared, MeasuredEffect, Value
from widemargin.studies.rows import Row, select
from widemargin.studies.schema import ScaleName
from widemargin.studies.verdict import Verdict

TRAINED = "train accuracy"

LESS = 0.5
"""An arm whose training accuracy is below this share of another arm's was trained too short to be compared with it."""


def checked(
    found: Verdict,
    claim: Claim,
    measured: MeasuredEffect | None,
    rows: Sequence[Row],
    scale: ScaleName,
    axes: Sequence[str],
) -> Verdict:
    """`found`, or "inconclusive" where training at a reduced scale was too short to tell.

    Below paper scale a bare accuracy contradicts nothing, since it changes with the length of the training and the
    number of samples. A comparison in which one arm has learnt less than half of the training samples that the other
    has decides nothing, neither for the paper nor against it. An order is judged by its gaps: it is contradicted if a
    negative gap is between arms that both have learnt, and holds if all of its gaps are. Claims about training accuracy
    itself are exempt. `rows` are those of living trials, and `axes` those of the study's conditions.
    """
    if scale == "paper" or measured is None or found.word in ("inconclusive", "not run"):
        return found
    metric = getattr(claim.effect, "metric", None)
    if isinstance(claim.effect, Value):
        why = f"an accuracy at {scale} scale contradicts nothing by itself, since less training moves it"
        is_moved = found.word == "contradicted" and metric == "accuracy"
        return replace(found, word="inconclusive", why=f"{found.why}; {why}") if is_moved else found
    if metric == TRAINED:
        return found
    gaps = [part.compared for name, part in measured.parts if not found.reversed or name in found.reversed]
    reasons = [_unequal(rows, compared, axes) for compared in gaps or [measured.compared]]
    said = list(dict.fromkeys(reason for reason in reasons if reason))
    if not said or (found.reversed and not all(reasons)):
        return found
    why = f"{'; '.join(said)}: longer training at {scale} scale would tell"
    return replace(found, word="inconclusive", why=f"{found.why}; {why}")


def _unequal(rows: Sequence[Row], compared: Compared, axes: Sequence[str]) -> str:
    """What the arms have learnt, if one has learnt too little to be compared with the other; else empty."""
    learnt = [(arm, share) for arm, where in compared if (share := _learnt(rows, arm, where, axes)) is not None]
    if len(learnt) < 2:
        return ""
    (least, low), (most, high) = (pick(learnt, key=lambda one: one[1]) for pick in (min, max))
    return "" if low >= LESS * high else f"{least} has learnt {low:.0%} of its training samples and {most} {high:.0%}"


def _learnt(rows: Sequence[Row], arm: str, where: Mapping[str, object], axes: Sequence[str]) -> float | None:
    """Mean training accuracy of an arm; None where no row tells.

    Flipped labels do not tell: a network that is robust to them does not learn them.
    """
    wanted = {key: value for key, value in where.items() if key in axes}
    values = [row[TRAINED] for row in select(rows, TRAINED, arm, wanted) if not row.get("flips")]
    return statistics.fmean(values) if values else None
