"""A task whose trials sleep, fail, or kill their process; the processes import this file.

As a program, `python -m studies.deadly FOLDER` runs the study of `tiny` slowly, and notes each trial.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from studies import tiny
from widemargin.studies import tasks, workers
from widemargin.studies.trial import Trial, TrialContext

VERSION = 1
"""This module is a task."""

_FIND = tasks.find


def find(name: str) -> Any:
    """This task, or one of the package."""
    return sys.modules[__name__] if name == "deadly" else _FIND(name)


vars(tasks)["find"] = find


def trial(does: str, seed: int, folder: Path) -> Trial:
    """A trial that does that, and notes in `folder` that it began."""
    settings = {"does": does, "folder": str(folder)}
    about: dict[str, Any] = {"study": "E3", "arm": does, "scale": "smoke", "stage": "final", "seed": seed}
    return Trial(task="deadly", version=1, settings=settings, **about)


def run(trial: Trial, context: TrialContext) -> dict[str, Any]:
    """Note the process, then do what the settings say."""
    does, folder = trial.settings["does"], Path(trial.settings["folder"])
    mark = folder / f"{does} {trial.seed}"
    begun = len(list(folder.glob(f"{mark.name}.*")))
    (folder / f"{mark.name}.{begun}").write_text(str(os.getpid()))
    if does == "dies" or (does == "dies once" and not begun):
        os.kill(os.getpid(), signal.SIGKILL)
    if does == "fails":
        raise ValueError(f"seed {trial.seed} is odd")
    if does == "sleeps":
        time.sleep(600)
    return {"accuracy": trial.seed / 10}


def timed(trial: Trial, context: TrialContext) -> workers.Done:
    """`workers.timed` in a process that has imported this module, and so knows the task."""
    return workers.timed(trial, context)


class Slow(tiny.Counting):
    """Counts slowly, and notes each trial in a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def run(self, trial: Trial, context: TrialContext) -> dict[str, Any]:
        with (self.folder / "ran").open("a") as file:
            file.write(f"{trial.key} {os.getpid()}\n")
        time.sleep(0.05)
        return super().run(trial, context)


def main(folder: Path) -> None:
    """The program: it begins when it is told to."""
    from widemargin.studies import run as running

    slow = Slow(folder)
    vars(running)["provenance"] = lambda _: {"commit": None, "versions": {}, "hardware": {}}  # torch takes seconds
    vars(tasks)["find"] = lambda name: slow
    print("ready", flush=True)
    input()
    found = running.run(tiny.study(), "budget", folder=folder)
    print(found["complete"], found["trials"], round(found["claims"][0]["measured"], 6))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
