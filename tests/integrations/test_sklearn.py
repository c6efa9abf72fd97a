"""The classifier against scikit-learn's own checks, and its distances against margins measured one by one."""

from __future__ import annotations

import copy
import functools
import pickle
import pickletools
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

import widemargin as wm
from widemargin.integrations.sklearn import HELD_OUT, WideMarginClassifier, folds, temperature

# The checks of scikit-learn that do not apply, and why (also in docs/guides/scikit_learn.md).
EXPECTED = {
    "check_decision_proba_consistency": "distances divide score differences by slopes, so that they have another order",
    "check_sample_weight_equivalence_on_dense_data": "a weight of 2 changes a step, a repeated row the batches",
}


@functools.cache
def table() -> tuple[Any, Any]:
    """Iris, in an order in which the classes are mixed."""
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def quick(**settings: Any) -> WideMarginClassifier:
    values: dict[str, Any] = {
        "hidden": (16,),
        "epochs": 25,
        "batch_size": 150,
        "lr": 0.05,
        "device": "cpu",
        "random_state": 0,
    }
    return WideMarginClassifier(**(values | settings))


@functools.cache
def fitted() -> WideMarginClassifier:
    X, y = table()
    return quick().fit(X, y)


@pytest.mark.usefixtures("untyped")  # some checks pass arguments of wrong types on purpose
def test_the_checks_of_scikit_learn_pass() -> None:
    estimator = quick(epochs=6, batch_size=500, lr=0.1, calibrate=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks fit tables that scikit-learn warns about
        results = check_estimator(estimator, expected_failed_checks=EXPECTED, on_fail=None, on_skip=None)
    bad = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] not in ("passed", "xfail", "skipped")}
    assert bad == {}
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(EXPECTED)
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= {"check_array_api_input"}
    assert sum(r["status"] == "passed" for r in results) >= 55


def test_it_learns_in_pipelines_grid_searches_and_cross_validation() -> None:
    X, y = table()
    pipeline = make_pipeline(MinMaxScaler(), quick(calibrate=False))
    assert np.mean(cross_val_predict(pipeline, X, y, cv=3) == y) > 0.9
    search = GridSearchCV(quick(calibrate=False), {"hidden": [(1,), (16,)]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.9
    assert search.best_params_ == {"hidden": (16,)}


def test_two_classes_have_the_signed_distance_to_the_boundary() -> None:
    X, y = table()
    names = np.array(["no", "yes"])[(y == 2).astype(int)]
    model = quick(calibrate=False).fit(X, names)
    decision = model.decision_function(X)
    assert decision.shape == (len(X),)
    np.testing.assert_array_equal(model.predict(X), np.where(decision > 0, "yes", "no"))
    x = torch.from_numpy(model.scaler_.transform(X)).float()
    found = wm.measure(model.network_, (x, torch.ones(len(x), dtype=torch.long)), at=("input",), p=2.0)
    np.testing.assert_allclose(decision, found.margins["input"].numpy(), rtol=1e-4, atol=1e-5)


def test_more_classes_have_the_distances_to_the_boundaries_with_the_predicted_class() -> None:
    X, _ = table()
    model = fitted()
    decision = model.decision_function(X[:20])
    network = copy.deepcopy(model.network_).double()
    for row, x in zip(decision, torch.from_numpy(model.scaler_.transform(X[:20])), strict=True):
        scores = network(x)
        best = int(scores.argmax())
        distances = []
        for other in range(3):
            point = x.clone().requires_grad_()
            moved = network(point)
            difference = moved[best] - moved[other]
            if other == best:
                distances.append(np.inf)
            else:
                slope = torch.autograd.grad(difference, point)[0].norm()
                distances.append((difference / slope).item())
        expected = [-d for d in distances]
        expected[best] = min(distances)
        np.testing.assert_allclose(row, expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(decision.argmax(axis=1), model.predict(X[:20]))


def test_a_network_without_slopes_has_finite_distances() -> None:
    X, _ = table()
    model = copy.deepcopy(fitted())
    for parameter in model.network_.parameters():
        nn.init.zeros_(parameter)
    assert np.isfinite(model.decision_function(X)).all()


def test_the_temperature_is_that_of_a_grid() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    scores = rng.normal(size=(200, 3)) * 4
    scores[np.arange(200), y] += 4
    found = temperature(scores, y)
    grid = np.exp(np.linspace(-3, 3, 2001))
    values = [-log_softmax(scores / t, axis=1)[np.arange(200), y].mean() for t in grid]
    assert found == pytest.approx(grid[int(np.argmin(values))], rel=0.05)
    assert temperature(50 * scores, y) == pytest.approx(50 * found, rel=1e-2)
    weight = rng.integers(1, 4, size=200).astype(float)
    losses = [-log_softmax(scores / t, axis=1)[np.arange(200), y] @ weight for t in grid]
    assert temperature(scores, y, weight) == pytest.approx(grid[int(np.argmin(losses))], rel=0.05)


def test_samples_that_are_all_right_have_a_finite_confidence() -> None:
    y = np.arange(40) % 2
    scores = np.where(np.arange(2) == y[:, None], 1.0, -1.0)
    probability = np.exp(log_softmax(scores / temperature(scores, y), axis=1))[np.arange(40), y]
    np.testing.assert_allclose(probability, 41 / 42, rtol=1e-3)  # the rule of succession


def test_wrong_labels_without_weight_do_not_raise_the_temperature() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(160, 4))
    is_wrong = rng.random(160) < 0.2
    y = ((X[:, 0] > 0) ^ is_wrong).astype(int)
    weight = np.where(is_wrong, 1e-6, 1.0)
    low, high = (quick().fit(X, y, sample_weight=w).temperature_ for w in (weight, np.ones(160)))
    assert low < 0.5 * high


def test_folds_share_the_classes() -> None:
    y = torch.arange(57) % 3
    parts = folds(y, 0)
    assert sorted(torch.cat(parts).tolist()) == list(range(57))
    assert all(y[part].bincount(minlength=3).min() >= 3 for part in parts)
    assert len(folds(torch.tensor([0, 1]), 0)) == 2
    assert not torch.equal(parts[0], folds(y, 1)[0])


def test_probabilities_are_calibrated_on_held_out_samples() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(240, 10))
    y = ((X[:, 0] > 0) ^ (rng.random(240) < 0.2)).astype(int)  # a fifth of the labels is wrong, and is learnt by heart
    train, test = slice(0, 160), slice(160, None)
    long = {"hidden": (64,), "epochs": 60, "loss": "cross-entropy"}
    plain, calibrated = (quick(calibrate=c, **long).fit(X[train], y[train]) for c in (False, True))
    assert plain.temperature_ == 1.0
    losses = [log_loss(y[test], model.predict_proba(X[test])) for model in (plain, calibrated)]
    assert losses[1] < 0.8 * losses[0]
    np.testing.assert_array_equal(plain.predict(X), calibrated.predict(X))  # the network has all samples in both
    np.testing.assert_allclose(np.exp(calibrated.predict_log_proba(X)), calibrated.predict_proba(X), rtol=1e-6)
    assert len(folds(torch.zeros(160, dtype=torch.long), 0)[0]) < HELD_OUT  # so that several folds were trained


def test_it_is_stored_as_safetensors() -> None:
    X, _ = table()
    model = fitted()
    stored = pickle.dumps(model)
    names = {str(argument) for _, argument, _ in pickletools.genops(stored) if isinstance(argument, str)}
    assert not any("torch" in name for name in names)
    loaded = pickle.loads(stored)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    with pytest.raises(NotFittedError):
        clone(model).predict(X)


def small(features: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, classes))


