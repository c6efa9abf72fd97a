"""Grid of tasks, networks, optimizers and losses: is one default better than cross-entropy everywhere?

    python benchmarks/grid.py --device cuda --data FOLDER --workers 14 --minutes 9  # finished jobs: runs/grid.jsonl
    python benchmarks/grid.py --tasks digits wine --networks mlp --scale 0.1         # a corner of it, on a CPU
    python benchmarks/grid.py summary                                                 # results/grid.json, the table

Ten tasks × five networks (tables: the MLP alone) × SGD and Adam at three learning rates each × arms × seeds; batch
64, cosine schedule, a fixed number of steps a task, standardised data, no augmentation. Nothing is selected: every arm
has one default for everything. Every seed draws training samples, flipped labels, initial weights and batches anew,
the same for all arms. The networks of a job (learning rates × seeds) train as one program on a GPU. Jobs in the file of
rows are not run again. `FOLDER` has MNIST, Fashion-MNIST and CIFAR-10 as `wm.data.load` reads them, or `mnist.npz`,
`fashion.npz` and `cifar.npz` with arrays x, y, tx, ty (uint8 images [n, channels, height, width]).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from default_grid.arms import ARMS
from default_grid.jobs import Place, all_jobs
from default_grid.networks import NETWORKS
from default_grid.tasks import TASKS
from default_grid.workers import missing, work
from job_rows import options, read

ROWS = Path("runs/grid.jsonl")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, ROWS, Path("results/grid.json"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the number of steps")
    parser.add_argument("--convolutions", choices=("grouped", "matmul", "fused"), default="grouped")
    given = parser.parse_args(arguments)
    lines = [line for file in given.rows for line in read(file)]
    if given.command == "summary":
        from default_grid.summary import summarise

        summarise(lines, given.out)
        return
    jobs = all_jobs(tasks=given.tasks, networks=given.networks, arms=given.arms, seeds=given.seeds, scale=given.scale)
    left = missing(jobs, lines)
    print(f"{len(left)} jobs to do, {len(jobs) - len(left)} done", flush=True)
    place = Place(device=given.device, folder=given.data, convolutions=given.convolutions)
    work(left, place, given.rows[0], workers=min(given.workers, max(1, len(left))), minutes=given.minutes)


if __name__ == "__main__":
    main()
