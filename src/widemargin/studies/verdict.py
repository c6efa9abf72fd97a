"""Verdicts: the names of the outcomes when a paper's number is compared with ours.

With e the measured effect, s its standard error over n living seeds, h = t·s half of its 95 % interval (t is Student's
quantile), r the reported number, d its tolerance, and r₀ the number that would mean "no effect" (0 for a gap, 1 for a
ratio; a bare value has none). A paper's number that is one run has a spread of its own: w is half of the prediction
interval, t·sd·√(1 + 1/n), and h where the paper's number is a mean.

- *not run*: rows are missing.
- *reproduced*: |e − r| ≤ d and s ≤ d, or |e − r| ≤ w and h ≤ d; and e lies on r's side of r₀ by more than h. Where the
  reported effect is itself no larger than d it need not stand out: then e must only not lie on the other side by more
  than h.
- *direction holds*: e is on r's side of r₀ by more than h, but of another size.
- *contradicted*: e is on the other side by more than h, or |e − r| > d + w.
- *inconclusive*: all else, and what a shortened experiment can't show (see `power`). `why` says how many seeds of this
  spread would tell.

An order has no number: it is reproduced where every gap is positive by Holm's procedure; contradicted where one of
them, or their mean, is negative; its direction holds where the mean gap is positive. An order with a slack, "not
below", may be missed by that much. One seed decides nothing, two decide nothing that needs their spread (h and w are
infinite). Dead seeds are left out and counted; where more than half of an arm's died, nothing is decided.

A study is *reproduced* where at least four in five of its claims that ran are and none is contradicted; its *direction
holds* where two in three are reproduced or hold in direction; it is *contradicted* where one in three is; else it is
*inconclusive*. Only paper scale says `reproduced`; the others say at which scale: `reproduced at budget`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from widemargin.studies import intervals
from widemargin.studies.claims import Claim
from widemargin.studies.effects import MeasuredEffect
from widemargin.studies.rows import Row
from widemargin.studies.schema import ScaleName

Word = Literal["reproduced", "direction holds", "inconclusive", "contradicted", "not run"]
STRENGTH: tuple[Word, ...] = ("reproduced", "direction holds", "inconclusive", "contradicted", "not run")
"""From the strongest to the weakest."""

MOST, HOLDS, AGAINST = 0.8, 2 / 3, 1 / 3
"""The shares of claims that make a study reproduced, its direction hold, or the study contradicted."""

MANY_SEEDS = 100
"""Largest number of seeds that a verdict asks for."""

Dead = Mapping[str, tuple[int, int]]
"""Arm → dead seeds and all."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The word without its scale, and a reason in words; `smallest` is the effect that could have been seen.

    `reversed` names the gaps of an order that are negative.
    """

    word: Word
    why: str
    smallest: float | None = None
    reversed: tuple[str, ...] = ()

    def at(self, scale: ScaleName) -> str:
        """The verdict as it is printed."""
        return at_scale(self.word, scale)


def at_scale(word: Word, scale: ScaleName) -> str:
    """A word as it is printed."""
    return f"reproduced at {scale}" if word == "reproduced" and scale != "paper" else word


def judge(claim: Claim, measured: MeasuredEffect | None, dead: Dead | None = None) -> Verdict:
    """The verdict on a claim; `dead` are the dead seeds of its arms, which `measured` leaves out."""
    died = "; ".join(f"{count} of {of} seeds of {arm} died" for arm, (count, of) in (dead or {}).items())
    if dead and any(2 * count > of for count, of in dead.values()):
        return Verdict(word="inconclusive", why=died)
    if measured is None:
        return Verdict(word="not run", why="rows are missing")
    found = _judge(claim, measured)
    why = f"{found.why}; {_needed(claim, measured)}" if found.word == "inconclusive" else found.why
    if found.word == "contradicted" and found.smallest:
        why = f"{why}; an effect of {found.smallest:.2g} would have been seen"
    return replace(found, why=f"{why}; {died}" if died else why)


def overall(verdicts: Sequence[Verdict]) -> Word:
    """One word for a study, by the shares of its claims that ran."""
    ran = Counter(verdict.word for verdict in verdicts if verdict.word != "not run")
    if not ran:
        return "not run"
    hold = ran["reproduced"] + ran["direction holds"]
    if ran["reproduced"] >= MOST * ran.total() and not ran["contradicted"]:
        return "reproduced"
    if hold >= HOLDS * ran.total():
        return "direction holds"
    return "contradicted" if ran["contradicted"] >= AGAINST * ran.total() else "inconclusive"


def weakest(verdicts: Sequence[Verdict]) -> Word:
    """The word of the weakest claim that ran."""
    ran = [verdict.word for verdict in verdicts if verdict.word != "not run"]
    return max(ran, key=STRENGTH.index) if ran else "not run"


def describe(
    claim: Claim, measured: MeasuredEffect | None, verdict: Verdict, scale: ScaleName, dead: Dead | None = None
) -> Row:
    """A claim with the paper's number, ours and the verdict, as plain values."""
    described: Row = {
        "text": claim.text,
        "kind": claim.kind,
        "unit": "points" if claim.factor == 100 else "",
        "reported": claim.reported,
        "tolerance": claim.allowed,
        "side": claim.side,
        "slack": claim.effect.slack,
        "quote": claim.quote,
        "ours": claim.ours,
        "measured": None if measured is None else measured.mean,
        "sd": None if measured is None else measured.sd,
        "se": None if measured is None else measured.error,
        "seeds": 0 if measured is None else measured.seeds,
        "dead": {arm: list(both) for arm, both in (dead or {}).items()},
        "verdict": verdict.at(scale),
        "word": verdict.word,
        "why": verdict.why,
        "smallest": verdict.smallest,
    }
    if measured is not None and measured.parts:
        described["gaps"] = [{"of": name, "mean": part.mean, "se": part.error} for name, part in measured.parts]
    return described


