"""The distance by formula and by solver."""

from __future__ import annotations

import math

import numpy as np
import pytest

from widemargin import margins
from widemargin.studies.tasks import nearest_boundary
from widemargin.studies.trial import Trial, TrialContext

P = (1.0, 1.25, 2.0, 10.0, math.inf)


def _trial(**changes: object) -> Trial:
    settings = {"inputs": 5, "classes": 3, "samples": 2, "p": 2.0, **changes}
    return Trial(
        task="nearest-boundary",
        version=1,
        stage="final",
        settings=settings,
        seed=0,
        study="E18",
        arm="a",
        scale="smoke",
    )


@pytest.mark.parametrize("p", P)
def test_the_solver_finds_known_distances(p: float) -> None:
    """Along an axis the distance is |c|/|a| in every norm; between equal slopes it is |c|·n^(1/p)/Σa."""
    assert nearest_boundary.shortest(np.array([0.0, 2.0, 0.0]), -3.0, p) == pytest.approx(1.5, rel=1e-6)
    side = 4 ** (1 / p) if math.isfinite(p) else 1.0
    assert nearest_boundary.shortest(np.ones(4), 2.0, p) == pytest.approx(0.5 * side, rel=1e-6)


@pytest.mark.parametrize("p", [1.0, 1.25, "inf"])
def test_the_closed_form_is_exact(p: float | str) -> None:
    row = nearest_boundary.run(_trial(p=p), TrialContext())
    assert row["error"] < 1e-7
    assert row["digits"] == pytest.approx(-math.log10(max(row["error"], 1e-16)))
    assert row["problems"] == 4


def test_a_wrong_distance_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = margins.distance
    monkeypatch.setattr(
        margins, "distance", lambda *a, **k: {name: 1.01 * value for name, value in right(*a, **k).items()}
    )
    assert nearest_boundary.run(_trial(), TrialContext())["error"] == pytest.approx(0.01, rel=1e-6)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="'q'"):
        nearest_boundary.run(_trial(q=2), TrialContext())
