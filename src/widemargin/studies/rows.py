"""Rows of measurements: one flat mapping per trial, and one per point of each of its curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
"""`arm`, `seed`, the axes of the condition, and metrics; a point of a curve has the curve's name as `curve`."""

AXES = "axes"
"""The key under which a row lists its axes; not written to result files."""


def flatten(arm: str, seed: int, condition: Mapping[str, Any], measured: Mapping[str, Any]) -> Iterator[Row]:
    """The row of a trial, and after it a row for each of its `"points"`.

    A task puts curves under `"points"`, a list of mappings such as
    `{"curve": "fgsm", "at": {"epsilon": 0.1}, "accuracy": 0.67}`: keys under `at` are selected like a condition.
    """
    base = {"arm": arm, "seed": seed, **condition}
    metrics = {key: value for key, value in measured.items() if key != "points"}
    yield _joined(arm, base, metrics, tuple(condition))
    for point in measured.get("points", ()):
        if "curve" not in point:
            raise ValueError(f"a point of arm {arm!r} has no curve, expected its name: {dict(point)}")
        place = point.get("at", {})
        values = {key: value for key, value in point.items() if key not in ("curve", "at")}
        yield _joined(arm, {**base, "curve": point["curve"], **place}, values, (*condition, "curve", *place))


def select(rows: Iterable[Row], metric: str, arm: str, where: Mapping[str, Any]) -> list[Row]:
    """The rows of `arm` that have the metric and agree with `where`, a key → a value or a tuple of allowed ones.

    Points of curves only where `where` names their curve.
    """
    return [
        row
        for row in rows
        if row["arm"] == arm
        and row.get(metric) is not None
        and ("curve" in where or "curve" not in row)
        and all(key in row and agrees(row[key], value) for key, value in where.items())
    ]


def by_seed(rows: Iterable[Row], metric: str, **where: object) -> list[list[Row]]:
    """The rows that have the metric and these values, one list a seed, in the order of seeds."""
    seeds: dict[int, list[Row]] = {}
    for row in rows:
        if row.get(metric) is not None and all(row.get(key) == value for key, value in where.items()):
            seeds.setdefault(row["seed"], []).append(row)
    return [some for _, some in sorted(seeds.items())]


def agrees(value: Any, wanted: Any) -> bool:
    """Whether a value equals `wanted` up to float rounding, or one of several wanted values."""
    if isinstance(wanted, (tuple, list)):
        return any(agrees(value, one) for one in wanted)
    if isinstance(value, (int, float)) and isinstance(wanted, (int, float)):
        return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-12)
    return bool(value == wanted)


def _joined(arm: str, base: Row, metrics: Mapping[str, Any], axes: tuple[str, ...]) -> Row:
    for key in base.keys() & metrics.keys():
        raise ValueError(f"the rows of arm {arm!r} have a metric {key!r}, which is also an axis of the study")
    return {**base, **metrics, AXES: axes}
