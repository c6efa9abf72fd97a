"""Labelled samples as two tensors, and data sets of a training and a test part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset
from typing_extensions import TypeVar

from widemargin.checks import check_dense, check_index, check_names


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Inputs `x` and labels `y`, one row per sample; a torch `Dataset`.

    `x` is [n, ...], `y` is [n]. `index` [n] is the position of each sample in the data set from which it was first
    selected; None stands for the present positions. `classes` are the names of the classes, in the order of the
    labels, and `columns` those of the features of a table; both are empty where there are no names.
    """

    x: Tensor
    y: Tensor
    index: Tensor | None = None
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(self.x, self.y, self.index)
        check_names("classes", self.classes)
        check_names("columns", self.columns)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i], self.y[i]

    def __repr__(self) -> str:
        return f"Samples({len(self)} of {list(self.x.shape[1:])} {self.x.dtype} on {self.x.device})"

    def to(self, device: torch.device | str) -> Samples:
        """The same samples on `device`."""
        index = None if self.index is None else self.index.to(device)
        return replace(self, x=self.x.to(device), y=self.y.to(device), index=index)

    def select(self, positions: Int[Tensor, " k"]) -> Samples:
        """The samples at `positions`, in that order; `index` follows them."""
        at = positions.to(self.y.device)
        index = at if self.index is None else self.index[at]
        return replace(self, x=self.x[at], y=self.y[at], index=index)


Part = TypeVar("Part", bound=Dataset[Any], default=Samples)


@dataclass(frozen=True, eq=False)
class Data(Generic[Part]):
    """A data set: its two parts, the names of its classes, and the range of its inputs.

    `bounds` is the range of every input, (0.0, 1.0) for images, and None where there is no such range. The parts are
    `Samples`, except for `imagenet`, whose parts read images on access.
    """

    name: str
    train: Part
    test: Part
    classes: tuple[str, ...]
    bounds: tuple[float, float] | None

    def map(self, transform: Callable[[Part], Part], *, bounds: tuple[float, float] | None = None) -> Data[Part]:
        """Both parts transformed; `bounds` is the range after the transform, None where it is unknown."""
        return replace(self, train=transform(self.train), test=transform(self.test), bounds=bounds)


def check_not_bool(name: str, y: Tensor) -> None:
    """Raise if `y` is boolean: the order of the classes is ambiguous."""
    if y.dtype == torch.bool:
        raise TypeError(f"{name} has dtype torch.bool, expected class indices, such as {name}.long()")


def _check(x: object, y: object, index: object) -> None:
    for name, tensor, shape in (("x", x, "[samples, ...]"), ("y", y, "[samples]")):
        # Meta tensors may be stored; functions that need values reject them.
        if not (isinstance(tensor, Tensor) and tensor.is_meta):
            check_dense(tensor, name, shape)
    assert isinstance(x, Tensor)
    assert isinstance(y, Tensor)
    if x.ndim == 0:
        raise ValueError("x is a single number, expected a tensor [samples, ...]")
    check_not_bool("y", y)
    if y.ndim != 1:
        raise ValueError(f"y has shape {list(y.shape)}, expected [samples]")
    if len(x) != len(y):
        raise ValueError(f"x has {len(x)} samples, but y has {len(y)} labels")
    if len(y) == 0:
        raise ValueError("x and y are empty, expected at least one sample")
    if x.device != y.device:
        raise ValueError(f"x is on {x.device}, but y is on {y.device}")
    if index is not None and not y.is_meta:
        check_index(index, len(y))


def check_samples(name: str, samples: object) -> None:
    """Raise unless `samples` is a `Samples`."""
    if not isinstance(samples, Samples):
        raise TypeError(f"{name} is a {type(samples).__name__}, expected data.Samples: wm.data.read(…) makes some")
