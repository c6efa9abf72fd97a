"""Verdicts: the names of the outcomes when a paper's number is compared with ours.

With e the measured effect, s its standard error, r the reported number and t the tolerance, and with r₀ the number that
would mean "no effect" (0 for a gap, 1 for a ratio; a bare value has none):

- *not run*: rows are missing.
- *reproduced*: |e − r| ≤ t, and e lies on r's side of r₀ by more than 2s. Where the reported effect is itself no
  larger than t it need not stand out: then e must only not lie on the other side by more than 2s. Also where
  |e − r| ≤ 2s and e stands out: a difference from the paper that our own spread explains.
  A bare value may use that only where s ≤ t, else a large spread would explain everything.
- *direction holds*: e is on r's side of r₀ by more than 2s, but of another size.
- *not reproduced*: all else; `why` says whether the sign differs or the effect does not stand out from the spread.

An order has no number: it is reproduced where every gap stands out by more than 2s; its direction holds where the mean
gap does and no single gap contradicts by more than 2s.

One seed has no standard error. Then the sign of e stands for "stands out", `why` says so, and nothing is called
reproduced that is outside the tolerance.

Only paper scale says `reproduced`; the others say at which scale: `reproduced at budget`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from widemargin.studies.claims import Claim
from widemargin.studies.effects import MeasuredEffect
from widemargin.studies.rows import Row
from widemargin.studies.schema import ScaleName

Word = Literal["reproduced", "direction holds", "not reproduced", "not run"]
STRENGTH: tuple[Word, ...] = ("reproduced", "direction holds", "not reproduced", "not run")
"""From the strongest to the weakest."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The word without its scale, and a reason in words."""

    word: Word
    why: str

    def at(self, scale: ScaleName) -> str:
        """The verdict as it is printed."""
        return f"reproduced at {scale}" if self.word == "reproduced" and scale != "paper" else self.word


def judge(claim: Claim, measured: MeasuredEffect | None) -> Verdict:
    """The verdict on a claim."""
    if measured is None:
        return Verdict(word="not run", why="rows are missing")
    verdict = _order(measured) if claim.reported is None else _number(claim, measured)
    if measured.error is None:
        return Verdict(word=verdict.word, why=f"{verdict.why}; one seed, so there is no standard error")
    return verdict


def overall(verdicts: list[Verdict]) -> str:
    """One word for a study: that of the weakest of its claims that ran."""
    ran = [verdict.word for verdict in verdicts if verdict.word != "not run"]
    return max(ran, key=STRENGTH.index) if ran else "not run"


def describe(claim: Claim, measured: MeasuredEffect | None, scale: ScaleName) -> Row:
    """A claim with the paper's number, ours and the verdict, as plain values."""
    verdict = judge(claim, measured)
    described: Row = {
        "text": claim.text,
        "kind": claim.kind,
        "reported": claim.reported,
        "tolerance": claim.allowed,
        "measured": None if measured is None else measured.mean,
        "sd": None if measured is None else measured.sd,
        "se": None if measured is None else measured.error,
        "seeds": 0 if measured is None else measured.seeds,
        "verdict": verdict.at(scale),
        "word": verdict.word,
        "why": verdict.why,
    }
    if measured is not None and measured.parts:
        described["gaps"] = [{"of": name, "mean": part.mean, "se": part.error} for name, part in measured.parts]
    return described


def _number(claim: Claim, measured: MeasuredEffect) -> Verdict:
    assert claim.reported is not None
    assert claim.allowed is not None
    reported, tolerance = float(claim.reported), float(claim.allowed)
    spread = 2 * (measured.error or 0.0)
    off = abs(measured.mean - reported)
    inside = off <= tolerance
    distance = f"{measured.mean:.4g} is {off:.3g} from the reported {reported:g}, tolerance {tolerance:g}"
    null = claim.effect.null
    if null is None and not inside and measured.error is not None and measured.error <= tolerance and off <= spread:
        return Verdict(word="reproduced", why=f"{distance}, but within two standard errors ({spread:.3g})")
    if null is None or reported == null:
        return Verdict(word="reproduced" if inside else "not reproduced", why=distance)
    side = 1.0 if reported > null else -1.0
    effect = side * (measured.mean - null)  # positive on the paper's side
    stands_out = effect > spread
    if inside and (stands_out or (abs(reported - null) <= tolerance and effect >= -spread)):
        return Verdict(word="reproduced", why=distance)
    if stands_out and measured.error is not None and off <= spread:
        return Verdict(word="reproduced", why=f"{distance}, but within two standard errors ({spread:.3g})")
    if stands_out:
        return Verdict(word="direction holds", why=distance)
    why = f"it does not stand out from two standard errors ({spread:.3g})" if effect > 0 else "the sign differs"
    return Verdict(word="not reproduced", why=f"{distance}; {why}")


def _order(measured: MeasuredEffect) -> Verdict:
    gaps = measured.parts
    standing = [name for name, gap in gaps if gap.mean > 2 * (gap.error or 0.0)]
    against = [name for name, gap in gaps if -gap.mean > 2 * (gap.error or 0.0)]
    count = f"{len(standing)} of {len(gaps)} gaps are positive by more than two standard errors"
    if len(standing) == len(gaps):
        return Verdict(word="reproduced", why=count)
    if against:
        return Verdict(word="not reproduced", why=f"{count}; reversed: {'; '.join(against)}")
    if measured.mean > 2 * (measured.error or 0.0):
        return Verdict(word="direction holds", why=f"{count}, none is reversed, and their mean is positive")
    return Verdict(word="not reproduced", why=f"{count}, and their mean does not stand out from its spread")
