"""Two processes that train together have the statistics, and the gradients, of one process with the joint batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from laws import batch, smooth_network
from two_processes import leave
from widemargin._autograd import distributed_stats
from widemargin.losses import Hinge, MarginLoss

LOSS = MarginLoss(penalty=Hinge(gamma=0.7), at=("input", "tanh1"), classes=2)
CUTS = (6, 3)
"""Samples of the first process; the second has the others of 12."""


def test_alone_the_joint_batch_is_the_batch() -> None:
    values = torch.tensor([1.0, 2.0, 6.0])
    assert distributed_stats.processes() == 1
    assert distributed_stats.mean(values).item() == 3.0
    assert distributed_stats.gather(values).tolist() == [1.0, 2.0, 6.0]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what two processes found."""
    folder = tmp_path_factory.mktemp("two")
    spawn(_halves, args=(str(folder),), nprocs=2, join=True)
    return folder


@pytest.mark.parametrize("cut", CUTS)
def test_two_processes_have_the_gradient_of_the_joint_batch(cut: int, two: Path) -> None:
    network, (x, y) = smooth_network(), batch()
    values = LOSS(network, x, y)
    values.sum().backward()
    halves = [torch.load(two / f"{cut}.{rank}.pt", weights_only=True) for rank in range(2)]
    torch.testing.assert_close(torch.cat([half["values"] for half in halves]), values.detach())
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(halves[0][name] + halves[1][name], parameter.grad)


def _halves(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for cut in CUTS:
        network, (x, y) = smooth_network(), batch()
        part = slice(0, cut) if rank == 0 else slice(cut, 12)
        values = LOSS(network, x[part], y[part])
        values.sum().backward()
        grads = {name: p.grad for name, p in network.named_parameters()}
        torch.save({"values": values.detach(), **grads}, Path(folder) / f"{cut}.{rank}.pt")
    leave(Path(folder), rank)
