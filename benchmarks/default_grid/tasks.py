"""Tasks of the grid: data sets, numbers of training samples and steps, and flipped labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

import widemargin as wm
from widemargin.data import Samples

TEST = 2000
"""At most so many test samples."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """`train` samples of `data`, a share `flips` of them with the label of another class, and `steps` of training."""

    data: str
    train: int
    steps: int
    classes: int = 10
    flips: float = 0.0
    is_image: bool = True


TASKS = {
    "digits": Task(data="digits", train=600, steps=400),
    "mnist-500": Task(data="mnist", train=500, steps=400),
    "mnist-2000-flips": Task(data="mnist", train=2000, steps=900, flips=0.4),
    "fashion-500": Task(data="fashion-mnist", train=500, steps=400),
    "fashion-2000-flips": Task(data="fashion-mnist", train=2000, steps=900, flips=0.4),
    "cifar10-1000": Task(data="cifar10", train=1000, steps=600),
    "cifar10-3000-flips": Task(data="cifar10", train=3000, steps=900, flips=0.4),
    "cancer": Task(data="breast_cancer", train=200, steps=300, classes=2, is_image=False),
    "wine": Task(data="wine", train=60, steps=200, classes=3, is_image=False),
    "iris": Task(data="iris", train=45, steps=200, classes=3, is_image=False),
}


FILES = {"mnist": "mnist.npz", "fashion-mnist": "fashion.npz", "cifar10": "cifar.npz"}
"""Image sets, and the files that hold them where they are no releases."""


@cache
def load(name: str, seed: int, folder: Path | None, device: str) -> tuple[Samples, Samples]:
    """Training and test samples of a task, drawn by the seed and standardised by the training samples.

    Images by the mean and deviation of each channel, tables by those of each feature. Of image sets the test
    samples are the first ones of the test set, of the others all that are not for training.
    """
    task = TASKS[name]
    if task.data in FILES:
        every, test = load_images(task.data, folder)
        train = wm.data.subset(every, count=task.train, seed=seed)
        test = test.select(torch.arange(min(TEST, len(test))))
    else:
        every = load_table(task.data)
        train, test = wm.data.holdout(every, len(every) - task.train, seed)
    if task.flips:
        train = wm.data.flip_labels(train, task.flips, seed, task.classes)
    dims = (0, 2, 3) if task.is_image else (0,)
    mean, deviation = train.x.mean(dim=dims, keepdim=True), train.x.std(dim=dims, keepdim=True) + 1e-6
    first, second = (replace(part, x=(part.x - mean) / deviation, index=None).to(device) for part in (train, test))
    return first, second


@cache
def load_images(data: str, folder: Path | None) -> tuple[Samples, Samples]:
    """Training and test images in [0, 1]: of a file of `FILES` in the folder, else of `wm.data.load`."""
    file = None if folder is None else folder / FILES[data]
    if file is None or not file.exists():
        given = wm.data.load(data, root=folder)
        return given.train, given.test
    with np.load(file) as arrays:
        x, y, test_x, test_y = (torch.from_numpy(arrays[key]) for key in ("x", "y", "tx", "ty"))
    return Samples(x.float() / 255, y.long()), Samples(test_x.float() / 255, test_y.long())


@cache
def load_table(data: str) -> Samples:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{data}")()
    x = torch.from_numpy(bunch.data).float()
    return Samples(x.view(-1, 1, 8, 8) if data == "digits" else x, torch.from_numpy(bunch.target).long())
