"""Headline of a page: two or three sentences computed from its numbers."""

from __future__ import annotations

import math

from widemargin.report.names import (
    label_of,
    norm_name,
    number,
    place_name,
    plus_minus,
    sentence,
    share,
    share_plus_minus,
)
from widemargin.report.schema import ArmResult, Result, Seeded
from widemargin.report.statistics import Spread, has_seeds, places, spread, statistics


def headline(result: Result) -> list[str]:
    """The sentences, in which the first arm is the baseline. Empty if nothing can be compared."""
    arms = result["arms"]
    subject = next((arm for arm in arms[1:] if arm["name"] == result.get("subject")), None)
    if subject is not None and has_seeds(arms):
        return _compared(result, subject)
    means = _means(arms)
    best = _best(means) if len(means) > 1 else None  # called "it" after the first sentence
    several = [_margins(means), _accuracy(arms, best), _attacked(result, best)]
    return [sentence(one) for one in ([_single(result)] if len(arms) == 1 else several) if one]


def _compared(result: Result, subject: ArmResult) -> list[str]:
    """The subject against the first arm, with the standard deviations over the seeds."""
    base, subjects, bases = result["arms"][0], subject["seeds"], result["arms"][0]["seeds"]
    name, other = sentence(label_of(subject)), label_of(base)
    found, known = (spread(one["margin"] for one in seeds) for seeds in (subjects, bases))
    numbers = f"{plus_minus(found.mean, found.std)} against {plus_minus(known.mean, known.std)} on average"
    if found.is_beyond(known) and found.mean > known.mean > 0:
        times = f"{found.mean / known.mean:.1f} times as far from the decision boundary as {other}"
        lines = [f"{name} keeps its samples {times}: {numbers}."]
    else:
        lines = [f"{name} keeps its samples not clearly further from the decision boundary than {other}: {numbers}."]
    found, known = (spread(one["accuracy"] for one in seeds) for seeds in (subjects, bases))
    lines.append(f"It is right on {_shares(found, known, other)}.")
    attack = result.get("attack", {})
    epsilon = max(attack.get("shown", []), default=-1.0)
    found, known = (spread(accuracy_at(one, epsilon) for one in seeds) for seeds in (subjects, bases))
    if math.isfinite(found.mean + known.mean):
        under = f"Under {attack.get('name', 'attack')} at ε = {epsilon:g}"
        lines.append(f"{under}, it is right on {_shares(found, known, other)}.")
    return lines


def _shares(found: Spread, known: Spread, other: str) -> str:
    first, second = (share_plus_minus(one.mean, one.std) for one in (found, known))
    return f"{first}, {other} on {second}"


def _single(result: Result) -> str:
    arm = result["arms"][0]
    clauses = []
    if (accuracy := arm.get("accuracy")) is not None:
        samples = f"{arm['samples']:,} samples" if "samples" in arm else "the samples"
        clauses.append(f"{share(accuracy)} of {samples} are classified correctly")
    for place in places([arm])[:1]:
        found = statistics(arm["margins"][place])
        if math.isfinite(found.mean):
            norm = norm_name(result.get("norm", ""))
            clauses.append(
                f"the mean {norm and f'{norm} '}distance to the decision boundary {place_name(place)} is "
                f"{number(found.mean)}"
            )
        if 0.05 in found.quantiles:
            clauses.append(f"one sample in twenty lies below {number(found.quantiles[0.05])}")
    return f"{'; '.join(clauses)}." if clauses else ""


def _means(arms: list[ArmResult]) -> dict[str, float]:
    place = next(iter(places(arms)), "")
    means = {label_of(arm): statistics(arm["margins"][place]).mean for arm in arms if place in arm.get("margins", {})}
    return {label: mean for label, mean in means.items() if math.isfinite(mean)}


def _best(values: dict[str, float]) -> str:
    return max(values, key=lambda label: values[label])


def _margins(means: dict[str, float]) -> str:
    if len(means) < 2:
        return ""
    base, best = next(iter(means)), _best(means)
    top, reference = means[best], means[base]
    if best == base:
        second = max(mean for label, mean in means.items() if label != base)
        return (
            f"No network keeps its samples further from the decision boundary than {base}: {number(top)} on average, "
            f"the next {number(second)}."
        )
    if reference > 0 and top / reference >= 1.05:
        return (
            f"{best} keeps its samples {top / reference:.1f} times as far from the decision boundary as {base}: "
            f"{number(top)} against {number(reference)} on average."
        )
    if reference <= 0:
        return (
            f"{best} keeps its samples furthest from the decision boundary, {number(top)} on average; {base} has them "
            f"at {number(reference)}, on the wrong side."
        )
    return f"No network keeps its samples clearly further from the decision boundary than {base} ({number(reference)})."


def _accuracy(arms: list[ArmResult], subject: str | None) -> str:
    known = {label_of(arm): a for arm in arms if (a := arm.get("accuracy")) is not None}
    if len(known) < 2:
        return ""
    base, best = next(iter(known)), _best(known)
    samples = min(arm.get("samples", 0) for arm in arms)
    # Two standard errors of the difference of two shares of the same number of samples.
    noise = 2 * math.sqrt(2 * known[best] * (1 - known[best]) / samples) if samples else 0.0
    if max(known.values()) - min(known.values()) <= noise:
        return f"All are right about equally often, {share(min(known.values()))} to {share(max(known.values()))}."
    who = "it is also" if best == subject else f"{best} is"
    against = "" if best == base else f" against {share(known[base])} for {base}"
    return f"{who} right most often, {share(known[best])}{against}."


def _attacked(result: Result, subject: str | None) -> str:
    attack = result.get("attack", {})
    epsilon = max(attack.get("shown", []), default=-1.0)
    known = {label_of(arm): a for arm in result["arms"] if (a := accuracy_at(arm, epsilon)) is not None}
    if len(known) < 2:
        return ""
    base, best = next(iter(known)), _best(known)
    under = f"Under {attack.get('name', 'attack')} at ε = {epsilon:g}"
    if best == base:
        return f"{under}, no network is right more often than {base}, {share(known[base])}."
    who = "it" if best == subject else best
    return f"{under}, {who} is still right on {share(known[best])}, {base} on {share(known[base])}."


def accuracy_at(arm: ArmResult | Seeded, epsilon: float | int) -> float | None:
    """The accuracy of the arm's curve at `epsilon`, if it was measured there."""
    found = (float(p["accuracy"]) for p in arm.get("curve", []) if math.isclose(p["epsilon"], epsilon, rel_tol=1e-6))
    return next(found, None)
