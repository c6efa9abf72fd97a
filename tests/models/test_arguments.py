from __future__ import annotations

import subprocess
import sys

import pytest

from widemargin.models.arguments import check_choice, check_count, check_counts, check_flag, check_rate, check_scale


@pytest.mark.parametrize(
    ("value", "error", "sentence"),
    [
        (0, ValueError, "width is 0, expected an integer of at least 1"),
        (-3, ValueError, "width is -3, expected an integer of at least 1"),
        (2.0, TypeError, "width is 2.0, expected an integer of at least 1"),
        (True, TypeError, "width is True, expected an integer of at least 1"),
        ("7", TypeError, "width is '7', expected an integer of at least 1"),
    ],
)
def test_a_count_is_a_positive_integer(value: object, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error) as caught:
        check_count("width", value)
    assert str(caught.value) == sentence


def test_a_count_may_have_another_least() -> None:
    check_count("size", 15, least=15)
    with pytest.raises(ValueError, match=r"^size is 14, expected an integer of at least 15$"):
        check_count("size", 14, least=15)


@pytest.mark.parametrize(
    ("value", "error", "sentence"),
    [
        ("12", TypeError, "widths is '12', expected a tuple of positive integers"),
        (3, TypeError, "widths is 3, expected a tuple of positive integers"),
        ((3, 0), ValueError, "widths[1] is 0, expected an integer of at least 1"),
        ((3, None), TypeError, "widths[1] is None, expected an integer of at least 1"),
        ((3, 3, 3), ValueError, "widths has 3 entries, expected 2"),
    ],
)
def test_counts_name_the_entry(value: object, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error) as caught:
        check_counts("widths", value, length=2)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("value", [-0.1, 1.0, 1, float("nan")])
def test_a_rate_lies_in_zero_one(value: float) -> None:
    with pytest.raises(ValueError, match=r"^dropout is .*, expected a number in \[0, 1\)$"):
        check_rate("dropout", value)
    check_rate("dropout", 0)


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan")])
def test_a_scale_is_finite_and_positive(value: float) -> None:
    with pytest.raises(ValueError, match=r"^sigma is .*, expected a finite number above 0$"):
        check_scale("sigma", value)
    check_scale("sigma", 1)


def test_types_of_the_other_arguments() -> None:
    with pytest.raises(TypeError, match=r"^dropout is '0.5', expected a number in \[0, 1\)$"):
        check_rate("dropout", "0.5")
    with pytest.raises(TypeError, match=r"^sigma is None, expected a number above 0$"):
        check_scale("sigma", None)
    with pytest.raises(TypeError, match=r"^batch_norm is 1, expected True or False$"):
        check_flag("batch_norm", 1)
    with pytest.raises(ValueError, match=r"^norm is 'layer', expected one of 'batch', 'none'$"):
        check_choice("norm", "layer", ("batch", "none"))


def test_wrong_types_get_the_same_sentences_outside_the_tests() -> None:
    """In the tests the shape checker speaks first; without it, the functions themselves do."""
    program = """
from widemargin import models
for name, settings in [
    ("elsayed-mnist-cnn", {"widths": 32}), ("wrn-28-10", {"norm": "layer"}), ("odn-alexnet", {"dropout": 0.5}),
    ("sokolic-mlp", {"layers": 2.0}), ("farhang-mlp", {"sigma": "1"}), ("toy-mlp", {"hidden": (8, "8")}),
]:
    try:
        models.build(name, **settings)
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "TypeError widths is 32, expected a tuple of positive integers",
        "ValueError norm is 'layer', expected one of 'batch', 'group', 'none'",
        "TypeError dropout is 0.5, expected True or False",
        "TypeError layers is 2.0, expected an integer of at least 1",
        "TypeError sigma is '1', expected a number above 0",
        "TypeError hidden[1] is '8', expected an integer of at least 1",
    ]
