"""Trains one network without a break, and the same again in a process that is killed at random moments.

`python killed.py FOLDER KILLS SEED`.

The processes are forks of this one, which has imported and run everything once, so that a start costs milliseconds.
Prints, as JSON, where each killed training stood, and how many were finished and equal to the unbroken one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

import widemargin as wm
from training.cases import CPU, network, samples
from widemargin import losses, regularizers
from widemargin.training import AdamW, Checkpoint, Cosine, Measure, checkpoint

LONGEST = 0.4  # until a kill, of the time that the unbroken training took


def train(out: Path, folder: Path | None, epochs: int = 30) -> None:
    """All that has a state: AdamW, dropout, a random regularizer, a schedule, a history, batches of unequal size."""
    result = wm.fit(
        network(dropout=0.3),
        samples(),
        loss=losses.large_margin(gamma=2.0),
        regularizers=(regularizers.Jacobian(weight=0.01),),
        optimizer=AdamW(lr=0.003),
        schedule=Cosine(),
        epochs=epochs,
        batch_size=20,
        validation=samples(12, seed=5),
        callbacks=[Measure(every=10)],
        checkpoint=None if folder is None else Checkpoint(folder, every=1),
        devices=CPU,
    )
    save_file(dict(result.model.state_dict()), out.with_suffix(".safetensors"))
    result.history.write(out.with_suffix(".json"))


def forked(work: Callable[[], None]) -> int:
    """The id of a process that does `work`."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def finished(child: int) -> bool:
    """Wait for a process: did it end by itself, and well? False where it was killed."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.waitstatus_to_exitcode(status) == 0
    return True


def main(folder: Path, kills: int, seed: int) -> None:
    """Kill, resume, compare."""
    torch.set_num_threads(1)
    random.seed(seed)
    train(folder / "warm", folder / "warm", epochs=1)
    start = time.monotonic()
    assert finished(forked(lambda: train(folder / "unbroken", None)))
    longest = LONGEST * (time.monotonic() - start)
    wanted = (folder / "unbroken.safetensors").read_bytes(), (folder / "unbroken.json").read_bytes()
    stood: list[int] = []
    equal = run = 0
    while len(stood) < kills or (folder / str(run)).exists():
        here = folder / str(run)
        child = forked(lambda here=here: train(here / "end", here))  # type: ignore[misc]
        if len(stood) < kills:
            time.sleep(random.uniform(0, longest))
            os.kill(child, signal.SIGKILL)
        if not finished(child):
            stood.append(step(here))
            continue
        assert ((here / "end.safetensors").read_bytes(), (here / "end.json").read_bytes()) == wanted, stood
        equal, run = equal + 1, run + 1
    print(json.dumps({"stood": stood, "equal": equal}))


def step(folder: Path) -> int:
    """The step that the checkpoint in `folder` stands at; 0 where there is none."""
    from safetensors import safe_open

    if not (folder / checkpoint.NAME).exists():
        return 0
    with safe_open(folder / checkpoint.NAME, framework="pt") as stored:
        state = json.loads(stored.metadata()["state"])
    return int(dict(dict(state["dict"])["at"]["dict"])["step"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
