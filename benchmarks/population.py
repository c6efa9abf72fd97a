"""Many networks as one program against one by one: milliseconds of a step of one network, measured in one run.

    python benchmarks/population.py --device cuda        # 64 CNNs, 64 MLPs, 1000 twins; some minutes
    python benchmarks/population.py                      # a CPU: MLPs as they are, the others in small form

Batches are drawn, and weights moved, in every step; one by one means a plain loop with a torch optimizer, compiled into
nothing. On a GPU one network in a CUDA graph stands beside it, populations run with and without a graph, and matrix
products use TF32 everywhere, as cuDNN's convolutions do by default. Rows are printed as they come, and written to
results/bench-population.json.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from widemargin import losses, models, places, population
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance
from widemargin.margins.distance import Linearization
from widemargin.population.batches import samples_of
from widemargin.population.conv_matmul import Convolutions, forms
from widemargin.population.run import PopulationConfig, PopulationRun
from widemargin.training import SGD, Nero
from widemargin.training.schedules import Constant

ROOT = Path(__file__).resolve().parents[1]
EVERYWHERE = ("input", "pool1", "pool2", "relu3", "relu4")
MARGIN = losses.MarginLoss(penalty=losses.Hinge(gamma=1.0), at=EVERYWHERE, cross_entropy=1.0)


class Bench:
    def __init__(self, device: torch.device, seconds: float, profile: bool) -> None:
        self.device, self.seconds, self.profile = device, seconds, profile
        self.rows: list[dict[str, Any]] = []

    def row(self, case: str, way: str, networks: int, make: Callable[[], Callable[[], Any]]) -> float:
        """Time what `make` gives, a step of `networks` networks; note and print milliseconds per network-step."""
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        try:
            step = make()
            for _ in range(5 if on_gpu else 2):  # the fourth records a graph, where there is one
                step()
            times: list[float] = []
            begin = time.perf_counter()
            while time.perf_counter() - begin < self.seconds or len(times) < 3:
                self.wait()
                start = time.perf_counter()
                step()
                self.wait()
                times.append(time.perf_counter() - start)
            ms = sorted(times)[len(times) // 2] / networks * 1e3
        except RuntimeError as error:  # out of memory, or a graph that can't be captured: the other rows still count
            print(f"{case}, {way}: {str(error).splitlines()[0]}", flush=True)
            ms = math.nan
        memory = torch.cuda.max_memory_allocated(self.device) / 2**30 if on_gpu else None
        first = next((row["ms"] for row in self.rows if row["case"] == case), ms)
        entry = {"case": case, "way": way, "networks": networks, "ms": ms, "speedup": first / ms, "gib": memory}
        self.rows.append(entry)
        used = "" if memory is None else f"  {memory:6.1f} GiB"
        print(f"{case:34s} {way:34s} {ms:9.3f} ms per network-step  ×{first / ms:6.2f}{used}", flush=True)
        return ms

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def plan_of(
    builder: Callable[[], nn.Module], count: int, *, shape: tuple[int, ...], samples: int, batch_size: int | None,
    loss: Any, optimizer: Any, device: torch.device, classes: int = 10,
) -> PopulationConfig:  # fmt: skip
    numbers = torch.Generator().manual_seed(0)
    x = torch.rand(samples, *shape, generator=numbers)
    y = torch.randint(classes, (samples,), generator=numbers)
    labels = y if classes > 2 else (2 * y - 1).float()
    networks = [network.to(device) for network in population.build(builder, range(count))]
    return PopulationConfig(
        networks=networks,
        data=samples_of((x, labels), count, device, torch.float32),
        losses=[loss] * count,
        optimizers=[optimizer] * count,
        seeds=list(range(count)),
        regularizers=(),
        steps=10**9,
        batch_size=batch_size,
        schedule=Constant(),
        until=None,
        device=device,
    )


def eager(plan: PopulationConfig) -> Callable[[], None]:
    """One network after another, as everyone would write it: a step of the first one stands for all."""
    model = copy.deepcopy(plan.networks[0]).train()
    optimizer = plan.optimizers[0](model.parameters())
    data, loss = plan.data[0], plan.losses[0]
    size = plan.batch_size or len(data)
    waiting: list[Tensor] = []

    def step() -> None:
        if plan.batch_size is None:
            x, y = data.x, data.y
        else:
            if not waiting:
                waiting.extend(torch.randperm(len(data)).to(plan.device).split(size))
            index = waiting.pop()
            x, y = data.x[index], data.y[index]
        optimizer.zero_grad()
        loss(model, x, y).mean().backward()
        optimizer.step()

    return step


def plain_cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def plain_margin(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The arithmetic of the margin loss without its checks, which read numbers back and so can't be in a CUDA graph."""
    with places.watch(model, MARGIN.at) as zeros:
        f = model(x)
    other = f.detach().scatter(1, y[:, None], -math.inf).argmax(dim=1, keepdim=True)
    d = (f.gather(1, y[:, None]) - f.gather(1, other)).squeeze(1)
    slopes = {name: g.flatten(1).norm(dim=1)[:, None] for name, g in zeros.gradients(d).items()}
    penalty = MARGIN.penalize(Linearization(difference=d[:, None], slopes=slopes))
    return penalty + nn.functional.cross_entropy(f, y, reduction="none")


