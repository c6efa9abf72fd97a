"""A step of `fit`, optimizer and all, with and without a CUDA graph: the MNIST CNN, which waits for launches."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from widemargin import models
from widemargin.bench.cases import CNN
from widemargin.bench.settings import Settings
from widemargin.bench.timing import finish
from widemargin.losses import CrossEntropy, MarginLoss
from widemargin.training import Sgd, fit

LABEL = "MNIST CNN in fit"
BATCH, STEPS = 128, 50
SHORT, LONG = 1, 5
"""Epochs of the two trainings whose difference is told, so that what a training does once is not in it."""


def fitted(settings: Settings) -> dict[str, Any]:
    """Milliseconds of a step of `fit` by cross-entropy and by a margin loss, as it comes and as a CUDA graph."""
    x, y = torch.rand(BATCH * STEPS, 1, 28, 28), torch.randint(10, (BATCH * STEPS,))
    losses = {"cross-entropy": CrossEntropy(), "margin loss": MarginLoss(at=CNN)}
    said: dict[str, str] = {}

    def seconds(name: str, epochs: int, graph: bool) -> float:
        torch.manual_seed(0)
        model = models.build("elsayed-mnist-cnn", classes=10)
        start = time.perf_counter()
        done = fit(
            model,
            (x, y),
            loss=losses[name],
            optimizer=Sgd(lr=0.01, momentum=0.9),
            epochs=epochs,
            batch_size=BATCH,
            measure_every=None,
            accelerator=settings.device.split(":")[0],
            graph=graph,
            progress=False,
        )
        finish(settings.device)
        if "backward" in done.settings:
            said[f"{name}{', CUDA graph' if graph else ''}"] = done.settings["backward"]
        return time.perf_counter() - start

    ways = {f"{name}{', CUDA graph' if graph else ''}": (name, graph) for graph in (False, True) for name in losses}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(settings.rounds + 1):
        for way, (name, graph) in ways.items():
            took = seconds(name, LONG, graph) - seconds(name, SHORT, graph)
            if number:  # the first round warms up
                times[way].append(1e3 * took / ((LONG - SHORT) * STEPS))
    taken = {way: statistics.median(values) for way, values in times.items()}
    return {
        "label": LABEL,
        "network": {"name": "elsayed-mnist-cnn", "classes": 10},
        "precision": "fp32",
        "batch": BATCH,
        "places": list(CNN),
        "milliseconds": taken,
        "ratio": {way: took / taken["cross-entropy"] for way, took in taken.items()},
        "ratio of graphs": {
            way: took / taken["cross-entropy, CUDA graph"] for way, took in taken.items() if way.endswith("graph")
        },
        "said": said,
        "failed": {},
    }
