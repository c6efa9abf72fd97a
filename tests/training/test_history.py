"""The rows of a history are what `wm.measure` and the loss say of the network at that moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import widemargin as wm
from training.cases import CPU, network, samples
from widemargin import losses, regularizers
from widemargin.training import SGD, Exponential, Fit, History, Measure

VALIDATION = samples(25, seed=8)


def run(data: Any = None, **settings: Any) -> Fit:
    given: dict[str, Any] = {
        "loss": losses.large_margin(gamma=2.0, at=("input", "1"), p=1.0),
        "epochs": 3,
        "batch_size": 20,
        "optimizer": SGD(lr=0.1),
        "validation": VALIDATION,
        "devices": CPU,
    }
    return wm.fit(network(dropout=0.2), samples() if data is None else data, **(given | settings))


def test_the_last_rows_are_what_measure_says() -> None:
    result = run()
    for split, data in (("train", samples()), ("validation", VALIDATION)):
        measured = wm.measure(result.model, data, at=("input", "1"), p=1.0)
        row = result.history.last(split)
        assert row["accuracy"] == measured.accuracy
        for place in ("input", "1"):
            assert row[f"distance at {place}"] == pytest.approx(measured.statistics[place].mean, rel=1e-12)
    loss = losses.large_margin(gamma=2.0, at=("input", "1"), p=1.0)
    result.model.eval()
    parts = zip(VALIDATION.x.split(20), VALIDATION.y.split(20))
    values = torch.cat([loss(result.model, x, y) for x, y in parts])
    assert result.history.last("validation")["loss"] == pytest.approx(values.mean().item(), rel=1e-12)


def test_rows_stand_at_the_start_the_end_and_every_so_many_epochs() -> None:
    rows = run(epochs=5, callbacks=[Measure(every=2)]).history.rows
    assert [(row["epoch"], row["step"]) for row in rows if row["split"] == "train"] == [
        (0, 0),
        (2, 6),
        (4, 12),
        (5, 15),
    ]
    assert [row["split"] for row in rows] == ["train", "validation"] * 4


def test_objective_is_the_mean_of_what_was_minimised_since_the_last_row() -> None:
    """With lr 0 every step of an epoch has the same weights, so the mean is that over the data."""
    decay = regularizers.WeightDecay(weight=0.1)
    result = wm.fit(
        network(), samples(), loss=losses.CrossEntropy(), regularizers=(decay,), optimizer=SGD(lr=0.0), epochs=3,
        batch_size=20, callbacks=[Measure(every=2)], devices=CPU,
    )  # fmt: skip
    model = network()
    expected = losses.CrossEntropy()(model, samples().x, samples().y).mean() + decay(model)
    assert [value for _, value in result.history.series("objective")] == pytest.approx([expected.item()] * 2, rel=1e-12)
    assert result.history.last()["loss"] == pytest.approx((expected - decay(model)).item(), rel=1e-12)


def test_the_learning_rate_is_that_of_the_last_step() -> None:
    rates = run(schedule=Exponential(factor=0.5)).history.series("lr")
    assert rates == ((1.0, 0.1), (2.0, 0.05), (3.0, 0.025))


def test_places_and_the_norm_may_be_others_than_the_losss() -> None:
    result = run(callbacks=[Measure(at=("output",), p=2.0)], loss=losses.CrossEntropy())
    assert "distance at output" in result.history.last()
    assert "distance at input" not in result.history.last()
    assert "distance at input" in run(loss=losses.CrossEntropy()).history.last()


def test_at_most_so_many_training_samples_are_measured_and_always_the_same() -> None:
    result = run(callbacks=[Measure(samples=7)], optimizer=SGD(lr=0.0), loss=losses.CrossEntropy(), epochs=2)
    values = [value for _, value in result.history.series("accuracy")]
    assert values == [values[0]] * 3
    assert (values[0] * 7) % 1 == pytest.approx(0)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(samples(25, seed=3))


def test_of_a_stream_only_the_objective_is_known() -> None:
    result = run(DataLoader(Stream(), batch_size=10), epochs=2)
    assert result.history.last("train").keys() == {"epoch", "step", "split", "objective", "lr"}
    assert result.history.last("train")["step"] == 6
    assert "accuracy" in result.history.last("validation")


def test_series_and_files(tmp_path: Path) -> None:
    history = run().history
    assert [epoch for epoch, _ in history.series("distance at input", "validation")] == [0, 1, 2, 3]
    assert json.loads(history.write(tmp_path / "deep" / "history.json").read_text()) == list(history.rows)
    with pytest.raises(ValueError, match=r"name is 'accurcy', .*distance at input"):
        history.series("accurcy")
    with pytest.raises(ValueError, match="split is 'test', of which nothing was measured"):
        history.series("loss", "test")
    assert len(History(())) == 0
