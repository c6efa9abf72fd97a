"""From a study and a scale to its trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from widemargin.studies import tasks
from widemargin.studies.rows import agrees
from widemargin.studies.schema import Arm, Condition, Scale, ScaleName, Study
from widemargin.studies.settings import overlay, plain
from widemargin.studies.trial import FIRST_SEARCH_SEED, Stage, Trial

MEASURE = "measure"


@dataclass(frozen=True, kw_only=True)
class Place:
    """An arm under a condition: what has hyperparameters chosen for it, and final trials."""

    arm: Arm
    condition: Condition

    @property
    def name(self) -> str:
        """For a table of what was chosen."""
        at = ", ".join(f"{key} {value}" for key, value in self.condition.items())
        return f"{self.arm.name}{at and f' at {at}'}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study at one of its scales."""

    study: Study
    name: ScaleName
    seeds: int

    @property
    def scale(self) -> Scale:
        """The scale itself."""
        return self.study.scales[self.name]

    def places(self) -> list[Place]:
        """All arms under all conditions that this scale runs, condition by condition."""
        arms = [arm for arm in self.study.arms if self.scale.arms is None or arm.name in self.scale.arms]
        return [
            Place(arm=arm, condition=condition)
            for condition in self.study.conditions
            if _within(condition, self.scale.only)
            for arm in arms
            if _within(condition, arm.only)
        ]

    def searched(self, place: Place) -> Place | None:
        """Where the hyperparameters of `place` are chosen; None where there is nothing to choose."""
        if self.scale.cells == 1 or not place.arm.search:
            return None
        return Place(arm=place.arm, condition={**place.condition, **(self.scale.search_at or {})})

    def search(self, place: Place) -> Iterator[tuple[dict[str, Any], list[Trial]]]:
        """The cells of the search at `place`, and the trials of each, whose settings have no `measure`."""
        for cell in place.arm.cells(self.scale.cells):
            settings = self.settings(place, cell)
            settings.pop(MEASURE, None)
            seeds = range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + self.scale.search_seeds)
            yield cell, [self._trial("search", place, settings, seed) for seed in seeds]

    def searches(self) -> list[Trial]:
        """All trials of the search, each once."""
        found: dict[str, Trial] = {}
        for place in self.places():
            at = self.searched(place)
            for _, trials in self.search(at) if at is not None else ():
                found.update((trial.key, trial) for trial in trials)
        return list(found.values())

    def final(self, place: Place, chosen: Mapping[str, Mapping[str, Any]]) -> list[Trial]:
        """The final trials of `place`, given the chosen cell of every place by its name."""
        settings = _resolved(self.settings(place, chosen[place.name]), lambda arm: self._of_arm(arm, place, chosen))
        return [self._trial("final", place, settings, seed) for seed in range(self.seeds)]

    def settings(self, place: Place, cell: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a trial, see `schema`."""
        return overlay(
            self.study.settings,
            place.arm.settings,
            self.scale.settings,
            self.scale.of_arms.get(place.arm.name, {}),
            *(_set_by(self.study, axis, value) for axis, value in place.condition.items()),
            *(self.scale.of_values.get(axis, {}).get(value, {}) for axis, value in place.condition.items()),
            cell,
        )

    def _of_arm(self, name: str, place: Place, chosen: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        source = Place(arm=self.study.arm(name), condition=place.condition)
        if source.name not in chosen:
            raise ValueError(f"{place.name!r} names the arm {name!r}, which scale {self.name} does not run there")
        settings = self.settings(source, chosen[source.name])
        settings.pop(MEASURE, None)
        return settings

    def _trial(self, stage: Stage, place: Place, settings: dict[str, Any], seed: int) -> Trial:
        return Trial(
            task=self.study.task,
            version=tasks.find(self.study.task).VERSION,
            stage=stage,
            settings=settings,
            seed=seed,
            study=self.study.id,
            arm=place.arm.name,
            scale=self.name,
            condition=plain(place.condition),
        )


def first_cells(plan: Plan) -> dict[str, dict[str, Any]]:
    """The first cell of every place: what is taken without a search, and stands for the chosen one in an estimate."""
    return {place.name: place.arm.cells(1)[0] for place in plan.places()}


def _within(condition: Condition, only: Mapping[str, Sequence[Any]]) -> bool:
    return all(agrees(condition[axis], tuple(values)) for axis, values in only.items())


def _set_by(study: Study, axis: str, value: Any) -> Mapping[str, Any]:
    target = study.axes[axis]
    return {target: value} if isinstance(target, str) else target[value]


def _resolved(value: Any, of_arm: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"arm"}:
            return of_arm(value["arm"])
        return {key: _resolved(inner, of_arm) for key, inner in value.items()}
    return [_resolved(inner, of_arm) for inner in value] if isinstance(value, list) else value
