"""Margins of every sample of a data set, and the accuracy."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from operator import length_hint
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from widemargin import norms, places
from widemargin._io.files import write_json, write_parquet
from widemargin._io.progress import track
from widemargin.checks import check_choice, check_count, check_module, check_weights
from widemargin.data import batches
from widemargin.data.samples import Samples
from widemargin.entry_checks import check_by_sample
from widemargin.margins.distance import linearize, valid
from widemargin.margins.distribution import Distribution, by_class
from widemargin.margins.growing_columns import Columns
from widemargin.margins.output import Classes, Reading, of_scores, output
from widemargin.modules import (
    cast_input,
    evaluating,
    forward,
    predict,
    predicted_labels,
    unwrap_ddp,
    without_weight_gradients,
)
from widemargin.probabilities import check_are_scores, read_model
from widemargin.types import Labels, Mask, PerExample


@dataclass(frozen=True, eq=False, repr=False)
class Measurement:
    """The margins of every sample of a data set, in its order, and their statistics; `repr` shows a table.

    `output` has the output margins f_y − max f_i. `margins["output"]`, if measured, are distances at that place.
    `classes` are the names of the classes, where the data have any. `index` are the positions of the rows in the data
    set; None stands for 0, 1, …, unless `knows_positions` is False: then rows are in the order in which a stream or a
    sampler gave them.
    """

    margins: dict[str, PerExample]
    output: PerExample
    labels: Labels
    predictions: Labels
    settings: dict[str, Any]
    classes: tuple[str, ...] = ()
    index: Tensor | None = None
    knows_positions: bool = True

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def accuracy(self) -> float:
        """Share of samples that the network classifies correctly."""
        return float((self.predictions == self.labels).double().mean())

    @property
    def balanced_accuracy(self) -> float:
        """Mean over the classes of the share of their samples that are classified correctly: each class counts once."""
        right = (self.predictions == self.labels).double()
        return float(torch.stack([right[self.labels == label].mean() for label in self.labels.unique()]).mean())

    @property
    def valid(self) -> dict[str, Mask]:
        """At every place, the mask of samples with a margin (a gradient that is not zero)."""
        return {name: valid(values) for name, values in self.margins.items()}

    @property
    def statistics(self) -> dict[str, Distribution]:
        """At every place, the distribution of the margins."""
        return {name: Distribution.of(values) for name, values in self.margins.items()}

    def by_class(self, place: str) -> dict[int | str, Distribution]:
        """The distribution of the margins at `place`, class by class: by name where the classes have names."""
        return {self.class_name(label): found for label, found in by_class(self._at(place), self.labels).items()}

    def class_name(self, label: int) -> int | str:
        """The name of the class `label`, or the label itself where there is no other name.

        The labels −1 and 1 of a binary network have the names 0 and 1.
        """
        index = 0 if label == -1 and len(self.classes) == 2 else label
        name = self.classes[index] if 0 <= index < len(self.classes) else str(label)
        return label if name == str(label) else name

    def hardest(self, count: int, place: str | None = None) -> Tensor:
        """Positions in the data set of the `count` samples of smallest margin at `place`, smallest first.

        By default at the first place. Raises a `ValueError` if the positions are unknown.
        """
        rows = self.hardest_rows(count, place)
        if not self.knows_positions:
            raise ValueError(
                "data was a stream, or a DataLoader whose sampler does not tell the positions of its samples: pass its "
                "Dataset, or take the rows of this result with hardest_rows"
            )
        return rows if self.index is None else self.index[rows]

    def hardest_rows(self, count: int, place: str | None = None) -> Tensor:
        """Rows of this result with the `count` smallest margins at `place` (default: the first), smallest first."""
        check_count("count", count, least=0)
        margins = self._at(next(iter(self.margins)) if place is None else place)
        return margins.nan_to_num(nan=torch.inf).argsort(stable=True)[:count]

    def position(self, row: int) -> int:
        """The position in the data set of the sample in `row`; the row itself where positions are not known."""
        return row if self.index is None else int(self.index[row])

    def _at(self, place: str) -> PerExample:
        if place not in self.margins:
            raise ValueError(f"place is {place!r}, but margins were measured at {', '.join(map(repr, self.margins))}")
        return self.margins[place]

    @property
    def _has_names(self) -> bool:
        return any(name != str(label) for label, name in enumerate(self.classes))

    def summary(self) -> dict[str, object]:
        """Settings, accuracy and the statistics of every place, as plain values."""
        p = self.settings["p"]
        return {
            "settings": {**self.settings, "p": p if math.isfinite(p) else "inf"},  # JSON has no infinity
            **({"classes": list(self.classes)} if self._has_names else {}),
            "samples": len(self),
            "accuracy": self.accuracy,
            "balanced accuracy": self.balanced_accuracy,
            "output margin": Distribution.of(self.output).summary(),
            "distance": {name: d.summary() for name, d in self.statistics.items()},
        }

    def write(self, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write `margins.parquet` (a row a sample) and `summary.json` into `folder`, each whole or not at all.

        The column `index` has the positions of the samples, where they are not those of the rows.
        """
        folder = Path(folder)
        columns = {
            **({} if self.index is None else {"index": self.index}),
            "label": self.labels,
            "prediction": self.predictions,
            "output margin": self.output,
            **{f"distance at {name}": values for name, values in self.margins.items()},
        }
        arrays = {name: column.numpy() for name, column in columns.items()}
        if self._has_names:
            for name in ("label", "prediction"):
                arrays[f"{name} name"] = np.array([str(self.class_name(int(v))) for v in columns[name]])
        table = write_parquet(folder / "margins.parquet", arrays)
        return table, write_json(folder / "summary.json", self.summary())

    def page(
        self,
        path: str | os.PathLike[str],
        *,
        inputs: Tensor | None = None,
        bounds: tuple[float, float] | None = None,
        title: str = "Margins",
    ) -> Path:
        """Write one HTML file with charts, tables and settings, as the command does (extra `report`).

        Args:
            path: the file.
            inputs: the samples of the data set; images of one or three channels are shown where margins are smallest.
            bounds: the range of the images, by default that of each.
            title: of the page.
        """
        from widemargin.margins import page

        return page.write(path, self, title=title, inputs=inputs, bounds=bounds, classes=self.classes)

    def __repr__(self) -> str:
        lines = [
            f"{len(self)} samples, accuracy {self.accuracy:.4f} (balanced {self.balanced_accuracy:.4f}), "
            f"l_{self.settings['p']:g} distance to the boundary:"
        ]
        width = max(map(len, self.margins))
        for name, d in self.statistics.items():
            lines.append(
                f"  {name:{width}}  mean {d.mean:.4g}  std {d.std:.4g}  mean/std {d.ratio:.3g}  min {d.minimum:.4g}  "
                f"negative {d.share_negative:.2%}" + (f"  without a margin: {d.invalid}" if d.invalid else "")
            )
        return "\n".join(lines)


