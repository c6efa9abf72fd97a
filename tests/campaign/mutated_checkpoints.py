"""Checkpoints with flipped bits, cut ends and exchanged parts.

A case holds where the file is refused in one kind of sentence, or where it holds the same state.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import torch

from widemargin._io.tensors import read_tensors
from widemargin.training import checkpoint

SMALL, LARGE = 100, 3000
SETTINGS = {"seed": "0", "lr": "0.1"}
STATE = {
    "at": {"step": 7, "epoch": 1, "rows": [{"split": "train", "loss": 0.5}]},
    "model": {"weight": torch.linspace(-1, 1, 24).reshape(4, 6), "bias": torch.zeros(4)},
    "optimizer": {"state": {0: {"step": torch.tensor(7.0), "exp": torch.ones(4, 6)}}, "groups": [{"lr": 0.1}]},
}


def run(count: int, seed: int, folder: Path) -> Iterator[str]:
    """One line for each case."""
    drawn = random.Random(seed)
    path = checkpoint.save(folder, STATE, SETTINGS)
    content, wanted = path.read_bytes(), read_tensors(path)
    for _ in range(count):
        changed = bytearray(content)
        kind = drawn.randrange(4)
        if kind < 2:
            for _ in range(1 if kind else drawn.randint(2, 16)):
                bit = drawn.randrange(8 * len(content))
                changed[bit // 8] ^= 1 << bit % 8
        elif kind == 2:
            del changed[drawn.randrange(len(content)) :]
        else:
            start, end = sorted(drawn.sample(range(len(content)), 2))
            changed[start:end] = bytes(end - start) if drawn.random() < 0.5 else b""
        path.write_bytes(changed)
        try:
            checkpoint.load(folder, SETTINGS)
        except ValueError as error:
            is_known = str(error).startswith("checkpoint is ") and "\n" not in str(error)
            yield "" if is_known else f"refused in other words: {error}"
        except Exception as error:
            yield f"{type(error).__name__}: {error}"
        else:
            yield "" if _same(wanted, read_tensors(path)) else "another state was read"


def _same(
    left: tuple[dict[str, torch.Tensor], dict[str, str]], right: tuple[dict[str, torch.Tensor], dict[str, str]]
) -> bool:
    """Whether two files say the same: other JSON of equal meaning, or a byte that nobody reads."""
    if json.loads(left[1]["state"]) != json.loads(right[1]["state"]) or left[0].keys() != right[0].keys():
        return False
    return all(torch.equal(tensor, right[0][name]) for name, tensor in left[0].items())
