"""Tables of measured margins and of bounds, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from widemargin.cli.console import number, share, table, text

if TYPE_CHECKING:
    from rich.table import Table

    from widemargin.bounds import Bound
    from widemargin.margins import Distribution, Measurement

OUTPUT_MARGIN = "f_y − max f_i"


def by_place(result: Measurement) -> Table:
    """A row per place: the statistics of the distances there; last the output margin, in units of the scores."""
    from widemargin.margins import Distribution

    rows = [*result.statistics.items(), (OUTPUT_MARGIN, Distribution.of(result.output))]
    made = _statistics(f"{_distance(result)} to the boundary, and the output margin", "place", rows)
    made.rows[-2].end_section = True
    return made


def by_class(result: Measurement, place: str, names: Sequence[str]) -> Table:
    """A row per class: the statistics of the distances at `place`."""
    rows = [(label_of(label, names), d) for label, d in result.by_class(place).items()]
    return _statistics(f"{_distance(result)} at {place}, class by class", "class", rows)


def hardest(result: Measurement, count: int, names: Sequence[str]) -> Table:
    """The samples of smallest margin at the first place, smallest first; `index` is the row of margins.parquet."""
    place = next(iter(result.margins))
    columns = ("index", "label", "prediction", "margin")
    made = table(f"Smallest {_distance(result)} at {place}", *columns, right=columns)
    for index in result.hardest(count, place).tolist():
        label, prediction = (label_of(column[index].item(), names) for column in (result.labels, result.predictions))
        made.add_row(str(index), text(label), text(prediction), number(result.margins[place][index].item()))
    return made


def bound_values(rows: Mapping[str, Bound]) -> Table:
    """A row per bound: its value, whether it bounds anything, and the assumptions that the data violate."""
    title = "Bounds of the error, each with constant 1 where the paper has an unknown one"
    columns = ("bound", "value", "says", "assumptions that do not hold")
    made = table(title, *columns, right=["value"], no_wrap=columns[:3])
    for name, bound in rows.items():
        broken = "; ".join(f"{a.text} ({a.found})" for a in bound.broken)
        says = "vacuous" if bound.vacuous else "no bound" if bound.broken else "a bound"
        made.add_row(text(name), number(bound.value), says, text(broken or "–"))
    return made


def distances(rows: Mapping[str, Mapping[str, float]]) -> Table:
    """A row per certificate or estimate of the distance to the boundary; misclassified samples count as 0."""
    columns = ("min", "median", "max", "above 0")
    made = table("Distance of the samples to the boundary (sokolic, Theorem 5)", "kind", *columns, right=columns)
    for kind, values in rows.items():
        *statistics, positive = values.values()
        made.add_row(text(kind), *map(number, statistics), share(positive))
    return made


def terms(rows: Mapping[str, Bound]) -> Table:
    """A row per term of each bound."""
    made = table("Terms", "bound", "term", "value", right=["value"], no_wrap=["bound", "value"])
    for name, bound in rows.items():
        for term, value in bound.terms.items():
            made.add_row(text(name), text(term), str(value) if isinstance(value, int) else number(value))
        made.rows[-1].end_section = True
    return made


def label_of(value: int | float, names: Sequence[str]) -> str:
    """The number of a label, and the name of its class where that differs."""
    if value != int(value) or not 0 <= value < len(names):
        return f"{value:g}"
    index = int(value)
    return str(index) if names[index] == str(index) else f"{index} {names[index]}"


def norm(p: float) -> str:
    """The name of a norm: l_2."""
    return "l_inf" if math.isinf(p) else f"l_{p:g}"


def _statistics(title: str, what: str, rows: Sequence[tuple[str, Distribution]]) -> Table:
    without = any(d.invalid for _, d in rows)
    columns = ("mean", "std", "mean/std", "min", "median", "negative", *["NaN"] * without)
    made = table(title, what, *columns, right=columns, no_wrap=columns)
    for name, d in rows:
        numbers = (d.mean, d.std, d.ratio, d.minimum, d.quantile(0.5))
        made.add_row(text(name), *map(number, numbers), share(d.share_negative), *[str(d.invalid)] * without)
    return made


def _distance(result: Measurement) -> str:
    return f"{norm(result.settings['p'])} distance"
