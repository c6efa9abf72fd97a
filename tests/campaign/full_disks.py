"""Disks that are full after some bytes, while results, weights, checkpoints and logs of trials are written.

A case holds where the error is one sentence about the disk, the file is as it was before, and nothing else is left.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from studies import tiny
from widemargin._io.files import DiskFullError, write_json, write_parquet
from widemargin._io.tensors import write_tensors
from widemargin.report import html
from widemargin.studies.store import Store
from widemargin.training import checkpoint

SMALL, LARGE = 60, 1000
TRIALS = [tiny.trial(seed=number) for number in range(2)]
WRITERS: dict[str, Callable[[Path], object]] = {
    "result.json": lambda path: write_json(path, ["x" * 100] * 200),
    "margins.parquet": lambda path: write_parquet(path, {"a": np.random.default_rng(0).random(2000)}),
    "weights.safetensors": lambda path: write_tensors(path, {"w": torch.ones(3000)}, {}),
    checkpoint.NAME: lambda path: checkpoint.save(path.parent, {"w": torch.ones(3000)}, {"seed": "0"}),
    "page.html": lambda path: html.write(path, "x" * 10_000),
    "E3.jsonl": lambda path: Store(path).add(TRIALS[1], {"note": "x" * 10_000}, 1.0, {}),
}


def run(count: int, seed: int, folder: Path) -> Iterator[str]:
    """One line for each case. Files longer than a limit stand for a full disk: the rest of a write is refused."""
    drawn = random.Random(seed)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for case in range(count):
        name = drawn.choice(list(WRITERS))
        path = folder / str(case) / name
        path.parent.mkdir()
        Store(path).add(TRIALS[0], {}, 1.0, {})  # any content, and the first line of a log
        before = path.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + drawn.randrange(6000), hard))
        try:
            WRITERS[name](path)
            line = "nothing was said"
        except DiskFullError as error:
            line = "" if str(path) in str(error) else f"said {error}"
        except Exception as error:
            line = f"{type(error).__name__}: {error}"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        left = [one.name for one in path.parent.iterdir()]
        if not line and (path.read_bytes() != before or left != [name]):
            line = f"{name} is another file, or {left} is left"
        yield line
