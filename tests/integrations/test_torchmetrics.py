"""The metric as torchmetrics uses metrics, against `wm.measure` of all samples."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
import torchmetrics
from torch import Tensor, nn

import widemargin as wm
from widemargin.integrations.torchmetrics import MarginDistance

pytestmark = pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))


def data() -> tuple[Tensor, Tensor]:
    return torch.randn(50, 4, generator=torch.Generator().manual_seed(1)), torch.arange(50) % 3


def updated(metric: Any, model: nn.Module) -> Any:
    x, y = data()
    for part in range(0, 50, 16):
        metric.update(model, x[part : part + 16], y[part : part + 16])
    return metric


@pytest.mark.parametrize("p", [2, math.inf])
@pytest.mark.parametrize("statistic", ["mean", "median", "minimum", "share negative"])
def test_the_value_is_that_of_all_samples(p: float, statistic: Any) -> None:
    model = network().train()
    d = wm.measure(model, data(), p=float(p)).statistics["input"]
    expected = {"mean": d.mean, "median": d.quantile(0.5), "minimum": d.minimum, "share negative": d.share_negative}
    metric = updated(MarginDistance(p=p, statistic=statistic), model)
    assert float(metric.compute()) == pytest.approx(expected[statistic], rel=1e-5)
    assert model.training


def test_several_places_and_a_reset() -> None:
    model, metric = network(), MarginDistance(at=("input", "0"))
    found = updated(metric, model).compute()
    expected = wm.measure(model, data(), at=("input", "0")).statistics
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {name: d.mean for name, d in expected.items()}, rel=1e-5
    )
    _, accuracy = metric.statistics()
    assert accuracy == pytest.approx(wm.measure(model, data()).accuracy)
    metric.reset()
    assert all(math.isnan(float(value)) for value in metric.compute().values())
    assert math.isnan(metric.statistics()[1])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_measures_without_gradients(mode: Any) -> None:
    model = network()
    with mode():
        metric = updated(MarginDistance(), model)
        x, y = (part * 1 for part in data())
        metric.update(model, x, y)
    assert float(metric.compute()) == pytest.approx(wm.measure(model, data()).statistics["input"].mean, rel=1e-5)


def test_forward_gives_the_value_of_the_batch() -> None:
    model, metric, (x, y) = network(), MarginDistance(), data()
    first = metric(model, x[:10], y[:10])
    assert float(first) == pytest.approx(wm.measure(model, (x[:10], y[:10])).statistics["input"].mean, rel=1e-5)
    metric(model, x[10:], y[10:])
    assert float(metric.compute()) == pytest.approx(wm.measure(model, (x, y)).statistics["input"].mean, rel=1e-5)


def test_it_works_in_a_collection() -> None:
    model, (x, y) = network().eval(), data()
    collection = torchmetrics.MetricCollection(
        {
            "distance": MarginDistance(),
            "median": MarginDistance(statistic="median"),
            "largest step": MarginDistance(p=math.inf),
            "accuracy": torchmetrics.classification.MulticlassAccuracy(num_classes=3, average="micro"),
        }
    )
    for part in range(0, 50, 16):
        rows, labels = x[part : part + 16], y[part : part + 16]
        collection.update(model=model, x=rows, y=labels, preds=model(rows), target=labels)
    found = {name: float(value) for name, value in collection.compute().items()}
    d = wm.measure(model, (x, y)).statistics["input"]
    assert found == pytest.approx(
        {
            "distance": d.mean,
            "median": d.quantile(0.5),
            "largest step": wm.measure(model, (x, y), p=math.inf).statistics["input"].mean,
            "accuracy": wm.measure(model, (x, y)).accuracy,
        },
        rel=1e-5,
    )


def test_it_is_copied_and_pickled() -> None:
    metric = updated(MarginDistance(), network())
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert float(other.compute()) == float(metric.compute())


@pytest.mark.usefixtures("untyped")
def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="p is"):
        MarginDistance(p=0.5)
    with pytest.raises(ValueError, match="statistic is 'max'"):
        MarginDistance(statistic="max")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at is 'input'"):
        MarginDistance(at="input")
