"""Tables of a page as text: the overview, and one for each chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from widemargin.report import figures
from widemargin.report.headline import accuracy_at
from widemargin.report.names import label_of, norm_name, number, place_name, plus_minus, share, share_plus_minus
from widemargin.report.schema import Json, Result
from widemargin.report.statistics import QUANTILES, Spread, has_seeds, places, spread, statistics


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Text of a cell, and whether it is the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """Heads, and rows of a label and cells."""

    heads: list[str]
    rows: list[tuple[str, list[Cell]]]


NONE = TextTable(heads=[], rows=[])
"""No table."""


def text_table(heads: list[str], rows: Iterable[tuple[str, list[str]]]) -> TextTable:
    """A table in which no cell is marked."""
    return TextTable(heads=heads, rows=[(label, [Cell(text=text) for text in texts]) for label, texts in rows])


def evenly(values: Sequence[Json], count: int) -> Sequence[Json]:
    """At most `count` of the values, evenly spaced, with the first and the last."""
    few = len(values) <= count
    return values if few else [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


def overview(result: Result) -> TextTable:
    """Accuracy, margins and accuracy under attack, a row per arm; the best of each column is marked."""
    arms = result["arms"]
    if has_seeds(arms):
        return _of_seeds(result)
    columns: list[tuple[str, list[float], bool]] = [("accuracy", [_or_nan(arm.get("accuracy")) for arm in arms], True)]
    for place in places(arms)[:1]:
        found = [statistics(arm.get("margins", {}).get(place, [])) for arm in arms]
        columns += [
            ("mean margin", [s.mean for s in found], True),
            ("mean/std", [s.ratio for s in found], True),
            ("negative", [s.share_negative for s in found], False),
        ]
    attack = result.get("attack", {})
    for epsilon in attack.get("shown", []):
        head = f"{attack.get('name', 'attack')}, ε = {epsilon:g}"
        columns.append((head, [_or_nan(accuracy_at(arm, epsilon)) for arm in arms], True))
    columns = [column for column in columns if not all(map(math.isnan, column[1]))]
    cells = [_column(head, values, most) for head, values, most in columns]
    rows = [(label_of(arm), [column[i] for column in cells]) for i, arm in enumerate(arms)]
    return TextTable(heads=[head for head, _, _ in columns], rows=rows)


def _of_seeds(result: Result) -> TextTable:
    """The overview as means ± standard deviations over the seeds."""
    seeds = [arm["seeds"] for arm in result["arms"]]
    attack = result.get("attack", {})
    columns = {
        "accuracy": [spread(one["accuracy"] for one in each) for each in seeds],
        "mean margin": [spread(one["margin"] for one in each) for each in seeds],
    }
    for epsilon in attack.get("shown", []):
        head = f"{attack.get('name', 'attack')}, ε = {epsilon:g}"
        columns[head] = [spread(accuracy_at(one, epsilon) for one in each) for each in seeds]
    cells = [_spreads(plus_minus if head == "mean margin" else share_plus_minus, of) for head, of in columns.items()]
    rows = [(label_of(arm), [column[i] for column in cells]) for i, arm in enumerate(result["arms"])]
    return TextTable(heads=list(columns), rows=rows)


def notes(result: Result) -> list[str]:
    """Notes below the overview: the definition of the margin, standard errors, marks."""
    arms = result["arms"]
    lines = []
    for place in places(arms)[:1]:
        norm = norm_name(result.get("norm", ""))
        lines.append(
            f"A margin is the linearised{norm and f' {norm}'} distance to the decision boundary "
            f"{place_name(place)}, negative where the answer is wrong; the mean is over all samples."
        )
    if has_seeds(arms):
        count = min(len(arm["seeds"]) for arm in arms)
        lines.append(
            f"Values are means ± standard deviations over {count} seeds. The best of each column is marked, and those "
            "within its ±."
        )
        return lines
    samples = min((arm.get("samples", 0) for arm in arms), default=0)
    known = [a for arm in arms if (a := arm.get("accuracy")) is not None]
    if samples and known:
        error = math.sqrt(max(a * (1 - a) for a in known) / samples)
        lines.append(f"The standard error of an accuracy on {samples:,} samples is at most {100 * error:.1f} points.")
    if len(arms) > 1:
        lines.append("The best of each column is marked; each row is one network, trained once.")
    return lines


def of_margins(result: Result, place: str) -> TextTable:
    """The statistics and quantiles behind a chart of margins."""
    heads = ["samples", "without a margin", "mean", "std", "mean/std", "negative"]
    heads += [f"{100 * q:g} % below" for q in QUANTILES]
    rows = []
    for arm in result["arms"]:
        if place in arm.get("margins", {}):
            s = statistics(arm["margins"][place])
            texts = [f"{s.count:,}", f"{s.invalid:,}", number(s.mean), number(s.std), number(s.ratio)]
            texts += [share(s.share_negative), *(number(s.quantiles.get(q)) for q in QUANTILES)]
            rows.append((label_of(arm), texts))
    return text_table(heads, rows)


def of_attack(result: Result) -> TextTable:
    """Accuracy at each ε."""
    return _accuracies(result, "curve", "epsilon", "ε = {:g}")


def of_sizes(result: Result) -> TextTable:
    """Accuracy at each number of training samples."""
    return _accuracies(result, "sizes", "samples", "{:,} samples")


def of_training(result: Result, quantity: figures.Quantity, place: str) -> TextTable:
    """The quantity at about ten of the epochs, a row per arm and kind of samples."""
    values = {
        (row["arm"], row["samples"], row["epoch"]): row["value"]
        for row in figures.training_rows(result, quantity, place)
    }
    shown = evenly(sorted({epoch for _, _, epoch in values}), 10)
    written = share if quantity == "accuracy" else number
    rows = [
        (f"{arm}, {samples}", [written(values.get((arm, samples, epoch))) for epoch in shown])
        for arm, samples in dict.fromkeys((arm, samples) for arm, samples, _ in values)
    ]
    return text_table([f"epoch {epoch:g}" for epoch in shown], rows)


def _accuracies(result: Result, entry: Literal["curve", "sizes"], key: str, head: str) -> TextTable:
    points: list[tuple[str, Json]] = [(label_of(arm), arm[entry]) for arm in result["arms"] if arm.get(entry)]
    found = {label: {point[key]: point["accuracy"] for point in rows} for label, rows in points}
    at = sorted({x for values in found.values() for x in values})
    rows = ((label, [share(values.get(x)) for x in at]) for label, values in found.items())
    return text_table([head.format(x) for x in at], rows)


def _column(head: str, values: list[float], most: bool) -> list[Cell]:
    texts = [(number if head in ("mean margin", "mean/std") else share)(value) for value in values]
    top = (max if most else min)(value for value in values if not math.isnan(value))
    # Values that are equal as shown are all marked.
    best = {text for text, value in zip(texts, values, strict=True) if value == top}
    marked = len(values) > 1 and len(set(texts)) > 1
    return [Cell(text=text, best=marked and text in best) for text in texts]


def _spreads(written: Callable[[float, float], str], values: list[Spread]) -> list[Cell]:
    top = max(values, key=lambda value: -math.inf if math.isnan(value.mean) else value.mean)
    marks = [top.mean - value.mean <= top.std for value in values]  # False for NaN
    marked = len(values) > 1 and not all(marks)
    return [
        Cell(text=written(value.mean, value.std), best=marked and mark)
        for value, mark in zip(values, marks, strict=True)
    ]


def _or_nan(value: float | int | None) -> float:
    return math.nan if value is None else float(value)
