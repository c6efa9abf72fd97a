"""How a paper's figure is drawn again from our rows: plain words, which the report reads from the result file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FigureKind = Literal["lines", "bars", "scatter"]


@dataclass(frozen=True, kw_only=True)
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
    kind: FigureKind = "lines"
    x_title: str = ""
    y_title: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    arms: tuple[str, ...] | None = None
    split: str | None = None
    percent: bool = False
    log_x: bool = False
    log_y: bool = False