def measure(
    model: nn.Module,
    data: object,
    *,
    at: places.Places | None = None,
    p: float = 2.0,
    classes: Classes = 1,
    read_as: Reading = "logits",
    batch_size: int = 256,
    progress: bool | None = None,
) -> Measurement:
    """Measure the margins of `model` on all of `data`, in evaluation mode. The network is not changed.

    Args:
        model: any classifier; its device and dtype are used.
        data: a name (its test set), `data.Data`, `data.Samples`, a pair (x, y) of tensors, NumPy arrays or pandas
            objects, a `Dataset`, a `DataLoader`, also of dict batches, or a Hugging Face `datasets.Dataset`. Of a
            shuffled `DataLoader` the result is in the order of its data set.
        at: place names and modules, or `"all"` (`places.check_places`); by default the input, or the first embedding
            where inputs are tokens.
        p: the norm of the distance, in [1, ∞].
        classes: number of other classes, strongest first, or `"all"`; the smallest distance is taken.
        read_as: `"logits"` or `"softmax"`, see `margins.distance`; `"probabilities"` for a network that ends in a
            softmax or a sigmoid, see `margins.from_probabilities`.
        batch_size: samples at a time (a `DataLoader` has its own).
        progress: show a bar; by default on a terminal only.
    """
    norms.check_p(p)
    check_module(model)
    check_choice("read_as", read_as, get_args(Reading))
    names = None if at is None else places.check_places(model, at)
    check_weights(model)
    network = read_model(unwrap_ddp(model), read_as)
    found = batches(data, batch_size=batch_size)
    columns, knows_positions = Columns(), True
    with evaluating(network), without_weight_gradients(network), torch.enable_grad():
        total = length_hint(found) or None
        for x, y, index in track(found.indexed(), "Measuring margins", total=total, progress=progress):
            x = cast_input(network, x)
            y = y.to(x.device)
            names = places.default_places(network, x) if names is None else names
            if not len(columns):
                found.check_classes(check_by_sample(network, x, names))
            with places.watch(network, names) as watched:
                scores = forward(network, x)
            check_are_scores(network, scores)
            lines = linearize(scores, y, at=watched, p=p, classes=classes, read_as=of_scores(read_as))
            scores = scores.detach()
            margin = lines.difference.detach()[:, 0] if read_as != "softmax" else output(scores, y)
            # Left on the device: a copy would synchronise.
            distances = {f"at {name}": d.detach() for name, d in lines.distances().items()}
            known = {} if index is None else {"index": index}
            knows_positions = knows_positions and index is not None
            predictions = predicted_labels(scores).to(y.dtype)
            columns.add(margin=margin, labels=y, predictions=predictions, **distances, **known)
    if not len(columns) or names is None:
        raise ValueError("data has no samples, expected at least one batch")
    margins = {name: columns.column(f"at {name}") for name in names}
    margin, labels, predictions = map(columns.column, ("margin", "labels", "predictions"))
    settings = {"at": list(names), "p": float(p), "classes": classes, "read_as": read_as}
    measured = Measurement(margins, margin, labels, predictions, settings, found.classes)
    return _in_order(measured, columns.column("index") if knows_positions else None)


def _in_order(measured: Measurement, index: Tensor | None) -> Measurement:
    """The measurement with its rows in the order of the data set, where their positions are known."""
    if index is None:
        return replace(measured, knows_positions=False)
    order = index.argsort(stable=True)
    index = index[order]
    return replace(
        measured,
        margins={name: values[order] for name, values in measured.margins.items()},
        output=measured.output[order],
        labels=measured.labels[order],
        predictions=measured.predictions[order],
        index=None if torch.equal(index, torch.arange(len(index))) else index,
    )


def accuracy(network: nn.Module, part: Samples, batch_size: int = 2000) -> float:
    """The share of samples that the network classifies correctly, in evaluation mode."""
    predictions = predicted_labels(predict(network, part.x, batch_size=batch_size))
    return int((predictions == part.y.to(predictions.device)).sum()) / len(part)
