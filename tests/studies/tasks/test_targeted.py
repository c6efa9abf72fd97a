"""Networks trained to a margin, and averages of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from widemargin.control.accuracy import accuracies
from widemargin.data import Samples
from widemargin.margins import normalized
from widemargin.studies import networks
from widemargin.studies.tasks import ensembles, nngp, targeted, twins
from widemargin.studies.trial import Stage, Trial, TrialContext

SETTINGS: dict[str, Any] = {
    "data": {"name": "digits", "train": 100, "test": 100, "standardize": [0.3, 0.4]},
    "network": {"name": "farhang-mlp", "inputs": 64, "width": 24, "depth": 2},
    "optimizer": {"name": "nero", "lr": 0.01},
    "schedule": {"name": "exponential", "factor": 0.98, "unit": "steps"},
    "alpha": 0.5,
    "steps": 40,
}


def trial(settings: Mapping[str, Any], task: str = "targeted", stage: Stage = "final", seed: int = 0) -> Trial:
    return Trial(task=task, version=1, stage=stage, settings=settings, seed=seed, study="F", arm="a", scale="smoke")


def test_a_row_has_accuracies_and_margins() -> None:
    row = targeted.run(trial({**SETTINGS, "spectral": True}), TrialContext())
    assert row["targeted"] == pytest.approx(0.5, rel=1e-4)  # Nero keeps ‖W_l‖_F = √d_l
    assert 0.0 <= row["accuracy"] <= 1.0
    curve = {point["at"]["quantile"]: point for point in row["points"]}
    assert curve[0.5]["margin"] == pytest.approx(row["margin"], abs=0.05)
    assert curve[0.0]["spectral"] <= row["spectral"] <= curve[1.0]["spectral"]


def test_descent_registers_its_target_by_the_norms_of_its_weights() -> None:
    settings = {**SETTINGS, "optimizer": {"name": "sgd", "lr": 1e-9}}
    row = targeted.run(trial(settings), TrialContext())
    network = networks.build(settings["network"], 0)  # which such a rate does not move
    wanted = 0.5
    for _, weight in normalized.weights(network):
        wanted *= math.sqrt(len(weight)) / float(weight.detach().norm())
    assert row["targeted"] == pytest.approx(wanted, rel=1e-4)


def test_a_search_reads_no_test_data(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def counted(networks: Sequence[nn.Module], part: Samples) -> Tensor:
        seen.append(len(part))
        return accuracies(networks, part)

    monkeypatch.setattr(targeted, "accuracies", counted)
    settings = {**SETTINGS, "data": {**SETTINGS["data"], "test": 37}}
    row = targeted.run(trial(settings, stage="search"), TrialContext())
    assert "accuracy" not in row
    assert 37 not in seen
    assert math.isfinite(row["loss"])


def test_together_or_one_by_one_the_rows_are_the_same() -> None:
    trials = [trial({**SETTINGS, "alpha": alpha}, seed=seed) for alpha in (0.2, 1.0) for seed in (0, 1)]
    assert len({targeted.alike(one) for one in trials}) == 1
    together = {(t.settings["alpha"], t.seed): row for t, row in targeted.many(trials, TrialContext())}
    for one in trials:
        row = targeted.run(one, TrialContext())
        other = together[one.settings["alpha"], one.seed]
        assert other["loss"] == pytest.approx(row["loss"], rel=1e-3)
        assert other["margin"] == pytest.approx(row["margin"], rel=1e-3, abs=1e-5)


def test_a_training_that_dies_says_so_and_is_never_chosen() -> None:
    row = targeted.run(trial({**SETTINGS, "optimizer": {"name": "sgd", "lr": 1e12}}), TrialContext())
    assert row["died"]
    assert row["loss"] == targeted.DIED
    assert row["accuracy"] == pytest.approx(0.1)


def test_ensembles_of_members_and_their_spread() -> None:
    data = {**SETTINGS["data"], "parity": True}
    network = {**SETTINGS["network"], "outputs": 1}
    settings = {**SETTINGS, "data": data, "network": network, "members": 4, "sizes": [1, 2, 4]}
    small, large = (ensembles.run(trial({**settings, "alpha": a}, "ensembles"), TrialContext()) for a in (0.02, 1.0))
    assert [point["at"]["draws"] for point in small["points"]] == [1, 2, 4]
    assert small["spread"] > large["spread"]  # §7.3


def test_the_posterior_gains_by_draws_and_by_margin() -> None:
    data = {**SETTINGS["data"], "parity": True}
    settings = {"data": data, "depth": 3, "margins": [0.01, 0.1, 1.0], "sizes": [1, 16]}
    row = nngp.run(trial(settings, "nngp"), TrialContext())
    at = {(point["at"]["alpha"], point["at"]["draws"]): point["accuracy"] for point in row["points"]}
    assert at[0.01, 1] < at[0.1, 1] < at[1.0, 1]
    assert at[0.01, 1] < at[0.01, 16]


def test_twins_have_the_same_outputs_and_the_whole_task_is_learnt() -> None:
    settings: dict[str, Any] = {
        "data": {**SETTINGS["data"], "train": 3, "pair": [0, 1]},
        "network": {"name": "farhang-mlp", "inputs": 64, "width": 16, "depth": 3, "outputs": 1},
        "pairs": 3,
        "steps": 400,
        "until": 1e-4,
        "lr": 0.01,
        "decay": 0.99,
    }
    row = twins.run(trial(settings, "twins"), TrialContext())
    assert row["reached"] == 1.0
    assert row["worst"] < 0.2
    assert 0 < row["worst loss"] < row["worst"]  # a squared error below 1e-4 over margins of more than a hundredth
    means = {point["at"]["method"]: point["accuracy"] for point in row["points"]}
    assert means["trained"] - means["sampled"] == pytest.approx(row["gap"])
    whole = {**settings, "whole": {"epochs": 3, "batch": 32, "lr": 0.01}}
    assert twins.run(trial(whole, "twins"), TrialContext())["train accuracy"] > 0.9


@pytest.mark.parametrize("task", [targeted, nngp, twins])
def test_an_unknown_setting_is_named(task: Any) -> None:
    with pytest.raises(ValueError, match="'gamma'"):
        task.run(trial({"gamma": 1.0, **SETTINGS}), TrialContext())


def test_matrix_products_are_as_exact_afterwards_as_before() -> None:
    before = torch.get_float32_matmul_precision()
    targeted.run(trial({**SETTINGS, "steps": 1, "matmul": "high"}), TrialContext())
    assert torch.get_float32_matmul_precision() == before
