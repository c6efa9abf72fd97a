"""Verdicts in words: goals of our own studies are met, missed or open, where a paper's claims are reproduced or not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from widemargin.report.names import half_interval
from widemargin.report.schema import Json

MET, MISSED, OPEN, NOT_RUN = "goal met", "goal missed", "open", "not run"


def is_own(source: str) -> bool:
    """Whether a study is one of our own, with goals instead of a paper's numbers, from its source."""
    return source.startswith("widemargin")


def claim_verdict(claim: Mapping[str, Json], *, own: bool) -> str:
    """The verdict on a claim as it is shown."""
    return goal_word(claim) if own else str(claim["verdict"])


def study_verdict(result: Mapping[str, Json]) -> str:
    """The verdict on a study as it is shown: of our own the number of goals that are met."""
    if not is_own(str(result["source"])):
        return str(result["verdict"])
    counts = goal_counts(result)
    ran = counts.total() - counts[NOT_RUN]
    return f"{counts[MET]} of {ran} goals met" if ran else NOT_RUN


def goal_counts(result: Mapping[str, Json]) -> Counter[str]:
    """The number of goals that are met, missed, open and not run."""
    return Counter(goal_word(claim) for claim in result["claims"])


def others_in_words(result: Mapping[str, Json]) -> str:
    """The goals that are not met: "1 missed, 1 open"."""
    counts = goal_counts(result)
    names = {MISSED: "missed", OPEN: OPEN, NOT_RUN: NOT_RUN}
    return ", ".join(f"{counts[word]} {name}" for word, name in names.items() if counts[word])


def goal_word(claim: Mapping[str, Json]) -> str:
    """Whether a goal is met, missed, open or was not run.

    It is met or missed where the measured number is beyond it, or short of it, by more than half of its 95 % interval.
    An effect in the direction of the goal that is short of it may be either missed or open.
    """
    known = {"reproduced": MET, "contradicted": MISSED, "not run": NOT_RUN}.get(claim["word"])
    if known is not None or claim["word"] == "inconclusive" or claim["reported"] is None or claim["se"] is None:
        return known or OPEN
    above = claim["measured"] - claim["reported"]
    short = {"at least": -above, "at most": above}.get(claim.get("side", "both"), abs(above))
    half = half_interval(claim["se"], claim["seeds"])
    return MISSED if math.isfinite(half) and short > half else OPEN
