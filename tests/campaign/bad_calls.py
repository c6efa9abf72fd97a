"""Calls of public functions with one or two bad arguments, drawn from the table of `bad_call_table`.

A case holds where the call ends in an error of the package's own, in one line that names a bad argument.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import bad_call_table as table

SMALL, LARGE = 60, 10_000


def run(count: int, seed: int, folder: Path) -> Iterator[str]:
    """One line for each case."""
    drawn = random.Random(seed)
    by_function = defaultdict(list)
    for cell in table.cells():
        by_function[cell.function].append(cell)
    cells = [cell for same in by_function.values() for cell in same]
    for _ in range(count):
        first = drawn.choice(cells)
        others = [cell for cell in by_function[first.function] if cell.argument != first.argument]
        second = drawn.choice(others) if others and drawn.random() < 0.7 else None
        yield table.outcome(first) if second is None else table.outcome(first, second)