def graphed(plan: PopulationConfig, of: Callable[[nn.Module, Tensor, Tensor], Tensor], lr: float) -> Callable[[], None]:
    """One network whose whole step is one CUDA graph."""
    model = copy.deepcopy(plan.networks[0]).train()
    parameters: list[Tensor] = list(model.parameters())
    data, size = plan.data[0], plan.batch_size or len(plan.data[0])
    x, y = data.x[:size].clone(), data.y[:size].clone()

    def whole() -> None:
        gradients = torch.autograd.grad(of(model, x, y).mean(), parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-lr)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            whole()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        whole()

    def step() -> None:
        index = torch.randint(len(data), (size,), device=plan.device)
        x.copy_(data.x[index])
        y.copy_(data.y[index])
        graph.replay()

    return step


def together(
    plan: PopulationConfig, size: int, form: Convolutions = "grouped", *, graph: bool = False
) -> Callable[[], None]:
    run = PopulationRun(dataclasses.replace(plan, cuda_graph=graph), range(size), form)
    return run.advance


def show_operations(step: Callable[[], None], device: torch.device) -> None:
    """The operations that take most of the time of a step."""
    step()
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if device.type == "cuda" else []
    with torch.profiler.profile(activities=activities) as seen:
        for _ in range(3):
            step()
    by = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    for event in sorted(seen.key_averages(), key=lambda event: -getattr(event, by))[:16]:
        print(f"    {getattr(event, by) / 3e3:9.3f} ms {event.count / 3:6.1f} × {event.key[:90]}")


