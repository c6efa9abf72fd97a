"""All results of the papers are declared, and every declared study runs at smoke scale."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from widemargin import registry
from widemargin._io.optional import is_installed
from widemargin.losses.protocol import is_capturable
from widemargin.studies import catalog, dead_seeds
from widemargin.studies.expand import first_cells
from widemargin.studies.result import not_run
from widemargin.studies.run import plan_of, run
from widemargin.studies.schema import SCALES
from widemargin.studies.trial import TrialContext

ALL = (*catalog.MODULES, *catalog.OWN)
NEEDS_CUDA = {"W5": "memory"}
"""Words of the claims and figures that have no rows without a GPU."""


def test_every_result_of_the_papers_is_declared() -> None:
    counts = {"E": 18, "O": 8, "S": 5, "F": 9}
    assert list(catalog.MODULES) == [f"{paper}{i}" for paper, count in counts.items() for i in range(1, count + 1)]
    assert [study.id for study in catalog.declared()] == list(catalog.MODULES)


def test_a_run_of_all_takes_each_study_once_and_the_open_ones_first() -> None:
    assert sorted(catalog.BY_VALUE) == sorted(catalog.MODULES)
    for first, then in (("E2", "E5"), ("E15", "E10"), ("E10", "E13"), ("E10", "E11"), ("F4", "F6")):
        assert catalog.BY_VALUE.index(first) < catalog.BY_VALUE.index(then)  # whose networks or trials it has
    assert catalog.BY_VALUE[-1] == "E14"  # its data are not free


def test_our_own_studies_are_a_group_of_their_own() -> None:
    assert [study.id for study in catalog.own()] == [f"W{i}" for i in range(1, 1 + len(catalog.OWN))]
    assert not catalog.OWN.keys() & catalog.MODULES.keys()


@pytest.mark.parametrize("id", ALL)
def test_a_study_says_what_it_is(id: str) -> None:
    study = catalog.study(id)
    assert study.id == id
    assert study.claims
    assert study.source.split(",")[0] in ("elsayed", "odn", "sokolic", "farhang", "widemargin")
    assert (study.source.split(",")[0] == "widemargin") == (id in catalog.OWN)
    minutes = [study.scales[name].minutes for name in SCALES]
    assert minutes == sorted(minutes)
    assert all(study.scales[name].note for name in SCALES)
    assert not_run(study)["counts"] == {"not run": sum(not claim.ours for claim in study.claims)}


@pytest.mark.usefixtures("untyped")  # shapes are checked elsewhere; here that would take most of the time
@pytest.mark.parametrize("id", ALL)
def test_a_study_runs_at_smoke_scale(id: str, tmp_path: Path) -> None:
    if id == "E14" and not is_installed("torchvision"):
        pytest.skip("E14 needs torchvision, which is not installed: Inception v3 is its network")
    study = catalog.study(id)
    found = run(study, "smoke", folder=tmp_path, context=TrialContext(weights=tmp_path / "weights"))
    assert found["complete"]
    assert all(claim["verdict"] != "reproduced" for claim in found["claims"])  # that word alone is for paper scale
    # Trainings of a few steps guess, and are dead to the verdicts: here their rows count.
    rows = dead_seeds.with_axes(found["rows"], found["axes"], found["curves"])
    for claim in study.claims:
        if id in NEEDS_CUDA and NEEDS_CUDA[id] in claim.text:
            continue
        measured = claim.effect.of(rows, claim.factor)
        assert measured is not None, claim
        assert math.isfinite(measured.mean), claim
    for figure in study.figures:
        if id in NEEDS_CUDA and NEEDS_CUDA[id] in figure.y:
            continue
        assert any(figure.y in row and (figure.x in row) for row in found["rows"]), figure


def test_an_id_that_is_none_is_told() -> None:
    with pytest.raises(ValueError, match="id is 'G1'"):
        catalog.study("G1")
    assert catalog.study("e3").id == "E3"


@pytest.mark.parametrize(
    ("id", "steps"), {"E10": 38_016, "E11": 59_136, "E12": 14_400, "O3": 319_500, "O4": 450_000}.items()
)
def test_networks_for_cifar10_are_cuda_graphs_in_bfloat16_within_half_an_hour(id: str, steps: int) -> None:
    """By arithmetic: 13 to 33 ms a step of WRN-28-10, and 1.3 to 3.2 ms of AlexNet, on one H200."""
    plan = plan_of(catalog.study(id), "budget")
    trials = [*plan.searches(), *(trial for case in plan.cases() for trial in plan.final(case, first_cells(plan)))]
    assert sum(trial.settings["steps"] for trial in trials) <= steps
    assert all(trial.settings["precision"] == "bfloat16" for trial in trials)
    assert all(is_capturable(registry.loss(trial.settings["loss"])) for trial in trials)
    assert plan.seeds == 3
