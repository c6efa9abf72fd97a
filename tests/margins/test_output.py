from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import oracles
from widemargin import margins
from widemargin.margins.output import differences, strongest


@st.composite
def scores_and_labels(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Scores of 2 to 6 classes, ties left out, and labels of them."""
    batch, classes = draw(st.integers(1, 4)), draw(st.integers(2, 6))
    rows = st.lists(st.floats(-50, 50), min_size=classes, max_size=classes, unique=True)
    scores = draw(st.lists(rows, min_size=batch, max_size=batch))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=batch, max_size=batch))
    return torch.tensor(scores, dtype=torch.float64), torch.tensor(labels)


@given(scores_and_labels())
def test_output_is_f_y_minus_the_largest_other(case: tuple[Tensor, Tensor]) -> None:
    scores, labels = case
    margin = margins.output(scores, labels)
    torch.testing.assert_close(margin.tolist(), oracles.output(scores, labels), rtol=1e-12, atol=1e-12)
    wrong = scores.argmax(dim=1) != labels
    assert torch.equal(margin < 0, wrong)  # negative exactly where misclassified


@given(scores_and_labels(), st.sampled_from(["logits", "softmax"]), st.data())
def test_differences_against_the_strongest(case: tuple[Tensor, Tensor], reading: Any, data: st.DataObject) -> None:
    scores, labels = case
    count: Any = data.draw(st.one_of(st.just("all"), st.integers(1, scores.shape[1] - 1)))
    result = differences(scores, labels, classes=count, read_as=reading)
    expected = oracles.differences(scores, labels, classes=count, read_as=reading)
    torch.testing.assert_close(result.tolist(), expected, rtol=1e-11, atol=1e-12)
    others = scores.shape[1] - 1
    rivals = strongest(scores, labels, others if count == "all" else count)
    assert rivals.tolist() == [
        oracles.rival_classes(row.tolist(), int(label))[: rivals.shape[1]] for row, label in zip(scores, labels)
    ]


@given(
    st.lists(st.tuples(st.floats(-20, 20), st.sampled_from([-1.0, 1.0])), min_size=1, max_size=5),
    st.booleans(),
    st.sampled_from(["logits", "softmax"]),
    st.sampled_from([1, "all"]),
)
def test_a_binary_network(pairs: list[tuple[float, float]], column: bool, reading: Any, classes: Any) -> None:
    scores = torch.tensor([f for f, _ in pairs], dtype=torch.float64)
    labels = torch.tensor([y for _, y in pairs], dtype=torch.float64)
    scores = scores[:, None] if column else scores
    assert margins.output(scores, labels).tolist() == [f * y for f, y in pairs]
    result = differences(scores, labels, classes=classes, read_as=reading)
    expected = oracles.differences(scores, labels, read_as=reading)
    torch.testing.assert_close(result.tolist(), expected, rtol=1e-11, atol=1e-12)


def test_two_classes_are_a_binary_network() -> None:
    """The scores f and 0 with labels 1 and 0 are the score f with labels +1 and −1, read either way."""
    f = torch.tensor([-2.0, 0.5, 3.0], dtype=torch.float64)
    labels = torch.tensor([0, 1, 1])
    two = torch.stack([torch.zeros_like(f), f], dim=1)
    signs = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    for reading in ("logits", "softmax"):
        torch.testing.assert_close(
            differences(two, labels, read_as=reading), differences(f, signs, read_as=reading), rtol=1e-11, atol=1e-12
        )


@given(scores_and_labels(), st.floats(-30, 30))
def test_a_constant_on_all_scores_does_not_matter(case: tuple[Tensor, Tensor], constant: float) -> None:
    scores, labels = case
    for reading in ("logits", "softmax"):
        torch.testing.assert_close(
            differences(scores + constant, labels, classes="all", read_as=reading),
            differences(scores, labels, classes="all", read_as=reading),
            rtol=1e-9,
            atol=1e-12,
        )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_labels_of_any_integer_dtype(dtype: torch.dtype) -> None:
    scores = torch.tensor([[1.0, 5.0, 2.0], [4.0, 0.0, 1.0]])
    assert margins.output(scores, torch.tensor([1, 2]).to(dtype)).tolist() == [3.0, -3.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_subtracted_in_float32(dtype: torch.dtype) -> None:
    scores = torch.tensor([[100.0, 1.0 / 3, 0.0]], dtype=dtype)
    margin = margins.output(scores, torch.tensor([0]))
    assert margin.dtype == torch.float32
    assert margin.item() == scores[0, 0].float().item() - scores[0, 1].float().item()


def test_gradients_flow_to_two_scores() -> None:
    scores = torch.tensor([[1.0, 5.0, 2.0], [4.0, 0.0, 1.0]], requires_grad=True)
    margins.output(scores, torch.tensor([1, 2])).sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0]]


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"classes": 0}, ValueError, r"^classes is 0"),
        ({"classes": 3}, ValueError, r"^classes is 3"),
        ({"classes": True}, TypeError, r"^classes is True"),
        ({"classes": 1.0}, TypeError, r"^classes is 1\.0"),
        ({"classes": "every"}, TypeError, r"^classes is 'every'"),
        ({"read_as": "probabilities"}, ValueError, r"^read_as is 'probabilities'"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_a_bad_argument(arguments: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        differences(torch.zeros(2, 3), torch.tensor([0, 1]), **arguments)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_are_finite(bad: float) -> None:
    with pytest.raises(ValueError, match=rf"^scores has {bad} at index 1"):
        margins.output(torch.tensor([[0.0, 1.0], [bad, 2.0]]), torch.tensor([0, 1]))
