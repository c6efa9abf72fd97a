"""What elsayed's studies promise: shared trainings, equal budgets, a budget that a GPU can pay."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from widemargin import registry
from widemargin.losses.protocol import is_capturable, places_of
from widemargin.studies import catalog
from widemargin.studies.elsayed import cifar10
from widemargin.studies.expand import StudyPlan, first_cells
from widemargin.studies.schema import SCALES, ScaleName
from widemargin.studies.settings import digest, overlay
from widemargin.studies.tasks import augmented
from widemargin.studies.trial import Trial, TrialContext

pytestmark = pytest.mark.usefixtures("untyped")
OF_ALL_MNIST = ("E2", "E5", "E6", "E7", "E8", "E9")
TRAINED = [f"E{i}" for i in (*range(1, 14), 15)]


def _plan(id: str, scale: ScaleName) -> StudyPlan:
    study = catalog.study(id)
    return StudyPlan(study=study, name=scale, seeds=study.scales[scale].seeds)


@pytest.mark.parametrize("scale", SCALES)
def test_the_models_of_all_mnist_are_trained_once(scale: ScaleName) -> None:
    """An arm has the same search in all six, and final trainings that differ in what is measured alone."""
    seen: dict[str, set[str]] = {}
    for id in OF_ALL_MNIST:
        plan = _plan(id, scale)
        chosen = first_cells(plan)
        for case in plan.cases():
            finals = plan.final(case, chosen)
            assert all(trial.settings["measure"] and trial.settings["keep"] for trial in finals)
            trainings = [{k: v for k, v in trial.settings.items() if k != "measure"} for trial in finals]
            at = plan.searched(case)
            searches = [] if at is None else [trial.key for _, trials in plan.search(at) for trial in trials]
            seen.setdefault(case.arm.name, set()).add(digest([trainings, searches]))
    assert len(seen) > 4
    assert all(len(forms) == 1 for forms in seen.values())


def test_the_networks_of_cifar10_are_trained_once_at_budget_scale() -> None:
    """E11 without flips has the trials of E10; E13 and E15 its networks, which they attack and watch."""

    def finals(id: str) -> list[Trial]:
        plan = _plan(id, "budget")
        return [trial for case in plan.cases() for trial in plan.final(case, first_cells(plan))]

    all_of_e10 = {trial.key for trial in finals("E10")}
    assert {trial.key for trial in finals("E11") if trial.condition["flips"] == 0} <= all_of_e10
    trainings = {digest([dict(trial.settings), trial.seed]) for trial in finals("E10")}
    for trial in (*finals("E13"), *finals("E15")):
        training = {key: value for key, value in trial.settings.items() if key not in ("measure", "watch")}
        assert digest([training, trial.seed]) in trainings


def _small_trials(**changes: object) -> list[Trial]:
    """The first trial of every arm of E10 at budget scale, with a small network and few images."""
    plan = _plan("E10", "budget")
    found = []
    for case in plan.cases():
        (trial, *_) = plan.final(case, first_cells(plan))
        at = places_of(registry.loss(trial.settings["loss"]))
        places = {} if at is None else {"loss.loss.at": cifar10.PLACES_OF_10}
        small = overlay(trial.settings, cifar10.SMALL, {"data.test": 10}, places, changes)
        found.append(dataclasses.replace(trial, settings=small))
    return found


def test_cifar10_at_budget_scale_is_in_bfloat16_and_may_be_a_cuda_graph() -> None:
    for trial in _small_trials():
        assert trial.settings["precision"] == "bfloat16"
        assert is_capturable(registry.loss(trial.settings["loss"]))
        assert augmented.run(trial, TrialContext())["died"] is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_cifar10_at_budget_scale_is_a_cuda_graph() -> None:
    rows = {trial.arm: augmented.run(trial, TrialContext(device="cuda")) for trial in _small_trials(steps=20)}
    assert {arm: row["CUDA graph"] for arm, row in rows.items()} == dict.fromkeys(rows, "yes")


@pytest.mark.parametrize("id", ["E2", "E3", "E4"])
def test_a_budget_is_at_most_900_000_steps(id: str) -> None:
    plan = _plan(id, "budget")
    finals = [trial for case in plan.cases() for trial in plan.final(case, first_cells(plan))]
    assert sum(trial.settings["steps"] for trial in (*plan.searches(), *finals)) <= 900_000


@pytest.mark.parametrize("id", TRAINED)
def test_every_comparison_has_arms_of_ours_with_the_same_search(id: str) -> None:
    study = catalog.study(id)
    assert any(arm.ours for arm in study.arms)
    assert all(arm.name.startswith(("ours", "WideMargin")) == arm.ours for arm in study.arms)
    searched = {arm.grid for arm in study.arms if arm.search}
    assert searched == {study.scales["paper"].cells}


@pytest.mark.parametrize("id", [f"E{i}" for i in range(1, 19)])
def test_the_paper_scale_is_the_papers(id: str) -> None:
    """Nothing of the small scales is left in it."""
    plan = _plan(id, "paper")
    finals = [trial for case in plan.cases() for trial in plan.final(case, first_cells(plan))]
    for trial in finals:
        settings = trial.settings
        if id in ("E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9"):
            assert settings["data"]["name"] == "mnist"
            assert set(settings["network"]) <= {"name", "dropout"}
        if id in ("E10", "E11", "E12", "E13", "E15"):
            assert settings["network"] == {"name": "wrn-28-10"}
        if "steps" in settings and id not in ("E1", "E17"):
            assert settings["steps"] == 50_000
        margin = settings.get("loss", {})
        margin = margin.get("loss", margin)
        # The released settings have one class; the printed ones have all.
        if margin.get("scores") == "softmax" and id not in ("E14", "E16") and not trial.arm.startswith("released"):
            assert margin["classes"] == "all"
