"""Classifiers as trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from studies import tiny
from widemargin import data, population
from widemargin.studies import samples
from widemargin.studies.tasks import classify
from widemargin.studies.trial import TrialContext

# Shapes are checked in the tests of the losses and networks; here that would take most of the time.
pytestmark = pytest.mark.usefixtures("untyped")
MARGIN = {"name": "large-margin", "gamma": 1.0, "p": 2.0, "classes": 1}


def test_the_search_never_reads_the_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(parts: samples.Parts) -> None:
        raise AssertionError("test data are read")

    monkeypatch.setattr(samples.Parts, "test", property(read))
    row = classify.run(tiny.trial("search"), TrialContext())
    assert 0 <= row["validation"] <= 1
    assert "accuracy" not in row
    with pytest.raises(AssertionError, match="test data are read"):
        classify.run(tiny.trial("final"), TrialContext())


def test_a_row_has_plain_values_and_is_the_same_twice() -> None:
    row = classify.run(tiny.trial(), TrialContext())
    assert row == classify.run(tiny.trial(), TrialContext())
    assert set(row) == {"loss", "steps", "died", "validation", "train accuracy", "accuracy"}
    assert (row["steps"], row["died"]) == (3, None)
    assert row != classify.run(tiny.trial(seed=1), TrialContext())


def test_a_network_that_dies_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = tiny.trial(optimizer={"lr": 1e300}, steps=5)
    row = classify.run(trial, TrialContext())
    assert "are not finite" in row["died"]
    assert row["validation"] == row["accuracy"] == 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"loss": MARGIN},
        {"loss": {**MARGIN, "scores": "softmax", "gamma": 200.0, "cross_entropy": 1.0, "stabilize": None}},
        {"loss": {"name": "hinge", "cross_entropy": 0.01}},
        {"network": {"dropout": 0.5}},
        {"optimizer": {"name": "rmsprop", "lr": 0.001}},
        {"regularizers": [{"name": "jacobian", "weight": 0.1}, {"name": "weight-decay", "weight": 0.01}]},
        {"schedule": {"name": "steps", "at": [0.5], "factors": [0.1]}, "batch": None},
    ],
)
def test_one_by_one_and_together_give_the_same_rows(changes: dict[str, Any]) -> None:
    trials = [tiny.trial(seed=seed, **changes) for seed in (0, 1, 2)]
    trials.append(tiny.trial(**{**changes, "data.flips": 0.3}))
    assert len({classify.alike(trial) for trial in trials}) == 1
    together = dict(classify.many(trials, TrialContext()))
    for trial in trials:
        alone = classify.run(trial, TrialContext())
        assert together[trial]["loss"] == pytest.approx(alone.pop("loss"), rel=1e-7)
        assert {k: v for k, v in together[trial].items() if k != "loss"} == alone


def test_one_that_dies_does_not_take_the_others_along() -> None:
    trials = [tiny.trial(), tiny.trial(seed=1, optimizer={"lr": 1e300}), tiny.trial(seed=2)]
    found = dict(classify.many(trials, TrialContext()))
    assert [row["died"] is None for row in (found[trial] for trial in trials)] == [True, False, True]
    assert found[trials[2]] == classify.run(trials[2], TrialContext())


def test_curves_noise_and_margins(tmp_path: Path) -> None:
    asked = [
        {"kind": "attack", "attack": "fgsm", "epsilons": [0.0, 0.1], "count": 50},
        {"kind": "attack", "attack": "ifgsm", "epsilons": [0.1], "curve": "own steps", "step": 0.05, "steps": 2},
        {"kind": "noise", "sigmas": [0.0, 0.3]},
        {"kind": "margins", "p": "inf", "at": ["input", "fc1"]},
    ]
    row = classify.run(tiny.trial(measure=asked), TrialContext(weights=tmp_path))
    points = row["points"]
    assert [(p["curve"], *p["at"].values()) for p in points] == [
        ("fgsm", 0.0),
        ("fgsm", 0.1),
        ("own steps", 0.1),
        ("noise", 0.0),
        ("noise", 0.3),
        ("margins", "input"),
        ("margins", "fc1"),
    ]
    assert points[3]["accuracy"] == row["accuracy"]
    assert points[0]["accuracy"] >= points[1]["accuracy"]
    assert points[5]["mean/sd"] == pytest.approx(points[5]["mean"] / points[5]["sd"])
    assert 0 < points[5]["negative"] < 1


def test_trained_networks_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = dict(tiny.trial(loss=MARGIN).settings)
    asked = [{"kind": "attack", "attack": "fgsm", "epsilons": [0.1], "source": other}]
    context = TrialContext(weights=tmp_path)
    row = classify.run(tiny.trial(measure=asked), context)
    kept = list(tmp_path.glob("*.safetensors"))
    assert len(kept) == 2
    changed = bytearray(kept[0].read_bytes())
    changed[-1] ^= 64
    kept[0].write_bytes(changed)
    assert classify.run(tiny.trial(measure=asked), context) == row  # trained again, since the file is damaged
    monkeypatch.setattr(population, "fit", None)
    assert classify.run(tiny.trial(measure=asked), context) == row
    assert classify.run(tiny.trial(), context)["accuracy"] == row["accuracy"]  # what is measured changes no network


def test_all_arms_of_a_seed_see_the_same_samples() -> None:
    given = {"name": "digits", "validation": 300, "train": 50}
    plain, flipped = samples.prepare(given, 0), samples.prepare({**given, "flips": 0.2}, 0)
    assert flipped.train.x is plain.train.x
    assert int((flipped.train.y != plain.train.y).sum()) == 10
    assert len(plain.validation) == 300
    more = samples.prepare({**given, "train": 60}, 0)
    assert bool((more.train.x[:50] == plain.train.x).all())
    assert not bool((samples.prepare(given, 1).train.x == plain.train.x).all())
    whole = samples.prepare({"name": "digits", "validation": 300}, 0)
    assert len(whole.train) == len(data.load("digits").train) - 300
    noisy = samples.prepare({**given, "flips": 0.5, "flip_validation": True}, 0)
    assert int((noisy.validation.y != plain.validation.y).sum()) == 150


def test_synthetic_images_can_be_learnt() -> None:
    parts = samples.prepare({"name": "synthetic", "shape": [3, 8, 8], "samples": 200, "validation": 50}, 0)
    assert parts.train.x.shape == (150, 3, 8, 8)
    assert 0 <= float(parts.train.x.min()) < float(parts.train.x.max()) <= 1
    row = classify.run(
        tiny.trial(
            data={"name": "synthetic", "shape": [1, 8, 8], "samples": 200, "validation": 50, "train": None},
            network={"widths": (8, 8), "hidden": (32,)},
            optimizer={"name": "adam", "lr": 0.003},
            steps=80,
            dtype="float32",
        ),
        TrialContext(),
    )
    assert row["accuracy"] > 0.5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 3}, "'epochs'"),
        ({"data": {"flip": 0.1}}, "'flip'"),
        ({"loss": {"name": "cross-entropie"}}, "loss.*'cross-entropie'"),
        ({"loss": {"name": "hinge", "margin": 1.0}}, "'hinge'.*'margin'"),
        ({"schedule": {"name": "cosine", "unit": "epochs"}}, "unit.*'epochs'"),
        ({"measure": [{"kind": "speed"}]}, "kind.*'speed'"),
    ],
)
def test_what_a_study_may_get_wrong(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        classify.run(tiny.trial(**changes), TrialContext())
