"""The small form of every part of the campaign."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign import frame


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", frame.PARTS)
def test_every_case_holds(name: str, tmp_path: Path) -> None:
    count = frame.part(name).SMALL
    found = frame.score(name, count, 0, tmp_path)
    assert found.failures == ()
    assert found.held == count


def test_a_case_that_does_not_hold_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame.part("cut_logs"), "run", lambda count, seed, folder: iter(["", "lost"]))
    found = frame.score("cut_logs", 2, 5, tmp_path)
    assert (found.held, found.failures) == (1, ("case 1 of 2, seed 5: lost",))
