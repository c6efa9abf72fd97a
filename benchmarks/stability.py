"""Stability grid of margin losses against cross-entropy (docs/methods/stability.md, results/stability.json).

    python benchmarks/stability.py --device cuda --workers 12        # the whole grid, minutes
    python benchmarks/stability.py --small                            # a corner of it, on a CPU, into runs/
    python benchmarks/stability.py --fresh --data-root FOLDER        # other images and seeds, into stability-fresh

Data × optimizer × learning rate × loss × form (printed, scale-free) × seed, 60 epochs each, every cell with the same
budget as cross-entropy's. A cell counts where cross-entropy trains (mean test accuracy ≥ 80 %), and holds where the
margin loss reaches at least 95 % of cross-entropy's mean accuracy. The scale-free form was chosen on this grid, so
`--fresh` runs it, beside cross-entropy, with other seeds on MNIST, whose test images had no part in the choice, and on
digits split anew. Finished runs are kept in a file and not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

import widemargin as wm
from widemargin import losses
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance

DATA = ("digits", "mnist-5k")
OPTIMIZERS = [("sgd", lr) for lr in (0.003, 0.01, 0.03, 0.1)] + [("adam", lr) for lr in (3e-4, 1e-3, 3e-3)]
EVERYWHERE = ("input", "pool1", "pool2", "relu3", "relu4", "output")
LOSSES: dict[str, dict[str, Any]] = {
    f"large margin {norm} {where}": {"kind": "hinge", "p": p, "gamma": gamma, "at": at}
    for norm, p, gamma in (("l_2", 2.0, 1.0), ("l_1", 1.0, 10.0), ("l_inf", math.inf, 0.1))
    for where, at in (("input", ("input",)), ("everywhere", EVERYWHERE))
} | {
    "ODN (2, 1, 0.1)": {"kind": "band", "band": (2.0, 1.0, 0.1)},
    "ODN (1.2, 0.7, 0.1)": {"kind": "band", "band": (1.2, 0.7, 0.1)},
}
FORMS = ("scale-free", "printed")
EPOCHS, BATCH, TRAIN, SEEDS = 60, 64, 256, (0, 1, 2)
FRESH_DATA, FRESH_SEEDS = ("mnist", "digits, split anew"), (3, 4, 5)


def build_loss(name: str, form: str) -> Any:
    if name == "cross-entropy":
        return losses.CrossEntropy()
    s = LOSSES[name]
    stabilize = "scale-free" if form == "scale-free" else None
    if s["kind"] == "band":
        r, theta, mu = s["band"]
        return losses.odn(r=r, theta=theta, mu=mu, stabilize=stabilize)
    return losses.large_margin(p=s["p"], gamma=s["gamma"], at=s["at"], classes=1, stabilize=stabilize)


def load(name: str, root: str | None = None) -> tuple[wm.data.Samples, wm.data.Samples]:
    """All of digits' training part; 256 images of mnist-5k or of MNIST, 25 or 26 a class."""
    if name == "digits, split anew":
        old = wm.data.load("digits")
        every = wm.data.Samples(torch.cat([old.train.x, old.test.x]), torch.cat([old.train.y, old.test.y]))
        return wm.data.holdout(every, count=len(old.test), seed=1)
    data = wm.data.load(name, root=root)
    if name == "digits":
        return data.train, data.test
    return wm.data.subset(data.train, count=TRAIN, seed=int(name == "mnist"), balanced=True), data.test


def trials(small: bool, fresh: bool) -> list[dict[str, Any]]:
    optimizers = OPTIMIZERS[2:3] if small else OPTIMIZERS
    seeds = FRESH_SEEDS if fresh else SEEDS[:1] if small else SEEDS
    names = list(LOSSES)[1::5] if small else list(LOSSES)
    forms = FORMS[:1] if fresh else FORMS
    arms = [("cross-entropy", "printed"), *((name, form) for form in forms for name in names)]
    return [
        {"data": data, "optimizer": optimizer, "lr": lr, "loss": loss, "form": form, "seed": seed}
        for loss, form in arms
        for seed in seeds
        for data in (FRESH_DATA if fresh else DATA[:1] if small else DATA)
        for optimizer, lr in optimizers
    ]


