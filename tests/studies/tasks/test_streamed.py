"""Training and attacks on data that need not be in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from widemargin import training
from widemargin.data import Data, Samples
from widemargin.studies import samples
from widemargin.studies.tasks import streamed
from widemargin.studies.trial import Trial, TrialContext

pytestmark = pytest.mark.usefixtures("untyped")
TRAINING: dict[str, Any] = {
    "data": {"name": "synthetic", "shape": [1, 8, 8], "samples": 40},
    "network": {"name": "elsayed-mnist-cnn", "size": 8, "widths": (2, 3), "hidden": (6,)},
    "loss": {"name": "with-auxiliary", "loss": {"name": "augmented", "crop": 1, "loss": {"name": "cross-entropy"}}},
    "optimizer": {"name": "rmsprop", "lr": 0.001},
    "schedule": {"name": "exponential", "factor": 0.94, "every": 0.5},
    "epochs": 2,
    "batch": 20,
}
OTHER = {**TRAINING, "loss": {"name": "large-margin", "classes": 1}}
ATTACKS = [
    {"curve": "white", "attack": "fgsm", "epsilons": [0.0, 0.3]},
    {"curve": "black", "attack": "ifgsm", "epsilons": [0.3], "source": OTHER},
]


class _Pictures(Dataset[Any]):
    """The same samples, one at a time."""

    def __init__(self, part: Samples) -> None:
        self.part = part

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, i: int) -> Any:
        return self.part.x[i], self.part.y[i]


class _Stream(IterableDataset[Any]):
    def __init__(self, part: Samples) -> None:
        self.part = part

    def __iter__(self) -> Any:
        return iter(zip(self.part.x, self.part.y))


def _trial(stage: Any = "final", **changes: Any) -> Trial:
    settings = {**TRAINING, "attacks": ATTACKS, "count": 10, **changes}
    return Trial(
        task="streamed", version=1, stage=stage, settings=settings, seed=0, study="E14", arm="a", scale="smoke"
    )


def test_networks_are_trained_once_and_attacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = TrialContext(weights=tmp_path)
    row = streamed.run(_trial(), context)
    assert row["samples"] == 10
    assert [(p["curve"], p["at"]["epsilon"]) for p in row["points"]] == [("white", 0.0), ("white", 0.3), ("black", 0.3)]
    assert row["points"][0]["accuracy"] == row["accuracy"]
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    monkeypatch.setattr(training, "fit", None)
    assert streamed.run(_trial(), context) == row


@pytest.mark.parametrize("kind", [_Pictures, _Stream])
def test_images_that_are_read_one_at_a_time(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = samples.synthetic((1, 8, 8), 40)
    read = Data("imagenet", kind(whole.train), kind(whole.test), whole.classes, (0.0, 1.0))
    monkeypatch.setattr(streamed, "load_imagenet", lambda root, size: read)
    data = {"name": "imagenet", "size": 8}
    row = streamed.run(_trial(data=data, attacks=ATTACKS[:1], count=6), TrialContext())
    assert row["samples"] == 6
    assert streamed.run(_trial(data=data, attacks=[], count=None), TrialContext())["samples"] == len(whole.test)


def test_some_of_the_test_images_are_of_all_classes() -> None:
    whole = samples.synthetic((1, 8, 8), 2000)
    sorted_ = whole.test.select(whole.test.y.sort(stable=True).indices)
    some = streamed._test(Data("synthetic", whole.train, sorted_, whole.classes, (0.0, 1.0)), 100, 0, 20)
    assert len(torch.unique(some.y)) == 10


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="search"):
        streamed.run(_trial("search"), TrialContext())
    with pytest.raises(ValueError, match="'steps'"):
        streamed.run(_trial(steps=3), TrialContext())
    with pytest.raises(ValueError, match=r"data.*'mnist'"):
        streamed.run(_trial(data={"name": "mnist"}), TrialContext())
