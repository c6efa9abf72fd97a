"""The key of a trial."""

from __future__ import annotations

import dataclasses
from typing import Any

from studies import tiny


def test_the_key_is_that_of_what_decides_the_result() -> None:
    trial = tiny.trial()
    change: dict[str, Any]
    for change in ({"seed": 1}, {"stage": "search"}, {"version": 2}, {"task": "other"}, {"settings": {"steps": 4}}):
        assert dataclasses.replace(trial, **change).key != trial.key
    for change in ({"study": "E4"}, {"arm": "b"}, {"scale": "paper"}, {"condition": {"flips": 0.5}}):
        assert dataclasses.replace(trial, **change).key == trial.key


def test_the_key_does_not_depend_on_the_order_of_settings() -> None:
    trial = tiny.trial()
    turned = dataclasses.replace(trial, settings=dict(reversed(list(trial.settings.items()))))
    assert turned.key == trial.key