def cnns(bench: Bench, *, small: bool) -> None:
    """64 MNIST CNNs, batch 128, with cross-entropy and with the margin loss at every hidden layer."""
    count, batch = (4, 16) if small else (64, 128)
    for name, loss in (("cross-entropy", losses.CrossEntropy()), ("margin", MARGIN)):
        plan = plan_of(
            models.mnist_cnn, count, shape=(1, 28, 28), samples=20 * batch, batch_size=batch, loss=loss,
            optimizer=SGD(lr=1e-3), device=bench.device,
        )  # fmt: skip
        case = f"MNIST CNNs, batch {batch}, {name}"
        plain = plain_cross_entropy if name == "cross-entropy" else plain_margin
        bench.row(case, "one by one, eager", 1, partial(eager, plan))
        if bench.device.type == "cuda":
            bench.row(case, "one network, CUDA graph", 1, partial(graphed, plan, plain, 1e-3))
        for form in forms(plan.networks[0], bench.device):
            for graph in (False, True) if bench.device.type == "cuda" else (False,):
                for size in (count // 4, count) if form != "matmul" else (count,):
                    way = f"{size} at once, {form}" + (", graph" if graph else "")
                    bench.row(case, way, size, partial(together, plan, size, form, graph=graph))
                if bench.profile:
                    show_operations(together(plan, count, form, graph=graph), bench.device)
        chosen_row(bench, case, plan)


def chosen_row(bench: Bench, case: str, plan: PopulationConfig) -> None:
    """What `population.fit` would take, by measuring."""
    chosen = population.chunks.choose(dataclasses.replace(plan, steps=10_000), size=None, convolutions=None)
    graph = bench.device.type == "cuda"
    way = f"chosen: {chosen.size} at once" + (f", {chosen.convolutions}" if "CNN" in case else "")
    bench.row(case, way, chosen.size, partial(together, plan, chosen.size, chosen.convolutions, graph=graph))


def mlps(bench: Bench, *, small: bool) -> None:  # noqa: ARG001 (the same on every machine)
    """784-100-10 with batch 128, and 784-512-10 with a full batch of 1000: each chunk beside the chosen one."""
    for width, samples, batch in ((100, 2000, 128), (512, 1000, None)):
        count = 64

        def builder(width: int = width) -> nn.Module:
            return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))

        plan = plan_of(
            builder, count, shape=(784,), samples=samples, batch_size=batch, loss=losses.CrossEntropy(),
            optimizer=SGD(lr=0.01), device=bench.device,
        )  # fmt: skip
        case = f"MLPs 784-{width}-10, batch {batch or samples}"
        bench.row(case, "one by one, eager", 1, partial(eager, plan))
        for size in (1, 4, 16, 64):
            if size <= count:
                bench.row(case, f"{size} at once", size, partial(together, plan, size))
        if bench.device.type == "cuda":
            for size in (1, count):
                bench.row(case, f"{size} at once, graph", size, partial(together, plan, size, graph=True))
        chosen_row(bench, case, plan)


def twins(bench: Bench, *, small: bool) -> None:
    """Depth-7 MLPs on 5 points, trained with Nero: the whole population in one step."""
    count, width = (8, 100) if small else (1000, 500)
    plan = plan_of(
        lambda: models.farhang_mlp(width=width, depth=7, outputs=1), count, shape=(784,), samples=5, batch_size=None,
        loss=losses.Target(alpha=0.5), optimizer=Nero(), device=bench.device, classes=2,
    )  # fmt: skip
    case = f"twins, depth 7, width {width}"
    bench.row(case, "one by one, eager", 1, partial(eager, plan))
    ms = bench.row(case, f"{count} at once", count, partial(together, plan, count))
    if bench.device.type == "cuda":
        ms = bench.row(case, f"{count} at once, graph", count, partial(together, plan, count, graph=True))
    if bench.profile:
        show_operations(together(plan, count), bench.device)
    print(f"{case}: {ms * count:.1f} ms for a full-batch step of all {count}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, help="of measuring, a row; 2 on a GPU, 1 on a CPU")
    parser.add_argument("--only", choices=("cnns", "mlps", "twins"))
    parser.add_argument("--profile", action="store_true", help="print where the time of the largest populations goes")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "bench-population.json")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    small = device.type == "cpu"
    seconds = (1.0 if small else 2.0) if arguments.seconds is None else arguments.seconds
    bench = Bench(device, seconds, arguments.profile)
    for name, part in (("cnns", cnns), ("mlps", mlps), ("twins", twins)):
        if arguments.only in (None, name):
            part(bench, small=small)
    whole = {"rows": bench.rows, "threads": torch.get_num_threads(), **provenance(arguments.device)}
    print(f"written to {write_json(arguments.output, whole)}")


if __name__ == "__main__":
    main()
