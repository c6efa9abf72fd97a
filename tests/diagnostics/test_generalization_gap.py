"""`predict_gap`: the stored model applied to a signature, and what the result says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import widemargin as wm
from diagnostics.test_gap_features import labelled, network
from widemargin.diagnostics import margin_signature, predict_gap, stored_model


def test_the_prediction_is_that_of_the_stored_model() -> None:
    model = network()
    samples = labelled(model)
    found = wm.predict_gap(model, samples)
    stored = stored_model()
    values = margin_signature(model, samples).values.flatten().numpy()
    expected = stored.intercept + sum(
        c * (v - m) / s for c, v, m, s in zip(stored.coefficients, values, stored.mean, stored.scale, strict=True)
    )
    assert found.gap == pytest.approx(float(expected))
    assert found.low == pytest.approx(found.gap + stored.residuals["0.05"])
    assert found.high == pytest.approx(found.gap + stored.residuals["0.95"])
    assert found.training_accuracy == pytest.approx(0.9)
    assert found.fitted_on in str(found)
    bad = replace(stored, about={**stored.about, "tested": {**stored.about["tested"], "r2": -0.5}})
    assert "predicts the held-out networks better" in str(predict_gap(model, samples, gap_model=bad))


def test_features_outside_the_range_are_told() -> None:
    model = network()
    samples = labelled(model)
    stored = stored_model()
    narrow = replace(stored, least=[99.0] * len(stored.least), most=[100.0] * len(stored.most))
    found = predict_gap(model, samples, gap_model=narrow)
    assert len(found.outside) == len(stored.features)
    assert "the interval does not hold" in str(found)
    wide = replace(stored, least=[-np.inf] * len(stored.least), most=[np.inf] * len(stored.most))
    assert predict_gap(model, samples, gap_model=wide).outside == ()
    assert "does not hold" not in str(predict_gap(model, samples, gap_model=wide))


def test_bad_input_is_one_sentence(untyped: None) -> None:
    with pytest.raises(TypeError, match="model"):
        predict_gap(3, labelled(network()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="samples"):
        predict_gap(network(), (torch.zeros(30, 4), torch.zeros(30, dtype=torch.long)), samples=0)
