"""What a study keeps of the two bounds is what the bounds say."""

from __future__ import annotations

import pytest
import torch

from widemargin import bounds, models
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
