"""What a step of a margin loss costs, against a step of cross-entropy: ratios taken in turns in one run.

    python benchmarks/step.py                    # on the CPU, small networks, under a minute
    python benchmarks/step.py --device cuda

A step is a forward pass and the gradients of the weights, without the optimizer. The margin loss takes the strongest
other class at five places, from the input on. Beside `margin_backward` stand plain autograd, and what public ports of
the loss do: a backward pass for every place (and every class, where there are more), each through the whole graph.

Goals: 1.10 where samples do not mix (arithmetic alone would be 1: a forward pass, one pass back through the
activations, one for the weights, as cross-entropy has them), 4/3 where they do (batch norm in training mode) or a
cross-entropy term is added, for which 4/3 is the limit. On a GPU matrix products of float32 run as TF32, and memory is
the peak of a step, of which the weights, their gradients and the batch are a part.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from measure import finish, in_turns, random_images, ratios
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import widemargin as wm
from widemargin.files import write_json
from widemargin.losses import MarginLoss
from widemargin.margins.distance import Linearization
from widemargin.margins.output import differences
from widemargin.provenance import provenance
from widemargin.training import margin_backward

GOALS = {"margin_backward, samples apart": 1.10, "limit of two backwards": 4 / 3, "with cross-entropy": 1.36}
FOLDER = Path(__file__).parents[1] / "results"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network in training mode, its images and the five places of the loss."""

    label: str
    name: str
    places: tuple[str, ...]
    batch: tuple[int, int]  # on a CPU, and on a GPU
    small: dict[str, Any]  # what makes it small enough for a CPU


CNN = ("input", "pool1", "pool2", "relu3", "relu4")
WRN = ("input", "group1", "group2", "group3", "pool")
SMALL = {"depth": 16, "widen": 2}
CASES = (
    Case(label="MNIST CNN", name="elsayed-mnist-cnn", places=CNN, batch=(32, 128), small={}),
    Case(label="WRN, group norm", name="wrn-28-10-gn", places=WRN, batch=(8, 128), small=SMALL),
    Case(label="WRN, batch norm", name="wrn-28-10", places=WRN, batch=(8, 128), small=SMALL),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="steps of a round")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    device = arguments.device
    output = arguments.output or FOLDER / f"bench-step{'' if device == 'cpu' else '-cuda'}.json"
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True

    before, rows = os.getloadavg()[0], []
    for case in CASES:
        for precision in ("fp32",) if device == "cpu" else ("fp32", "bf16"):
            if arguments.only in case.name:
                row = measured(case, device, precision, arguments.rounds, arguments.steps)
                show(row)
                rows.append(row)
                conditions = {
                    "rounds": arguments.rounds,
                    "steps of a round": arguments.steps,
                    "threads": torch.get_num_threads(),
                    "load average before and after": [before, os.getloadavg()[0]],
                }
                write_json(output, {"goals": GOALS, "rows": rows, **conditions, **provenance(device)})


def measured(case: Case, device: str, precision: str, rounds: int, steps: int) -> dict[str, Any]:
    """One row: seconds of a step, its ratio to cross-entropy, and on a GPU its peak of memory, for every way."""
    on_gpu = device != "cpu"
    network = wm.models.build(case.name, **({} if on_gpu else case.small)).to(device)
    x, y = random_images(case.batch[on_gpu], wm.models.describe(case.name).input_shape)
    x, y = x.to(device), y.to(device)
    if on_gpu:  # the layout in which convolutions are fastest, for every way alike
        network, x = network.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    ways, lines = _ways(case, network, x, y, precision)

    def turn(step: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(steps):
                network.zero_grad(set_to_none=True)
                step()
            finish(device)

        return run

    times = ratios(in_turns({name: turn(step) for name, step in ways.items()}, device, rounds), "cross-entropy")
    row = {
        "network": case.label,
        "built as": {"name": case.name, **({} if on_gpu else case.small)},
        "precision": precision,
        "batch": len(x),
        "places": list(case.places),
        "milliseconds": {name: 1e3 * took / steps for name, took in times["seconds"].items()},
        "ratio": times["ratio"],
        "ways": lines,
    }
    if on_gpu:
        peaks = {name: _peak(network, step, device) for name, step in ways.items()}
        row["peak MiB"] = {name: peak / 2**20 for name, peak in peaks.items()}
        row["peak ratio"] = {name: peak / peaks["cross-entropy"] for name, peak in peaks.items()}
    return row


def _ways(
    case: Case, network: nn.Module, x: Tensor, y: Tensor, precision: str
) -> tuple[dict[str, Callable[[], object]], dict[str, str]]:
    loss, joined = MarginLoss(at=case.places), MarginLoss(at=case.places, cross_entropy=1.0)
    lines: dict[str, str] = {}

    def cast() -> torch.autocast:
        return torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16")

    def cross_entropy() -> None:
        with cast():
            value = nn.functional.cross_entropy(network(x), y)
        value.backward()

    def plain(loss: MarginLoss, values: Callable[..., Tensor]) -> Callable[[], None]:
        def step() -> None:
            with cast():
                value = values(loss, network, x, y).mean()
            value.backward()

        return step

    def ours(name: str, loss: MarginLoss) -> Callable[[], None]:
        def step() -> None:
            with cast():
                lines[name] = repr(margin_backward(network, loss, x, y))

        return step

    ways: dict[str, Callable[[], object]] = {
        "cross-entropy": cross_entropy,
        "margin_backward": ours("margin_backward", loss),
        "plain autograd": plain(loss, MarginLoss.__call__),
        "a backward per place": plain(loss, a_backward_per_place),
        "with cross-entropy, margin_backward": ours("with cross-entropy, margin_backward", joined),
        "with cross-entropy, plain autograd": plain(joined, MarginLoss.__call__),
    }
    return ways, lines


def a_backward_per_place(loss: MarginLoss, network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The same values, with a backward pass for every place and class."""
    with wm.places.watch(network, loss.at, statistics=loss.statistics) as at:
        scores = network(x).float()
    difference = differences(scores, y, classes=loss.classes)
    slopes = {}
    for name in loss.at:
        columns = [
            torch.autograd.grad(d.sum(), at[name], retain_graph=True)[0].float().flatten(1).norm(dim=1)
            for d in difference.unbind(dim=1)
        ]
        slopes[name] = torch.stack(columns, dim=1)
    return loss.penalize(Linearization(difference=difference, slopes=slopes))


def _peak(network: nn.Module, step: Callable[[], object], device: str) -> int:
    """Bytes at the peak of a step."""
    network.zero_grad(set_to_none=True)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


def show(row: dict[str, Any]) -> None:
    table = Table(f"{row['network']}, {row['precision']}, batch {row['batch']}", "ms", "ratio", "peak", "")
    for name, took in row["milliseconds"].items():
        peak = f"{row['peak ratio'][name]:.3f}" if "peak ratio" in row else ""
        table.add_row(name, f"{took:.2f}", f"{row['ratio'][name]:.3f}", peak, row["ways"].get(name, ""))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
