"""A Lightning module and its data, for tests in one and in two processes."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import widemargin as wm

CLASSES, FEATURES = 3, 5


class Classifier(pl.LightningModule):  # type: ignore[misc]
    """A small network with dropout, trained with `WideMargin`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, CLASSES))
        self.loss = wm.WideMargin()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, index: int) -> Tensor:
        return self.loss(self, *batch).mean()

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val/loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def test_step(self, batch: Any, index: int) -> None:
        """The callback measures, the module does nothing."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.02)


def samples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % CLASSES
    centres = 2 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(7))
    return centres[y] + torch.randn(count, FEATURES, generator=generator), y


def loader(count: int, seed: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*samples(count, seed)), batch_size=16, **options)


def trainer(**options: Any) -> pl.Trainer:
    values: dict[str, Any] = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
    }
    return pl.Trainer(**(values | options))
