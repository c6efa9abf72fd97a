"""A Lightning callback that measures margins while a `Trainer` trains, and writes a page at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor, nn

from widemargin._io.optional import EXTRAS, import_optional, is_installed
from widemargin._io.provenance import provenance
from widemargin.checks import check_count
from widemargin.integrations.torchmetrics import STATISTICS, MarginDistance
from widemargin.margins.distribution import Distribution

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    Callback = import_optional("lightning.pytorch", "integrations.lightning").Callback
    LightningModule, Trainer = nn.Module, object  # beartype reads annotations; Lightning has two packages

Batch: TypeAlias = Any
"""Whatever the user's data loaders give."""

SPLITS = {"train": "train", "val": "validation"}
"""The splits of the page's history."""


class Margins(Callback):  # type: ignore[misc]
    """Logs the distances of samples to the decision boundary at the end of every epoch, on any logger.

    Of training, validation and test samples each: "margins/val/accuracy", and for every place
    "margins/val/input/mean", "…/median", "…/minimum" and "…/share negative". They may be monitored by other callbacks:
    `ModelCheckpoint(monitor="margins/val/input/mean", mode="max")`.

    Validation and test samples are measured batch by batch; training samples at the end of the epoch, those of its
    first batches. Networks are measured in evaluation mode, and with `precision="bf16-mixed"` in float32. The values of
    several processes are those of all their samples. Weights and random states are left as they were.

    Args:
        at: names of places: modules of the network, "input" or "output". None: the input, or the first embedding of a
            network that takes tokens.
        p: the norm of the distance, in [1, ∞].
        samples: the most samples of a split that are measured in an epoch, of all processes together; None: all.
        network: the name of the submodule that maps inputs to scores; by default the `forward` of the module.
        batch: a function from a batch of the loaders to (x, y); by default a batch is such a pair, or a dictionary with
            "labels".
        page: the file of the page that is written at the end of `fit`, below the folder of the logger, or
            `Trainer(default_root_dir)` without one; None for no page. It needs the extra `report`.
    """

    def __init__(
        self,
        at: Sequence[str] | None = None,
        p: float | int = 2.0,
        *,
        samples: int | None = 1000,
        network: str | None = None,
        batch: Callable[[Batch], tuple[object, object]] | None = None,
        page: str | os.PathLike[str] | None = "margins.html",
    ) -> None:
        super().__init__()
        if samples is not None:
            check_count("samples", samples)
        self.samples, self.network, self.batch, self.page = samples, network, batch, page
        self.metric = MarginDistance(p=p, at=at)
        self.rows: list[dict[str, Any]] = []
        self._kept: list[Batch] = []
        self._count = 0
        self._last: tuple[dict[str, Distribution], float] | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn if the page cannot be written."""
        self.rows, self._last = [], None
        if self._writes(trainer) and not is_installed(*EXTRAS["report"]):
            _warn("there will be no page of the margins, which needs more packages: pip install 'widemargin[report]'")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the samples of the last epoch."""
        self._kept, self._count = [], 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: Batch, batch_idx: int
    ) -> None:
        """Keep the batch for the end of the epoch, unless there are enough samples."""
        if not self._is_enough(trainer):
            self._kept.append(batch)
            self._count += len(self._pair(batch)[1])

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the training samples that were kept."""
        self.metric.reset()
        for batch in self._kept:
            self._update(pl_module, batch)
        self._kept, self._count = [], 0
        self._log(trainer, pl_module, "train")

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin with no samples."""
        self.metric.reset()

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Measure the batch, unless there are enough samples."""
        if not trainer.sanity_checking and not self._is_enough(trainer, int(self.metric.total)):
            self._update(pl_module, batch)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the values of the validation samples."""
        if not trainer.sanity_checking:
            self._log(trainer, pl_module, "val")

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the values of the test samples."""
        self._log(trainer, pl_module, "test")

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the page."""
        folder = Path(trainer.log_dir or trainer.default_root_dir)  # in all processes: `log_dir` is broadcast
        if self.page is None or self._last is None or not self._writes(trainer) or not is_installed(*EXTRAS["report"]):
            return
        from widemargin.report import page

        (folder / self.page).parent.mkdir(parents=True, exist_ok=True)
        page.write(folder / self.page, self._result(pl_module))

    def _writes(self, trainer: Trainer) -> bool:
        """Whether this process writes the page."""
        return self.page is not None and trainer.is_global_zero and not trainer.fast_dev_run

    def _is_enough(self, trainer: Trainer, count: int | None = None) -> bool:
        limit = None if self.samples is None else -(-self.samples // trainer.world_size)
        return limit is not None and (self._count if count is None else count) >= limit

    def _pair(self, batch: Batch) -> tuple[object, Tensor]:
        found = batch if self.batch is None else self.batch(batch)
        if isinstance(found, Mapping) and "labels" in found:
            found = {name: value for name, value in found.items() if name != "labels"}, found["labels"]
        if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[1], Tensor):
            raise TypeError(
                f"a batch is a {type(found).__name__}, expected a pair (x, y) with a tensor of labels, or a dictionary "
                "with 'labels': pass Margins(batch=…), a function from a batch to such a pair"
            )
        return found[0], found[1]

    def _update(self, pl_module: LightningModule, batch: Batch) -> None:
        model = pl_module if self.network is None else pl_module.get_submodule(self.network)
        self.metric.to(pl_module.device).update(model, *self._pair(batch))

    def _log(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Log the values of all processes and keep them for the page."""
        found, accuracy = self.metric.to(pl_module.device).statistics()
        self.metric.reset()
        values = {f"margins/{stage}/accuracy": accuracy}
        for place, distribution in found.items():
            values |= {f"margins/{stage}/{place}/{name}": of(distribution) for name, of in STATISTICS.items()}
        # The values are the same in all processes; their mean is what Lightning asks for.
        self.log_dict(values, on_step=False, on_epoch=True, sync_dist=trainer.world_size > 1, batch_size=1)
        if stage in SPLITS:
            means = {f"distance at {place}": d.mean for place, d in found.items()}
            epoch = trainer.current_epoch + 1
            self.rows.append({"epoch": epoch, "split": SPLITS[stage], "accuracy": accuracy, **means})
            if stage == "val" or not any(row["split"] == "validation" for row in self.rows):
                self._last = found, accuracy

    def _result(self, pl_module: LightningModule) -> Mapping[str, Any]:
        """The page's content: the margins of the last epoch, and the history."""
        assert self._last is not None
        found, accuracy = self._last
        name = type(pl_module).__name__
        count = max(len(d) + d.invalid for d in found.values())
        margins = {place: [float(f"{value:.6g}") for value in d.values.tolist()] for place, d in found.items()}
        history = [
            {key: None if value != value else value for key, value in row.items()} for row in self.rows
        ]  # NaN is not part of JSON
        arm = {"name": name, "samples": count, "accuracy": accuracy, "margins": margins, "history": history}
        measured = [row for row in self.rows if row["split"] == "validation"] or self.rows
        split = "validation" if measured is not self.rows else "training"
        made = provenance(pl_module.device.type)
        return {
            "title": f"Margins of {name}",
            "subtitle": f"{count:,} {split} samples after epoch {measured[-1]['epoch']}",
            "norm": f"l_{self.metric.p:g}",
            "arms": [arm],
            "settings": {"p": f"{self.metric.p:g}", "places": ", ".join(found), "most samples": self.samples},
            "versions": made["versions"],
            "hardware": made["hardware"],
        }


def _warn(text: str) -> None:
    from lightning.pytorch.utilities import rank_zero_warn

    rank_zero_warn(text)
