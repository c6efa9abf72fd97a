"""A process of two under DistributedDataParallel: writes down the gradients of its network after one backward."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel

from split_backward.networks import LOSS, batch, network
from two_processes import leave
from widemargin.split_backward import backward
from widemargin.training import margin_backward


def main(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    backward.LEAST_BYTES = {}  # however small
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=2)
    x, y = batch(10)
    for name, way in {"vit": "split", "resnet, batch norm": "two"}.items():
        model = network(name)
        wrapped = DistributedDataParallel(model)
        done = margin_backward(wrapped, LOSS, x[5 * rank : 5 * rank + 5], y[5 * rank : 5 * rank + 5])
        assert done.method == way, done
        gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
        save_file(gradients, folder / f"{name}.{rank}.safetensors")
    leave(folder, rank)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
