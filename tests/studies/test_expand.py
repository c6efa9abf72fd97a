"""Settings of a trial, layer by layer; searches that several studies share."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies import tiny
from widemargin import population, registry
from widemargin.studies import catalog, samples
from widemargin.studies.claims import Claim
from widemargin.studies.effects import Order
from widemargin.studies.run import plan_of
from widemargin.studies.schema import Arm, Scale, axis
from widemargin.studies.settings import digest
from widemargin.studies.tasks import classify
from widemargin.studies.trial import TrialContext


def test_settings_of_a_value_lie_over_the_condition_and_under_the_cell() -> None:
    scale = Scale(minutes=1, cells=2, of_values={"noise": {0.1: {"noise": 0.5, "x": 9.0, "y": 1.0}}})
    plan = plan_of(tiny.study(scale=scale), "budget")
    calm, noisy = [case for case in plan.cases() if case.arm.name == "a"]
    assert plan.settings(calm, {"x": 1.0}) == {"noise": 0.0, "x": 1.0}
    assert plan.settings(noisy, {"x": 1.0}) == {"noise": 0.5, "x": 1.0, "y": 1.0}
    with pytest.raises(ValueError, match=r"of_values.*'nois'"):
        tiny.study(scale=Scale(minutes=1, of_values={"nois": {}}))


@pytest.mark.usefixtures("counting")
def test_what_a_scale_sets_itself_is_not_searched() -> None:
    arm = Arm("a", {"rate": {"lr": 1.0}}, {"rate.lr": (1.0, 2.0), "x": (5.0, 6.0)})
    for scale in (
        Scale(minutes=1, cells=2, of_arms={"a": {"rate.lr": 9.0}}),
        Scale(minutes=1, cells=2, settings={"rate": {"lr": 9.0}}),
    ):
        plan = plan_of(tiny.study(arms=(arm, Arm("b", search={"x": (1.0, 2.0)})), scale=scale), "budget")
        assert plan.cells(arm) == [{"x": 5.0}, {"x": 6.0}]
        case = next(case for case in plan.cases() if case.arm is arm)
        assert [trial.settings["rate"] for _, trials in plan.search(case) for trial in trials] == [{"lr": 9.0}] * 2
    plan = plan_of(tiny.study(arms=(arm, Arm("b")), scale=Scale(minutes=1, settings={"rate.l": 9.0})), "budget")
    assert plan.cells(arm) == [{"rate.lr": 1.0, "x": 5.0}]


def test_a_search_may_share_one_of_two_axes() -> None:
    """Chosen at noise 0.1 for every noise, but for each size by itself."""
    scale = Scale(minutes=1, cells=2, search_at={"noise": 0.1})
    axes = {"noise": axis("noise", (0.0, 0.1)), "size": axis("size", (1, 2))}
    plan = plan_of(tiny.study(scale=scale, axes=axes, conditions=()), "budget")
    searched = [(at.condition, case.condition) for case in plan.cases() if (at := plan.searched(case)) is not None]
    assert len(searched) == 8
    assert all(at == {"noise": 0.1, "size": own["size"]} for at, own in searched)


def test_a_kept_search_is_found_by_another_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = TrialContext(weights=tmp_path)
    first = classify.run(tiny.trial("search", keep=True), context)
    monkeypatch.setattr(population, "fit", lambda *_, **__: pytest.fail("trained again"))
    assert classify.run(tiny.trial("search"), context) == first


def test_studies_of_odn_share_their_networks_at_budget_scale() -> None:
    def trained(id: str) -> set[str]:
        """What decides the weights of every network of that study."""
        plan = plan_of(catalog.study(id), "budget")
        chosen = {case.name: case.arm.cells(1)[0] for case in plan.cases()}
        trials = [*plan.searches(), *(trial for case in plan.cases() for trial in plan.final(case, chosen))]
        unseen = ("measure", "keep")
        return {digest([{k: v for k, v in t.settings.items() if k not in unseen}, t.seed]) for t in trials}

    for id in ("O1", "O5", "O6", "O8"):
        assert trained(id) <= trained("O7"), id
    assert len(trained("O7") & trained("O2")) == 7 * (4 * 3 + 5)  # searches and first cells at 1 %, of seven arms


def test_regularizers_by_name_and_principal_components() -> None:
    named = {"jacobian": {"name": "jacobian", "weight": 0.5}, "classifier": {"name": "classifier", "weight": 0}}
    assert registry.regularizers(named) == registry.regularizers([{"name": "jacobian", "weight": 0.5}])
    parts = samples.prepare({"name": "digits", "validation": 100, "train": 60, "test": 50, "pca": 10}, seed=0)
    assert parts.train.x.shape == (60, 10)
    assert parts.test.x.shape == (50, 10)
    variance = parts.whole.train.x.var(dim=0)
    assert bool((variance.diff() < 1e-4).all())  # the largest first


def test_an_order_of_numbers_that_are_no_shares_is_not_in_points() -> None:
    points, bare = (Order(metric="m", ordered=("a", "b"), share=share) for share in (True, False))
    assert Claim(text="a", effect=points).factor == 100
    assert Claim(text="a", effect=bare).factor == 1
