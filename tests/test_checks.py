from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from widemargin import checks
from widemargin.checks import (
    DeferredChecks,
    check_callable,
    check_count,
    check_counts,
    check_finite,
    check_module_name,
    check_number,
    check_scores_and_labels,
    deferred_checks,
)
from widemargin.types import is_binary

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize(
    ("shape", "binary"), [((3,), True), ((3, 1), True), ((1,), True), ((3, 2), False), ((1, 2), False), ((3, 0), False)]
)
def test_a_binary_network_has_one_score_a_sample(shape: tuple[int, ...], binary: bool) -> None:
    assert is_binary(torch.zeros(shape)) is binary


@given(st.integers(1, 5), st.integers(2, 6), st.sampled_from(INTEGERS), st.sampled_from(FLOATS))
def test_class_indices_of_any_integer_dtype_fit(batch: int, classes: int, integer: Any, floating: Any) -> None:
    check_scores_and_labels(torch.zeros(batch, classes, dtype=floating), (torch.arange(batch) % classes).to(integer))


@given(st.lists(st.sampled_from([-1.0, 1.0]), min_size=1), st.booleans(), st.sampled_from(FLOATS))
def test_signs_fit_one_score(signs: list[float], column: bool, dtype: Any) -> None:
    scores = torch.zeros(len(signs), 1) if column else torch.zeros(len(signs))
    check_scores_and_labels(scores, torch.tensor(signs, dtype=dtype))


@pytest.mark.parametrize(
    ("scores", "labels", "error", "sentence"),
    [
        ([[1.0, 2.0]], torch.tensor([0]), TypeError, "scores is a list"),
        (torch.zeros(2, 3), [0, 1], TypeError, "y is a list"),
        (
            torch.zeros(2, 3, dtype=torch.long),
            torch.tensor([0, 1]),
            TypeError,
            "scores has dtype torch.int64, expected a floating-point tensor",
        ),
        (
            torch.zeros(2, 3, 4),
            torch.tensor([0, 1]),
            ValueError,
            "scores has shape [2, 3, 4], expected [batch, classes], or [batch] when binary",
        ),
        (
            torch.zeros(()),
            torch.tensor([1.0]),
            ValueError,
            "scores has shape [], expected [batch, classes], or [batch] when binary",
        ),
        (torch.zeros(2, 3), torch.tensor([[0], [1]]), ValueError, "y has shape [2, 1]"),
        (
            torch.zeros(0, 3),
            torch.zeros(0, dtype=torch.long),
            ValueError,
            "scores is an empty batch, expected at least one sample",
        ),
        (torch.zeros(2, 0), torch.tensor([0, 0]), ValueError, "scores has no classes"),
        (torch.zeros(2, 3), torch.tensor([0, 1, 2]), ValueError, "y has 3 entries"),
        (
            torch.zeros(2, 3),
            torch.zeros(2, dtype=torch.long, device="meta"),
            ValueError,
            "y is on the device meta",
        ),
        (
            torch.zeros(2, 3),
            torch.tensor([0.0, 1.0]),
            TypeError,
            "y has dtype torch.float32",
        ),
        (
            torch.zeros(2, 3),
            torch.tensor([True, False]),
            TypeError,
            "y has dtype torch.bool",
        ),
        (
            torch.zeros(4, 10),
            torch.tensor([0, 1, 2, 11]),
            ValueError,
            "y has 11 at index 3",
        ),
        (
            torch.zeros(2, 3),
            torch.tensor([-1, 1]),
            ValueError,
            "y has -1 at index 0",
        ),
        (
            torch.zeros(2),
            torch.tensor([0, 1]),
            TypeError,
            "y has dtype torch.int64",
        ),
        (
            torch.zeros(2, 1),
            torch.tensor([1.0, 0.0]),
            ValueError,
            "y has 0 at index 1, expected -1 or 1 (one score per sample)",
        ),
        (
            torch.zeros(2),
            torch.tensor([math.nan, 1.0]),
            ValueError,
            "y has nan at index 0, expected -1 or 1 (one score per sample)",
        ),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_the_sentence(scores: Any, labels: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error) as raised:
        check_scores_and_labels(scores, labels)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.0, 0.0, math.nan, math.inf]),
        torch.tensor([[1.0, 2.0], [0.0, 0.0], [math.nan, 1.0], [math.inf, 0.0]]),
        torch.tensor([[[0.0, 1.0]], [[2.0, 3.0]], [[4.0, math.nan]], [[math.inf, 0.0]]]),
    ],
)
def test_the_first_sample_that_is_not_finite_is_named(tensor: Tensor) -> None:
    with pytest.raises(ValueError, match=r"^scores has nan at index 2"):
        check_finite(tensor, "scores")
    check_finite(tensor[:2], "scores")


def test_scores_are_checked_for_infinities_on_demand() -> None:
    scores, labels = torch.tensor([[0.0, 1.0], [math.inf, 0.0]]), torch.tensor([0, 1])
    check_scores_and_labels(scores, labels)
    with pytest.raises(ValueError, match=r"^scores has inf at index 1"):
        check_scores_and_labels(scores, labels, finite=True)


