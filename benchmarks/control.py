"""Recipe 1 on 200 digits: which part of the points reaches its normalized margin, in how many steps.

    python benchmarks/control.py                 # minutes on two cores; writes results/control.json
    python benchmarks/control.py --device cuda

Goal: with three layers of width 512 and α in {0.1, 1, 10}, at least 97 % of the points within 1 % of α in 10,000 steps.
The last row is a network that is too small for it: two layers of width 256.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import torch

import widemargin as wm
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance

POINTS, SHARE, TOLERANCE, STEPS = 200, 0.97, 0.01, 10_000
ARMS = [(3, 512, 0.1), (3, 512, 1.0), (3, 512, 10.0), (2, 256, 1.0)]  # depth, width, α


def run(depth: int, width: int, alpha: float, *, device: str, seed: int) -> dict[str, Any]:
    samples = wm.data.subset(wm.data.load("digits").train, count=POINTS, seed=seed, balanced=True).to(device)
    torch.manual_seed(seed)
    model = wm.models.build("farhang-mlp", inputs=64, width=width, depth=depth).to(device)
    started = time.perf_counter()
    found = wm.control.normalized_margin(model, samples, target=alpha, tolerance=TOLERANCE, steps=STEPS)
    seconds = time.perf_counter() - started
    first = next((row["step"] for row in found.history if row["share"] >= SHARE), math.nan)
    return {
        "depth": depth, "width": width, "alpha": alpha, "seed": seed, "share": found.share,
        f"steps to {SHARE:.0%}": first, "steps": found.steps, "seconds": round(seconds, 1),
        "margins": {"min": float(found.margins.min()), "max": float(found.margins.max())},
        "worst relative error": float(found.errors.max()), "median relative error": float(found.errors.median()),
        "history": found.history[::25],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/control.json"))
    options = parser.parse_args()
    rows = []
    for depth, width, alpha in ARMS:
        for seed in range(options.seeds):
            row = run(depth, width, alpha, device=options.device, seed=seed)
            print({key: value for key, value in row.items() if key != "history"}, flush=True)
            rows.append(row)
    settings = {"data": "digits", "points": POINTS, "tolerance": TOLERANCE, "steps": STEPS}
    settings["threads"] = torch.get_num_threads()
    write_json(options.out, {"settings": settings, **provenance(options.device), "rows": rows})


if __name__ == "__main__":
    main()
