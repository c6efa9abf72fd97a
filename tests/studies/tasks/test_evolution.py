"""Distances on the way."""

from __future__ import annotations

from typing import Any

import pytest

from studies import tiny
from widemargin import margins
from widemargin.margins.measurement import accuracy
from widemargin.studies import samples
from widemargin.studies.settings import overlay
from widemargin.studies.tasks import classify, evolution
from widemargin.studies.trial import Trial, TrialContext

pytestmark = pytest.mark.usefixtures("untyped")
WATCH = {"at": ["input", "fc1"], "p": 2.0, "scores": "softmax", "classes": 1, "every": 2, "count": 20}


def _trial(stage: Any = "final", **changes: Any) -> Trial:
    given = {key: value for key, value in tiny.SETTINGS.items() if key != "dtype"}
    settings = overlay(given, {"schedule": {"name": "constant"}, "watch": WATCH}, changes)
    return Trial(
        task="evolution", version=1, stage=stage, settings=settings, seed=0, study="E15", arm="a", scale="smoke"
    )


def test_points_at_every_place_part_and_step() -> None:
    row = evolution.run(_trial(), TrialContext())
    on_the_way = [p["at"] for p in row["points"] if p["curve"] == "distance"]
    assert {at["step"] for at in on_the_way} == {0, 2, 3}
    assert {at["part"] for at in on_the_way} == {"train", "validation", "test"}
    assert len(on_the_way) == 3 * 3 * 2
    ends = {tuple(p["at"].values()): p["mean"] for p in row["points"] if p["curve"] == "end"}
    last = {tuple(p["at"].values())[:2]: p["mean"] for p in row["points"] if p["at"].get("step") == 3}
    assert ends == last


def test_watching_changes_nothing_and_the_last_look_is_at_the_trained_network() -> None:
    row = evolution.run(_trial(), TrialContext())
    settings = {key: value for key, value in _trial().settings.items() if key != "watch"}
    network = classify.train_one(settings, 0, TrialContext())
    parts = samples.prepare(settings["data"], 0)
    assert row["accuracy"] == accuracy(network, parts.test)
    measured = margins.measure(
        network, samples.first(parts.test, 20), at=["input"], classes=1, read_as="softmax", progress=False
    )
    end = next(p for p in row["points"] if p["curve"] == "end" and p["at"] == {"place": "input", "part": "test"})
    assert end["mean"] == pytest.approx(measured.statistics["input"].mean, rel=1e-5)


def test_the_search_reads_no_test_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples.Parts, "test", property(lambda parts: pytest.fail("test data are read")))
    row = evolution.run(_trial("search"), TrialContext())
    assert 0 <= row["validation"] <= 1
    assert "points" not in row


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="settings has 'measure'"):
        evolution.run(_trial(measure=[]), TrialContext())
    with pytest.raises(ValueError, match=r"watch.*'often'"):
        evolution.run(_trial(watch={"often": 1}), TrialContext())
