from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from widemargin.data import Samples, holdout, subset

seeds = st.integers(0, 2**31)


def numbered(labels: list[int]) -> Samples:
    return Samples(torch.arange(float(len(labels))).unsqueeze(1), torch.tensor(labels))


def members(samples: Samples) -> list[int]:
    return [int(i) for i in samples.x[:, 0].tolist()]


@given(st.integers(2, 60), st.data(), seeds)
def test_holdout_is_disjoint_and_complete(n: int, data: st.DataObject, seed: int) -> None:
    count = data.draw(st.integers(1, n - 1))
    samples = numbered([i % 3 for i in range(n)])
    train, validation = holdout(samples, count, seed)
    assert len(validation) == count
    assert sorted(members(train) + members(validation)) == list(range(n))
    assert members(train) == sorted(members(train))
    assert members(validation) == sorted(members(validation))
    assert torch.equal(validation.y, samples.y[torch.tensor(members(validation))])


@pytest.mark.parametrize("count", [0, -1, 5, 6])
def test_holdout_leaves_something_on_both_sides(count: int) -> None:
    with pytest.raises(ValueError, match=f"count is {count},"):
        holdout(numbered([0, 1, 0, 1, 0]), count, seed=0)


@given(st.integers(0, 2**31), st.booleans())
def test_smaller_subsets_are_the_beginning_of_larger_ones(seed: int, balanced: bool) -> None:
    samples = numbered([i % 4 for i in range(400)])
    whole = members(subset(samples, fraction=1, seed=seed, balanced=balanced))
    assert sorted(whole) == list(range(400))
    previous: list[int] = []
    for fraction in (0.1, 0.2, 0.5, 0.99):
        chosen = members(subset(samples, fraction=fraction, seed=seed, balanced=balanced))
        assert len(chosen) == round(fraction * 400)
        assert chosen[: len(previous)] == previous
        previous = chosen
    assert whole[: len(previous)] == previous


@given(st.lists(st.integers(0, 3), min_size=8, max_size=80), st.data(), seeds)
def test_balanced_counts_differ_by_at_most_one(labels: list[int], data: st.DataObject, seed: int) -> None:
    samples = numbered(labels)
    classes, have = samples.y.unique(return_counts=True)
    count = data.draw(st.integers(len(classes), int(have.min()) * len(classes)))
    chosen = subset(samples, count=count, seed=seed, balanced=True)
    assert len(set(members(chosen))) == count
    each = torch.stack([(chosen.y == k).sum() for k in classes])
    assert int(each.max() - each.min()) <= 1


@given(st.lists(st.integers(0, 4), min_size=5, max_size=40), st.data(), seeds)
def test_a_subset_has_every_class_or_is_an_error(labels: list[int], data: st.DataObject, seed: int) -> None:
    samples = numbered(labels)
    count = data.draw(st.integers(1, len(labels)))
    try:
        chosen = subset(samples, count=count, seed=seed)
    except ValueError as error:
        assert "empty" in str(error)  # noqa: PT017 - either outcome is right, depending on the draw
    else:
        assert set(chosen.y.tolist()) == set(labels)


def test_an_empty_class_is_named() -> None:
    samples = numbered([0] * 50 + [1] * 50 + [7])
    seed = next(s for s in range(50) if 100 not in members_or_none(samples, s))
    with pytest.raises(ValueError, match=rf"count is 20 .*seed {seed} .*class 7 "):
        subset(samples, count=20, seed=seed)
    with pytest.raises(ValueError, match=r"class 7 has 1 .*20 .*6"):
        subset(samples, count=20, seed=0, balanced=True)
    with pytest.raises(ValueError, match=r"class 1, 7 "):
        subset(samples, count=1, seed=0, balanced=True)


def members_or_none(samples: Samples, seed: int) -> list[int]:
    try:
        return members(subset(samples, count=20, seed=seed))
    except ValueError:
        return []


@pytest.mark.parametrize(
    ("count", "fraction", "sentence"),
    [
        (None, None, "count is None and fraction is None"),
        (3, 0.5, "count is 3 and fraction is 0.5"),
        (0, None, "count is 0,"),
        (7, None, "count is 7,"),
        (None, 0.0, "fraction is 0.0,"),
        (None, 1.5, "fraction is 1.5,"),
        (None, float("nan"), "fraction is nan"),
        (None, 0.01, "fraction is 0.01,"),
    ],
)
def test_sizes_that_make_no_sense(count: int | None, fraction: float | None, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        subset(numbered([0, 1, 0, 1, 0, 1]), count=count, fraction=fraction, seed=0)


def test_a_subset_differs_with_its_seed_and_follows_the_index() -> None:
    samples = numbered([0, 1] * 50)
    a, b = (subset(samples, count=30, seed=seed) for seed in (0, 1))
    assert members(a) != members(b)
    assert a.index is not None
    assert a.index.tolist() == members(a)


def test_labels_of_a_binary_network_may_be_subset_too() -> None:
    samples = Samples(torch.arange(10.0).unsqueeze(1), torch.tensor([-1.0, 1.0] * 5))
    assert subset(samples, count=4, seed=0, balanced=True).y.sum() == 0
