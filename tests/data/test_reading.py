"""Arrays, frames, series and names of classes as tensors, with NumPy, pandas and scipy themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from widemargin.data import read
from widemargin.data.reading import read_inputs, read_labels

X = np.arange(12.0).reshape(6, 2)
NAMES = ["dog", "cat", "emu", "cat", "dog", "emu"]
INDICES = [1, 0, 2, 0, 1, 2]  # sorted: cat, dog, emu
FRAME = pd.DataFrame(X, columns=["a", "b"])


@pytest.mark.parametrize(
    "x",
    [
        X,
        X.tolist(),
        X.astype(">f8"),
        X[::-1][::-1],
        FRAME,
        FRAME.astype("Int64"),
        FRAME.assign(b=FRAME.b.astype("int32")),
    ],
    ids=["array", "lists", "big endian", "views", "frame", "nullable", "mixed"],
)
def test_inputs_keep_their_numbers(x: object) -> None:
    found = read_inputs(x)
    assert found.dtype == torch.float64
    np.testing.assert_array_equal(found.numpy(), X)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "uint8", "bool"])
def test_arrays_keep_their_dtype(dtype: str) -> None:
    assert str(read_inputs(X.astype(dtype)).dtype) == f"torch.{dtype}"


def test_memory_is_shared_where_it_may_be_written_to() -> None:
    array = X.copy()
    read_inputs(array)[0, 0] = 7
    assert array[0, 0] == 7
    array.flags.writeable = False
    read_inputs(array)[0, 0] = 8
    assert array[0, 0] == 7


def test_frames_of_integers_are_numbers_and_of_float32_stay_so() -> None:
    assert read_inputs(FRAME.astype("int64")).dtype == torch.float64
    assert read_inputs(FRAME.astype("float32")).dtype == torch.float32


@pytest.mark.parametrize(
    "y",
    [
        NAMES,
        np.array(NAMES),
        np.array(NAMES, dtype=object),
        pd.Series(NAMES, index=[9, 8, 7, 6, 5, 4]),
        pd.Series(NAMES, dtype="string"),
        pd.Series(NAMES, dtype="category"),
        pd.Categorical(NAMES),
        pd.DataFrame({"animal": NAMES}),
    ],
    ids=["list", "array", "objects", "series", "strings", "categories", "categorical", "frame"],
)
def test_names_become_sorted_indices(y: object) -> None:
    labels, classes = read_labels(y)
    assert classes == ("cat", "dog", "emu")
    assert labels.dtype == torch.int64
    assert labels.tolist() == INDICES


def test_categories_and_given_classes_have_their_own_order() -> None:
    order = ["emu", "dog", "yak", "cat"]
    for found in (
        read_labels(pd.Series(pd.Categorical(NAMES, categories=order))),
        read_labels(NAMES, classes=order),
        read_labels(pd.Series(NAMES, dtype="category"), classes=order),
    ):
        assert found[1] == tuple(order)
        assert found[0].tolist() == [1, 3, 0, 3, 1, 0]


@pytest.mark.parametrize(
    ("y", "expected", "classes"),
    [
        (np.array([2, 0, 1], dtype=np.uint8), [2, 0, 1], ()),
        (np.array([[2], [0], [1]]), [2, 0, 1], ()),
        (pd.Series([2, 0, 1]), [2, 0, 1], ()),
        (np.array([2, 0, 1], dtype=object), [2, 0, 1], ()),
        (np.array([-1.0, 1.0]), [-1.0, 1.0], ()),
        (pd.Series([True, False]), [1, 0], ("False", "True")),
    ],
)
def test_numbers_are_labels_already(y: object, expected: list[float], classes: tuple[str, ...]) -> None:
    labels, found = read_labels(y)
    assert labels.tolist() == expected
    assert found == classes


@pytest.mark.parametrize(
    ("x", "error", "sentence"),
    [
        (scipy.sparse.csr_matrix(X), TypeError, r"x is a csr_matrix of scipy\.sparse.*x\.toarray\(\)"),
        (scipy.sparse.coo_array(X), TypeError, r"x is a coo_array of scipy\.sparse"),
        (torch.ones(2, 2).to_sparse(), TypeError, r"x is a sparse tensor.*to_dense"),
        (FRAME.assign(city="Ulm"), TypeError, r"x has the column 'city' of dtype .*get_dummies"),
        (FRAME.assign(when=pd.Timestamp(0)), TypeError, r"x has the column 'when' of dtype datetime"),
        (FRAME.mask(FRAME > 10), ValueError, r"x has a missing value in column 'b' at row 5"),
        (FRAME.a, TypeError, r"x is a pandas Series, expected a frame"),
        (np.array(NAMES), TypeError, r"x has dtype <U3, expected numbers"),
        ([[1.0], [2.0, 3.0]], TypeError, r"x is a list that is no array"),
        (3, TypeError, r"x is a int, expected an array"),
    ],
)
def test_other_inputs_are_one_sentence(x: object, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=f"^{sentence}"):
        read_inputs(x)


@pytest.mark.parametrize(
    ("y", "classes", "sentence"),
    [
        (["cat", None], None, "y has a missing value at index 1"),
        (pd.Series(["cat", pd.NA], dtype="string"), None, "y has a missing value at index 1"),
        (pd.Series(["cat", None], dtype="category"), None, "y has a missing value at index 1"),
        (NAMES, ["cat", "dog"], r"y has 'emu' at index 2, expected one of the classes 'cat', 'dog'"),
        (FRAME, None, "y is a frame of 2 columns"),
        (np.array([["a", "b"]]), None, r"y has shape \[1, 2\]"),
    ],
)
def test_other_labels_are_one_sentence(y: object, classes: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        read_labels(y, classes=classes)


def test_read_gives_samples_with_classes() -> None:
    samples = read((FRAME, pd.Series(NAMES)))
    assert samples.classes == ("cat", "dog", "emu")
    assert samples.y.tolist() == INDICES
    assert samples.select(torch.tensor([0])).classes == samples.to("cpu").classes == samples.classes
