"""A step of Nero, tensor by tensor and with tensors of one fan-in together, beside a step of Adam.

    python benchmarks/optim.py [--device cuda]

The smallest of several rounds, taken in turns. The default of Nero puts small tensors together only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeAlias

import torch

from widemargin.optim import Nero

CASES = ((50, 8), (50, 64), (50, 128), (20, 256), (6, 512), (6, 1024), (4, 2048))  # how many square weights, their side
Makes: TypeAlias = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
STEPS: dict[str, Makes] = {
    "Nero, one by one": lambda p: Nero(p, foreach=False),
    "Nero, together": lambda p: Nero(p, foreach=True),
    "Nero": Nero,
    "Adam": torch.optim.Adam,
}
ROUNDS, REPEATS = 5, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    print(f"milliseconds a step on {device}, {torch.get_num_threads()} threads")
    for count, side in CASES:
        steps = {name: step(make, count, side, device) for name, make in STEPS.items()}
        best = dict.fromkeys(steps, float("inf"))
        for _ in range(ROUNDS):
            for name, one in steps.items():
                best[name] = min(best[name], milliseconds(one, device))
        print(f"{count:3d} × {side}²".ljust(12), "  ".join(f"{name} {took:.3f}" for name, took in best.items()))


def step(make: Makes, count: int, side: int, device: str) -> Callable[[], object]:
    weights = [torch.nn.Parameter(torch.randn(side, side, device=device)) for _ in range(count)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer = make(weights)
    optimizer.step()
    return optimizer.step


def milliseconds(one: Callable[[], object], device: str) -> float:
    wait(device)
    started = time.perf_counter()
    for _ in range(REPEATS):
        one()
    wait(device)
    return (time.perf_counter() - started) / REPEATS * 1e3


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
