"""Hugging Face data sets as torch data sets: columns of numbers by name, and the labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from widemargin.data.reading import read_labels


@dataclass(frozen=True, eq=False)
class HubDataset(Dataset[tuple[dict[str, Tensor], Tensor]]):
    """The rows of a `datasets.Dataset`: a dict of its columns of numbers and images, and the label.

    Images are scaled to [0, 1]. Columns of texts and other objects are left out.
    """

    rows: Any
    labels: Tensor
    images: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[dict[str, Tensor], Tensor]:
        return _inputs(self.rows[int(i)], self.images), self.labels[i]

    def __getitems__(self, positions: Sequence[int]) -> list[tuple[dict[str, Tensor], Tensor]]:
        """The rows at `positions`, which a `DataLoader` asks for a batch at a time."""
        found = [self[i] for i in positions]
        for name in found[0][0]:
            shapes = {tuple(row[name].shape) for row, _ in found}
            if len(shapes) > 1:
                first, second = (list(shape) for shape in sorted(shapes)[:2])
                raise ValueError(
                    f"data has {name!r} of shapes {first} and {second}, expected equal ones: pad them "
                    "(tokenizer(…, padding='max_length')), or pass a DataLoader with collate_fn=DataCollatorWithPadding"
                )
        return found

    def __repr__(self) -> str:
        fingerprint = getattr(self.rows, "_fingerprint", "")
        return f"HubDataset({', '.join(self.rows.column_names)}; {fingerprint})"


@dataclass(frozen=True, eq=False)
class HubStream(IterableDataset[tuple[dict[str, Tensor], Tensor]]):
    """The rows of a `datasets.IterableDataset`, as those of `HubDataset`."""

    rows: Any
    label: str
    classes: tuple[str, ...]
    images: tuple[str, ...]

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        for row in self.rows:
            label = row[self.label]
            if not isinstance(label, Tensor):
                (label, *_), _ = read_labels([label], classes=self.classes or None, name=repr(self.label))
            yield _inputs(row, self.images, without=self.label), label


def hub_dataset(
    data: Any, names: Sequence[str], classes: Sequence[str] | None = None
) -> tuple[Dataset[Any], tuple[str, ...], bool] | None:
    """A Hugging Face data set as a torch data set, its class names, and whether these are known to be all of them.

    The labels are the first column among `names`. None for other objects.
    """
    if type(data).__module__.partition(".")[0] != "datasets":
        return None
    kind = type(data).__name__
    if isinstance(data, dict):
        raise TypeError(f"data is a {kind} of {', '.join(data)}, expected one of them: data[{next(iter(data))!r}]")
    if not hasattr(data, "features") or not hasattr(data, "with_format"):
        return None
    if data.features is None:
        raise TypeError(f"data is a {kind} whose features are not known, expected those of a map or of a file")
    shown = [c for c in data.features if c in ((getattr(data, "format", None) or {}).get("columns") or data.features)]
    label = next((name for name in names if name in data.features), None)
    if label is None:
        raise TypeError(f"data is a {kind} of {', '.join(data.features)}, expected a column 'labels' or 'label'")
    inputs = [name for name in shown if name not in names and _is_numeric(data.features[name])]
    if not inputs:
        raise TypeError(
            f"data is a {kind} of {', '.join(data.features)}, expected a column of numbers beside {label!r}: tokenize "
            "the texts with data.map(…)"
        )
    images = tuple(name for name in inputs if type(data.features[name]).__name__ == "Image")
    known = tuple(classes) if classes is not None else tuple(getattr(data.features[label], "names", None) or ())
    if not hasattr(data, "__len__"):  # a stream
        if not known and not _is_numeric(data.features[label]):
            raise TypeError(
                f"data is a {kind} with names in {label!r}, which a stream can't list in advance: pass class "
                "indices, or a ClassLabel with the names"
            )
        rows = data.select_columns([*inputs, label]).with_format("torch")
        return HubStream(rows, label, known, images), known, True
    labels, found = read_labels(list(data.with_format(None)[label]), classes=known or None, name=repr(label))
    rows = data.select_columns(inputs).with_format("torch")
    return HubDataset(rows, labels, images), found, bool(known) or not found


def _inputs(row: dict[str, Any], images: Sequence[str], without: str = "") -> dict[str, Tensor]:
    found = {name: torch.as_tensor(value) for name, value in row.items() if name != without}
    return found | {name: found[name].float() / 255 for name in images}


def _is_numeric(feature: Any) -> bool:
    """Whether a column has numbers or images."""
    kind = type(feature).__name__
    if kind == "Value":
        return str(feature.dtype).startswith(("int", "uint", "float", "bool"))
    if isinstance(feature, dict):
        return False
    inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    return kind in ("Image", "ClassLabel") or kind.startswith("Array") or (inner is not None and _is_numeric(inner))
