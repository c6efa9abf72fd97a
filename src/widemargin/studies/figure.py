"""Figures of studies: which rows are drawn and how, as plain values that the report reads from the result file."""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from widemargin.studies.settings import Settings

FigureKind = Literal["lines", "bars", "scatter"]


@dataclass(frozen=True)
class Figure:
    """One chart: a line (bar, cloud of points) for each arm, the mean over seeds with its standard deviation.

    Args:
        kind: `"lines"` and `"bars"` show mean ± sd over seeds at every x; `"scatter"` shows every row.
        x: an axis of the study, or a key of the rows' points such as `"epsilon"`; for bars also `"arm"`.
        y: a metric.
        title: as a caption: what is seen, and the paper's figure in brackets.
        x_title, y_title: with units; by default the names.
        where: which rows are drawn, as in the claims: `{"curve": "fgsm"}`.
        arms: which arms, in this order; by default all.
        split: another key, whose values get a dash pattern each (a colour is an arm): `"part"`, `"depth"`. In a scatter
            plot a shape each, and a colour of their own where there is but one arm.
        percent: y is a share, shown in percent.
        log_x, log_y: logarithmic axes.
    """

    x: str
    y: str
    title: str
    x_title: str = ""
    y_title: str = ""
    _: KW_ONLY
    kind: FigureKind = "lines"
    where: Settings = field(default_factory=dict)
    arms: tuple[str, ...] | None = None
    split: str | None = None
    percent: bool = False
    log_x: bool = False
    log_y: bool = False


bars = functools.partial(Figure, kind="bars")
scatter = functools.partial(Figure, kind="scatter")


def accuracy(x: str, title: str, x_title: str = "", **options: Any) -> Figure:
    """Test accuracy in percent over `x`."""
    return Figure(x, "accuracy", title, x_title, "test accuracy", percent=True, **options)
