"""Tables of measured margins and of bounds, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from widemargin.cli.console import number, share, table, text

if TYPE_CHECKING:
    from rich.table import Table

    from widemargin.bounds import Bound
    from widemargin.margins import Distribution, Measurement

__all__ = ["accuracy", "bound_values", "by_class", "by_place", "distances", "hardest", "label_of", "norm", "terms"]

# `report` imports NumPy, which --help can do without.


def label_of(value: int | float, names: Sequence[str]) -> str:
    """The number of a label, and the name of its class where that differs."""
    from widemargin.report.names import class_label

    return class_label(value, names)


def norm(p: float) -> str:
    """The name of a norm: l_2."""
    from widemargin.report.names import norm_label

    return norm_label(p)


OUTPUT_MARGIN = "f_y − max f_i"


def by_place(result: Measurement) -> Table:
    """A row per place: the statistics of the distances there; last the output margin, in units of the scores."""
    from widemargin.margins import Distribution

    rows = [*result.statistics.items(), (OUTPUT_MARGIN, Distribution.of(result.output))]
    made = _statistics(f"{_distance(result)} to the boundary, and the output margin", "place", rows)
    made.rows[-2].end_section = True
    return made


def accuracy(result: Measurement) -> str:
    """The accuracy, and the mean of the accuracies of the classes where that differs."""
    found, balanced = (f"{100 * value:.2f} %" for value in (result.accuracy, result.balanced_accuracy))
    return f"accuracy {found}" + (f" (balanced {balanced})" if balanced != found else "")


def by_class(result: Measurement, place: str, names: Sequence[str]) -> Table:
    """A row per class: the statistics of the distances at `place`."""
    from widemargin import margins

    found = margins.by_class(result.margins[place], result.labels)
    rows = ((label_of(label, names), d) for label, d in found.items())
    return _statistics(f"{_distance(result)} at {place}, class by class", "class", rows)


def hardest(result: Measurement, count: int, names: Sequence[str]) -> Table:
    """The samples of smallest margin at the first place, smallest first, by their positions in the data set.

    Where these are not known, as in a stream, by their rows in margins.parquet.
    """
    place = next(iter(result.margins))
    columns = ("index" if result.knows_positions else "row", "label", "prediction", "margin")
    labels, margins = (result.labels, result.predictions), result.margins[place]
    rows = [
        (result.position(i), *(label_of(column[i].item(), names) for column in labels), number(margins[i].item()))
        for i in result.hardest_rows(count, place).tolist()
    ]
    return table(f"Smallest {_distance(result)} at {place}", *columns, rows=rows, right=columns)


def bound_values(bounds: Mapping[str, Bound]) -> Table:
    """A row per bound: its value, whether it bounds anything, and the assumptions that the data violate."""
    title = "Bounds of the error, each with constant 1 where the paper has an unknown one"
    columns = ("bound", "value", "says", "assumptions that do not hold")
    rows = []
    for name, bound in bounds.items():
        broken = "; ".join(f"{a.text} ({a.found})" for a in bound.broken)
        says = "vacuous" if bound.vacuous else "no bound" if bound.broken else "a bound"
        rows.append((name, number(bound.value), says, broken or "–"))
    return table(title, *columns, rows=rows, right=["value"], no_wrap=columns[:3])


def distances(kinds: Mapping[str, Mapping[str, float]]) -> Table:
    """A row per certificate or estimate of the distance to the boundary; misclassified samples count as 0."""
    columns = ("min", "median", "max", "above 0")
    rows = [(kind, *(number(d[key]) for key in columns[:3]), share(d["above 0"])) for kind, d in kinds.items()]
    title = "Distance of the samples to the boundary (sokolic, Theorem 5)"
    return table(title, "kind", *columns, rows=rows, right=columns, no_wrap=columns)


def terms(bounds: Mapping[str, Bound]) -> Table:
    """A row per term of each bound."""
    made = table("Terms", "bound", "term", "value", right=["value"], no_wrap=["bound", "value"])
    for name, bound in bounds.items():
        for term, value in bound.terms.items():
            made.add_row(text(name), text(term), str(value) if isinstance(value, int) else number(value))
        made.rows[-1].end_section = True
    return made


def _statistics(title: str, what: str, found: Iterable[tuple[str, Distribution]]) -> Table:
    found = list(found)
    without = any(d.invalid for _, d in found)
    columns = ("mean", "std", "mean/std", "min", "median", "negative", *["NaN"] * without)
    rows = [
        (name, *map(number, (d.mean, d.std, d.ratio, d.minimum, d.quantile(0.5))), share(d.share_negative), d.invalid)
        for name, d in found
    ]
    shown = [row[: 1 + len(columns)] for row in rows]
    return table(title, what, *columns, rows=shown, right=columns, no_wrap=columns)


def _distance(result: Measurement) -> str:
    return f"{norm(result.settings['p'])} distance"
