"""Logs of finished trials that are cut anywhere, as by a killed writer, and then continued.

A case holds where every trial is there whose line was whole, and the next one is added after them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from studies import tiny
from widemargin.studies.store import Store

SMALL, LARGE = 60, 1000


def run(count: int, seed: int, folder: Path) -> Iterator[str]:
    """One line for each case."""
    drawn = random.Random(seed)
    path = folder / "E3.jsonl"
    trials = [tiny.trial(seed=number) for number in range(4)]
    for one in trials[:3]:
        Store(path).add(one, {"accuracy": one.seed / 10, "note": "γ\u2028"}, 1.0, {})
    content = path.read_bytes()
    ends = [i for i, byte in enumerate(content) if byte == ord("\n")]
    for _ in range(count):
        cut = drawn.randrange(len(content) + 1)
        path.write_bytes(content[:cut])
        whole = sum(end <= cut for end in ends)  # a line without only its end is whole
        try:
            store = Store(path)
            there = [one in store for one in trials]
            store.add(trials[3], {"accuracy": 0.3}, 1.0, {})
            after = [one in Store(path) for one in trials]
        except Exception as error:
            yield f"cut at {cut}: {type(error).__name__}: {error}"
            continue
        expected = [i < whole for i in range(3)]
        held = there == [*expected, False] and after == [*expected, True]
        yield "" if held else f"cut at {cut}: {there}, then {after}, expected {expected}"
