from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset

import widemargin as wm
from training.cases import network, samples
from widemargin import losses
from widemargin.training import (
    SGD,
    Callback,
    Constant,
    Cosine,
    Exponential,
    FitState,
    Measure,
    Steps,
    WarmUp,
)
from widemargin.training.schedules import Schedule


def test_constant() -> None:
    assert Constant()(3.5, 10) == 1.0


def test_steps_are_sokolics() -> None:
    schedule = Steps(at=(34, 67), factors=(0.1, 0.05))
    assert [schedule(epoch, 100) for epoch in (0.0, 33.9, 34.0, 66.9, 67.0, 99.0)] == [1.0, 1.0, 0.1, 0.1, 0.05, 0.05]


def test_exponential_holds_between_its_steps() -> None:
    schedule = Exponential(factor=0.5, every=2.0)
    assert [schedule(epoch, 10) for epoch in (0.0, 1.9, 2.0, 5.9, 6.0)] == [1.0, 1.0, 0.5, 0.25, 0.125]


def test_exponential_counts_every_step_of_an_epoch() -> None:
    """Positions such as 2/3 are not exact in floating point: none may be lost or counted twice."""
    steps = 469
    schedule = Exponential(factor=0.5, every=1 / steps)
    factors = [schedule(epoch + step / steps, 9) for epoch in range(3) for step in range(steps)]
    assert factors == [0.5**k for k in range(3 * steps)]


def test_cosine_ends_at_zero_by_half_a_period() -> None:
    assert Cosine()(0.0, 4) == 1.0
    assert Cosine()(2.0, 4) == pytest.approx(0.5)
    assert Cosine()(4.0, 4) == pytest.approx(0.0)
    assert Cosine()(1.0, 4) == pytest.approx((1 + math.sqrt(0.5)) / 2)


def test_a_warm_up_is_linear_and_then_the_other_schedule() -> None:
    schedule = WarmUp(epochs=2, then=Cosine())
    assert [schedule(epoch, 10) for epoch in (0.0, 0.5, 1.0, 2.0)] == [0.0, 0.25, 0.5, 1.0]
    assert schedule(6.0, 10) == Cosine()(4.0, 8)
    assert WarmUp(epochs=0.5)(3.0, 10) == 1.0
    with pytest.raises(ValueError, match="epochs is 0"):
        WarmUp(epochs=0)


def test_bad_values_get_a_sentence() -> None:
    with pytest.raises(ValueError, match="at has 2 entries and factors 1"):
        Steps(at=(1, 2), factors=(0.1,))
    with pytest.raises(ValueError, match=r"at is \(2, 1\)"):
        Steps(at=(2, 1), factors=(0.1, 0.1))
    with pytest.raises(ValueError, match=r"factors\[0\] is -1"):
        Steps(at=(1,), factors=(-1.0,))
    with pytest.raises(ValueError, match="factor is nan"):
        Exponential(factor=math.nan)
    with pytest.raises(ValueError, match="every is 0"):
        Exponential(factor=0.9, every=0)


def test_negative_factors_are_refused_by_all_that_train() -> None:
    def schedule(epoch: float, epochs: float) -> float:
        return 0.5 - epoch / epochs

    settings: dict[str, Any] = {"loss": losses.CrossEntropy(), "optimizer": SGD(lr=1.0), "schedule": schedule}
    with pytest.raises(ValueError, match=r"schedule is .*, which returned -0\.\d+, expected a number >= 0"):
        wm.fit(network(), samples(), epochs=4, **settings)
    with pytest.raises(ValueError, match=r"schedule is .*, which returned -0\.\d+, expected a number >= 0"):
        wm.population.fit([network()], samples(), seeds=[0], steps=4, batch_size=5, **settings)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(samples(25))


class Sized(Stream):
    def __len__(self) -> int:
        return 25


def rates(data: IterableDataset[Any], schedule: Schedule, epochs: int) -> list[float]:
    """The learning rate of every step on a stream in batches of ten."""

    class Noted(Callback):
        def on_step_end(self, state: FitState) -> None:
            found.append(state.lr)

    found: list[float] = []
    loader = DataLoader(data, batch_size=10)
    wm.fit(
        network(),
        loader,
        loss=losses.CrossEntropy(),
        optimizer=SGD(lr=1.0),
        schedule=schedule,
        epochs=epochs,
        callbacks=[Noted(), Measure(every=None)],
    )
    return found


def test_a_stream_with_a_length_has_the_schedule_of_its_steps() -> None:
    assert rates(Sized(), WarmUp(epochs=1), 1) == pytest.approx([0, 1 / 3, 2 / 3])
    assert rates(Stream(), Cosine(), 2) == pytest.approx([1, 1, 1, 0.5, 0.5, 0.5])


def test_a_stream_of_unknown_length_needs_a_schedule_that_does_not_begin_at_0() -> None:
    with pytest.raises(ValueError, match=r"schedule is WarmUp\(.*\), whose factor is 0 in the whole first epoch"):
        rates(Stream(), WarmUp(epochs=1), 3)