@pytest.mark.parametrize("module", [small, small(4, 3)], ids=["function", "network"])
def test_networks_of_your_own(module: Any) -> None:
    X, y = table()
    model = quick(module=module, calibrate=False).fit(X, y)
    assert isinstance(model.network_.get_submodule("1"), nn.BatchNorm1d)
    assert model.score(X, y) > 0.8
    assert clone(model).fit(X, y).score(X, y) == model.score(X, y)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))


def test_a_given_network_is_left_as_it_is() -> None:
    X, y = table()
    network = small(4, 3)
    before = copy.deepcopy(network.state_dict())
    quick(module=network, calibrate=False).fit(X, y)
    torch.testing.assert_close(dict(network.state_dict()), dict(before), rtol=0, atol=0)


def test_any_loss_and_weights_of_classes_and_samples() -> None:
    X, y = make_blobs(120, centers=[(0, 0), (1.5, 0)], cluster_std=1.0, random_state=0)
    model = quick(loss=wm.losses.CrossEntropy(), calibrate=False)
    plain = np.mean(model.fit(X, y).predict(X) == 1)
    heavy = np.mean(clone(model).set_params(class_weight={0: 1, 1: 10}).fit(X, y).predict(X) == 1)
    given = np.mean(clone(model).fit(X, y, sample_weight=np.where(y == 1, 10, 1)).predict(X) == 1)
    assert plain < heavy == given


def test_frames_keep_their_names() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = table()
    frame = pandas.DataFrame(X, columns=list("abcd"))
    labels = pandas.Series(np.array(["setosa", "versicolor", "virginica"])[y])
    model = quick(calibrate=False).fit(frame, labels)
    assert list(model.feature_names_in_) == list("abcd")
    assert list(model.classes_) == ["setosa", "versicolor", "virginica"]
    assert model.score(frame, labels) > 0.9


def test_the_scale_of_a_feature_does_not_matter_unless_asked_to() -> None:
    X, y = table()
    scaled = X * np.array([1e3, 1.0, 1e-3, 1.0])
    first, second = (quick(calibrate=False).fit(rows, y) for rows in (X, scaled))
    np.testing.assert_allclose(first.decision_function(X), second.decision_function(scaled), rtol=1e-2, atol=1e-2)
    raw = quick(calibrate=False, standardize=False).fit(X, y)
    assert raw.scaler_ is None
    assert raw.score(X, y) > 0.8


@pytest.mark.usefixtures("untyped")
def test_bad_arguments_are_named() -> None:
    X, y = table()
    with pytest.raises(ValueError, match=r"y has the one class .* classes"):
        quick().fit(X, np.zeros(len(y)))
    with pytest.raises(ValueError, match=r"module gives scores of shape \[2, 5\]"):
        quick(module=nn.Linear(4, 5)).fit(X, y)
    with pytest.raises(TypeError, match="module"):
        quick(module=lambda features, classes: None).fit(X, y)
    with pytest.raises(ValueError, match="loss"):
        quick(loss="wide").fit(X, y)
    with pytest.raises(TypeError, match="hidden"):
        quick(hidden=16).fit(X, y)
    with pytest.raises(TypeError, match="batch_size"):
        quick(batch_size=0.5).fit(X, y)
    with pytest.raises(ValueError, match="epochs"):
        quick(epochs=0).fit(X, y)