def run(trial: dict[str, Any], device: str, root: str | None = None) -> dict[str, Any]:
    """One training, with a loop so plain that nothing else can be the reason."""
    train, test = (samples.to(device) for samples in load(trial["data"], root))
    size = train.x.shape[-1]
    torch.manual_seed(trial["seed"])
    small = {"widths": (16, 32), "hidden": (128, 128)} if size == 8 else {}
    model = wm.models.build("elsayed-mnist-cnn", size=size, **small).to(device)
    loss = build_loss(trial["loss"], trial["form"])
    sgd = trial["optimizer"] == "sgd"
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(model.parameters(), lr=trial["lr"], momentum=0.9)
        if sgd
        else torch.optim.Adam(model.parameters(), lr=trial["lr"])
    )
    order = torch.Generator().manual_seed(trial["seed"])
    started, died = time.perf_counter(), None
    try:
        for _ in range(EPOCHS):
            for index in torch.randperm(len(train), generator=order).to(device).split(BATCH):
                optimizer.zero_grad()
                loss(model, train.x[index], train.y[index]).mean().backward()
                optimizer.step()
    except ValueError as error:  # the sentence about NaN scores
        died = str(error)
    model.eval()
    with torch.no_grad():
        accuracy = float((model(test.x).argmax(1) == test.y).double().mean())
    return {**trial, "accuracy": accuracy, "died": died, "seconds": round(time.perf_counter() - started, 2)}


def worker(todo: Any, done: Any, device: str, root: str | None) -> None:
    torch.set_num_threads(1)
    while (trial := todo.get()) is not None:
        done.put(run(trial, device, root))


def cells(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean accuracy over seeds of every cell, beside cross-entropy's, and whether the cell counts and holds."""
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for r in rows:
        groups[r["data"], r["optimizer"], r["lr"], r["loss"], r["form"]].append(r["accuracy"])
    out = []
    for (data, optimizer, lr, loss, form), accuracies in sorted(groups.items(), key=str):
        if loss == "cross-entropy":
            continue
        base = groups[data, optimizer, lr, "cross-entropy", "printed"]
        mean, reference = sum(accuracies) / len(accuracies), sum(base) / max(1, len(base))
        out.append(
            {
                "data": data, "optimizer": optimizer, "lr": lr, "loss": loss, "form": form, "seeds": len(accuracies),
                "accuracy": mean, "cross-entropy": reference,
                "counts": reference >= 0.8, "holds": mean >= 0.95 * reference,
            }
        )  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--data", choices=DATA + FRESH_DATA, nargs="*", default=DATA + FRESH_DATA)
    parser.add_argument("--data-root", help="folder with MNIST, for --fresh")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop handing out trials after this long")
    options = parser.parse_args()
    name = "stability-fresh" if options.fresh else "stability-small" if options.small else "stability"
    options.rows = options.rows or Path("runs") / f"{name}.jsonl"
    options.out = options.out or Path("runs" if options.small else "results") / f"{name}.json"
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()] if options.rows.exists() else []
    key = lambda r: tuple(r[k] for k in ("data", "optimizer", "lr", "loss", "form", "seed"))  # noqa: E731
    have = {key(r) for r in rows}
    pending = [t for t in trials(options.small, options.fresh) if key(t) not in have and t["data"] in options.data]
    print(f"{len(pending)} runs to do, {len(rows)} done", flush=True)
    context = mp.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    pool = [
        context.Process(target=worker, args=(todo, done, options.device, options.data_root))
        for _ in range(options.workers)
    ]
    for process in pool:
        process.start()
    started, handed = time.perf_counter(), 0
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    with options.rows.open("a") as file:
        for _ in range(min(len(pending), 2 * options.workers)):
            todo.put(pending[handed])
            handed += 1
        finished = 0
        while finished < handed:
            row = done.get()
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            finished += 1
            if handed < len(pending) and time.perf_counter() - started < options.seconds:
                todo.put(pending[handed])
                handed += 1
            if finished % 50 == 0:
                print(f"{finished}/{len(pending)} after {time.perf_counter() - started:.0f} s", flush=True)
    for _ in pool:
        todo.put(None)
    for process in pool:
        process.join()
    table = cells(rows)
    for form in FORMS:
        counted = [c for c in table if c["form"] == form and c["counts"]]
        held = [c for c in counted if c["holds"]]
        print(f"{form}: {len(held)} of {len(counted)} cells reach 95 % of cross-entropy")
        for c in counted:
            if not c["holds"] and form == "scale-free":
                print("  short:", {k: v for k, v in c.items() if k not in ("form", "counts", "holds")})
    train, seeds = ("digits: all; mnist: 256", FRESH_SEEDS) if options.fresh else ("digits: all; mnist-5k: 256", SEEDS)
    settings = {"epochs": EPOCHS, "batch": BATCH, "train": train, "seeds": list(seeds)}
    write_json(options.out, {"settings": settings, **provenance(options.device), "cells": table})


if __name__ == "__main__":
    main()
