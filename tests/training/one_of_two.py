"""A process of two, as torchrun would start it: trains every case, and the first one writes the weights down."""

from __future__ import annotations

import contextlib
import itertools
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import widemargin as wm
from training.cases import CASES, arguments
from two_processes import leave
from widemargin import losses
from widemargin._io.files import write_json
from widemargin.training import Checkpoint, Devices

TWO = Devices(accelerator="cpu", count=2, strategy="ddp")


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    resumed(folder)
    normed = wm.fit(**(arguments("cross-entropy") | {"model": with_batch_norm(), "devices": TWO}))
    write(normed, folder, "batch norm")
    history = {}
    for name in CASES:
        result = wm.fit(**(arguments(name) | {"devices": TWO, "checkpoint": folder / name}))
        history[name] = list(result.history.rows)
        write(result, folder, name)
        write_json(folder / f"{torch.distributed.get_rank()}.json", history)
    leave(folder, torch.distributed.get_rank())


def resumed(folder: Path) -> None:
    """A training that stops in its fifth step, and goes on after the fourth."""
    calls = itertools.count(1)

    def breaks(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if model.training and next(calls) == 5:
            raise InterruptedError
        return losses.large_margin(gamma=2.0)(model, x, y)

    saved = Checkpoint(folder / "resumed", every=2)
    settings = arguments("large margin") | {"loss": breaks, "checkpoint": saved, "devices": TWO}
    for _ in range(2):
        with contextlib.suppress(InterruptedError):
            given = settings | {"model": arguments("large margin")["model"]}
            write(wm.fit(**given), folder, "resumed")
    assert next(calls) == 5 + 2 + 1  # 6 steps in all: 5 calls, the two that were left, and this one


def with_batch_norm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()


def write(result: wm.training.Fit, folder: Path, name: str) -> None:
    save_file(dict(result.model.state_dict()), folder / f"{name}.{torch.distributed.get_rank()}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
