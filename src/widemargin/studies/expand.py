"""Trials of a study at one of its scales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from widemargin.studies import tasks
from widemargin.studies.rows import agrees
from widemargin.studies.schema import Arm, Condition, Scale, ScaleName, Study
from widemargin.studies.settings import Settings, SettingsDict, overlay, plain
from widemargin.studies.trial import FIRST_SEARCH_SEED, Stage, Trial

MEASURE = "measure"


@dataclass(frozen=True, kw_only=True)
class Case:
    """An arm under a condition: the unit for which hyperparameters are chosen and final trials run."""

    arm: Arm
    condition: Condition

    @property
    def name(self) -> str:
        """The name of the case in the table of chosen hyperparameters."""
        at = ", ".join(f"{key} {value}" for key, value in self.condition.items())
        return f"{self.arm.name}{at and f' at {at}'}"


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """A study at one of its scales."""

    study: Study
    name: ScaleName
    seeds: int

    @property
    def scale(self) -> Scale:
        """The scale itself."""
        return self.study.scales[self.name]

    @property
    def final_seeds(self) -> range:
        """The seeds of the final trials."""
        return range(self.scale.first_seed, self.scale.first_seed + self.seeds)

    def cases(self) -> list[Case]:
        """All arms under all conditions that this scale runs, condition by condition."""
        arms = [arm for arm in self.study.arms if self.scale.arms is None or arm.name in self.scale.arms]
        return [
            Case(arm=arm, condition=condition)
            for condition in self.study.conditions
            if _within(condition, self.scale.only)
            for arm in arms
            if _within(condition, arm.only)
        ]

    def cells(self, arm: Arm) -> list[SettingsDict]:
        """The cells that are tried for an arm, the first of them where nothing is searched.

        Settings that the scale fixes are left out, since a cell would overwrite the scale's value.
        """
        own = (*self.scale.settings, *self.scale.of_arms.get(arm.name, {}))
        free = {name: values for name, values in arm.search.items() if not any(_reaches(one, name) for one in own)}
        return replace(arm, search=free).cells(self.scale.cells)

    def searched(self, case: Case) -> Case | None:
        """Where the hyperparameters of `case` are chosen; None where there is nothing to choose."""
        if self.scale.cells == 1 or not case.arm.search:
            return None
        return Case(arm=case.arm, condition={**case.condition, **(self.scale.search_at or {})})

    def search(self, case: Case) -> Iterator[tuple[SettingsDict, list[Trial]]]:
        """The cells of the search at `case`, and the trials of each, whose settings have no `measure`."""
        for cell in self.cells(case.arm):
            settings = self.settings(case, cell)
            settings.pop(MEASURE, None)
            seeds = range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + self.scale.search_seeds)
            yield cell, [self._trial("search", case, settings, seed) for seed in seeds]

    def searches(self) -> list[Trial]:
        """All trials of the search, each once."""
        unique: dict[str, Trial] = {}
        for case in self.cases():
            at = self.searched(case)
            for _, trials in self.search(at) if at is not None else ():
                unique.update((trial.key, trial) for trial in trials)
        return list(unique.values())

    def final(self, case: Case, chosen: Mapping[str, Settings]) -> list[Trial]:
        """The final trials of `case`, given the chosen cell of every case by its name."""
        settings = _resolved(self.settings(case, chosen[case.name]), lambda arm: self._of_arm(arm, case, chosen))
        return [self._trial("final", case, settings, seed) for seed in self.final_seeds]

    def settings(self, case: Case, cell: Settings) -> SettingsDict:
        """The settings of a trial, see `schema`."""
        return overlay(
            self.study.settings,
            case.arm.settings,
            self.scale.settings,
            self.scale.of_arms.get(case.arm.name, {}),
            *(self.study.axes[axis][value] for axis, value in case.condition.items()),
            *(self.scale.of_values.get(axis, {}).get(value, {}) for axis, value in case.condition.items()),
            cell,
        )

    def _of_arm(self, name: str, case: Case, chosen: Mapping[str, Settings]) -> SettingsDict:
        source = Case(arm=self.study.arm(name), condition=case.condition)
        if source.name not in chosen:
            raise ValueError(f"{case.name!r} names the arm {name!r}, which scale {self.name} does not run there")
        settings = self.settings(source, chosen[source.name])
        settings.pop(MEASURE, None)
        return settings

    def _trial(self, stage: Stage, case: Case, settings: SettingsDict, seed: int) -> Trial:
        return Trial(
            task=self.study.task,
            version=tasks.find(self.study.task).VERSION,
            stage=stage,
            settings=settings,
            seed=seed,
            study=self.study.id,
            arm=case.arm.name,
            scale=self.name,
            condition=plain(case.condition),
        )


def first_cells(plan: StudyPlan) -> dict[str, SettingsDict]:
    """The first cell of every case: used without a search, and in estimates before one."""
    return {case.name: plan.cells(case.arm)[0] for case in plan.cases()}


def _reaches(setting: str, name: str) -> bool:
    """Whether `name` is the setting or inside it: "optimizer.lr" is inside "optimizer"."""
    return f"{name}.".startswith(f"{setting}.")


def _within(condition: Condition, only: Mapping[str, Sequence[Any]]) -> bool:
    return all(agrees(condition[axis], tuple(values)) for axis, values in only.items())


def _resolved(value: Any, of_arm: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"arm"}:
            return of_arm(value["arm"])
        return {key: _resolved(inner, of_arm) for key, inner in value.items()}
    return [_resolved(inner, of_arm) for inner in value] if isinstance(value, list) else value
