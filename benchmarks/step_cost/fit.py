"""Time of a step of `fit` with its optimizer, with and without a CUDA graph, for the launch-bound MNIST CNN."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from step_cost.cases import CNN
from step_cost.settings import Settings
from step_cost.timing import finish
from widemargin import models
from widemargin.losses import CrossEntropy, MarginLoss
from widemargin.losses.protocol import Loss
from widemargin.training import SGD, Devices, Measure, ProgressBar, fit

LABEL = "MNIST CNN in fit"
BATCH, STEPS = 128, 50
SHORT, LONG = 1, 5
"""Epochs of the two runs whose difference is reported, which excludes the fixed cost of a run."""


def measure_fit(settings: Settings) -> dict[str, Any]:
    """Milliseconds of a step of `fit` with cross-entropy and with a margin loss, each with and without a CUDA graph."""
    x, y = torch.rand(BATCH * STEPS, 1, 28, 28), torch.randint(10, (BATCH * STEPS,))
    losses: dict[str, Loss] = {"cross-entropy": CrossEntropy(), "margin loss": MarginLoss(at=CNN)}
    reports: dict[str, str] = {}

    def seconds(name: str, epochs: int, graph: bool) -> float:
        torch.manual_seed(0)
        model = models.build("elsayed-mnist-cnn", classes=10)
        start = time.perf_counter()
        done = fit(
            model,
            (x, y),
            loss=losses[name],
            optimizer=SGD(lr=0.01, momentum=0.9),
            epochs=epochs,
            batch_size=BATCH,
            callbacks=[Measure(every=None), ProgressBar(show=False)],
            devices=Devices(accelerator=settings.device.split(":")[0], cuda_graph=graph),
        )
        finish(settings.device)
        if "backward" in done.settings:
            reports[f"{name}{', CUDA graph' if graph else ''}"] = done.settings["backward"]
        return time.perf_counter() - start

    methods = {f"{name}{', CUDA graph' if graph else ''}": (name, graph) for graph in (False, True) for name in losses}
    times: dict[str, list[float]] = {method: [] for method in methods}
    for number in range(settings.rounds + 1):
        for method, (name, graph) in methods.items():
            took = seconds(name, LONG, graph) - seconds(name, SHORT, graph)
            if number:  # the first round warms up
                times[method].append(1e3 * took / ((LONG - SHORT) * STEPS))
    medians = {method: statistics.median(values) for method, values in times.items()}
    return {
        "label": LABEL,
        "network": {"name": "elsayed-mnist-cnn", "classes": 10},
        "precision": "fp32",
        "batch": BATCH,
        "places": list(CNN),
        "milliseconds": medians,
        "ratio": {method: ms / medians["cross-entropy"] for method, ms in medians.items()},
        "ratio of graphs": {
            method: ms / medians["cross-entropy, CUDA graph"]
            for method, ms in medians.items()
            if method.endswith("graph")
        },
        "said": reports,
        "failed": {},
    }
