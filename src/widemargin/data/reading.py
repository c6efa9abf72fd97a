"""Tensors of any inputs and labels: NumPy arrays, pandas frames and series, lists, names of classes.

Every function that takes data reads it here. pandas and scipy are never imported: their objects are recognised by the
module of their type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widemargin.data.samples import Samples
from widemargin.modules import NamedInputs

_WIDER = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}
"""Unsigned dtypes with few torch operations, and their signed replacements."""


def read_pair(x: object, y: object, *, classes: Sequence[str] | None = None) -> Samples:
    """The samples of inputs `x` and labels `y` of any type, see `read_inputs` and `read_labels`."""
    inputs = read_inputs(x)
    labels, names = read_labels(y, classes=classes)
    labels = labels if isinstance(y, Tensor) else labels.to(inputs.device)
    return Samples(inputs, labels, classes=names, columns=column_names(x))


def column_names(x: Any) -> tuple[str, ...]:
    """The names of the columns of a pandas frame; empty for other inputs."""
    return tuple(map(str, x.columns)) if _is_frame(x) else ()


def read_inputs(x: object, name: str = "x") -> Tensor:
    """`x` as a tensor, with its numbers and dtype; the columns of a pandas frame become one dimension.

    Integer columns of a frame are features and become float64. Arrays share their memory with the tensor where they
    may be written to.
    """
    if isinstance(x, Tensor):
        if x.layout != torch.strided:
            raise TypeError(f"{name} is a sparse tensor, expected dense rows: pass {name}.to_dense()")
        return x
    if isinstance(x, Mapping | NamedInputs):
        raise TypeError(f"{name} is a {type(x).__name__} of {', '.join(x.keys())}, expected one tensor or array")
    if _is_of(x, "scipy"):
        raise TypeError(f"{name} is a {type(x).__name__} of scipy.sparse, expected dense rows: pass {name}.toarray()")
    if _is_frame(x):
        return _tensor(_frame_values(x, name), name)
    if _is_of(x, "pandas") and hasattr(x, "to_frame"):
        raise TypeError(f"{name} is a pandas {type(x).__name__}, expected a frame: pass {name}.to_frame()")
    return _tensor(_array(x, name), name)


def read_labels(y: Any, *, classes: Sequence[str] | None = None, name: str = "y") -> tuple[Tensor, tuple[str, ...]]:
    """Labels as a tensor [n], and the names of the classes, empty where `y` has numbers and there are no `classes`.

    Names (strings, categories, booleans) become class indices: in the order of `classes`, else of the categories of a
    pandas series, else sorted. Numbers are class indices already, or −1.0 and 1.0.
    """
    known = None if classes is None else tuple(map(str, classes))
    if isinstance(y, Tensor):
        return y, known or ()
    if _is_frame(y):
        if y.shape[1] != 1:
            raise ValueError(f"{name} is a frame of {y.shape[1]} columns, expected one column of labels")
        y = y.iloc[:, 0]
    if _is_of(y, "scipy"):
        raise TypeError(f"{name} is a {type(y).__name__} of scipy.sparse, expected an array of labels")
    if (categories := _categories(y)) is not None:
        return _indices([None if missing else str(v) for v, missing in zip(y, y.isna())], known or categories, name)
    values = _array(y, name, of_labels=True)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind in "USOT":
        values = _plain_objects(values)
    if values.dtype.kind == "b":
        values, known = values.astype(np.int64), known or ("False", "True")
    if values.dtype.kind in "iu":
        return torch.from_numpy(values.astype(np.int64)), known or ()
    if values.dtype.kind == "f":
        return _tensor(values, name), known or ()
    names = [None if _is_missing(value) else str(value) for value in values.ravel().tolist()]
    if values.ndim != 1:
        raise ValueError(f"{name} has shape {list(values.shape)}, expected [samples], one label per sample")
    found = known or tuple(sorted({value for value in names if value is not None}))
    return _indices(names, found, name)


def _indices(names: Sequence[str | None], classes: Sequence[str], name: str) -> tuple[Tensor, tuple[str, ...]]:
    position = {known: index for index, known in enumerate(classes)}
    for row, value in enumerate(names):
        if value is None:
            raise ValueError(f"{name} has a missing value at index {row}, expected the name of a class")
        if value not in position:
            shown = ", ".join(map(repr, classes[:8])) + (", …" if len(classes) > 8 else "")
            raise ValueError(f"{name} has {value!r} at index {row}, expected one of the classes {shown}")
    return torch.tensor([position[value] for value in names if value is not None]), tuple(classes)


def _frame_values(frame: Any, name: str) -> np.ndarray:
    """The numbers of a pandas frame; raises where a column has none, or a value is missing."""
    for column, dtype in zip(frame.columns, frame.dtypes):
        if getattr(dtype, "kind", "O") not in "biuf":
            raise TypeError(
                f"{name} has the column {column!r} of dtype {dtype}, expected numbers: encode it, for example with "
                "pandas.get_dummies, or leave it out"
            )
    missing = frame.isna().to_numpy()
    if missing.any():
        row, column = (int(index) for index in np.argwhere(missing)[0])
        raise ValueError(
            f"{name} has a missing value in column {frame.columns[column]!r} at row {row}, expected numbers: fill or "
            "drop it"
        )
    single = frame.shape[1] and all(str(dtype) == "float32" for dtype in frame.dtypes)
    return np.asarray(frame.to_numpy(dtype=np.float32 if single else np.float64))


def _array(value: object, name: str, *, of_labels: bool = False) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {type(value).__name__} that is no array: {error}") from error
    if array.ndim == 0:
        expected = "labels" if of_labels else "inputs"
        raise TypeError(f"{name} is a {type(value).__name__}, expected an array, a frame or a tensor of {expected}")
    return array


def _tensor(array: np.ndarray, name: str) -> Tensor:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{name} has dtype {array.dtype}, expected numbers")
    wider = _WIDER.get(array.dtype.name)
    if wider is not None:
        array = array.astype(wider)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):  # torch takes neither
        array = array.copy()
    return torch.from_numpy(array)


def _plain_objects(values: np.ndarray) -> np.ndarray:
    """An array of objects that are all numbers or all booleans as one of that type; others unchanged."""
    objects = values.ravel().tolist()
    for kind, dtype in ((bool, np.bool_), (int, np.int64), (float, np.float64)):
        if objects and all(type(value) is kind for value in objects):
            return values.astype(dtype)
    return values


def _categories(y: Any) -> tuple[str, ...] | None:
    dtype = getattr(y, "dtype", None)
    found = getattr(dtype, "categories", None) if _is_of(y, "pandas") else None
    return None if found is None else tuple(map(str, found))


def _is_missing(value: object) -> bool:
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def _is_of(value: object, package: str) -> bool:
    return type(value).__module__.partition(".")[0] == package


def _is_frame(value: Any) -> bool:
    return _is_of(value, "pandas") and hasattr(value, "columns")
