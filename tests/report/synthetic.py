"""Results with everything in them that a page can show, drawn from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from widemargin.report import png

LABELS = ("cross-entropy", "hinge", "ODN", "large margin, l_2", "Jacobian regularizer")


def result(
    labels: tuple[str, ...] = LABELS, *, places: tuple[str, ...] = ("input", "conv1", "fc1"), seed: int = 0
) -> dict[str, Any]:
    """One arm per label, with every section."""
    return {
        "title": "Five losses on 250 images",
        "subtitle": "mnist-5k: 250 images to train on, 4,750 to test on, seed 0",
        "norm": "l_2",
        "attack": {"name": "FGSM", "norm": "l_inf", "samples": 1000, "shown": [0.05, 0.1]},
        "arms": [arm(i, label, places, np.random.default_rng((seed, i))) for i, label in enumerate(labels)],
        "settings": {"epochs": 40, "optimizer": "Adam", "lr": 1e-3, "batch size": 50, "places": list(places)},
        "versions": {"widemargin": "0.1.0", "torch": "2.13.0", "python": "3.11.5"},
        "hardware": {"device": "cpu", "threads": 2},
    }


def arm(i: int, label: str, places: tuple[str, ...], random: np.random.Generator) -> dict[str, Any]:
    mean = 0.7 + 0.35 * i
    epsilons = np.linspace(0, 0.3, 13)
    margins = {
        place: random.normal(mean / (k + 1), 0.45 + 0.05 * i, 2000).round(4).tolist() for k, place in enumerate(places)
    }
    rows = [row for epoch in range(1, 41) for row in moment(i, epoch, mean, places)]
    return {
        "name": f"arm-{i}",
        "label": label,
        "note": f"Loss(number={i})",
        "samples": 2000,
        "accuracy": 0.9 + 0.01 * i,
        "margins": margins,
        "curve": [
            {"epsilon": float(e), "accuracy": float(0.9 * np.exp(-((e / (0.05 + 0.03 * i)) ** 2)))} for e in epsilons
        ],
        "history": rows,
        "sizes": [{"samples": n, "accuracy": 1 - 0.5 / (n / 25 + i)} for n in (50, 100, 250, 1000)],
        "hardest": [
            {
                "index": 7 * k,
                "label": k % 10,
                "prediction": (k + k % 3) % 10,
                "margin": -0.9 + 0.1 * k,
                "image": random.random((28, 28)).round(3).tolist(),
            }
            for k in range(12)
        ],
        "seconds": 3.5 + i,
    }


def moment(i: int, epoch: int, mean: float, places: tuple[str, ...]) -> list[dict[str, Any]]:
    """Two rows as the history of `fit` has them."""
    told = []
    for split, best in (("train", 1.0), ("validation", 0.9)):
        distances = {
            f"distance at {place}": mean * best / (k + 1) * epoch / (epoch + 4) for k, place in enumerate(places)
        }
        accuracy = best - (0.8 - 0.05 * i) / epoch
        told.append(
            {"epoch": epoch, "step": 5 * epoch, "split": split, "loss": 2.3 / epoch, "accuracy": accuracy} | distances
        )
    return told


def picture(classes: tuple[str, str], *, raster: bool = False) -> dict[str, Any]:
    """A square in two halves, with everything that can be drawn in it."""
    ground: dict[str, Any] = {
        "outlines": True,
        "parts": [
            {"corners": [[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]], "label": 0, "slope": 1.5},
            {"corners": [[0.5, 0.0], [1.0, 0.0], [1.0, 1.0], [0.5, 1.0]], "label": 1, "slope": 2.0},
        ],
        "boundary": [[0.5, 0.0, 0.5, 1.0]],
        "ellipses": [[[0.2, 0.2], [0.3, 0.2], [0.2, 0.3], [0.2, 0.2]]],
        "curves": [{"name": "r = 1", "points": [[0.1, 0.1], [0.2, 0.4], [0.1, 0.1]]}],
    }
    if raster:
        ground = {"runs": [[0.0, 0.5, 0.0, 1.0, 0], [0.5, 1.0, 0.0, 1.0, 1]]}
    image = png.data_uri([[0.0, 1.0], [1.0, 0.0]])
    panel = {
        "title": "A square",
        "text": "In two halves.",
        "box": [0.0, 1.0, 0.0, 1.0],
        "classes": list(classes),
        "points": [
            {"x": 0.25, "y": 0.3, "label": 0, "group": "training", "note": "distance 0.25"},
            {"x": 0.75, "y": 0.5, "label": 1, "group": "test", "image": image},
        ],
        **ground,
    }
    return {"title": "A picture", "subtitle": "made up", "panels": [panel], "settings": {"seed": 0}}
