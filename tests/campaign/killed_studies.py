"""Studies that are killed at random moments and begun again, by one process or by two at once.

A case, one kill, holds where the study then comes to the result of an unbroken one, and where no more trials ran again
than processes were killed. `python -m campaign.killed_studies FOLDER KILLS SEED` prints a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from studies import tiny
from studies.deadly import Slow
from subprocesses import child_env
from widemargin._io.files import write_json
from widemargin.studies import run as running
from widemargin.studies import tasks

SMALL, LARGE = 6, 200
LONGEST = 0.6
"""Seconds until a kill; an unbroken study takes about one."""


def run(count: int, seed: int, folder: Path) -> Iterator[str]:
    """One line for each case."""
    command = [sys.executable, "-m", "campaign.killed_studies", str(folder), str(count), str(seed)]
    done = subprocess.run(command, env=child_env(), capture_output=True, text=True, timeout=3600, check=False)
    lines: list[str] = [json.loads(line) for line in done.stdout.splitlines()]
    yield from lines
    yield from [f"no result: {done.stderr[-300:]}"] * (count - len(lines))


def main(folder: Path, count: int, seed: int) -> None:
    """Kill, continue, compare."""
    vars(running)["provenance"] = lambda _: {"commit": None, "versions": {}, "hardware": {}}
    drawn = random.Random(seed)
    wanted = finished(folder / "unbroken")
    kills, number = 0, 0
    while kills < count:
        place = folder / str(number)
        of_this = killed = 0
        while of_this < 3 and kills < count:
            children = [begun(place) for _ in range(drawn.randint(1, 2))]
            time.sleep(drawn.uniform(0, LONGEST))
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            of_this, kills, killed = of_this + 1, kills + 1, killed + len(children)
        found = finished(place)
        line = "" if found == wanted else "another result"
        again = len((place / "ran").read_text().splitlines()) - wanted["trials"]
        if again > killed:
            line = f"{again} trials ran again after {killed} killed processes"
        for _ in range(of_this):
            print(json.dumps(line), flush=True)
        number += 1


def begun(place: Path) -> int:
    """A process that runs the study."""
    place.mkdir(exist_ok=True)
    child = os.fork()
    if child:
        return child
    work(place)
    os._exit(0)


def finished(place: Path) -> dict[str, Any]:
    """What the result says, once the study has come to its end."""
    os.waitpid(begun(place), 0)
    found = json.loads((place / "end.json").read_text())
    return {key: found[key] for key in ("complete", "trials", "rows", "claims", "chosen")}


def work(place: Path) -> None:
    """Run the study in `place`."""
    slow = Slow(place)
    vars(tasks)["find"] = lambda name: slow
    write_json(place / "end.json", running.run(tiny.study(), "budget", folder=place))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
