"""A process of two under DistributedDataParallel: writes down the gradients of `WideMargin` after one backward pass."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from losses.wide_networks import CASES
from two_processes import leave
from widemargin.losses import WideMargin

NAMES = ("mlp", "batch norm", "dropout", "tokens")
LOSSES = {"full": WideMargin(), "share": WideMargin(share=0.5)}


def gradients(model: nn.Module, name: str, rank: int, loss: WideMargin) -> dict[str, torch.Tensor]:
    """Of the half of the batch that belongs to process `rank`."""
    x, y = (part[8 * rank : 8 * rank + 8] for part in CASES[name].batch(16))
    torch.manual_seed(rank)
    loss(model, x, y).mean().backward()
    return {key.removeprefix("module."): p.grad for key, p in model.named_parameters() if p.grad is not None}


def main(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=2)
    for name in NAMES:
        for form, loss in LOSSES.items():
            model = DistributedDataParallel(CASES[name].network(), find_unused_parameters=form == "share")
            save_file(gradients(model, name, rank, loss), folder / f"{name}.{form}.{rank}.safetensors")
    leave(folder, rank)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
