"""Wrong labels of a data set, found by cross-validated networks."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from widemargin._io.files import write_json, write_whole
from widemargin._io.provenance import provenance
from widemargin.checks import check_callable, check_count, check_finite, check_flag, check_number, check_seed
from widemargin.data.batching import read
from widemargin.data.samples import Samples
from widemargin.diagnostics.cross_validation import Predictions, cross_validate
from widemargin.diagnostics.default_network import default_network
from widemargin.diagnostics.label_noise import noise_model
from widemargin.diagnostics.label_precision import margins, wrong_probabilities
from widemargin.losses.classification import CrossEntropy
from widemargin.losses.protocol import Loss
from widemargin.training.optimizers import AdamW, MakesOptimizer


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelIssues:
    """Labels of a data set in the order of suspicion; its repr shows the first ten.

    The `margin` of a label is its log-odds against all other classes, the mean of two: by the averaged predictions of
    the networks, and by the posterior of a noise model. `suggested` is the most likely class by both together. A label
    that is not the suggested one is a suspect. `wrong` is the probability that a label is wrong if the networks know
    the classes, and `least_wrong` a lower estimate that allows for networks that do not.

    `samples` have the given labels, `suggested` and the others an entry per sample, `noise` P(label | class) with a row
    per class. `predicted` are the out-of-sample probabilities at the end of the trainings, as other tools take them.
    """

    samples: Samples
    margin: Float64[Tensor, " samples"]
    wrong: Float64[Tensor, " samples"]
    least_wrong: Float64[Tensor, " samples"]
    suggested: Int64[Tensor, " samples"]
    labels: Int64[Tensor, " samples"]
    noise: Float64[Tensor, "classes classes"]
    predicted: Float64[Tensor, "samples classes"]
    averaged: Float64[Tensor, "samples classes"]
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    settings: dict[str, Any]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def ranking(self) -> Int64[Tensor, " samples"]:
        """Positions of all samples, the most suspicious label first."""
        return self.margin.argsort(stable=True)

    @property
    def suspects(self) -> Int64[Tensor, " suspects"]:
        """Positions of the labels that are not the suggested ones, the most suspicious first."""
        ranking = self.ranking
        return ranking[(self.labels != self.suggested)[ranking]]

    @property
    def expected_precision(self) -> tuple[float, float]:
        """The share of the suspects that is expected to be wrong: a lower estimate and one that trusts the networks."""
        return self._mean_of(self.suspects)

    @property
    def share(self) -> tuple[float, float]:
        """The share of all labels that is expected to be wrong, by both estimates."""
        return self._mean_of(self.ranking)

    def precision_of(self, count: int) -> tuple[float, float]:
        """The share of the `count` most suspicious labels that is expected to be wrong, by both estimates."""
        check_count("count", count, least=0)
        return self._mean_of(self.ranking[:count])

    def at_precision(self, precision: float, *, cautious: bool = False) -> Int64[Tensor, " suspects"]:
        """The longest beginning of the ranking whose expected precision is at least `precision`.

        `cautious`: by the lower estimate.
        """
        check_number("precision", precision, above=0.0, most=1.0)
        ranking = self.ranking
        wrong = (self.least_wrong if cautious else self.wrong)[ranking]
        means = wrong.cumsum(0) / torch.arange(1, len(self) + 1, dtype=torch.float64)
        enough = (means >= precision).nonzero()
        return ranking[: int(enough[-1]) + 1 if len(enough) else 0]

    def _mean_of(self, positions: Tensor) -> tuple[float, float]:
        low, high = (float(wrong[positions].mean()) for wrong in (self.least_wrong, self.wrong))
        return low, high

    def name_of(self, label: int) -> str:
        """The name of a class."""
        return self.classes[label]

    def rows(self, count: int | None = None) -> list[dict[str, Any]]:
        """The `count` most suspicious labels (None: all) as plain values, the first one first.

        `index` is the position in the data set that the samples were first selected from.
        """
        index = torch.arange(len(self)) if self.samples.index is None else self.samples.index.cpu()
        return [
            {
                "index": int(index[i]),
                "given": self.name_of(int(self.labels[i])),
                "suggested": self.name_of(int(self.suggested[i])),
                "margin": float(self.margin[i]),
                "wrong": float(self.wrong[i]),
                "least wrong": float(self.least_wrong[i]),
            }
            for i in self.ranking[:count].tolist()
        ]

    def pairs(self) -> list[tuple[str, str, int]]:
        """(given, suggested, number of suspects), the most common pair first."""
        suspects = self.suspects
        found = Counter(zip(self.labels[suspects].tolist(), self.suggested[suspects].tolist(), strict=True))
        return [(self.name_of(a), self.name_of(b), count) for (a, b), count in found.most_common()]

    def summary(self) -> dict[str, Any]:
        """Settings and the figures of all labels, as plain values."""
        return {
            "settings": self.settings,
            "samples": len(self),
            "suspects": len(self.suspects),
            "expected precision": list(self.expected_precision),
            "expected share of wrong labels": list(self.share),
            "classes": list(self.classes),
            "P(label | class)": self.noise.tolist(),
            **provenance(),
        }

    def write(self, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write `label_issues.csv` (all labels, the most suspicious first) and `summary.json` into `folder`."""
        text = io.StringIO()
        writer = csv.DictWriter(
            text, ["index", "given", "suggested", "margin", "wrong", "least wrong"], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(self.rows())
        table = Path(folder) / "label_issues.csv"
        write_whole(table, lambda part: part.write_text(text.getvalue(), encoding="utf-8"))
        return table, write_json(Path(folder) / "summary.json", self.summary())

    def page(self, path: str | os.PathLike[str], *, count: int = 120, title: str = "Label issues") -> Path:
        """Write a page with the `count` most suspicious samples, their given and their suggested labels."""
        from widemargin.diagnostics.label_page import page_values
        from widemargin.report import label_issues as report

        check_count("count", count)
        return report.write(path, page_values(self, count=count, title=title))

    def __repr__(self) -> str:
        count = len(self.suspects)
        low, high = self.expected_precision
        expected = f", of which {low:.0%} to {high:.0%} are expected to be wrong" if count else ""
        lines = [f"{len(self):,} labels, {count:,} suspects ({count / len(self):.1%}){expected}"]
        rows = self.rows(10)
        wide = max((len(row["given"]) for row in rows), default=0)
        lines += [
            f"  {row['index']:>7}  {row['given']:>{wide}} → {row['suggested']:{wide}}  margin {row['margin']:+6.2f}  "
            f"wrong {row['wrong']:.0%}"
            for row in rows
        ]
        return "\n".join(lines)


def label_issues(
    build: Callable[[], nn.Module] | None,
    data: object,
    folds: int = 4,
    *,
    loss: Loss = CrossEntropy(),  # noqa: B008 (both are frozen values)
    epochs: int = 20,
    optimizer: MakesOptimizer = AdamW(),  # noqa: B008
    batch_size: int = 64,
    seed: int = 0,
    classes: Sequence[str] | None = None,
    device: str | torch.device | None = None,
    progress: bool | None = None,
) -> LabelIssues:
    """Rank the labels of `data` by how likely they are wrong.

    `folds` networks are trained, each on the samples outside of one fold. The prediction for a sample is a weighted
    mean of two averages over epochs: of the probabilities that the network that has not seen it gives it (2/3), and of
    those that all networks give it early, when they have not yet learned wrong labels by heart (1/3). A noise model of
    the labels is fitted to it (`diagnostics.label_noise`), and the labels are ranked by their margins under both.

    With `folds=1` one network is trained on all samples for a third of the epochs, and its predictions are averaged: a
    tenth of the work. It needs enough samples to learn something in so few epochs.

    The probabilities of all samples after every epoch are kept in memory in float32.

    Args:
        build: makes a network, with new weights each time; None for a small one that fits images and tables.
        data: as of `fit`: a name or a `Data` (its training set), `data.Samples`, a pair (x, y) of tensors, arrays or
            frames, a `Dataset`, …; labels can be names.
        folds: how many; every class has to have a sample in every fold, so at least as many samples of each label.
        loss: of the training. Its scores are read as logits.
        epochs: passes over the data of each training, enough to learn and not many more.
        optimizer: as of `fit`.
        batch_size: samples of a step.
        seed: of the folds, the initial weights and the order of the samples.
        classes: names of the classes; by default those of the data, or their numbers.
        device: where to train; by default a GPU if there is one.
        progress: show a bar; by default on a terminal only.
    """
    check_count("folds", folds)
    check_count("epochs", epochs)
    check_count("batch_size", batch_size)
    check_seed(seed)
    if progress is not None:
        check_flag("progress", progress)
    samples = read(data, split="train", classes=classes)
    check_finite(samples.x, "data")  # trainings would name the position in a fold
    labels, named = _labels(samples)
    if build is None:
        build = default_network(samples.x, len(named))
    check_callable("build", build, "lambda: models.mnist_cnn()", makes=nn.Module)
    _check_folds(labels, folds, named)
    found = cross_validate(
        build,
        samples,
        labels,
        folds=folds,
        loss=loss,
        epochs=epochs,
        optimizer=optimizer,
        batch_size=batch_size,
        seed=seed,
        device=device,
        progress=progress,
    )
    settings = {"folds": folds, "loss": str(loss), "epochs": epochs, "optimizer": str(optimizer)}
    settings |= {"batch_size": batch_size, "seed": seed, "network": found.network}
    if found.averaged.shape[1] > len(named):
        named = (*named, *(str(k) for k in range(len(named), found.averaged.shape[1])))
    return scored(samples, labels, found, classes=named, columns=_columns(samples), settings=settings)


def scored(
    samples: Samples,
    labels: Int64[Tensor, " samples"],
    found: Predictions,
    *,
    classes: tuple[str, ...],
    columns: tuple[str, ...] = (),
    settings: dict[str, Any],
) -> LabelIssues:
    """The issues that follow from the predictions of cross-validated networks."""
    model = noise_model(found.averaged, labels)
    low, high = wrong_probabilities(model, labels)
    return LabelIssues(
        samples=samples,
        margin=margins(model, labels),
        wrong=high,
        least_wrong=low,
        suggested=(model.calibrated + model.posterior(labels)).argmax(dim=1),
        labels=labels,
        noise=model.transition,
        predicted=found.predicted,
        averaged=found.averaged,
        classes=classes,
        columns=columns,
        settings=settings,
    )


def _labels(samples: Samples) -> tuple[Tensor, tuple[str, ...]]:
    """The labels as class indices, and the names of the classes: their numbers, where they have no names."""
    y = samples.y.cpu()
    if y.is_floating_point():
        if not bool((y.abs() == 1).all()):
            raise ValueError("data has float labels, expected class indices, or −1.0 and 1.0 for a binary network")
        return (y > 0).long(), samples.classes if len(samples.classes) == 2 else ("-1", "1")
    if int(y.min()) < 0:
        raise ValueError(f"data has label {int(y.min())}, expected class indices from 0")
    highest = int(y.max())
    names = [samples.classes[k] if k < len(samples.classes) else str(k) for k in range(highest + 1)]
    return y.long(), (*names, *samples.classes[highest + 1 :])


def _columns(samples: Samples) -> tuple[str, ...]:
    """Names of the features of a table: its columns, or their numbers."""
    count = samples.x[0].numel() if samples.x.ndim == 2 else 0
    return samples.columns if len(samples.columns) == count else tuple(map(str, range(count)))


def _check_folds(labels: Tensor, folds: int, classes: Sequence[str]) -> None:
    counts = torch.bincount(labels)
    rare = ((counts > 0) & (counts < max(folds, 2))).nonzero()[:, 0].tolist()
    if rare:
        raise ValueError(
            f"folds is {folds}, but label {classes[rare[0]]!r} has {int(counts[rare[0]])} samples, "
            f"expected at least {max(folds, 2)}"
        )
    if int((counts > 0).sum()) < 2:
        raise ValueError("data has one label only, expected at least two")
