"""`kill -9` at any moment, and the resumed training has the weights and the history of one that was never killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from subprocesses import child_env

HERE = Path(__file__).parent


def test_a_training_killed_twenty_times_ends_bit_for_bit_as_an_unbroken_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "killed.py"), str(tmp_path)],
        env=child_env(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""),  # no fork after autograd has threads of a GPU
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said["stood"]) == 20
    assert said["equal"] >= 1
    assert len({step % 3 for step in said["stood"] if step}) > 1  # in the middle of epochs, which have 3 steps
    assert list(tmp_path.rglob(".checkpoint*")) == []
