"""Contradictions that a shortened experiment can't show, which are inconclusive."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from widemargin.studies.claims import Claim
from widemargin.studies.effects import Value
from widemargin.studies.rows import Row, select
from widemargin.studies.schema import ScaleName
from widemargin.studies.verdict import Verdict

TRAINED = "train accuracy"

LESS = 0.5
"""The part of the other arm's accuracy on training samples below which an arm was trained too short."""


def checked(found: Verdict, claim: Claim, rows: Sequence[Row], scale: ScaleName, axes: Sequence[str]) -> Verdict:
    """`found`, or "inconclusive" where it contradicts the paper and the scale is why it could not do otherwise.

    Below paper scale two things contradict nothing: a bare accuracy, which moves with the length of the training and
    the number of samples; and a comparison in which one arm has learnt less than half of the training samples that the
    other has. `rows` are those of living trials, and `axes` those of the study's conditions.
    """
    if found.word != "contradicted" or scale == "paper":
        return found
    if isinstance(claim.effect, Value) and claim.effect.metric == "accuracy":
        why = f"an accuracy at {scale} scale contradicts nothing by itself, since less training moves it"
        return replace(found, word="inconclusive", why=f"{found.why}; {why}")
    where = {key: value for key, value in getattr(claim.effect, "where", {}).items() if key in axes}
    learnt = _learnt(rows, claim.effect.arms, where)
    if len(learnt) < 2 or min(learnt.values()) >= LESS * max(learnt.values()):
        return found
    least, most = min(learnt, key=learnt.__getitem__), max(learnt, key=learnt.__getitem__)
    why = (
        f"{least} has learnt {learnt[least]:.0%} of its training samples and {most} {learnt[most]:.0%}: "
        f"longer training at {scale} scale would tell"
    )
    return replace(found, word="inconclusive", why=f"{found.why}; {why}")


def _learnt(rows: Sequence[Row], arms: Sequence[str], where: Mapping[str, object]) -> dict[str, float]:
    """arm → its mean accuracy on training samples."""
    of_arms = {arm: [row[TRAINED] for row in select(rows, TRAINED, arm, where)] for arm in arms}
    return {arm: statistics.fmean(values) for arm, values in of_arms.items() if values}
