"""Parts of a study: frozen values, with plain ones (numbers, strings, lists, mappings) inside them.

A study is a table of trials: arms × conditions × seeds. The settings of a trial are one mapping of plain values, merged
in this order, later ones over earlier ones:

    study.settings ← arm.settings ← scale.settings ← scale.of_arms[arm] ← the condition ← scale.of_values ← a cell of
    the arm's search

A key with dots, `"data.flips"`, reaches inside. Mappings are merged key by key, unless both have a `name` and the names
differ: `{"name": "odn", "r": 2}` replaces `{"name": "cross-entropy"}` altogether. The task (`studies.tasks`) defines
what the settings mean, except two things:

- `"measure"` is only for the final stage: it is left out while hyperparameters are searched.
- `{"arm": "cross-entropy"}`, anywhere in the final settings, becomes the settings that were chosen for that arm under
  the same condition and scale (without their `"measure"`): that is how a black-box attack names its source.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeAlias

from widemargin.studies.claims import Claim
from widemargin.studies.settings import Settings, SettingsDict, check_plain

Condition: TypeAlias = Mapping[str, Any]
"""A value for each axis of a study: `{"flips": 0.8}`."""

Search: TypeAlias = Mapping[str, tuple[Any, ...]]
"""Names of settings → the values to try, the usual one first."""

ScaleName = Literal["smoke", "quick", "budget", "paper"]
SCALES: tuple[ScaleName, ...] = ("smoke", "quick", "budget", "paper")
"""From the smallest to the largest."""

FigureKind = Literal["lines", "bars", "scatter"]


@dataclass(frozen=True)
class Arm:
    """One of the methods that are compared.

    Args:
        name: as the figures and claims call it.
        settings: what makes it this arm.
        search: hyperparameters, a setting's name → the values to try: `{"loss.gamma": (1.0, 0.3, 3.0)}`. Put the value
            that you would take without a search first: a scale that affords fewer cells keeps those that differ least
            from the first values. An arm without a search is taken as it is.
        ours: an arm that the paper does not have, labelled as such everywhere.
        only: axis → the values at which this arm runs; by default at all.
    """

    name: str
    settings: Settings = field(default_factory=dict)
    search: Search = field(default_factory=dict)
    _: KW_ONLY
    ours: bool = False
    only: Search = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_plain(f"settings of arm {self.name!r}", self.settings)
        for path, values in self.search.items():
            if not isinstance(values, tuple) or not values:
                raise ValueError(f"search[{path!r}] of arm {self.name!r} is {values!r}, expected a tuple of values")
            check_plain(f"search[{path!r}] of arm {self.name!r}", list(values))

    def cells(self, count: int) -> list[dict[str, Any]]:
        """The first `count` cells of the grid, those that take fewer and shorter steps from the first values first."""
        ranges = [range(len(values)) for values in self.search.values()]
        positions = sorted(itertools.product(*ranges), key=lambda cell: (sum(cell), cell))
        return [{name: self.search[name][i] for name, i in zip(self.search, cell)} for cell in positions[:count]]

    @property
    def grid(self) -> int:
        """How many cells there are in all."""
        return math.prod(len(values) for values in self.search.values())


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of a study is run.

    Args:
        minutes: how long it is meant to take, on what `note` says.
        settings: over those of all arms: steps, widths, data.
        of_arms: arm's name → settings over those of that arm alone.
        of_values: axis → value → settings over those that the value sets: small data in the place of CIFAR-10, say.
        seeds: final trials for each arm and condition.
        first_seed: the first final seed; above 0 where the settings were chosen by looking at the first seeds.
        cells: search cells for every arm that has a search, the same number for each: the same budget. 1: no search,
            the first values are taken. What `settings` or `of_arms` set is not searched: the rate of short trainings.
        search_seeds: trials for each cell; the mean decides.
        search_at: values of axes at which hyperparameters are chosen, for all their values; None: for each by itself.
        only: axis → the values that are run; by default all.
        arms: names of the arms that are run; by default all.
        note: what was cut, in the order in which it was cut, and the hardware that `minutes` speaks of.
    """

    minutes: float | int
    settings: Settings = field(default_factory=dict)
    of_arms: Mapping[str, Settings] = field(default_factory=dict)
    of_values: Mapping[str, Mapping[Any, Settings]] = field(default_factory=dict)
    seeds: int = 3
    first_seed: int = 0
    cells: int = 1
    search_seeds: int = 1
    search_at: Condition | None = None
    only: Search = field(default_factory=dict)
    arms: tuple[str, ...] | None = None
    note: str = ""

    def __post_init__(self) -> None:
        check_plain("settings of a scale", self.settings)
        for name in ("seeds", "cells", "search_seeds"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected an integer >= 1")


Scales: TypeAlias = dict[ScaleName, Scale]


def scales(*note: str, **columns: Sequence[Any]) -> Scales:
    """The four scales as a table: four notes, and every argument of `Scale` as a column of four values.

    They are those of smoke, quick, budget and paper. Missing ones at the end of a column are the defaults of `Scale`.
    """
    columns["note"] = note
    rows = [{key: values[i] for key, values in columns.items() if i < len(values)} for i in range(len(SCALES))]
    return {name: Scale(**row) for name, row in zip(SCALES, rows)}


def effort(*, minutes: Sequence[float | int], seeds: Sequence[int] = (), **counts: Sequence[int]) -> SettingsDict:
    """The columns of `scales` that count: `minutes`, `seeds`, `cells` and `search_seeds`."""
    return {"minutes": minutes, "seeds": seeds, **counts}


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


@dataclass(frozen=True, kw_only=True)
class Study:
    """A figure, table or statement of a paper, to be run again.

    Args:
        id: "E3".
        source: paper and place: "elsayed, Fig. 2 and 12".
        title: a few words.
        question: what is asked, in a sentence or two.
        task: the name of a module of `studies.tasks`.
        settings: what all arms share.
        axes: name → values → the settings of each: `{"flips": axis("data.flips", (0.0, 0.2))}`.
        conditions: combinations of values of the axes, by default all.
        choose_by: the metric of the search rows by which a cell is chosen.
        smallest: choose the smallest one, not the largest.
        classes: of the data; a training whose validation accuracy is that of guessing is a dead seed.
        paper: numbers that the paper prints, as rows (arm, condition, metrics), beside those of the claims: its figure
            is redrawn from them, and the claims must hold on them.
        deviations: where we do not follow the paper's protocol, a sentence each.
        not_free: whether its data can't be downloaded freely; without a result the verdict is "not run: no data".
    """

    id: str
    source: str
    title: str
    question: str
    arms: tuple[Arm, ...]
    claims: tuple[Claim, ...]
    scales: Mapping[ScaleName, Scale]
    task: str = "classify"
    settings: Settings = field(default_factory=dict)
    axes: Mapping[str, Mapping[Any, Settings]] = field(default_factory=dict)
    conditions: Sequence[Condition] = ()
    figures: tuple[Figure, ...] = ()
    deviations: tuple[str, ...] = ()
    choose_by: str = "validation"
    smallest: bool = False
    classes: int = 10
    paper: tuple[Settings, ...] = ()
    not_free: bool = False

    def __post_init__(self) -> None:
        check_plain(f"settings of {self.id}", self.settings)
        if not self.conditions:
            object.__setattr__(self, "conditions", grid(**self.axes))
        names = [arm.name for arm in self.arms]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.id} has two arms of one name: {', '.join(names)}")
        if set(self.scales) != set(SCALES):
            raise ValueError(f"{self.id} has the scales {', '.join(self.scales)}, expected {', '.join(SCALES)}")
        for condition in self.conditions:
            if set(condition) != set(self.axes):
                raise ValueError(f"{self.id} has the condition {dict(condition)}, but the axes {', '.join(self.axes)}")
        for name, scale in self.scales.items():
            self._check_scale(name, scale, names)
        if self.scales["paper"].seeds < 3:
            raise ValueError(f"{self.id} has {self.scales['paper'].seeds} seeds at paper scale, expected at least 3")
        for claim in self.claims:
            for arm in claim.effect.arms:
                if arm not in names:
                    raise ValueError(f"a claim of {self.id} names the arm {arm!r}, expected one of {', '.join(names)}")

    def arm(self, name: str) -> Arm:
        """The arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)

    def _check_scale(self, name: str, scale: Scale, arms: Sequence[str]) -> None:
        for known in (*(scale.arms or ()), *scale.of_arms):
            if known not in arms:
                raise ValueError(f"scale {name} of {self.id} has the arm {known!r}, expected one of {', '.join(arms)}")
        for axis in scale.of_values:
            if axis not in self.axes:
                raise ValueError(f"of_values of scale {name} of {self.id} has {axis!r}, expected {list(self.axes)}")
        for arm in self.arms:
            if arm.search and arm.grid < scale.cells and (scale.arms is None or arm.name in scale.arms):
                raise ValueError(
                    f"scale {name} of {self.id} gives every arm {scale.cells} search cells, but the grid of "
                    f"{arm.name!r} has {arm.grid}: the same budget for all, so take fewer cells or a larger grid"
                )


def named(id: str, source: str, title: str, task: str = "classify") -> SettingsDict:
    """The first arguments of `Study`, in one line of a declaration."""
    return {"id": id, "source": source, "title": title, "task": task}


def axis(setting: str, values: Iterable[Any]) -> dict[Any, Settings]:
    """An axis that sets one setting."""
    return {value: {setting: value} for value in values}


def grid(**axes: Collection[Any]) -> tuple[dict[str, Any], ...]:
    """All combinations of the values of some axes, the last one varying fastest."""
    return tuple(dict(zip(axes, values)) for values in itertools.product(*axes.values()))