@pytest.mark.parametrize(
    ("name", "words"), [("conv3", r"'conv3'.*'conv1'"), ("xyz", r"'xyz'.*conv1, fc"), (nn.Tanh(), "a Tanh")]
)
def test_an_unknown_module_is_named_with_the_closest_one(name: object, words: str) -> None:
    check_module_name("layers", "fc", ["conv1", "fc"], nn.Linear(1, 1))
    with pytest.raises(ValueError, match=rf"^layers has {words}"):
        check_module_name("layers", name, ["conv1", "fc"], nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("value", "limits", "words"),
    [
        (0.0, {"above": 0.0}, r"x is 0\.0, .*> 0"),
        (-1, {"least": 0.0}, "x is -1, .*>= 0"),
        (1.0, {"above": 0.0, "below": 1.0}, r"x is 1\.0, .*> 0 and < 1"),
        (1.5, {"least": 0.0, "most": 1.0}, r"x is 1\.5, .*>= 0 and <= 1"),
        (math.inf, {}, "x is inf"),
        (math.nan, {"least": 0.0}, "x is nan"),
    ],
)
def test_a_number_outside_its_limits(value: float, limits: dict[str, float], words: str) -> None:
    check_number("x", 0.5, **limits)
    with pytest.raises(ValueError, match=words):
        check_number("x", value, **limits)


def test_infinities_are_not_finite() -> None:
    with pytest.raises(ValueError, match=r"^x has -inf at index 1"):
        check_finite(torch.tensor([0.0, -math.inf]), "x")


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("12", TypeError, "widths is '12'"),
        (3, TypeError, "widths is 3"),
        ((3, 0), ValueError, r"widths\[1\] is 0"),
        ((3, None), TypeError, r"widths\[1\] is None"),
        ((3, 3, 3), ValueError, r"widths has 3 entries"),
    ],
)
def test_counts_name_the_entry(value: object, error: type[Exception], words: str) -> None:
    check_counts("widths", [3, 4], length=2)
    with pytest.raises(error, match=words):
        check_counts("widths", value, length=2)


def test_numbers_of_numpy_are_numbers() -> None:
    check_count("depth", np.int64(3))
    check_number("sigma", np.float32(0.5), above=0.0)


SCORES = torch.zeros(3, 4)


@pytest.fixture(params=[False, True], ids=["at once", "later"])
def is_later(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A CPU that has to be waited for, as a GPU has."""
    monkeypatch.setattr(checks, "needs_sync", lambda _: request.param)
    return bool(request.param)


@pytest.mark.parametrize("label", [-1, 4])
def test_labels_out_of_range(is_later: bool, label: int) -> None:
    labels = torch.tensor([0, label, 3])
    if not is_later:
        with pytest.raises(ValueError, match=f"y has {label} at index 1"):
            DeferredChecks(SCORES, labels)
        return
    with deferred_checks(SCORES, labels) as later:
        assert later.labels.min() >= 0
        assert later.labels.max() <= 3
        assert later.labels.tolist()[::2] == [0, 3]
        check_scores_and_labels(SCORES, labels)  # says nothing in here
        with pytest.raises(ValueError, match=f"y has {label} at index 1"):
            later.wait()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_scores_that_are_not_finite(is_later: bool, value: float) -> None:
    scores, labels = SCORES.clone(), torch.tensor([0, 1, 2])
    scores[2, 1] = value
    if not is_later:
        with pytest.raises(ValueError, match="at index 2"):
            DeferredChecks(scores, labels)
        return
    with deferred_checks(scores, labels) as later:
        check_finite(scores, "scores")
        with pytest.raises(ValueError, match="at index 2"):
            later.wait()


def test_nothing_is_wrong(is_later: bool) -> None:
    labels = torch.tensor([0, 1, 3])
    large = torch.full((3, 4), 3e38)  # whose sum is infinite
    for scores in (SCORES, large):
        with deferred_checks(scores, labels) as later:
            assert torch.equal(later.labels, labels)
            later.wait()
    with pytest.raises(ValueError, match="index 0"):
        check_finite(torch.tensor([torch.nan]), "x")  # looked at again


def test_shapes_and_kinds_are_looked_at_at_once(is_later: bool) -> None:
    with pytest.raises(ValueError, match="y has 2 entries"):
        DeferredChecks(SCORES, torch.tensor([0, 1]))
    with pytest.raises(TypeError, match="expected class indices"):
        DeferredChecks(SCORES, torch.zeros(3))
    with pytest.raises(ValueError, match="expected -1 or 1"):
        DeferredChecks(torch.zeros(3), torch.tensor([1.0, 2.0, -1.0]))


def test_classes_are_callables_only_where_they_make_what_is_needed() -> None:
    check_callable("then", abs, "abs")
    check_callable("optimizer", torch.optim.SGD, "torch.optim.SGD", makes=torch.optim.Optimizer)
    for value, makes in ((nn.Linear, None), (nn.Linear, torch.optim.Optimizer), (3, nn.Module), (None, None)):
        with pytest.raises(TypeError, match=r"^then is .*, expected a callable such as abs$"):
            check_callable("then", value, "abs", makes=makes)
