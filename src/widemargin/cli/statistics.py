"""Tables of measured margins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from widemargin.cli.console import number, share, table, text

if TYPE_CHECKING:
    from rich.table import Table

    from widemargin.margins import Distribution, Measurement

OUTPUT_MARGIN = "f_y − max f_i"


def by_place(result: Measurement) -> Table:
    """A row a place: the statistics of the distances there. Last, in units of the scores, the output margin."""
    from widemargin.margins import Distribution

    rows = [*result.statistics.items(), (OUTPUT_MARGIN, Distribution.of(result.output))]
    made = _table(f"{_distance(result)} to the boundary, and the output margin", "place", rows)
    made.rows[-2].end_section = True
    return made


def by_class(result: Measurement, place: str, names: Sequence[str]) -> Table:
    """A row a class: the statistics of the distances at `place`."""
    rows = [(label_of(label, names), d) for label, d in result.by_class(place).items()]
    return _table(f"{_distance(result)} at {place}, class by class", "class", rows)


def hardest(result: Measurement, count: int, names: Sequence[str]) -> Table:
    """The samples of smallest margin at the first place, smallest first; `index` is the row of margins.parquet."""
    place = next(iter(result.margins))
    made = table(f"Smallest {_distance(result)} at {place}")
    for column in ("index", "label", "prediction", "margin"):
        made.add_column(column, justify="right", overflow="fold")
    for index in result.hardest(count, place).tolist():
        label, prediction = (label_of(column[index].item(), names) for column in (result.labels, result.predictions))
        made.add_row(str(index), text(label), text(prediction), number(result.margins[place][index].item()))
    return made


def label_of(value: int | float, names: Sequence[str]) -> str:
    """A label as a reader knows it: its number, and the name of the class where that says more."""
    if value != int(value) or not 0 <= value < len(names):
        return f"{value:g}"
    index = int(value)
    return str(index) if names[index] == str(index) else f"{index} {names[index]}"


def _table(title: str, what: str, rows: Sequence[tuple[str, Distribution]]) -> Table:
    made = table(title)
    made.add_column(what, overflow="fold", min_width=len(what))
    without = any(d.invalid for _, d in rows)
    for column in ("mean", "std", "mean/std", "min", "median", "negative", *["NaN"] * without):
        made.add_column(column, justify="right", no_wrap=True, overflow="fold")
    for name, d in rows:
        numbers = (d.mean, d.std, d.ratio, d.minimum, d.quantile(0.5))
        made.add_row(text(name), *map(number, numbers), share(d.share_negative), *[str(d.invalid)] * without)
    return made


def norm(p: float) -> str:
    """The name of a norm: l_2."""
    return "l_inf" if math.isinf(p) else f"l_{p:g}"


def _distance(result: Measurement) -> str:
    return f"{norm(result.settings['p'])} distance"
