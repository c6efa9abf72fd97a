"""Images per second of `fit`, against a plain PyTorch loop with the same network, loss and optimizer, in one run.

    python benchmarks/fit_rate.py                                                    # small networks, on a CPU
    python benchmarks/fit_rate.py --device cuda --out results/bench-fit-rate.json   # minutes

Data are tensors on the device, in a new order every epoch. The plain loop is what one writes by hand: zero_grad, the
mean of the loss, backward, step; it neither seeds the steps nor looks at the loss. `fit` has its defaults, with CUDA
graphs on a GPU, and measures nothing. Both take turns; the median of the epochs after the first counts, in which
libraries choose their algorithms and CUDA graphs are captured. Goal: `fit` is not slower.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from widemargin import losses, models
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance
from widemargin.training import SGD, Callback, Devices, FitState, Measure, ProgressBar, fit

OPTIMIZER = SGD(lr=0.01, momentum=0.9, weight_decay=5e-4)
LOSSES: dict[str, losses.Loss] = {"cross-entropy": losses.CrossEntropy(), "WideMargin": losses.WideMargin()}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, the shape of its images, a batch and a precision."""

    label: str
    network: str
    shape: tuple[int, ...]
    batch: int
    steps: int
    bf16: bool = False
    build: dict[str, Any] = field(default_factory=dict)


def cases(device: str) -> Iterator[Case]:
    """The networks: large ones on a GPU, where small ones are bound by launches."""
    if device == "cpu":
        small = {"size": 8, "widths": (4, 8), "hidden": (16,)}
        yield Case(label="small CNN", network="elsayed-mnist-cnn", shape=(1, 8, 8), batch=32, steps=20, build=small)
        return
    yield Case(label="MNIST CNN", network="elsayed-mnist-cnn", shape=(1, 28, 28), batch=128, steps=60)
    for bf16 in (False, True):
        label = f"ResNet-18, {'bf16' if bf16 else 'fp32'}"
        yield Case(label=label, network="resnet-18", shape=(3, 32, 32), batch=256, steps=20, bf16=bf16)
    yield Case(label="WRN-28-10, bf16", network="wrn-28-10", shape=(3, 32, 32), batch=128, steps=6, bf16=True)


class Clock(Callback):
    """Seconds of every epoch."""

    def __init__(self, device: str) -> None:
        self.device, self.seconds, self.start = device, list[float](), 0.0

    def on_fit_start(self, state: FitState) -> None:  # noqa: ARG002
        """Start."""
        self.start = time.perf_counter()

    def on_epoch_end(self, state: FitState) -> None:  # noqa: ARG002
        """Stop, and start again."""
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        self.seconds.append(now - self.start)
        self.start = now


def by_fit(
    case: Case, loss: losses.Loss, x: Tensor, y: Tensor, device: str, epochs: int
) -> tuple[list[float], str | None]:
    """Seconds of the epochs of `fit`, and whether it was a CUDA graph."""
    clock = Clock(device)
    done = fit(
        network_of(case, device),
        (x, y),
        loss=loss,
        optimizer=OPTIMIZER,
        epochs=epochs,
        batch_size=case.batch,
        callbacks=[Measure(every=None), ProgressBar(show=False), clock],
        devices=Devices(accelerator=device, precision="bf16-mixed" if case.bf16 else None),
    )
    return clock.seconds, done.settings.get("CUDA graph")


def by_hand(case: Case, loss: losses.Loss, x: Tensor, y: Tensor, device: str, epochs: int) -> list[float]:
    """Seconds of the epochs of a plain loop."""
    network = network_of(case, device)
    optimizer, clock = OPTIMIZER(network.parameters()), Clock(device)
    clock.start = time.perf_counter()
    for _ in range(epochs):
        for index in torch.randperm(len(y), device=device).split(case.batch):
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=case.bf16):
                value = loss(network, x[index], y[index]).mean()
            value.backward()
            optimizer.step()
        clock.on_epoch_end(None)  # type: ignore[arg-type]
    return clock.seconds


def network_of(case: Case, device: str) -> nn.Module:
    """The network, always the same."""
    torch.manual_seed(0)
    return models.build(case.network, **case.build).to(device).train()


def measure(case: Case, name: str, device: str, rounds: int, epochs: int) -> dict[str, Any]:
    """Images per second of both, and their ratio."""
    torch.manual_seed(1)
    count = case.batch * case.steps
    x, y = torch.rand(count, *case.shape, device=device), torch.randint(10, (count,), device=device)
    ours: list[float] = []
    plain: list[float] = []
    first: list[float] = []
    graph: str | None = None
    for _ in range(rounds):
        seconds, graph = by_fit(case, LOSSES[name], x, y, device, epochs)
        ours += seconds[1:]
        first.append(seconds[0])
        plain += by_hand(case, LOSSES[name], x, y, device, epochs)[1:]
    rates = {"fit": count / statistics.median(ours), "plain loop": count / statistics.median(plain)}
    return {
        "case": case.label,
        "loss": name,
        "batch": case.batch,
        "images per second": rates,
        "ratio": rates["fit"] / rates["plain loop"],
        "first epoch of fit, seconds": statistics.median(first),
        "CUDA graph": graph,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4, help="of a run; the first does not count")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    started, rows = time.perf_counter(), list[dict[str, Any]]()
    for case in cases(given.device):
        for name in LOSSES:
            rows.append(measure(case, name, given.device, given.rounds, given.epochs))
            fitted, plain = rows[-1]["images per second"].values()
            print(
                f"{case.label:18s} {name:14s} fit {fitted:9,.0f} images/s, plain loop {plain:9,.0f}, "
                f"ratio {rows[-1]['ratio']:.2f}, CUDA graph {rows[-1]['CUDA graph']}",
                flush=True,
            )
            if given.out is not None:  # after every row: a run that is cut short keeps what it has
                write_json(given.out, {"goal": "ratio >= 1", "rows": rows, **provenance(given.device)})
    print(f"{time.perf_counter() - started:.0f} seconds")


if __name__ == "__main__":
    main()