def _judge(claim: Claim, measured: MeasuredEffect) -> Verdict:
    if measured.error is None:
        return Verdict(word="inconclusive", why=f"{_text(measured.mean)}, and one seed has no standard error")
    return _order(claim, measured) if claim.reported is None else _number(claim, measured)


def _number(claim: Claim, measured: MeasuredEffect) -> Verdict:
    assert claim.reported is not None
    assert claim.allowed is not None
    assert measured.sd is not None
    assert measured.error is not None
    reported, tolerance, null = float(claim.reported), float(claim.allowed), claim.effect.null
    half = intervals.half_width(measured.error, measured.seeds)
    width = intervals.prediction(measured.sd, measured.seeds) if claim.one_draw else half
    off = _off(claim, measured.mean - reported)
    rounding = 1e-9 * max(1.0, abs(reported))
    explained = half <= tolerance and tolerance < off <= width
    known = measured.error <= tolerance + rounding or _beyond(claim, measured.mean - reported) >= half
    inside = explained or (known and off <= tolerance + rounding)
    smallest = intervals.smallest_visible(measured.error, measured.seeds)
    bound = _text(reported) if claim.side == "both" else f"{claim.side} {_text(reported)}"
    bound += f" ± {_text(tolerance, 6)}" if tolerance else ""
    why = f"{_text(measured.mean)}{_spread(half)}, {'goal:' if claim.goal else 'reported'} {bound}"
    if explained:
        why += f", which a single run may miss by {width:.2g}"
    if null is None or reported == null:
        word: Word = "reproduced" if inside else "contradicted" if off > tolerance + width else "inconclusive"
        return Verdict(word=word, why=why, smallest=smallest)
    effect = (measured.mean - null) if reported > null else (null - measured.mean)  # positive on the paper's side
    small = abs(reported - null) <= tolerance
    if inside and (effect > half or (small and effect >= -half)):
        return Verdict(word="reproduced", why=why, smallest=smallest)
    if effect > half:
        return Verdict(word="direction holds", why=why, smallest=smallest)
    if effect < -half:
        return Verdict(word="contradicted", why=f"{why}; the sign differs", smallest=smallest)
    word = "contradicted" if off > tolerance + width else "inconclusive"
    return Verdict(word=word, why=f"{why}; it does not stand out from its spread", smallest=smallest)


def _beyond(claim: Claim, difference: float) -> float:
    """How far our number is inside a one-sided bound; −∞ for two sides."""
    return {"both": -math.inf, "at least": difference, "at most": -difference}[claim.side]


def _text(value: float, digits: int = 4) -> str:
    """The first digits, with a minus sign."""
    return f"{value:.{digits}g}".replace("-", "−")


def _spread(half: float) -> str:
    return " of two seeds" if math.isinf(half) else f" ± {_text(half, 2)}"


def _off(claim: Claim, difference: float) -> float:
    """Distance of our number from the reported one, on the side that counts."""
    return (
        abs(difference) if claim.side == "both" else max(0.0, -difference if claim.side == "at least" else difference)
    )


def _order(claim: Claim, measured: MeasuredEffect) -> Verdict:
    slack, gaps = claim.effect.slack, measured.parts
    shown = f", by a slack of {slack:g}" if slack else ""

    def standing(sign: float) -> list[str]:
        p = [intervals.p_above(sign * (gap.mean + slack), gap.error, gap.seeds) for _, gap in gaps]
        return [name for (name, _), rejected in zip(gaps, intervals.holm(p), strict=True) if rejected]

    above, below = standing(1.0), standing(-1.0)
    assert measured.error is not None
    half = intervals.half_width(measured.error, measured.seeds)
    mean, smallest = measured.mean + slack, intervals.smallest_visible(measured.error, measured.seeds)
    why = f"{len(above)} of {len(gaps)} gaps stand out{shown}; mean gap {_text(measured.mean, 3)}{_spread(half)}"
    if below or mean < -half:
        errors = [intervals.smallest_visible(gap.error, gap.seeds) for name, gap in gaps if name in below]
        worst = max((error for error in errors if error is not None), default=smallest)
        why = f"{why}; reversed: {'; '.join(below) or 'the mean'}"
        return Verdict(word="contradicted", why=why, smallest=worst, reversed=tuple(below))
    if len(above) == len(gaps):
        return Verdict(word="reproduced", why=why, smallest=smallest)
    return Verdict(word="direction holds" if mean > half else "inconclusive", why=why, smallest=smallest)


def _needed(claim: Claim, measured: MeasuredEffect) -> str:
    """How many seeds would tell, if their mean and spread were the same."""
    if measured.sd is None:
        return "at least three would tell more"
    for count in range(measured.seeds + 1, MANY_SEEDS + 1):
        parts = tuple((name, replace(gap, seeds=count)) for name, gap in measured.parts)
        if _judge(claim, replace(measured, seeds=count, parts=parts)).word != "inconclusive":
            return f"{count} seeds of this mean and spread would tell"
    return "more seeds of this mean and spread would not tell"
