"""When is the split backward faster than two, without a CUDA graph? Ratios to cross-entropy, beside what is to be done.

    python benchmarks/split_or_two.py

WRN-28-10 with group norm, ViT-S and the MNIST CNN, in float32 (TF32) and bf16, with small and larger batches, on a GPU;
`training.backward.LEAST` comes from it. Rows are printed as they come, and written to results/bench-split-or-two.json.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from widemargin.bench.cases import CNN, VIT, WRN, Case
from widemargin.bench.ways import Ways
from widemargin.files import write_json
from widemargin.losses import MarginLoss
from widemargin.provenance import provenance
from widemargin.training import backward
from widemargin.training.backward_graph import graph_of

ROOT = Path(__file__).parent.parent
STEPS = 9
SPLIT, TWO = 0.0, float("inf")  # limits by which each is taken


def cases() -> list[Case]:
    found = []
    for precision in ("fp32", "bf16"):
        setting: dict[str, Any] = {"ways": (), "precision": precision}
        for batch in (32, 64, 128):
            label = f"WRN-28-10, batch {batch}, {precision}"
            found.append(Case(label=label, network="wrn-28-10-gn", places=WRN, batch=batch, **setting))
        for batch in (16, 32, 64, 128):
            label, size = f"ViT-S, batch {batch}, {precision}", (3, 224, 224)
            found.append(
                Case(label=label, network="vit-s", shape=size, classes=1000, places=VIT, batch=batch, **setting)
            )
    for batch in (128, 1024):
        label = f"MNIST CNN, batch {batch}, fp32"
        found.append(
            Case(label=label, network="elsayed-mnist-cnn", shape=(1, 28, 28), places=CNN, batch=batch, ways=())
        )
    return found


def measured(case: Case) -> dict[str, Any]:
    torch.manual_seed(0)
    network = case.make().cuda().train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.rand(case.batch, *case.shape, device="cuda").to(memory_format=torch.channels_last)
    ways = Ways(case, network, x, torch.randint(case.classes, (case.batch,), device="cuda"))
    with torch.autocast("cuda", torch.bfloat16, enabled=case.precision == "bf16"):
        scores, at, _ = MarginLoss(at=case.places).forward(network, x)
    graph = graph_of(scores, list(at.values()))
    uses = len(graph.uses)
    each = {"work, 1e9": graph.work() / uses / 1e9, "MB": graph.bytes() / uses / 1e6}
    del graph, scores, at

    def timed(step: Callable[[], object], limit: float = SPLIT) -> float:
        backward.LEAST = {"cuda": limit}
        network.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    base, ours, plain = (ways.step(name) for name in ("cross-entropy", "margin_backward", "plain autograd"))
    times: dict[str, list[float]] = {"cross-entropy": [], "split": [], "plain autograd": [], "two": []}
    for turn in range(3 + STEPS):
        now = {"cross-entropy": timed(base), "split": timed(ours), "plain autograd": timed(plain)}
        for way, took in now.items():
            times[way] += [took] if turn >= 3 else []
    for turn in range(1 + STEPS):  # by itself: that two are taken is remembered
        took = timed(ours, TWO)
        times["two"] += [took] if turn else []
    middle = {way: statistics.median(values) for way, values in times.items()}
    ratios = {way: value / middle["cross-entropy"] for way, value in middle.items()}
    return {"label": case.label, "layers": uses, "a layer": each, "ratio": ratios}


def main() -> None:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    limit, rows = backward.LEAST["cuda"], list[dict[str, Any]]()
    for case in cases():
        rows.append(measured(case))
        print(rows[-1], flush=True)
        write_json(
            ROOT / "results/bench-split-or-two.json",
            {"what": "a step without a CUDA graph, relative to cross-entropy", "limit": limit, "rows": rows}
            | provenance("cuda"),
        )


if __name__ == "__main__":
    main()
