"""The frame of the campaign: runs parts, and counts what held."""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

PARTS = (
    "bad_calls",
    "mutated_results",
    "mutated_checkpoints",
    "cut_logs",
    "full_disks",
    "killed_trainings",
    "killed_studies",
)
"""Parts, in the order of their run."""


class Part(Protocol):
    """A module of this package."""

    SMALL: int
    LARGE: int

    def run(self, count: int, seed: int, folder: Path) -> Iterator[str]:
        """One line for each case."""


@dataclass(frozen=True)
class Score:
    """What came of a part."""

    name: str
    held: int
    failures: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        return f"{self.name:20} {self.held:6} held {len(self.failures):6} failed {self.seconds:8.1f} s"


def part(name: str) -> Part:
    """The part of that name."""
    return cast(Part, importlib.import_module(f"campaign.{name}"))


def score(name: str, count: int, seed: int, folder: Path) -> Score:
    """Run `count` cases of a part."""
    start = time.monotonic()
    lines = list(part(name).run(count, seed, folder))
    failures = tuple(f"case {i} of {count}, seed {seed}: {line}" for i, line in enumerate(lines) if line)
    return Score(name, len(lines) - len(failures), failures, time.monotonic() - start)


def main() -> int:
    """The command `python -m campaign`."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=main.__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"of {', '.join(PARTS)}; by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="cases of each part; by default those of its large form")
    given = parser.parse_args()
    scores = []
    for name in given.parts:
        with tempfile.TemporaryDirectory() as folder:
            count = given.count or part(name).LARGE
            scores.append(score(name, count, given.seed, Path(folder)))
        print(scores[-1], flush=True)
        for line in scores[-1].failures[:20]:
            print(f"    {line}", flush=True)
    held, failed = sum(one.held for one in scores), sum(len(one.failures) for one in scores)
    print(f"{'all':20} {held:6} held {failed:6} failed {sum(one.seconds for one in scores):8.1f} s")
    return 1 if failed else 0
