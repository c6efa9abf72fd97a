"""When is the split backward faster than two? Steps relative to cross-entropy's, beside what a layer has to do.

    python benchmarks/split_or_two.py                    # one core of a CPU, processor time; small networks
    python benchmarks/split_or_two.py --device cuda      # without CUDA graphs; WRN-28-10, ViT-S, the MNIST CNN

`split_backward.backward.LEAST_BYTES` and `LEAST_WORK` come from it. Rows are printed as they come, and written to
results/bench-split-or-two.json, on a GPU results/bench-split-or-two-cuda.json.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from step_cost.cases import CNN, VIT, WRN
from step_cost.transformer import VisionTransformer
from widemargin import models
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance
from widemargin.losses import MarginLoss
from widemargin.split_backward import backward
from widemargin.split_backward.graph import graph_of
from widemargin.training import margin_backward

ROOT = Path(__file__).parent.parent
ROUNDS, SECONDS = 3, 0.5


class Case(NamedTuple):
    label: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    classes: int = 10
    places: tuple[str, ...] = ("input",)
    bf16: bool = False


def on_a_gpu() -> Iterator[Case]:
    wrn, cnn = partial(models.build, "wrn-28-10-gn", classes=10), partial(models.build, "elsayed-mnist-cnn", classes=10)
    vit = partial(VisionTransformer, classes=1000)
    for bf16, precision in ((False, "fp32"), (True, "bf16")):
        for batch in (32, 64, 128):
            yield Case(f"WRN-28-10, batch {batch}, {precision}", wrn, (3, 32, 32), batch, places=WRN, bf16=bf16)
        for batch in (16, 32, 64, 128):
            yield Case(f"ViT-S, batch {batch}, {precision}", vit, (3, 224, 224), batch, 1000, VIT, bf16)
    for batch in (128, 1024):
        yield Case(f"MNIST CNN, batch {batch}, fp32", cnn, (1, 28, 28), batch, places=CNN)


def on_a_cpu() -> Iterator[Case]:
    for batch, width in itertools.product((32, 128), (32, 64, 128, 256, 512)):
        label = f"MLP 64-{width}-{width}-10, batch {batch}"
        yield Case(label, partial(mlp, 64, width, width, 10), (1, 8, 8), batch)
    for width in (100, 512):
        label = f"MLP 784-{width}-{width}-10, batch 128"
        yield Case(label, partial(mlp, 784, width, width, 10), (1, 28, 28), 128)
    for size, channels, norm in itertools.product((8, 28), (4, 8, 16), (False, True)):
        label = f"CNN of {channels} channels{' with group norm' if norm else ''}, {size}×{size} images, batch 32"
        yield Case(label, partial(cnn, channels, size, norm=norm), (1, size, size), 32)
    for batch, width in itertools.product((4, 32), (16, 32, 64, 128, 192)):
        build = partial(VisionTransformer, classes=10, size=32, patch=8, width=width, depth=6, heads=2)
        yield Case(f"ViT of width {width}, batch {batch}", build, (3, 32, 32), batch)


def mlp(inputs: int, *widths: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), models.toy_mlp(inputs=inputs, hidden=widths[:-1], classes=widths[-1]))


def cnn(channels: int, size: int, *, norm: bool) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((1, channels), (channels, 2 * channels)):
        layers.append(nn.Conv2d(before, after, 3, padding=1))
        layers += [*([nn.GroupNorm(2, after)] if norm else []), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2 * channels * (size // 4) ** 2, 10))


def measured(case: Case, device: str) -> dict[str, Any]:
    """Medians of rounds of ratios of medians; ways take turns, step by step."""
    on_gpu = device == "cuda"
    form = torch.channels_last if on_gpu else torch.contiguous_format
    torch.manual_seed(0)
    network = case.build().to(device).train().to(memory_format=form)  # type: ignore[call-overload]
    x = torch.randn(case.batch, *case.shape).to(device).to(memory_format=form)
    y, loss = torch.randint(case.classes, (case.batch,)).to(device), MarginLoss(at=case.places)
    cast = partial(torch.autocast, device, torch.bfloat16, enabled=case.bf16)

    def cross_entropy() -> None:
        with cast():
            value = nn.functional.cross_entropy(network(x), y)
        value.backward()

    def plain() -> None:
        with cast():
            value = loss(network, x, y).mean()
        value.backward()

    def ours(memory: int | None) -> None:
        with cast():
            margin_backward(network, loss, x, y, memory=memory)

    def timed(step: Callable[[], None]) -> float:
        network.zero_grad(set_to_none=True)
        if on_gpu:
            torch.cuda.synchronize()
        clock = time.perf_counter if on_gpu else time.process_time
        start = clock()
        step()
        if on_gpu:
            torch.cuda.synchronize()
        return clock() - start

    with cast():
        scores, at, _ = loss.forward(network, x)
    graph = graph_of(scores, list(at.values()))
    uses = len(graph.uses)
    each = {"work": graph.work() / uses, "bytes": graph.kept_bytes() / uses}
    del graph, scores, at
    steps: dict[str, Callable[[], None]] = {"cross-entropy": cross_entropy, "autograd": plain}
    steps |= {"split": partial(ours, None), "two": partial(ours, 0)}
    for _ in range(3):
        took = sum(timed(step) for step in steps.values())
    turns = max(3, min(60, int(SECONDS / took)))
    rounds: dict[str, list[float]] = {way: [] for way in steps}
    for _ in range(ROUNDS):
        times = [{way: timed(step) for way, step in steps.items()} for _ in range(turns)]
        base = statistics.median(one["cross-entropy"] for one in times)
        for way in steps:
            rounds[way].append(statistics.median(one[way] for one in times) / base)
    ratios = {way: statistics.median(values) for way, values in rounds.items()}
    return {"label": case.label, "layers": uses, "a layer": each, "ratio": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, help="a file, by default in results/")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    limits = {"bytes": backward.LEAST_BYTES.get(given.device), "work": backward.LEAST_WORK.get(given.device)}
    backward.LEAST_BYTES, backward.LEAST_WORK = {}, {}
    rows = []
    for case in on_a_gpu() if given.device == "cuda" else on_a_cpu():
        rows.append(measured(case, given.device))
        each, ratio = rows[-1]["a layer"], rows[-1]["ratio"]
        words = ", ".join(f"{way} {value:.2f}" for way, value in ratio.items() if way != "cross-entropy")
        print(f"{case.label}: {words}; work {each['work']:.3g}, {each['bytes'] / 1e6:.3g} MB a layer", flush=True)
        write_json(
            given.out or ROOT / f"results/bench-split-or-two{'-cuda' if given.device == 'cuda' else ''}.json",
            {"what": "a step without a CUDA graph, relative to cross-entropy", "limits": limits, "rows": rows}
            | {"threads": 1, **provenance(given.device)},
        )


if __name__ == "__main__":
    main()
