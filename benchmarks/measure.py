"""What measuring margins costs: ratios of run times, taken in turns in one run, the median of several rounds.

    python benchmarks/measure.py                    # on the CPU, minutes
    python benchmarks/measure.py --device cuda

Goals: `wm.measure` (one class, at the input) at most 2.3 times plain inference, of which a bare gradient by torch alone
takes most; the same at 1, 2, 4 and 8 places; `import widemargin` under 1.5 times `import torch`. Data are random images
of the right shape. On a CPU one thread is used and its processor time taken, which other programs on the machine
disturb little; on a GPU, the time that passes.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import widemargin as wm
from imports import seconds
from step_cost.timing import Times, finish, in_turns, ratios
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance
from widemargin.modules import evaluating

GOAL = 2.3
# Eight places of the MNIST CNN from its input to its last layer; the cost against their number takes the first ones.
PLACES = ("input", "output", "pool2", "relu1", "fc1", "pool1", "relu3", "conv2")
# Network, images and batch on a CPU, and on a GPU. `measure` looks at three samples more, to see that they don't mix:
# that must not be felt, so there are more images than a minute would allow, and fewer rounds of them.
NETWORKS = {"elsayed-mnist-cnn": ((1024, 128), (60_000, 1024)), "wrn-28-10": ((48, 8), (4096, 256))}
ROUNDS_OF_WRN_ON_A_CPU = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results" / "bench-measure.json")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device, rounds = arguments.device, arguments.rounds

    before = os.getloadavg()[0]
    results: dict[str, Any] = {}
    for name, sizes in NETWORKS.items():
        turns = min(rounds, ROUNDS_OF_WRN_ON_A_CPU) if (name, device) == ("wrn-28-10", "cpu") else rounds
        results[f"{name}: measure / inference"] = against_inference(name, *sizes[device != "cpu"], device, turns)
    results["elsayed-mnist-cnn: places"] = against_places(device, rounds)
    results["batch norm, training: frozen / coupled"] = frozen_against_coupled(device, rounds)
    results["import widemargin / import torch"] = imports(rounds)
    show(results)
    conditions = {
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "load average before and after": [before, os.getloadavg()[0]],  # far above its own threads: others were at work
    }
    write_json(arguments.output, {"goal": GOAL, "results": results, **conditions, **provenance(device)})


def against_inference(name: str, images: int, batch: int, device: str, rounds: int) -> dict[str, Any]:
    network = wm.models.build(name).to(device)
    x, y = random_images(images, wm.models.describe(name).input_shape)
    times = in_turns(
        {
            "inference": lambda: inference(network, x, y, batch, device),
            "bare gradient": lambda: bare_gradient(network, x, y, batch, device),
            "measure": lambda: wm.measure(network, (x, y), batch_size=batch),
        },
        device,
        rounds,
    )
    return {"images": images, "batch": batch, **ratios(times, "inference")}


def inference(network: nn.Module, x: Tensor, y: Tensor, batch: int, device: str) -> float:
    """The accuracy of the network: the least that measuring could be compared with."""
    right = []
    with evaluating(network), torch.no_grad():
        for images, labels in wm.data.batches((x, y), batch_size=batch):
            right.append((network(images.to(device)).argmax(dim=1) == labels.to(device)).cpu())
    return float(torch.cat(right).double().mean())


def bare_gradient(network: nn.Module, x: Tensor, y: Tensor, batch: int, device: str) -> Tensor:
    """The least that a distance needs: one gradient at the input, by torch alone."""
    lengths = []
    network.requires_grad_(False)
    with evaluating(network):
        for images, labels in wm.data.batches((x, y), batch_size=batch):
            leaf = images.to(device).requires_grad_()
            own = network(leaf).gather(1, labels.to(device)[:, None])
            (gradient,) = torch.autograd.grad(own.sum(), leaf)
            lengths.append(gradient.flatten(1).norm(dim=1).cpu())
    network.requires_grad_(True)
    return torch.cat(lengths)


def against_places(device: str, rounds: int) -> dict[str, Any]:
    network = wm.models.build("elsayed-mnist-cnn").to(device)
    images, batch = NETWORKS["elsayed-mnist-cnn"][device != "cpu"]
    x, y = random_images(images, (1, 28, 28))

    def measure(count: int) -> Callable[[], object]:
        return lambda: wm.measure(network, (x, y), at=PLACES[:count], batch_size=batch)

    times = in_turns({f"{count} place{'s' * (count > 1)}": measure(count) for count in (1, 2, 4, 8)}, device, rounds)
    return {"images": images, "batch": batch, **ratios(times, "1 place")}


def frozen_against_coupled(device: str, rounds: int) -> dict[str, Any]:
    """Forward, the distance at the input, and the gradients of the weights, of one batch in training mode."""
    images = 32 if device == "cpu" else 512
    network = wm.models.build("wrn-28-10", depth=16, widen=2).to(device).train()
    x, y = (part.to(device) for part in random_images(images, (3, 32, 32)))

    def step(statistics: wm.places.BatchStatistics) -> Callable[[], object]:
        def run() -> None:
            network.zero_grad()
            with wm.places.watch(network, ("input",), statistics=statistics) as at:
                scores = network(x)
            wm.margins.distance(scores, y, at=at)["input"].nanmean().backward()
            finish(device)

        return run

    def cross_entropy() -> None:
        network.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        finish(device)

    steps = {"coupled": step("coupled"), "frozen": step("frozen"), "cross-entropy": cross_entropy}
    times = in_turns(steps, device, rounds)
    return {"network": "wrn-16-2", "images": images, **ratios(times, "coupled")}


def imports(rounds: int) -> dict[str, Any]:
    """Fresh processes, in turns."""
    statements = {
        "import torch": "import torch",
        "import widemargin": "import widemargin",
        "import widemargin, use measure": "import widemargin as wm; wm.measure",
    }
    times: Times = {name: [] for name in statements}
    for _ in range(rounds):
        for name, statement in statements.items():
            times[name].append(seconds(statement))
    return ratios(times, "import torch")


def random_images(count: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return torch.rand(count, *shape), torch.randint(10, (count,))


def show(results: Mapping[str, Any]) -> None:
    table = Table("what", "", "seconds", "ratio")
    for name, result in results.items():
        for row, took in result["seconds"].items():
            table.add_row(name, row, f"{took:.3f}", f"{result['ratio'][row]:.2f}")
            name = ""
    Console().print(table)


if __name__ == "__main__":
    main()
