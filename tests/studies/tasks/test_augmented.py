"""Training by `fit` on changed images."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from widemargin import losses, margins, regularizers, training
from widemargin.studies import networks, samples
from widemargin.studies.tasks import augmented
from widemargin.studies.trial import Trial, TrialContext

pytestmark = pytest.mark.usefixtures("untyped")
SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "shape": [1, 8, 8], "samples": 24, "validation": 4, "standardize": True},
    "network": {"name": "elsayed-mnist-cnn", "size": 8, "widths": (2, 3), "hidden": (6,)},
    "loss": {"name": "cross-entropy"},
    "regularizers": [{"name": "jacobian-frobenius", "second_order": "second-point"}],
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "schedule": {"name": "cosine"},
    "epochs": 2,
    "batch": 10,
    "augmentation": {"crop": 1},
    "precision": "bfloat16",
    "channels_last": True,
}


def _trial(stage: Any = "final", **changes: Any) -> Trial:
    settings = {**SETTINGS, **changes}
    return Trial(
        task="augmented", version=1, stage=stage, settings=settings, seed=0, study="W4", arm="a", scale="smoke"
    )


def test_a_row_has_accuracies_and_speed_and_weights_are_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = TrialContext(weights=tmp_path)
    attack = {"kind": "attack", "attack": "pgd", "epsilons": [0.0, 0.1], "p": 2.0, "steps": 1, "relative": True}
    row = augmented.run(_trial(measure=[attack]), context)
    assert row["steps"] == 2 * 2
    assert row["images per second"] > 0
    assert {point["at"]["epsilon"] for point in row["points"]} == {0.0, 0.1}
    assert row["points"][0]["accuracy"] == row["accuracy"]
    monkeypatch.setattr(training, "fit", None)  # not trained again
    again = augmented.run(_trial(measure=[{**attack, "source": SETTINGS}]), context)
    assert again["accuracy"] == row["accuracy"]
    assert again["seconds"] == row["seconds"]


def test_weights_that_no_study_uses_again_are_not_kept(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    row = augmented.run(_trial("search", epochs=1, regularizers=[], keep=False), TrialContext(weights=weights))
    assert not weights.exists()
    other = augmented.run(_trial("search", epochs=1, regularizers=[]), TrialContext(weights=weights))
    assert other["validation"] == row["validation"]
    assert len(list(weights.iterdir())) == 1


def test_images_are_changed_and_the_search_reads_no_test_data(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    fit = training.fit

    def seeing(*given: Any, **options: Any) -> training.Fit:
        seen.append(options)
        return fit(*given, **options)

    monkeypatch.setattr(training, "fit", seeing)
    row = augmented.run(_trial("search", precision="float32", epochs=1), TrialContext())
    assert "accuracy" not in row
    assert 0 <= row["validation"] <= 1
    (options,) = seen
    assert options["loss"].crop == 1
    assert options["devices"].precision is None


def test_loss_and_regularizers_are_added() -> None:
    torch.manual_seed(0)
    model, x, y = torch.nn.Linear(3, 2), torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    penalty = regularizers.JacobianFrobenius(weight=1.0, projections=None)
    both = augmented.Regularized(loss=losses.CrossEntropy(), regularizers=(penalty,))
    expected = losses.CrossEntropy()(model, x, y) + model.weight.square().sum() / 2
    torch.testing.assert_close(both(model, x, y), expected)
    assert both.capturable
    assert not augmented.Regularized(loss=lambda m, x, y: x, regularizers=()).capturable


WATCH = {"at": ["input", "fc1"], "p": 2.0, "scores": "softmax", "classes": 1, "every": 2, "count": 20}
OF_LOSS = {"name": "augmented", "crop": 1, "loss": {"name": "cross-entropy"}}
CHANGED_BY_LOSS: dict[str, Any] = {"loss": OF_LOSS, "augmentation": None, "regularizers": [], "precision": "float32"}


def _in_steps(stage: Any = "final", **changes: Any) -> Trial:
    """20 samples in batches of 8: 3 steps an epoch."""
    trial = _trial(stage, **CHANGED_BY_LOSS, batch=8, **changes)
    settings = {key: value for key, value in trial.settings.items() if key != "epochs"}
    return dataclasses.replace(trial, settings=settings)


def test_steps_are_the_closest_whole_number_of_epochs() -> None:
    for asked, steps in ((1, 3), (7, 6), (8, 9)):
        row = augmented.run(_in_steps("search", steps=asked), TrialContext())
        assert (row["steps"], row["died"]) == (steps, None)


def test_distances_are_watched_and_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = TrialContext(weights=tmp_path)
    row = augmented.run(_in_steps(steps=3, watch=WATCH), context)
    on_the_way = [p["at"] for p in row["points"] if p["curve"] == "distance"]
    assert {at["step"] for at in on_the_way} == {0, 2, 3}
    assert {at["part"] for at in on_the_way} == {"train", "validation", "test"}
    assert len(on_the_way) == 3 * 3 * 2
    ends = {tuple(p["at"].values()): p["mean"] for p in row["points"] if p["curve"] == "end"}
    assert ends == {tuple(p["at"].values())[:2]: p["mean"] for p in row["points"] if p["at"].get("step") == 3}
    alone = augmented.run(_in_steps(steps=3), TrialContext())
    assert (alone["accuracy"], alone["validation"]) == (row["accuracy"], row["validation"])
    monkeypatch.setattr(training, "fit", None)  # neither is trained again
    assert augmented.run(_in_steps(steps=3, watch=WATCH), context) == row
    assert "points" not in augmented.run(_in_steps(steps=3), context)
    monkeypatch.setattr(samples.Parts, "test", property(lambda parts: pytest.fail("test data are read")))
    assert "points" not in augmented.run(_in_steps("search", steps=3, watch=WATCH), context)


def test_the_end_of_a_watch_is_the_trained_network(tmp_path: Path) -> None:
    row = augmented.run(_in_steps(steps=3, watch=WATCH), TrialContext(weights=tmp_path))
    network = networks.load(tmp_path, next(tmp_path.glob("*")).stem, lambda: networks.build(SETTINGS["network"], 0))
    assert network is not None
    parts = samples.prepare(SETTINGS["data"], 0)
    measured = margins.measure(
        network[0], samples.first(parts.test, 20), at=["input"], classes=1, read_as="softmax", progress=False
    )
    end = next(p for p in row["points"] if p["curve"] == "end" and p["at"] == {"place": "input", "part": "test"})
    assert end["mean"] == pytest.approx(measured.statistics["input"].mean, rel=1e-5)


def test_a_training_that_dies_counts_as_guessing() -> None:
    row = augmented.run(_trial(optimizer={"name": "sgd", "lr": 1e30}, precision="float32"), TrialContext())
    assert row["died"]
    assert row["accuracy"] == pytest.approx(0.1)


def test_unknown_settings_are_told() -> None:
    with pytest.raises(ValueError, match="'until'"):
        augmented.run(_trial(until=3), TrialContext())
    with pytest.raises(ValueError, match=r"watch.*'often'"):
        augmented.run(_trial(watch={"often": 1}), TrialContext())
    with pytest.raises(ValueError, match="precision is 'float16'"):
        augmented.run(_trial(precision="float16"), TrialContext())
