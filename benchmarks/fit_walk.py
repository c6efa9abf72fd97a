"""Source files whose functions run in `wm.fit` with a margin loss on a CPU: setup, one step, the end.

python benchmarks/fit_walk.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

import widemargin as wm
from widemargin.losses import MarginLoss
from widemargin.training import Devices, Measure, ProgressBar, fit

ROOT = Path(wm.__file__).parent


def files_of(function: Callable[[], object]) -> list[str]:
    """The files of the package whose functions `function` calls; code that runs on import is not counted."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    inside = [Path(name) for name in files if Path(name).is_relative_to(ROOT)]
    return sorted(path.relative_to(ROOT).as_posix() for path in inside)


def main() -> None:
    x, y = torch.rand(4, 6), torch.tensor([0, 1, 2, 0])
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

    loss, callbacks = MarginLoss(), [Measure(every=None), ProgressBar(show=False)]

    def step() -> None:
        fit(model, (x, y), loss=loss, epochs=1, callbacks=callbacks, devices=Devices(accelerator="cpu"))

    step()  # imports
    files = files_of(step)
    print(*files, f"{len(files)} files", sep="\n")


if __name__ == "__main__":
    main()
