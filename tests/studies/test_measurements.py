"""Measurements of a study are those of the functions that they call."""

from __future__ import annotations

import pytest
import torch

from widemargin import attacks, bounds, models
from widemargin.data import Data, Samples
from widemargin.studies import measurements
from widemargin.studies.samples import Parts


def test_the_terms_are_those_of_the_bounds() -> None:
    torch.manual_seed(0)
    network = models.build("odn-mnist-cnn", size=8, widths=(2, 3), hidden=(5,))
    samples = Samples(torch.rand(12, 1, 8, 8), torch.arange(12) % 10)
    whole = Data("ten", samples, samples, tuple("0123456789"), (0.0, 1.0))
    parts = Parts(train=samples, validation=samples, whole=whole, test_count=None)
    subject = measurements.Subject(network=network, parts=parts, seed=0, networks=lambda _: network)
    row = measurements.take({"kind": "bounds", "r": 2.0, "thetas": [0.7, 1.0], "probes": 0}, subject)
    mine = bounds.odn(network, samples.x, samples.y, r=2.0, theta=0.7, probes=0, biases="ignore")
    assert row["odn bound"] == mine.value
    assert row["odn complexity"] == mine.complexity
    theirs = bounds.spectral(
        network, samples.x, samples.y, margin=row["output margin"], reference="identity", biases="ignore"
    )
    assert row["bartlett bound"] == theirs.value
    first, second = [point for point in row["points"] if point["curve"] == "theta"]
    assert first["at"] == {"theta/r": 0.35}
    assert second["factor"] == pytest.approx(9)
    assert second["complexity"] == pytest.approx(mine.complexity * 9 / mine.ratio)
    layers = [point for point in row["points"] if point["curve"] == "layers"]
    assert [point["at"]["layer"] for point in layers] == ["conv1", "conv2", "fc1", "output"]
    assert sum(point["share"] for point in layers) == pytest.approx(sum(layer.share for layer in mine.layers))


def test_distances_and_relative_radii() -> None:
    """Sizes of a relative attack are in units of √D; misclassified samples have distance 0."""
    torch.manual_seed(0)
    network = models.build("toy-mlp", inputs=16, hidden=(8,), classes=3)
    x = torch.randn(30, 16)
    with torch.no_grad():
        y = network(x).argmax(dim=1)
    y[:5] = (y[:5] + 1) % 3
    samples = Samples(x, y)
    parts = Parts(
        train=samples, validation=samples, whole=Data("three", samples, samples, tuple("012"), None), test_count=None
    )
    subject = measurements.Subject(network=network, parts=parts, seed=0, networks=lambda _: network)
    row = measurements.take({"kind": "minimal", "steps": 5}, subject)
    distances = attacks.minimal(network, x, y, steps=5, search="own").distances
    found = distances[distances.isfinite()]
    assert row["found"] == len(found) / 30
    assert row["mean distance"] == pytest.approx(float(found.mean()))
    assert row["distance"] == pytest.approx(float(distances[5:].median()))
    attack = {"kind": "attack", "attack": "pgd", "p": 2.0, "steps": 3, "random_start": False}
    relative = measurements.take({**attack, "epsilons": [0.0, 0.1], "relative": True}, subject)["points"]
    absolute = measurements.take({**attack, "epsilons": [0.0, 0.4]}, subject)["points"]
    assert [point["accuracy"] for point in relative] == [point["accuracy"] for point in absolute]
    assert relative[0]["accuracy"] == pytest.approx(25 / 30)
    assert [point["at"]["epsilon"] for point in relative] == [0.0, 0.1]
