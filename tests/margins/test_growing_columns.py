"""Columns that grow in one buffer."""

from __future__ import annotations

import subprocess
import sys

import torch

from subprocesses import child_env
from widemargin.margins.growing_columns import SMALLEST, Columns


def test_what_was_added_is_there_in_order() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(n, generator=generator) for n in (1, 3, SMALLEST, 7, 2 * SMALLEST)]
    found = Columns()
    assert len(found) == 0
    for part in parts:
        found.add(values=part, doubled=(2 * part).double())
    assert torch.equal(found.column("values"), torch.cat(parts))
    assert torch.equal(found.column("doubled"), 2 * torch.cat(parts).double())
    assert len(found) == sum(map(len, parts))


def test_types_are_promoted_as_torch_does() -> None:
    found = Columns()
    for part in (torch.ones(2), torch.ones(2).double()):
        found.add(values=part)
    assert found.column("values").dtype == torch.float64


def test_the_memory_of_a_long_stream_stays_flat() -> None:
    """60,000 samples after the first 20,000 take less than 25 MB; a list of a tensor for each batch takes about 100."""
    code = """
import torch
from torch.utils.data import IterableDataset
import widemargin as wm

torch.set_num_threads(1)
seen = []


class Stream(IterableDataset):
    def __iter__(self):
        x = torch.rand(3, 12, 12)
        for i in range(80_000):
            if i in (20_000, 79_999):
                with open("/proc/self/statm") as file:
                    seen.append(int(file.read().split()[1]) * 4096 / 1e6)
            yield x, i % 10


layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(800, 10))
wm.measure(torch.nn.Sequential(*layers), Stream(), progress=False)
print(seen[1] - seen[0])
"""
    command = [sys.executable, "-c", code]
    env = child_env(OMP_NUM_THREADS="1")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True)
    assert float(done.stdout) < 25
