"""Dead seeds: trainings that ended at chance accuracy. They are counted, and left out of means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from widemargin.studies.rows import AXES, Row, agrees

LEARNT = 0.1
"""A training with (accuracy − chance)/(1 − chance) below this has learnt nothing."""

TrialKey: TypeAlias = tuple[str, int, tuple[tuple[str, object], ...]]
"""Arm, seed and condition."""


def is_dead(row: Row, classes: int) -> bool:
    """Whether the training of a trial died: its row has a `died` message, or ended at chance accuracy.

    Only rows with a `validation` accuracy are compared with chance: elsewhere chance may be the expected result.
    """
    if row.get("died"):
        return True
    validation, chance = row.get("validation"), 1 / classes
    return validation is not None and (validation - chance) / (1 - chance) < LEARNT


def split(rows: Iterable[Row], classes: int, axes: Sequence[str]) -> tuple[list[Row], set[TrialKey]]:
    """The rows of living trials, and the trials that died; `axes` are those of the study's conditions."""
    rows = list(rows)
    dead = {_key(row, axes) for row in rows if "curve" not in row and is_dead(row, classes)}
    return [row for row in rows if _key(row, axes) not in dead], dead


def counts(
    rows: Iterable[Row], dead: set[TrialKey], axes: Sequence[str], arms: Sequence[str], where: Mapping[str, object]
) -> dict[str, tuple[int, int]]:
    """arm → dead trials and all trials, for arms with dead ones, under the conditions that agree with `where`."""
    wanted = {key: value for key, value in where.items() if key in axes}
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        if "curve" in row or (arms and row["arm"] not in arms):
            continue
        if all(key in row and agrees(row[key], value) for key, value in wanted.items()):
            died, of = found.get(row["arm"], (0, 0))
            found[row["arm"]] = (died + (_key(row, axes) in dead), of + 1)
    return {arm: both for arm, both in found.items() if both[0]}


def with_axes(rows: Iterable[Row], axes: Sequence[str], curves: Mapping[str, Sequence[str]]) -> list[Row]:
    """Rows of a result file, with the keys that are axes named again, as `rows.flatten` names them."""
    found = []
    for row in rows:
        of_curve = ("curve", *curves.get(row["curve"], ())) if "curve" in row else ()
        own = tuple(axis for axis in axes if axis in row and axis not in of_curve)
        found.append({**row, AXES: (*own, *of_curve)})
    return found


def _key(row: Row, axes: Sequence[str]) -> TrialKey:
    return row["arm"], row["seed"], tuple((axis, row[axis]) for axis in axes if axis in row)
