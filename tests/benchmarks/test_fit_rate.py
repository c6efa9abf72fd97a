"""The benchmark of `fit` against a plain loop runs, and counts images."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

import fit_rate


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", fit_rate.LOSSES)
def test_both_loops_see_every_image(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = fit_rate.Case(
        label="tiny",
        network="elsayed-mnist-cnn",
        shape=(1, 8, 8),
        batch=4,
        steps=2,
        build={"size": 8, "widths": (2, 2), "hidden": (4,)},
    )
    seen: list[int] = []
    loss = fit_rate.LOSSES[name]

    def counted(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        seen.append(len(y))
        return loss(model, x, y)

    monkeypatch.setitem(fit_rate.LOSSES, name, counted)
    row = fit_rate.measure(case, name, "cpu", rounds=1, epochs=2)
    assert seen == [4] * (2 * 2 * 2)  # two loops, two epochs, two batches
    rates = row["images per second"]
    assert row["ratio"] == pytest.approx(rates["fit"] / rates["plain loop"])
