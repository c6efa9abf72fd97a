"""A process of two, as torchrun would start it: trains every case, and the first one writes the weights down."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

import widemargin as wm
from training.cases import CASES, arguments
from widemargin.files import write_json


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    history = {}
    for name in CASES:
        result = wm.fit(**arguments(name), devices=2, strategy="ddp", checkpoint=folder / name)
        history[name] = list(result.history.rows)
        here = torch.distributed.get_rank()
        save_file(dict(result.model.state_dict()), folder / f"{name}.{here}.safetensors")
        write_json(folder / f"{here}.json", history)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
