"""What elsayed's studies promise: shared trainings, equal budgets, a budget that a GPU can pay."""

from __future__ import annotations

import pytest

from widemargin.studies import catalog
from widemargin.studies.expand import Plan, first_cells
from widemargin.studies.schema import SCALES, ScaleName

OF_ALL_MNIST = ("E2", "E5", "E6", "E7", "E8", "E9")
TRAINED = [f"E{i}" for i in (*range(1, 14), 15)]


def _plan(id: str, scale: ScaleName) -> Plan:
    study = catalog.study(id)
    return Plan(study=study, name=scale, seeds=study.scales[scale].seeds)


@pytest.mark.parametrize("scale", SCALES)
def test_the_models_of_all_mnist_are_trained_once(scale: ScaleName) -> None:
    """Searches have the same keys in all six studies, final trainings the same settings but for what is measured."""
    seen = set()
    for id in OF_ALL_MNIST:
        plan = _plan(id, scale)
        shared = [place for place in plan.places() if place.arm.name != "adversarial training"]
        chosen = first_cells(plan)
        finals = [trial for place in shared for trial in plan.final(place, chosen)]
        trainings = tuple(str({k: v for k, v in t.settings.items() if k != "measure"}) for t in finals)
        assert all(trial.settings["measure"] and trial.settings["keep"] for trial in finals)
        seen.add((tuple(trial.key for trial in plan.searches()), trainings))
    assert len(seen) == 1


@pytest.mark.parametrize("id", ["E2", "E3", "E4"])
def test_a_budget_is_at_most_150_000_steps(id: str) -> None:
    plan = _plan(id, "budget")
    finals = [trial for place in plan.places() for trial in plan.final(place, first_cells(plan))]
    assert sum(trial.settings["steps"] for trial in (*plan.searches(), *finals)) <= 150_000


@pytest.mark.parametrize("id", TRAINED)
def test_every_comparison_has_arms_of_ours_with_the_same_search(id: str) -> None:
    study = catalog.study(id)
    assert any(arm.ours for arm in study.arms)
    assert all(arm.name.startswith("ours") == arm.ours for arm in study.arms)
    searched = {arm.grid for arm in study.arms if arm.search}
    assert searched == {study.scales["paper"].cells}


@pytest.mark.parametrize("id", [f"E{i}" for i in range(1, 19)])
def test_the_paper_scale_is_the_papers(id: str) -> None:
    """Nothing of the small scales is left in it."""
    plan = _plan(id, "paper")
    finals = [trial for place in plan.places() for trial in plan.final(place, first_cells(plan))]
    for settings in (trial.settings for trial in finals):
        if id in ("E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9"):
            assert settings["data"]["name"] == "mnist"
            assert set(settings["network"]) <= {"name", "dropout"}
        if id in ("E10", "E11", "E12", "E13", "E15"):
            assert settings["network"] == {"name": "wrn-28-10"}
        if "steps" in settings and id not in ("E1", "E17"):
            assert settings["steps"] == 50_000
        margin = settings.get("loss", {})
        margin = margin.get("loss", margin)
        if margin.get("scores") == "softmax" and id not in ("E14", "E16"):
            assert margin["classes"] == "all"
