"""Trainings that are killed at random moments and begun again.

A case, one kill, holds where every training that came to its end has the weights and the history of an unbroken one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from subprocesses import TESTS, child_env

SMALL, LARGE = 8, 500
AT_ONCE = 50


def run(count: int, seed: int, folder: Path) -> Iterator[str]:
    """One line for each case."""
    for first in range(0, count, AT_ONCE):
        kills = min(AT_ONCE, count - first)
        place = folder / str(first)
        place.mkdir()
        command = [sys.executable, str(TESTS / "training" / "killed.py"), str(place), str(kills), str(seed + first)]
        env = child_env(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3600, check=False)
        yield from [_problem(done, place, kills)] * kills


def _problem(done: subprocess.CompletedProcess[str], place: Path, kills: int) -> str:
    """What is wrong; nothing where all kills of a process held."""
    if done.returncode != 0:
        return f"another end: {done.stderr[-300:]}"
    said = json.loads(done.stdout)
    if len(said["stood"]) != kills or not said["equal"]:
        return f"said {said}"
    if left := list(place.rglob(".checkpoint*")):
        return f"left {left}"
    if len({step % 3 for step in said["stood"] if step}) < 2 and kills > 10:
        return "no training was killed in the middle of an epoch, which has 3 steps"
    return ""
