"""The bounds that a study keeps, against `bounds` where a float holds them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from widemargin import bounds
from widemargin.studies import catalog
from widemargin.studies.run import plan_of
from widemargin.studies.sokolic import theorems as study
from widemargin.studies.tasks import generalization_bounds as task
from widemargin.studies.trial import TrialContext


def test_the_logarithm_is_that_of_the_bound() -> None:
    x = torch.rand(40, 3, dtype=torch.float64)
    margins = bounds.Certificate(what="given", values=torch.full((40,), 0.3, dtype=torch.float64))
    covering = bounds.GaussianMixture(components=3, rank=2)
    value = bounds.robustness(margins, x, classes=4, covering=covering, delta=0.1).value
    assert 10 ** task.log10_bound(covering.log_number(0.15, x), 4, 0.1, 40) == pytest.approx(value)
    assert task.log10_bound(1e4, 4, 0.1, 40) == pytest.approx(1e4 / 2 / math.log(10), rel=1e-3)  # no overflow


def test_rows_have_21_and_22(tmp_path: Path) -> None:
    plan = plan_of(catalog.study("S5"), "smoke")
    place = plan.cases()[0]
    row = task.run(plan.final(place, {place.name: {}})[0], TrialContext(weights=tmp_path))
    assert row["log10 (21), product 1"] == pytest.approx(math.log10(2 / math.sqrt(20)))
    mixture = row["points"][0]["ln N"]
    assert row["log10 (22)"] == pytest.approx(math.log10(math.exp(mixture / 2) / math.sqrt(20)))


def test_growth_is_read_off_rows() -> None:
    rows = [
        {
            "arm": "plane",
            "seed": 0,
            "layers": n,
            "log10 (21)": math.log10(5 * 3.0**n),
            "log10 (22)": -0.1 * n,
            "gap": 0.2,
        }
        for n in (1, 2, 3)
    ]
    assert study.factor("plane", "log10 (21)")(rows) == pytest.approx([3.0])
    assert study.rises("plane", "log10 (22)")(rows) == [1.0]
    assert study.grows_faster("plane")(rows) == [1.0]
    point = {"arm": "plane", "seed": 0, "curve": "coverings", "layers": 1}
    assert study.holds("plane")([*rows, {**point, "log10 bound": 0.0}, {**point, "log10 bound": -1.0}]) == [0.5]
